"""Which node next."""

from __future__ import annotations

import pytest

from myqueue.client.endpoints import Endpoints, parse_bootstrap
from myqueue.errors import ConfigurationError
from myqueue.protocol.types import ClusterSnapshot, NodeAddress, PartitionInfo, TopicPartition

AT = TopicPartition("a", 0)


def snapshot(version: int = 1, leader: int | None = 1, cluster_id: str = "c") -> ClusterSnapshot:
    return ClusterSnapshot(cluster_id, version, {1: NodeAddress("b1", 1), 2: NodeAddress("b2", 2)},
                           {AT: PartitionInfo("a", 7, 0, 1, leader)})


@pytest.mark.parametrize(("text", "urls"), [
    ("localhost:9092", ("http://localhost:9092",)),
    ("localhost", ("http://localhost:9092",)),
    ("a:1, b:2,", ("http://a:1", "http://b:2")),
    (["a:1", "https://b:2/"], ("http://a:1", "https://b:2")),
    ("[::1]:5", ("http://[::1]:5",)),
])
def test_addresses_are_read_in_every_usual_form(text, urls) -> None:
    assert urls == parse_bootstrap(text)


@pytest.mark.parametrize("text", ["", ",", "a:x", "a:70000", "ftp://a:1", "http://a:1/path", ":9092"])
def test_what_is_no_address_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(ConfigurationError, match="HOST:PORT"):
        parse_bootstrap(text)


def test_given_addresses_take_turns_and_one_that_failed_is_left_out_for_a_while() -> None:
    endpoints = Endpoints(["http://x:1", "http://y:1"], avoid_seconds=5)
    assert ["http://x:1", "http://y:1", "http://x:1"] == [endpoints.bootstrap_url(0.0) for _ in range(3)]
    endpoints.failed("http://x:1", started=0.0, now=0.0)
    assert {"http://y:1"} == {endpoints.bootstrap_url(4.9) for _ in range(4)}
    assert {"http://x:1", "http://y:1"} == {endpoints.bootstrap_url(5.0) for _ in range(4)}


def test_where_all_failed_one_is_asked_nevertheless() -> None:
    endpoints = Endpoints(["http://x:1"])
    endpoints.failed("http://x:1", started=0.0, now=0.0)
    assert "http://x:1" == endpoints.bootstrap_url(0.0)


def test_records_go_to_the_leader_and_to_the_balancer_while_the_leader_is_avoided() -> None:
    endpoints = Endpoints(["http://lb:1"], avoid_seconds=5)
    assert "http://lb:1" == endpoints.partition_url(AT, 0.0), "nothing is known yet"
    endpoints.learn(snapshot())
    assert "http://b1:1" == endpoints.partition_url(AT, 0.0)
    endpoints.failed("http://b1:1", started=0.0, now=0.0)
    assert "http://lb:1" == endpoints.partition_url(AT, 1.0)
    assert "http://b1:1" == endpoints.partition_url(AT, 5.0)
    endpoints.failed("http://b1:1", started=5.0, now=5.0)
    endpoints.answered("http://b1:1")
    assert "http://b1:1" == endpoints.partition_url(AT, 5.0)


def test_a_partition_without_leader_is_asked_for_at_the_balancer() -> None:
    endpoints = Endpoints(["http://lb:1"])
    endpoints.learn(snapshot(leader=None))
    assert "http://lb:1" == endpoints.partition_url(AT, 0.0)


def test_an_older_picture_never_replaces_a_newer_one_of_the_same_cluster() -> None:
    endpoints = Endpoints(["http://lb:1"])
    assert endpoints.learn(snapshot(version=5, leader=2))
    assert not endpoints.learn(snapshot(version=4, leader=1))
    assert "http://b2:2" == endpoints.partition_url(AT, 0.0)
    assert endpoints.learn(snapshot(version=1, leader=1, cluster_id="another"))


def test_silence_counts_from_the_first_request_without_an_answer() -> None:
    endpoints = Endpoints(["http://lb:1"])
    assert 0.0 == endpoints.silent_seconds(100.0), "nobody was asked"
    endpoints.failed("http://lb:1", started=10.0, now=20.0)
    endpoints.failed("http://lb:1", started=20.0, now=22.0)
    assert 12.0 == endpoints.silent_seconds(22.0)
    endpoints.answered("http://lb:1")
    assert 0.0 == endpoints.silent_seconds(50.0)
