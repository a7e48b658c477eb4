"""The servers under test: the one that MYQUEUE_BASE_URL names, else a cluster of our own behind its balancer, and one of its managers directly.

Every test uses topics of its own, so that the suite may be run against a cluster with data in it.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.contract import Call
from tests.conformance.face import Face
from tests.support.long import LONG

FOLDER = Path(__file__).parent
GIVEN = os.environ.get("MYQUEUE_BASE_URL", "").rstrip("/")
ENTRANCES = ("given",) if GIVEN else ("balancer", "manager")  # where the managers' calls go in
SERVERS = (*ENTRANCES, "broker")
ANSWERS = "answers"
WHOLE = bool(GIVEN) or LONG  # else some of the table's cases are looked at, and some of the queue face directly: by turns, so that each kind comes
DIRECTLY_ONE_IN = 6


@pytest.fixture(scope="package")
def servers() -> Iterator[dict[str, str]]:
    """The URL of each way to the cluster."""
    if GIVEN:
        yield {"given": GIVEN}
        return
    from myqueue.supervisor import ClusterSpec
    from tests.support.clusters import PATIENT, kinds_with, running_cluster

    with running_cluster(ClusterSpec(brokers=3, managers=3, ports=(0,)), kinds=kinds_with(PATIENT)) as cluster:
        yield {"balancer": cluster.balancer_url, "manager": cluster.node("manager-2")["url"]}


@pytest.fixture(params=ENTRANCES)
def base_url(servers: dict[str, str], request: pytest.FixtureRequest) -> str:
    return servers[request.param]


@pytest.fixture
def face(base_url: str) -> Iterator[Face]:
    """A client of the server under test."""
    with Face(base_url) as client:
        yield client


@pytest.fixture
def topic() -> str:
    """A name that no topic has yet."""
    return new_name()


def new_name() -> str:
    return f"conformance-{secrets.token_hex(6)}"


@dataclass
class World:
    """What the calls of the table are about: a topic of two partitions with a producer and a consumer, one that may grow, and a broker."""

    face: Face
    broker: dict[str, Any]  # that leads partition 0 of the topic
    topic: str
    growing: str
    producer_id: int
    consumer_id: int
    growing_producer_id: int
    growing_consumer_id: int
    observer_id: int
    at_broker: Face = field(init=False)

    def __post_init__(self) -> None:
        self.at_broker = Face(f"http://{self.broker['host']}:{self.broker['port']}")

    def arguments(self, call: Call) -> dict[str, Any]:
        """Good ones for a call, all that it takes; what must be there for it is there afterwards."""
        if call.reads:
            self.face.produce(self.topic, self.producer_id, "m", partition=0)
        values = {
            "topic": new_name() if call.makes else self.growing if call.grows else self.topic, "message": "m", "partition": 0, "partitions": 2,
            "producer_id": self.growing_producer_id if call.grows else self.producer_id, "consumer_id": self.consumer_id, "start": "earliest",
            "request_id": secrets.token_hex(8), "replication_factor": 1, "config": {"retention_ms": 3_600_000}, "host": self.broker["host"],
            "port": self.broker["port"]}
        return {name: values[name] for name in call.arguments}

    def stored(self) -> int:
        """How many messages the topic holds."""
        return self.face.size(self.topic, self.observer_id)


class Worlds(dict[str, World]):
    """One for each entrance, made when it is first asked for; a broker's is that of the first."""

    def __init__(self, servers: dict[str, str], stack: ExitStack) -> None:
        super().__init__()
        self._servers, self._stack = servers, stack

    def __missing__(self, server: str) -> World:
        if server == "broker":
            return self[ENTRANCES[0]]
        face = self._stack.enter_context(Face(self._servers[server]))
        topic, growing = new_name(), new_name()
        producer_id, consumer_id = face.both(topic, partitions=2)
        face.ok("POST", "/topics", {"topic": growing})
        [partition] = face.call("GET", "/partitions", {"topic": topic, "partition": 0}).json()["partitions"]
        made = self[server] = World(face, partition["leader"], topic, growing, producer_id, consumer_id, face.producer(growing),
                                    face.consumer(growing), face.consumer(topic))
        self._stack.enter_context(made.at_broker)
        return made


@pytest.fixture(scope="package")
def worlds(servers: dict[str, str]) -> Iterator[Worlds]:
    with ExitStack() as stack:
        yield Worlds(servers, stack)


@pytest.fixture
def server() -> str:
    """Where a test's calls go; tests of all servers are given it as a parameter."""
    return ENTRANCES[0]


@pytest.fixture
def world(worlds: Worlds, server: str) -> World:
    return worlds[server]


@pytest.fixture
def at(world: World, server: str) -> Face:
    """A client of the server that a test is about."""
    return world.at_broker if server == "broker" else world.face


@pytest.fixture(autouse=True)
def _counted(record_property: Any) -> Iterator[None]:
    """How many answers a test looked at, for the summary."""
    before = next(Face.answers)
    yield
    record_property(ANSWERS, next(Face.answers) - before - 1)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "one_in(n): of a test's cases every n-th, where not the whole is looked at")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if FOLDER in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(180))  # the time of whichever comes first includes the start of the cluster
    if WHOLE:
        return
    seen: Counter[str] = Counter()
    left = set()
    for item in sorted(items, key=lambda item: item.nodeid):  # so that it is the same ones each time, whatever the order that they run in
        mark, params = item.get_closest_marker("one_in"), item.callspec.params if hasattr(item, "callspec") else {}
        if FOLDER in item.path.parents and (mark or params.get("base_url") == "manager"):
            turn, one_in = (item.nodeid.partition("[")[0], mark.args[0]) if mark else ("directly", DIRECTLY_ONE_IN)
            if seen[turn] % one_in:
                left.add(item)
            seen[turn] += 1
    config.hook.pytest_deselected(items=list(left))
    items[:] = [item for item in items if item not in left]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for found in terminalreporter.stats.values() for report in found if isinstance(report, pytest.TestReport)]
    answers = {report.nodeid: dict(report.user_properties)[ANSWERS] for report in reports if ANSWERS in dict(report.user_properties)}
    passed = {report.nodeid for report in reports if report.when == "call" and report.passed} & answers.keys()
    if answers:
        terminalreporter.write_line(f"conformance: {len(passed)} of {len(answers)} checks passed, which looked at {sum(answers.values())} answers")
