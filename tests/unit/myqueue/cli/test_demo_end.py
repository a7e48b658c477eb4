"""How a demo ends what it has started."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from myqueue.cli.demo import _end_group, _held_back
from myqueue.supervisor.process import descendants, is_alive
from tests.support.waiting import wait_until

# A leader that ends at once, and a child that writes on for a moment: as a shell and the JVM that it started.
SLOW_CHILD = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.5), pathlib.Path(sys.argv[1]).touch(), sys.exit()))
print("up", flush=True)
time.sleep(30)
"""


def test_children_that_outlive_their_leader_are_waited_for(tmp_path: Path) -> None:
    """What they write on their way out is there before the folder is removed, and not after."""
    leader = subprocess.Popen(["bash", "-c", '"$0" -c "$1" "$2" & wait', sys.executable, SLOW_CHILD, str(tmp_path / "late")], start_new_session=True,
                              stdout=subprocess.PIPE)
    assert leader.stdout is not None and b"up\n" == leader.stdout.readline()
    tree = descendants(leader.pid)
    assert tree
    _end_group(leader)
    assert not any(map(is_alive, tree))
    assert (tmp_path / "late").exists()
    leader.stdout.close()
    _end_group(leader)  # again is harmless


def test_a_process_that_ended_by_itself_is_left_alone() -> None:
    process = subprocess.Popen(["true"], start_new_session=True)
    wait_until(lambda: process.poll() is not None, what="it to end")
    _end_group(process)


def test_a_signal_waits_until_the_block_is_over() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), _held_back((signal.SIGINT,)):
        signal.raise_signal(signal.SIGINT)
        done.append("started")
    assert ["started"] == done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
