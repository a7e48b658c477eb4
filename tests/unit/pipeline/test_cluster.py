"""What the pipeline reads out of the cluster's snapshot."""

from __future__ import annotations

import pytest

from myqueue.errors import BadRequestError, InternalError
from myqueue.protocol.types import PartitionInfo
from pipeline.cluster import Cluster, DatabaseAddress, Manager, choose_topics, cluster_from_json, parse_bootstrap

DATABASE = {"host": "127.0.0.1", "port": 5432, "name": "broker_1", "user": "reader"}
BODY = {
    "cluster_id": "c1", "version": 9,
    "brokers": [{"broker_id": 1, "host": "127.0.0.1", "port": 9001, "state": "alive", "database": DATABASE}],
    "managers": [{"node_id": 1, "url": "http://127.0.0.1:7001", "role": "write", "database": {**DATABASE, "name": "manager_1"}},
                 {"node_id": 2, "url": "http://127.0.0.1:7002", "role": "read"}],
    "partitions": [{"topic": "b", "topic_id": 2, "partition": 0, "epoch": 1, "leader": 1, "replicas": [1], "status": "ACTIVE"},
                   {"topic": "a", "topic_id": 1, "partition": 0, "epoch": 1, "leader": None, "replicas": [], "status": "ELECTING"}],
}
READER = DatabaseAddress("127.0.0.1", 5432, "broker_1", "reader")


def test_a_snapshot_becomes_a_cluster() -> None:
    """Brokers' and managers' databases, and the partitions in order of their names."""
    expected = Cluster("c1", 9, {1: READER},
                       (Manager(1, "http://127.0.0.1:7001", "write", DatabaseAddress("127.0.0.1", 5432, "manager_1", "reader")),
                        Manager(2, "http://127.0.0.1:7002", "read", None)),
                       (PartitionInfo("a", 1, 0, 1, None, (), "ELECTING"), PartitionInfo("b", 2, 0, 1, 1, (1,), "ACTIVE")))
    assert expected == cluster_from_json(BODY)


@pytest.mark.parametrize("broken", [
    {}, {**BODY, "partitions": [{}]}, {**BODY, "brokers": [{"broker_id": 1, "host": "h", "port": 1, "database": {"host": "h"}}]}])
def test_an_answer_that_is_no_snapshot_is_refused(broken: dict) -> None:
    """A body with missing fields is a fault of the server, said as one."""
    with pytest.raises(InternalError, match="/v1/cluster"):
        cluster_from_json(broken)


@pytest.mark.parametrize(("text", "expected"), [
    ("localhost:9092", [("localhost", 9092)]), ("a:1, b:2", [("a", 1), ("b", 2)]), ("http://h:80/", [("h", 80)]), ("host", [("host", 9092)]),
    ("[::1]:9092", [("::1", 9092)])])
def test_bootstrap_addresses_are_read(text: str, expected: list) -> None:
    """HOST:PORT, several of them, without the port, and IPv6."""
    assert expected == parse_bootstrap(text)


@pytest.mark.parametrize("text", ["", ",", "h:0", "h:70000", "h:x", ":9092"])
def test_a_malformed_bootstrap_is_refused(text: str) -> None:
    """What is no address is named."""
    with pytest.raises(BadRequestError):
        parse_bootstrap(text)


def test_all_topics_are_chosen_unless_some_are_named() -> None:
    """No name means all; names are taken in the order given."""
    cluster = cluster_from_json(BODY)
    assert ["a", "b"] == list(choose_topics(cluster, ()))
    assert ["b"] == list(choose_topics(cluster, ("b",)))


def test_unknown_topics_are_all_named() -> None:
    """The refusal names each unknown topic and what there is."""
    with pytest.raises(BadRequestError, match=r"x, y \(there are: a, b\)"):
        choose_topics(cluster_from_json(BODY), ("x", "a", "y"))
