"""What a topic's config does not keep: trimmed by the leader, and by nobody else. One process, a log in memory, where each request is a part."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from broker.core.replica import Appointment
from broker.expiry import Expiry
from myqueue.clock import SystemClock
from myqueue.errors import UnavailableError
from myqueue.protocol.types import PartitionId
from myqueue.testing import ManualClock
from tests.support.factories import blocks
from tests.support.two_brokers import TwoBrokers, two_brokers
from tests.support.waiting import wait_until

P, Q = PartitionId(1, 0), PartitionId(2, 0)


def filled(group: TwoBrokers, partition: PartitionId, config: Mapping[str, int], *, count: int = 4) -> None:
    """A partition that broker 1 leads, with some messages of 100 bytes."""
    group.service.appoint(partition, topic="t", config=dict(config), appointment=Appointment(1, {1: "disk-1"}, 1, ()))
    for _ in range(count):
        group.service.append(partition, blocks(b"x" * 100), None, size_bytes=100)


def starts(group: TwoBrokers) -> dict[PartitionId, int]:
    return {held.id: held.head.earliest for held in group.store.held()}


def expire(group: TwoBrokers, clock: ManualClock | SystemClock) -> None:
    Expiry(group.store, clock, trim=group.service.trim).look()


def test_the_oldest_go_while_enough_bytes_are_left_and_again_changes_nothing():
    with two_brokers() as group:
        filled(group, P, {"retention_bytes": 150})
        expire(group, SystemClock())
        assert starts(group) == {P: 2}
        end = group.store.head(P).end
        expire(group, SystemClock())
        assert group.store.head(P).end == end, "no entry for nothing"


def test_what_is_old_goes_and_without_a_bound_nothing_does():
    with two_brokers() as group:
        filled(group, P, {"retention_ms": 60_000})
        filled(group, Q, {})
        now = SystemClock().now_us()
        expire(group, ManualClock(now_us=now + 30_000_000))
        assert starts(group) == {P: 0, Q: 0}
        expire(group, ManualClock(now_us=now + 90_000_000))
        assert starts(group) == {P: 4, Q: 0}


def test_a_follower_trims_nothing():
    with two_brokers() as group:
        group.lead(P)
        group.service.append(P, blocks(b"x"), None, size_bytes=1)
        wait_until(lambda: group.other.head(P).commit_offset == 1, what="the follower to know it")
        group.other.create(P, topic="t", config={"retention_ms": 1})

        def never(partition: PartitionId, offset: int) -> None:
            raise AssertionError(f"{partition} is trimmed below {offset}")

        Expiry(group.other, ManualClock(now_us=2**60), trim=never).look()


def test_what_cannot_be_trimmed_now_holds_up_no_other(caplog: pytest.LogCaptureFixture):
    with two_brokers() as group:
        filled(group, P, {"retention_bytes": 150})
        filled(group, Q, {"retention_bytes": 150})
        tried: list[PartitionId] = []

        def trim(partition: PartitionId, offset: int) -> None:
            tried.append(partition)
            raise UnavailableError("no majority")

        with caplog.at_level("INFO"):
            Expiry(group.store, SystemClock(), trim=trim).look()
        assert tried == [P, Q]
        assert starts(group) == {P: 0, Q: 0}
        assert caplog.text.count("is not trimmed now: no majority") == 2
