"""Speaking to the supervisor: what it must withstand."""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from myqueue.clock import SystemClock
from myqueue.errors import ConfigurationError, UnavailableError
from myqueue.supervisor import cluster as clusters
from myqueue.supervisor.cluster import Cluster
from myqueue.supervisor.control import LINE_BYTES_MAX, ControlServer, ask
from myqueue.supervisor.folder import DataFolder
from tests.support.waiting import wait_until


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[DataFolder]:
    """A folder whose control server answers every command with its name, and refuses "bad"."""
    folder = DataFolder(tmp_path)
    folder.run.mkdir()
    selector = selectors.DefaultSelector()

    def answer(request: dict) -> dict:
        if request["command"] == "bad":
            raise ConfigurationError("that is bad")
        return {"did": request["command"]}

    server = ControlServer(selector, SystemClock(), answer)
    server.announce(folder)
    stop = threading.Event()

    def loop() -> None:
        while not stop.is_set():
            for key, _ in selector.select(0.05):
                key.data()

    thread = threading.Thread(target=loop)
    thread.start()
    yield folder
    stop.set()
    thread.join(10)
    server.close()
    selector.close()


def talk(folder: DataFolder, sent: bytes) -> bytes:
    port = json.loads(folder.control_file.read_text())["port"]
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.sendall(sent)
        with connection.makefile("rb") as answer:
            return answer.read()


def test_a_command_is_answered(folder: DataFolder):
    """One line in, one line out."""
    assert ask(folder, "hello") == {"did": "hello"}


def test_a_refusal_comes_back_as_an_error(folder: DataFolder):
    """With its own sentence."""
    with pytest.raises(ConfigurationError, match="that is bad"):
        ask(folder, "bad")


@pytest.mark.parametrize("line", [b'{"command": "hello"}\n', b'{"command": "hello", "token": "guess"}\n', b'{"token": null}\n', b"[]\n", b"7\n"])
def test_without_the_token_nothing_is_done(folder: DataFolder, line: bytes):
    """Anybody on the machine can connect; only who can read the folder is heard."""
    assert json.loads(talk(folder, line)) == {"error": "the token is wrong"}


def test_rubbish_is_answered(folder: DataFolder):
    """A line that is no JSON is said to be none, and the next caller is served."""
    assert "error" in json.loads(talk(folder, b"GET / HTTP/1.1\r\n\r\n"))
    assert ask(folder, "hello") == {"did": "hello"}


def test_an_endless_line_is_cut(folder: DataFolder):
    """Memory is bounded: the connection ends without an answer."""
    with contextlib.suppress(ConnectionError):  # cut while we were still sending
        assert talk(folder, b"x" * (LINE_BYTES_MAX + 2)) == b""
    assert ask(folder, "hello") == {"did": "hello"}


def test_who_says_nothing_keeps_nobody_waiting(folder: DataFolder):
    """A silent connection is just one of several."""
    port = json.loads(folder.control_file.read_text())["port"]
    with socket.create_connection(("127.0.0.1", port), 5):
        assert ask(folder, "hello") == {"did": "hello"}


def test_no_supervisor_is_one_sentence(tmp_path: Path):
    """Without a control file there is nobody to ask."""
    with pytest.raises(UnavailableError, match="does not answer"):
        ask(DataFolder(tmp_path), "hello")


@pytest.mark.timeout(30)
def test_a_supervisor_that_has_only_just_begun_is_told_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It owns the folder and does not say yet how it is reached: who takes the cluster down then asks again, and kills nobody."""
    folder, asked, told, over = DataFolder(tmp_path), threading.Event(), threading.Event(), threading.Event()
    folder.run.mkdir()

    def ask_noted(folder: DataFolder, command: str, **arguments: object) -> dict:
        try:
            return ask(folder, command, **arguments)
        finally:
            asked.set()

    def supervise() -> None:
        with folder.supervised(), selectors.DefaultSelector() as selector:
            assert asked.wait(10)
            server = ControlServer(selector, SystemClock(), lambda request: told.set() or {"phase": request["command"]})
            server.announce(folder)
            while not told.is_set() and not over.is_set():
                for key, _ in selector.select(0.5):
                    key.data()
            server.close()

    monkeypatch.setattr(clusters, "ask", ask_noted)
    monkeypatch.setattr(Cluster, "_kill_supervisor", lambda self: None)  # it would be this process
    thread = threading.Thread(target=supervise)
    thread.start()
    wait_until(folder.is_supervised, what="the supervisor")
    try:
        Cluster(tmp_path).down(10)
    finally:
        over.set()
        thread.join(10)
    assert told.is_set()
