"""A real ``python -m broker`` for tests, beside a stand-in for the managers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import requests

from myqueue.protocol import routes
from myqueue.supervisor.ports import PortKeeper

from .forked import ForkedProcess
from .waiting import wait_until


class BrokerProcess:
    """One broker. ``call`` speaks JSON with it."""

    def __init__(self, database_url: str, managers: str, *, arguments: tuple[str, ...] = (), faults: str = "") -> None:
        self._keeper = PortKeeper()
        self.port = self._keeper.pick()
        self.url = f"http://127.0.0.1:{self.port}"
        self.http = requests.Session()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in stop
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MYQUEUE_")}
        environment |= {"MYQUEUE_BROKER_DATABASE_URL": database_url, "MYQUEUE_TEST_MODE": "1"} | ({"MYQUEUE_FAULT": faults} if faults else {})
        self.process = ForkedProcess("broker", ["--port", str(self.port), "--managers", managers, *arguments], environment=environment, log=self._log)

    @property
    def log(self) -> str:
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), size, 0).decode(errors="replace")  # the place in the file is the broker's own

    def wait_ready(self) -> BrokerProcess:
        def ready() -> bool:
            assert self.process.poll() is None, f"the broker ended with {self.process.returncode}"
            try:
                return self.http.get(self.url + routes.READYZ, timeout=2).status_code == 200
            except requests.RequestException:
                return False

        try:
            wait_until(ready, timeout_seconds=20, what="the broker to be ready")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log}") from None
        return self

    def call(self, method: str, path: str, body: Any = None, *, status: int = 200, headers: Mapping[str, str] | None = None,
             timeout_seconds: float = 40.0, **arguments: Any) -> Any:
        """Send JSON (or bytes) and get JSON; the status must be the one expected."""
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if raw is not None else {}
        answer = self.http.request(method, self.url + path, data=raw, params=arguments, headers={**kind, **(headers or {})}, timeout=timeout_seconds)
        assert answer.status_code == status, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()

    def appoint(self, topic: str, *, topic_id: int = 1, partitions: int = 1, epoch: int = 1, config: Mapping[str, int] | None = None) -> None:
        """Make this broker the leader of a topic's partitions, as the write manager does."""
        who = self.call("GET", routes.I_IDENTITY)
        results = self.call("POST", routes.I_APPOINT, {"appointments": [
            {"topic_id": topic_id, "topic": topic, "config": dict(config or {}), "partition": number, "epoch": epoch, "replication_factor": 1,
             "voters": {str(who["broker_id"]): who["disk_id"]}} for number in range(partitions)]})["results"]
        assert all(result["ok"] for result in results), results

    def tell_stacks(self) -> None:
        """Have the log say what each thread of the running broker is doing: of gunicorn's master and of its worker."""
        before = len(self.log)
        self.process.tell_stacks()
        wait_until(lambda: self.log.count("Current thread", before) >= 2, what="the stacks")

    def kill(self) -> None:
        """As when the machine's power goes."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)

    def stop(self) -> None:
        self.http.close()  # an idle connection makes a stopping worker linger
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"the broker did not stop:\n{self.log}") from None
        self._log.close()
        self._keeper.let_go()


@contextmanager
def broker_process(database_url: str, managers: str, *, arguments: tuple[str, ...] = (), faults: str = "") -> Iterator[BrokerProcess]:
    """A broker that is ready, and gone afterwards."""
    broker = BrokerProcess(database_url, managers, arguments=arguments, faults=faults)
    try:
        yield broker.wait_ready()
    finally:
        broker.stop()
