"""A broker's parts over a real database, and a real broker process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from broker.core.replica import Appointment
from broker.peers import Peers
from broker.replicator import Replicator
from broker.service import BrokerService, Self
from db.engine import make_engine
from db.postgres_log import PostgresLogStore
from myqueue.clock import SystemClock
from myqueue.protocol.types import PartitionId
from myqueue.service.wakeups import Wakeups
from myqueue.testing import InMemoryTransport
from tests.support.broker_process import BrokerProcess, broker_process
from tests.support.manager_stub import ManagerStub, manager_stub

TOPIC_ID = 1


@contextmanager
def running_service(url: str, *, partitions: int = 2, writers: int = 3, on_event: Callable[[str], None] = lambda event: None,
                    wakeups: Wakeups | None = None, timeout_seconds: float = 10.0, queue_bytes_max: int = 64 << 20,
                    remembers: bool = True) -> Iterator[BrokerService]:
    """A BrokerService with its writer threads, leading the partitions of topic "t"; ``remembers`` as a broker's only worker does."""
    engines = [make_engine(url, application_name="tests", pool_size=writers + 2) for _ in range(2)]
    stopping = threading.Event()
    store, clock, wakeups = PostgresLogStore(*engines, on_event=on_event, remembers=remembers), SystemClock(), wakeups or Wakeups()
    peers = Peers(InMemoryTransport(clock=clock), lambda: {"brokers": []}, clock)
    replicator = Replicator(store, peers, wakeups, clock, identity=lambda: (1, "disk"), introduce=lambda _: {"topic": "t", "config": {}})
    service = BrokerService(store, wakeups, replicator, who=lambda: Self(1, "disk"), clock=clock,
                            stopping=stopping, queue_bytes_max=queue_bytes_max, long_polls_max=4, timeout_seconds=timeout_seconds)
    for number in range(partitions):
        service.appoint(PartitionId(TOPIC_ID, number), topic="t", config={}, appointment=Appointment(1, {1: "disk"}))
    threads = [threading.Thread(target=service.writer.run, args=(stopping,)) for _ in range(writers)]
    for thread in threads:
        thread.start()
    try:
        yield service
    finally:
        stopping.set()
        for thread in threads:
            thread.join(15)
        for engine in engines:
            engine.dispose()


@pytest.fixture(scope="module")
def managers() -> Iterator[ManagerStub]:
    with manager_stub() as stub:
        yield stub


@pytest.fixture(scope="module")
def broker(postgres, managers: ManagerStub) -> Iterator[BrokerProcess]:
    """One broker for the tests of a module: each uses a topic of its own."""
    with ExitStack() as stack:
        url = stack.enter_context(postgres.database("broker"))
        yield stack.enter_context(broker_process(url, managers.url))
