"""One supervised node and its real process: death, deafness and trees."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from myqueue.clock import SystemClock
from myqueue.supervisor.node import DONE, DOWN, UP, WAITING, Node
from myqueue.supervisor.plan import NodeSpec
from myqueue.supervisor.process import NodeProcess, descendants, is_alive, kill_trees
from myqueue.supervisor.restarts import RestartPolicy
from tests.support.waiting import wait_until

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
FAMILY = ("import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True); "
          "print('born', flush=True); time.sleep(60)")
# The main thread ends and leaves another one behind: a zombie that holds its socket. 60 and 93 are Linux's numbers of exit for one thread.
LEFT_BEHIND = ("import ctypes, platform, socket, threading; door = socket.create_server(('127.0.0.1', 0)); "
               "threading.Thread(target=threading.Event().wait, args=(60,)).start(); print(door.getsockname()[1], flush=True); "
               "ctypes.CDLL(None).syscall({'x86_64': 60, 'aarch64': 93}[platform.machine()], 0)")
QUICK = RestartPolicy(first_seconds=0.05, factor=2, most_seconds=0.2)


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator:
    """Makes nodes that run a piece of Python; whatever is left of them is killed."""
    nodes: list[Node] = []

    def make(program: str, **more: object) -> Node:
        spec = NodeSpec(name="n", kind="broker", stage=0, command=(sys.executable, "-c", program), environment={},
                        log_file=str(tmp_path / "n.log"), **more)
        nodes.append(Node(spec, SystemClock(), folder=tmp_path, environment=dict(os.environ), policy=QUICK))
        return nodes[-1]

    yield make
    for node in nodes:
        node.kill()
        wait_until(lambda node=node: node.tick() or node.state in (DOWN, DONE), what="the node to end")


def ticked(node: Node, state: str) -> bool:
    node.tick()
    return node.state == state


def says(tmp_path: Path, word: str) -> bool:
    return word in (tmp_path / "n.log").read_text()


def test_a_deaf_node_is_killed_in_the_end(make_node, tmp_path: Path):
    """Who does not hear SIGTERM is killed when its time is over."""
    node = make_node(DEAF, stop_seconds=0.3)
    node.start()
    wait_until(lambda: says(tmp_path, "deaf"), what="the node to be deaf")
    node.stop()
    wait_until(lambda: ticked(node, DOWN), what="the kill")
    assert node.last_exit_code == -9 and node.exits == 0


def test_a_node_that_cannot_live_is_tried_ever_more_slowly(make_node):
    """Each death by itself counts; the node comes again after a wait."""
    node = make_node("import sys; sys.exit(4)")
    node.start()
    wait_until(lambda: ticked(node, WAITING) and node.exits >= 3, what="three deaths")
    assert node.last_exit_code == 4
    node.stop()
    assert node.state == DOWN


def test_a_job_that_ended_well_is_done(make_node):
    """Done is not dead: it is not started again."""
    node = make_node("pass", once=True)
    node.start()
    wait_until(lambda: ticked(node, DONE), what="the job")
    assert node.is_ready() and node.exits == 0 and node.tick() is None


def test_a_start_while_stopping_comes_after_the_end(make_node, tmp_path: Path):
    """The old process is gone before the new one begins."""
    node = make_node("import time; time.sleep(60)")
    node.start()
    first = node.pid
    node.stop()
    node.start()
    wait_until(lambda: ticked(node, UP), what="the second start")
    assert node.pid != first and not is_alive(first)


def test_a_kill_takes_the_whole_family(make_node, tmp_path: Path):
    """Children in sessions of their own are part of the node."""
    node = make_node(FAMILY)
    node.start()
    wait_until(lambda: says(tmp_path, "born"), what="the child")
    family = [node.pid, *descendants(node.pid)]
    assert len(family) == 2
    node.kill()
    wait_until(lambda: not any(map(is_alive, family)), what="the family to be gone")


def test_a_node_is_down_when_all_of_it_has_ended(make_node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A kill takes its time where the machine is busy: until the last process is gone the node's address may take connections."""
    node = make_node(FAMILY)
    node.start()
    wait_until(lambda: says(tmp_path, "born"), what="the child")
    root, [child] = node.pid, descendants(node.pid)

    def kill_first(roots: list[int]) -> list[int]:
        """The child's signal is on its way yet."""
        os.kill(roots[0], signal.SIGKILL)
        return [root, child]

    monkeypatch.setattr("myqueue.supervisor.process.kill_trees", kill_first)
    node.kill()
    wait_until(lambda: not is_alive(root), what="the first process to end")
    assert not ticked(node, DOWN) and is_alive(child)
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: ticked(node, DOWN), what="the node to be down")
    assert not is_alive(child) and node.last_exit_code == -9


def test_a_process_runs_until_its_last_thread_has_ended():
    """A zombie by its main thread alone still takes connections."""
    with subprocess.Popen([sys.executable, "-c", LEFT_BEHIND], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        try:
            wait_until(lambda: "State:\tZ" in Path(f"/proc/{process.pid}/status").read_text(), what="the main thread to end")
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            assert is_alive(process.pid)
        finally:
            process.kill()
        process.wait(10)
        assert not is_alive(process.pid)


def test_a_large_log_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """One older file is kept; the new one is for the owner only."""
    monkeypatch.setattr("myqueue.supervisor.process.LOG_BYTES_MAX", 10)
    log = tmp_path / "n.log"
    log.write_text("x" * 11)
    process = NodeProcess([sys.executable, "-c", "print('new')"], environment=dict(os.environ), folder=tmp_path, log_file=log)
    wait_until(lambda: process.exit_code() is not None, what="the process")
    assert (log.read_text(), (tmp_path / "n.log.1").read_text()) == ("new\n", "x" * 11)
    assert log.stat().st_mode & 0o077 == 0


def test_descendants_are_found_over_generations():
    """Grandchildren too."""
    shell = subprocess.Popen(["bash", "-c", "bash -c 'sleep 60 & wait' & wait"])
    try:
        tree = wait_until(lambda: (found := descendants(shell.pid)) and len(found) >= 2 and found, what="the grandchild")
        assert all(map(is_alive, tree))
    finally:
        kill_trees([shell.pid])
        shell.wait(10)
