"""Private servers on loopback: children of this process that end with it, however it ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from myqueue.supervisor.process import NodeProcess
from tests.support.waiting import wait_until

START_SECONDS = 60.0
END_SECONDS = 15.0
HOST = "127.0.0.1"


class NotInstalledError(Exception):
    """What was asked for is not on this machine."""


def program(*names: str) -> str:
    """The first of these programs that is there, by name or path. Raises NotInstalledError."""
    for name in names:
        if found := shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin"):
            return found
    raise NotInstalledError(f"{Path(names[0]).name} is not installed")


def start_server(what: str, command: Sequence[str], *, folder: Path, port: int, environment: Mapping[str, str] = os.environ,
                 stack: ExitStack) -> int:
    """Start a server that the stack ends; its process id once something listens on the port.

    Raises:
        AssertionError: it ended, or did not listen in time; says what it wrote last.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "server.log"
    process = NodeProcess(command, environment=environment, folder=folder, log_file=log)
    stack.callback(_end, process)

    def listens() -> bool:
        assert process.exit_code() is None, f"{what} ended: {log.read_text(errors='replace')[-1000:]}"
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1):
            return True
        return False

    wait_until(listens, timeout_seconds=START_SECONDS, what=f"{what} to listen", interval_seconds=0.05)
    return process.pid


def _end(process: NodeProcess) -> None:
    """Ask it to end, then end it and all below it."""
    deadline = time.monotonic() + END_SECONDS
    if process.exit_code() is None:
        process.ask_to_end(signal.SIGTERM)
    while process.exit_code() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    if process.exit_code() is None:
        process.kill()
        wait_until(lambda: process.exit_code() is not None, what="a killed server to be gone")
