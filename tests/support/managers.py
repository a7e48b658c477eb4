"""Real manager processes on a real PostgreSQL, each with a database of its own."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import requests

from myqueue.supervisor.ports import PortKeeper
from tests.support.forked import ForkedProcess
from tests.support.waiting import wait_until

TIMEOUT_SECONDS = 10


class ManagerProcess:
    """One manager that can be started, stopped, killed and started again on the same port and database."""

    def __init__(self, node_id: int, urls: Mapping[int, str], database_url: str, folder: Path, flags: tuple[str, ...] = ()) -> None:
        self.node_id, self.url, self.database_url = node_id, urls[node_id], database_url
        self.log_file = folder / f"manager-{node_id}.log"
        self._managers = ",".join(f"{number}={url}" for number, url in urls.items())
        self._flags = flags
        self.process: ForkedProcess | None = None

    def start(self, *, faults: str = "") -> None:
        host, port = self.url.removeprefix("http://").split(":")
        environment = {**os.environ, "MYQUEUE_MANAGER_DATABASE_URL": self.database_url}
        if faults:
            environment |= {"MYQUEUE_FAULT": faults, "MYQUEUE_TEST_MODE": "1"}
        arguments = ["--host", host, "--port", port, "--node-id", str(self.node_id), "--managers", self._managers, *self._flags]
        with self.log_file.open("ab") as log:
            self.process = ForkedProcess("manager", arguments, environment=environment, log=log)

    def ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"manager {self.node_id} ended with {self.process.returncode}:\n{self.log()}"
        try:
            return requests.get(f"{self.url}/readyz", timeout=2).status_code == 200
        except requests.RequestException:
            return False

    def readiness(self) -> dict[str, Any]:
        """What /readyz says; nothing where it does not answer."""
        try:
            return requests.get(f"{self.url}/readyz", timeout=1).json()
        except (requests.RequestException, ValueError):
            return {}

    def kill(self) -> None:
        """As the machine would: the whole process group, at once."""
        self._signal(signal.SIGKILL)

    def stop(self) -> None:
        self._signal(signal.SIGTERM)

    def end(self, number: signal.Signals) -> None:
        """As a shell or a supervisor would: the signal goes to the process itself, which ends its workers."""
        assert self.process is not None
        self.process.send_signal(number)
        assert self.process.wait(TIMEOUT_SECONDS) == 0, self.log()

    def pause(self) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGCONT)

    def wait_dead(self) -> int:
        """Until a worker's death (a fault point) was noticed; then the rest is killed too."""
        assert self.process is not None
        wait_until(lambda: "fault point" in self.log(), what=f"a fault point of manager {self.node_id}")
        self.kill()
        return self.process.returncode

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")[-20_000:] if self.log_file.exists() else ""

    def _signal(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, number)
            self.process.wait(TIMEOUT_SECONDS)
            # Its workers end a moment after it; until then a request may still reach them, and its outcome be unknown.
            wait_until(lambda: not self._listens(), what=f"the end of manager {self.node_id}'s workers")

    def _listens(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(TIMEOUT_SECONDS)
            return probe.connect_ex(("127.0.0.1", int(self.url.rpartition(":")[2]))) == 0

    # --- speaking to it ---

    def call(self, method: str, path: str, json: Any = None, **more: Any) -> requests.Response:
        return requests.request(method, self.url + path, json=json, timeout=TIMEOUT_SECONDS, **more)

    def post(self, path: str, json: Any = None, **more: Any) -> requests.Response:
        return self.call("POST", path, json, **more)

    def get(self, path: str, json: Any = None, **more: Any) -> requests.Response:
        return self.call("GET", path, json, **more)

    def applied_index(self) -> int:
        return self.post("/internal/heartbeats", {}).json()["version"]

    def committed_index(self) -> int:
        """On the leader: what was committed before this was called, its predecessors' commands too, which it may not have applied yet."""
        answer = self.post("/internal/heartbeats", {"fresh": True})
        assert answer.status_code == 200, answer.text
        return answer.json()["version"]


class ManagerCluster:
    """Several managers, which elect their leader themselves."""

    def __init__(self, managers: list[ManagerProcess]) -> None:
        self.managers = managers

    @property
    def write(self) -> ManagerProcess:
        """Who leads: the one that says so in the highest term, once there is one."""
        return wait_until(self.leader, timeout_seconds=20, what="a leader")

    @property
    def reads(self) -> list[ManagerProcess]:
        leader = self.write
        return [manager for manager in self.managers if manager is not leader]

    def leader(self) -> ManagerProcess | None:
        """Who says now that it leads."""
        said = [(answer["term"], manager.node_id, manager) for manager in self.managers if (answer := manager.readiness()).get("role") == "write"]
        return max(said)[2] if said else None

    def start(self) -> None:
        for manager in self.managers:
            manager.start()
        self.wait_ready()

    def wait_ready(self) -> None:
        for manager in self.managers:
            wait_until(manager.ready, timeout_seconds=20, what=f"manager {manager.node_id} to be ready; its log:\n{manager.log()}")

    def stop(self) -> None:
        for manager in self.managers:
            if manager.process is not None and manager.process.poll() is None:
                manager.process.terminate()
        for manager in self.managers:
            manager.resume() if manager.process is not None and manager.process.poll() is None else None
            manager.stop()


@contextmanager
def manager_cluster(postgres: Any, *, managers: int = 3, flags: tuple[str, ...] = ()) -> Iterator[ManagerCluster]:
    """Managers with empty databases, not started yet; stopped and gone afterwards."""
    with ExitStack() as stack:
        keeper = stack.enter_context(PortKeeper())
        urls = {node_id: f"http://127.0.0.1:{keeper.pick()}" for node_id in range(1, managers + 1)}
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="myqueue-managers-")))
        databases = {node_id: stack.enter_context(postgres.database("manager")) for node_id in urls}
        cluster = ManagerCluster([ManagerProcess(node_id, urls, databases[node_id], folder, flags) for node_id in urls])
        try:
            yield cluster
        finally:
            for manager in cluster.managers:
                manager.kill()


def register(manager: ManagerProcess, stub: Any) -> int:
    """Present a broker (a stub or what looks like one) to a manager; its broker id."""
    answer = manager.post("/internal/brokers", stub.description)
    assert answer.status_code == 200, answer.text
    stub.broker_id, stub.cluster_id = answer.json()["broker_id"], answer.json()["cluster_id"]
    return stub.broker_id
