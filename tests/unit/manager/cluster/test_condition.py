"""What is said of partitions that are not as they should be."""

from __future__ import annotations

from dataclasses import replace

from manager.cluster.condition import Conditions, conditions
from manager.cluster.election import Broker, Outlook, Replicas
from myqueue.protocol.types import PartitionId

BROKERS = {number: Broker(number, f"d{number}") for number in (1, 2, 3)}
ROW = Replicas(PartitionId(1, 0), epoch=4, electing=False, leader=1, voters={1: "d1", 2: "d2", 3: "d3"}, replication_factor=3)
THIS = (ROW.partition,)


def test_a_whole_partition_is_in_no_list():
    assert conditions([ROW], Outlook(BROKERS)) == Conditions((), (), ())


def test_a_dead_follower_leaves_it_under_replicated():
    assert conditions([ROW], Outlook(BROKERS, dead=frozenset({3}))) == Conditions((), THIS, ())


def test_a_dead_leader_leaves_it_leaderless_and_two_dead_brokers_without_a_majority():
    assert conditions([ROW], Outlook(BROKERS, dead=frozenset({1}))) == Conditions(THIS, THIS, ())
    assert conditions([ROW], Outlook(BROKERS, dead=frozenset({1, 2}))) == Conditions(THIS, THIS, THIS)


def test_an_election_has_no_leader_and_a_replaced_disk_does_not_count():
    assert conditions([replace(ROW, electing=True, leader=None)], Outlook(BROKERS)) == Conditions(THIS, (), ())
    assert conditions([ROW], Outlook({**BROKERS, 3: Broker(3, "new")})) == Conditions((), THIS, ())
