"""A real balancer process before recording backends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.service import Service, service
from tests.support.upstream import FakeCluster

QUICK = ("--refresh-interval-seconds", "0.2", "--poll-timeout-seconds", "1", "--manager-timeout-seconds", "2", "--broker-timeout-seconds", "2",
         "--threads", "16")


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    fake = FakeCluster()
    try:
        yield fake
    finally:
        fake.stop()


@pytest.fixture
def balancer(cluster: FakeCluster) -> Iterator[Service]:
    with service("load_balancer", "--managers", cluster.managers[1].url, *QUICK, ready="/readyz") as running:
        yield running
