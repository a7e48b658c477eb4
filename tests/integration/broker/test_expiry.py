"""What a topic's config does not keep: trimmed by the leader, and by nobody else. One process, a log in memory, where each request is a part."""

from __future__ import annotations

import pytest

from broker.core.replica import Appointment
from broker.expiry import Configs, Expiry
from myqueue.clock import SystemClock
from myqueue.errors import UnavailableError
from myqueue.protocol.types import PartitionId
from myqueue.testing import ManualClock
from tests.support.factories import blocks
from tests.support.two_brokers import TwoBrokers, two_brokers
from tests.support.waiting import wait_until

P, Q = PartitionId(1, 0), PartitionId(2, 0)


def filled(group: TwoBrokers, *partitions: PartitionId, count: int = 4) -> None:
    """Partitions that broker 1 leads, with some messages of 100 bytes each."""
    for partition in partitions * count:
        if partition not in starts(group):
            group.service.appoint(partition, topic="t", config={}, appointment=Appointment(1, {1: "disk-1"}, 1, ()))
        group.service.append(partition, blocks(b"x" * 100), None, size_bytes=100)


def starts(group: TwoBrokers) -> dict[PartitionId, int]:
    return {held.id: held.head.earliest for held in group.store.held()}


def expire(group: TwoBrokers, clock: ManualClock | SystemClock, configs: Configs) -> None:
    Expiry(group.store, clock, configs=lambda: configs, trim=group.service.trim).look()


def test_the_oldest_go_while_enough_bytes_are_left_and_again_changes_nothing():
    with two_brokers() as group:
        filled(group, P)
        expire(group, SystemClock(), {1: {"retention_bytes": 150}})
        assert starts(group) == {P: 2}
        end = group.store.head(P).end
        expire(group, SystemClock(), {1: {"retention_bytes": 150}})
        assert group.store.head(P).end == end, "no entry for nothing"


def test_what_is_old_goes_and_without_a_bound_nothing_does():
    with two_brokers() as group:
        filled(group, P, Q)
        now, configs = SystemClock().now_us(), {1: {"retention_ms": 60_000}, 2: {}}
        expire(group, ManualClock(now_us=now + 30_000_000), configs)
        assert starts(group) == {P: 0, Q: 0}
        expire(group, ManualClock(now_us=now + 90_000_000), configs)
        assert starts(group) == {P: 4, Q: 0}


def test_the_managers_word_of_now_decides_and_without_it_nothing_goes():
    """What is stored here may be from before it was changed; it is brought to what holds now."""
    with two_brokers() as group:
        filled(group, P)
        group.store.create(P, topic="t", config={"retention_ms": 1})
        late = ManualClock(now_us=SystemClock().now_us() + 90_000_000)

        def nobody() -> Configs:
            raise UnavailableError("no manager")

        with pytest.raises(UnavailableError):
            Expiry(group.store, late, configs=nobody, trim=group.service.trim).look()
        expire(group, late, {1: {"retention_ms": 600_000}})
        assert starts(group) == {P: 0}
        assert group.store.topic(1) == ("t", {"retention_ms": 600_000})
        expire(group, late, {})
        assert starts(group) == {P: 0}, "a topic that the managers do not know any more is dropped by them"


def test_a_follower_trims_nothing():
    with two_brokers() as group:
        group.lead(P)
        group.service.append(P, blocks(b"x"), None, size_bytes=1)
        wait_until(lambda: group.other.head(P).commit_offset == 1, what="the follower to know it")
        def never(partition: PartitionId, offset: int) -> None:
            raise AssertionError(f"{partition} is trimmed below {offset}")

        Expiry(group.other, ManualClock(now_us=2**60), configs=lambda: {1: {"retention_ms": 1}}, trim=never).look()
        assert group.other.topic(1) == ("t", {"retention_ms": 1}), "its segments are small from now on all the same"


def test_what_cannot_be_trimmed_now_holds_up_no_other(caplog: pytest.LogCaptureFixture):
    with two_brokers() as group:
        filled(group, P, Q)
        tried: list[PartitionId] = []

        def trim(partition: PartitionId, offset: int) -> None:
            tried.append(partition)
            raise UnavailableError("no majority")

        with caplog.at_level("INFO"):
            Expiry(group.store, SystemClock(), configs=lambda: {1: {"retention_bytes": 150}, 2: {"retention_bytes": 150}}, trim=trim).look()
        assert tried == [P, Q]
        assert starts(group) == {P: 0, Q: 0}
        assert caplog.text.count("is not trimmed now: no majority") == 2
