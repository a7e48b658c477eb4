from __future__ import annotations

import pytest

from db.metadata_store import BrokerRow, CatalogueRows, PartitionRow, TopicRow
from manager.catalogue import Catalogue, appointment
from myqueue.errors import UnavailableError, UnknownBrokerError, UnknownPartitionError, UnknownTopicError
from myqueue.protocol.types import NodeAddress, TopicPartition

BROKERS = (BrokerRow(1, "d1", "h", 81, "ACTIVE", {}), BrokerRow(2, "d2", "h", 82, "REMOVED", {}), BrokerRow(3, "d3", "h", 83, "ACTIVE", {}))
TOPICS = (TopicRow(7, "a", 1, {}, 0), TopicRow(8, "b", 1, {"retention_ms": 5}, 0))
PARTITIONS = (PartitionRow(7, 0, 1, 1, "ACTIVE", 1, {"1": "d1"}), PartitionRow(8, 0, 1, 4, "ACTIVE", 3, {"3": "d3"}),
              PartitionRow(8, 1, 1, 1, "ELECTING", None, {"1": "d1"}))


@pytest.fixture
def catalogue() -> Catalogue:
    return Catalogue.of(CatalogueRows("cluster", 12, (), BROKERS, TOPICS, PARTITIONS))


def test_what_is_there_is_found(catalogue):
    assert [row.epoch for row in catalogue.topic("b").partitions] == [4, 1]
    assert catalogue.leader(catalogue.topic("b"), catalogue.topic("b").partition(0)) == (3, NodeAddress("h", 83))
    assert [(topic.name, row.partition) for topic, row in catalogue.led_by(3)] == [("b", 0)]


def test_what_is_not_there_is_named(catalogue):
    with pytest.raises(UnknownTopicError, match="Topic 'x' does not exist"):
        catalogue.topic("x")
    with pytest.raises(UnknownBrokerError):
        catalogue.address(2)
    for number in (-1, 2):
        with pytest.raises(UnknownPartitionError, match=f"no partition {number}: it has 2 partitions"):
            catalogue.topic("b").partition(number)


def test_a_partition_without_a_leader_is_unavailable(catalogue):
    topic = catalogue.topic("b")
    with pytest.raises(UnavailableError):
        for partition in topic.partitions:
            catalogue.leader(topic, partition)


def test_the_snapshot_holds_what_was_asked_for(catalogue):
    assert set(catalogue.snapshot().partitions) == {TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("b", 1)}
    few = catalogue.snapshot(["a", "x", "a"])
    assert (set(few.partitions), set(few.brokers), few.version) == ({TopicPartition("a", 0)}, {1, 3}, 12)


def test_an_appointment_says_all_that_a_leader_needs(catalogue):
    topic = catalogue.topic("b")
    assert appointment(topic, topic.partition(0)) == {
        "topic_id": 8, "topic": "b", "config": {"retention_ms": 5}, "partition": 0, "epoch": 4, "replication_factor": 1, "voters": {"3": "d3"},
        "learners": []}
