"""One service as a real process: started, waited for, ended, its log kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import requests

from myqueue.supervisor.ports import PortKeeper
from tests.support.forked import ForkedProcess
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]


def environment(extra: Mapping[str, str] = {}) -> dict[str, str]:
    """What a node gets: nothing of ours that could change its settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MYQUEUE_")} | {"PYTHONPATH": str(ROOT), **extra}


def run_to_end(arguments: Sequence[str], *, extra: Mapping[str, str] = {}, timeout_seconds: float = 20) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command that must end by itself."""
    done = subprocess.run([sys.executable, *arguments], env=environment(extra), cwd=ROOT, capture_output=True, text=True, timeout=timeout_seconds)
    return done.returncode, done.stdout, done.stderr


class Service:
    """A process that serves HTTP on loopback."""

    def __init__(self, module: str, arguments: Sequence[str], *, port: int, extra: Mapping[str, str] = {}) -> None:
        self.port, self.url = port, f"http://127.0.0.1:{port}"
        self._log = tempfile.NamedTemporaryFile(prefix="myqueue-service-", suffix=".log")  # noqa: SIM115 - closed by end()
        self.process = ForkedProcess(module, arguments, environment=environment(extra), log=self._log)

    def log(self) -> str:
        return Path(self._log.name).read_text(errors="replace")

    def answers(self, path: str = "/livez") -> bool:
        """True when the path is answered with 200. A process that has ended fails the test with its log."""
        assert self.process.poll() is None, f"the service ended with {self.process.returncode}:\n{self.log()}"
        try:
            return requests.get(self.url + path, timeout=2).status_code == 200
        except requests.RequestException:
            return False

    def workers(self) -> list[int]:
        """The process ids of the master's children."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()] if path.exists() else []

    def terminate(self, *, timeout_seconds: float = 15) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_seconds)

    def end(self) -> None:
        """Whatever state it is in: nothing is left afterwards."""
        if self.process.poll() is None:
            try:
                self.terminate()
            except subprocess.TimeoutExpired:
                for pid in [*self.workers(), self.process.pid]:
                    os.kill(pid, signal.SIGKILL)
                self.process.wait(5)
        self._log.close()


@contextmanager
def service(module: str, *arguments: str, port: int | None = None, extra: Mapping[str, str] = {}, ready: str = "/livez") -> Iterator[Service]:
    """Run ``python -m module --port … arguments`` until the block ends; it is ready when it begins."""
    with PortKeeper() as keeper:
        at = port or keeper.pick()
        running = Service(module, ["--port", str(at), *arguments], port=at, extra=extra)
        try:
            wait_until(lambda: running.answers(ready), timeout_seconds=20, what=f"{module} to answer {ready}")
            yield running
        finally:
            running.end()
