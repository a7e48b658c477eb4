"""Nodes forked from a process that has loaded what every node loads first.

They are the same programs as by ``python -m``, in processes and sessions of their own. Only the second of computing goes that each of some hundred
starts would spend on loading the same libraries. Our own modules are not loaded before: each node loads them itself.
"""

from __future__ import annotations

import array
import faulthandler
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ("flask", "gunicorn.app.base", "gunicorn.arbiter", "gunicorn.workers.gthread", "psycopg2.extras", "requests", "sqlalchemy")
MESSAGE_BYTES_MAX = 1 << 17
START_SECONDS = 60.0
STACKS_SIGNAL = signal.SIGRTMIN  # what a process answers with the stacks of its threads on stderr; gunicorn has a use for the others


class ForkedProcess:
    """A running module. What it says goes to ``log``; the methods are those of ``subprocess.Popen``."""

    def __init__(self, module: str, arguments: Sequence[str], *, environment: Mapping[str, str], log: IO[bytes]) -> None:
        order = {"module": module, "arguments": list(arguments), "environment": dict(environment)}
        self.pid: int = _forge().ask({"start": order}, log.fileno())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = _forge().ask({"poll": self.pid})
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Raises subprocess.TimeoutExpired."""
        try:
            wait_until(lambda: self.poll() is not None, timeout_seconds=timeout, what=f"the end of process {self.pid}")
        except AssertionError as error:
            raise subprocess.TimeoutExpired(str(self.pid), timeout) from error
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def tell_stacks(self) -> None:
        """Have it and what it forked write to the log what each of their threads is doing."""
        os.killpg(self.pid, STACKS_SIGNAL)


class _Forge:
    """The process that forks, as this one speaks to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(START_SECONDS)
        with theirs:  # the process ends with our end of the socket
            self._process = subprocess.Popen([sys.executable, "-m", "tests.support.forked"], cwd=ROOT, stdin=theirs)

    def ask(self, request: dict[str, Any], *files: int) -> Any:
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], files)
            return json.loads(self._socket.recv(MESSAGE_BYTES_MAX))


_made: list[_Forge] = []
_making = threading.Lock()


def _forge() -> _Forge:
    with _making:
        if not _made:
            _made.append(_Forge())
        return _made[0]


# --- the process that forks ---


def _main() -> None:
    for name in LIBRARIES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests; they end what they started
    with socket.socket(fileno=os.dup(0)) as asker:
        while order := _next(asker):
            _become(order)


def _next(asker: socket.socket) -> tuple[dict[str, Any], int] | None:
    """Answer until this is a new process, which gets what it is to run; None when nobody asks any more."""
    while True:
        message, ancillary, _, _ = asker.recvmsg(MESSAGE_BYTES_MAX, socket.CMSG_SPACE(array.array("i").itemsize))
        if not message:
            return None
        request = json.loads(message)
        if "poll" in request:
            pid, status = os.waitpid(request["poll"], os.WNOHANG)
            asker.send(json.dumps(os.waitstatus_to_exitcode(status) if pid else None).encode())
            continue
        log = array.array("i", ancillary[0][2])[0]
        child = os.fork()
        if not child:
            asker.close()
            return request["start"], log
        os.close(log)
        asker.send(json.dumps(child).encode())


def _become(order: tuple[dict[str, Any], int]) -> None:
    """Run the module as Python would, to the end of this process."""
    what, log = order
    os.setsid()
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    faulthandler.register(STACKS_SIGNAL, file=2)
    os.environ.clear()
    os.environ.update(what["environment"])
    sys.argv = [what["module"], *what["arguments"]]
    runpy.run_module(what["module"], run_name="__main__", alter_sys=True)
    raise SystemExit(0)


if __name__ == "__main__":
    _main()
