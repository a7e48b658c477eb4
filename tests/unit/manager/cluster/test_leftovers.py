"""What brokers are told to drop."""

from __future__ import annotations

from dataclasses import replace

from manager.cluster.election import Replicas
from manager.cluster.leftovers import Leftovers, leftovers
from myqueue.protocol.types import PartitionId

HERE = Replicas(PartitionId(1, 0), epoch=4, electing=False, leader=1, voters={1: "d1", 2: "d2"}, learners=(3,))
KNOWN = {HERE.partition: HERE}


def test_voters_and_learners_keep_what_they_hold():
    for broker_id in (1, 2, 3):
        assert not leftovers(broker_id, [HERE.partition], KNOWN)


def test_what_moved_away_is_dropped_unless_an_election_is_under_way():
    assert leftovers(4, [HERE.partition], KNOWN) == Leftovers((), {HERE.partition: HERE.epoch})
    assert not leftovers(4, [HERE.partition], {HERE.partition: replace(HERE, electing=True, leader=None)})


def test_deleted_topics_go_whole():
    assert leftovers(1, [PartitionId(7, 0), PartitionId(7, 3), HERE.partition], KNOWN) == Leftovers((7,), {})


def test_a_partition_of_a_known_topic_that_is_not_known_yet_stays():
    assert not leftovers(1, [PartitionId(1, 9)], KNOWN)
