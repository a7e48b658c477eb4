"""Managers as real processes on a real PostgreSQL, with a stand-in for a broker."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.support.broker_stub import BrokerStub
from tests.support.managers import ManagerCluster, manager_cluster, register

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def running(postgres) -> Iterator[tuple[ManagerCluster, BrokerStub]]:
    """Three managers and a broker for all tests that harm neither; use ``cluster``."""
    with manager_cluster(postgres) as cluster, BrokerStub() as stub:
        cluster.start()
        register(cluster.write, stub)
        stub.beat_to([manager.url for manager in cluster.managers])
        yield cluster, stub


@pytest.fixture
def cluster(running) -> ManagerCluster:
    """The shared managers."""
    return running[0]


@pytest.fixture
def stub(running) -> Iterator[BrokerStub]:
    """The shared broker, healthy at the beginning and the end."""
    stub = running[1]
    stub.failing.clear()
    stub.calls.clear()
    stub.refusing = False
    yield stub
    stub.failing.clear()
    stub.refusing = False


@pytest.fixture
def new_topic() -> Callable[[], str]:
    """Names that no other test uses."""
    return lambda: f"topic-{next(_numbers)}"
