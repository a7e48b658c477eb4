"""The server under test: the one that MYQUEUE_BASE_URL names, else a cluster of our own behind its balancer.

Every test uses topics of its own, so that the suite may be run against a cluster with data in it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator

import pytest

from tests.conformance.face import Face


@pytest.fixture(scope="package")
def base_url() -> Iterator[str]:
    given = os.environ.get("MYQUEUE_BASE_URL", "").rstrip("/")
    if given:
        yield given
        return
    from myqueue.supervisor import ClusterSpec
    from tests.support.clusters import running_cluster

    with running_cluster(ClusterSpec(brokers=3, managers=3, ports=(0,))) as cluster:
        yield cluster.balancer_url


@pytest.fixture
def face(base_url: str) -> Iterator[Face]:
    """A client of the server under test."""
    with Face(base_url) as client:
        yield client


@pytest.fixture
def topic(face: Face) -> str:
    """A name that no topic has yet."""
    return f"conformance-{secrets.token_hex(6)}"
