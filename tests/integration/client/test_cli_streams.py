"""The command line with standard streams that are full or closed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from myqueue.supervisor.folder import Saved
from myqueue.supervisor.spec import ClusterSpec

ROOT = Path(__file__).parents[3]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A cluster that is down, with a line in a log."""
    (tmp_path / "cluster.json").write_text(json.dumps(Saved("c1", ClusterSpec(), str(tmp_path), {}, (9092,)).to_json()))
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "broker-1.log").write_text("a line\n")
    return tmp_path


def logs(folder: Path, streams: str) -> subprocess.CompletedProcess[str]:
    command = f'exec "$0" -m myqueue cluster logs --data "$1" broker-1 {streams}'
    return subprocess.run(["bash", "-c", command, sys.executable, str(folder)], cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=30, check=False)


def test_output_that_finds_no_room_is_one_sentence_and_1(folder: Path) -> None:
    """No traceback, neither from the write nor from the interpreter's own flush at the end."""
    ended = logs(folder, ">/dev/full")
    assert (ended.returncode, ended.stderr) == (1, "myqueue: the output could not be written: No space left on device\n")


def test_closed_streams_are_empty_ones(folder: Path) -> None:
    """``<&- >&-`` is odd, but no reason for a traceback."""
    ended = logs(folder, "<&- >&-")
    assert (ended.returncode, ended.stderr) == (0, "")
