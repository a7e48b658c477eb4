"""Quotas by topic, and the shared memory in which partitions stand, with its time set by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from broker.buckets import GROUPS, PLACES, Buckets
from broker.expiry import Expiry
from broker.quotas import Quotas
from broker.service import TOPICS_KEY
from db.memory_log import MemoryLogStore
from myqueue.errors import QuotaExceededError
from myqueue.protocol.types import PartitionId
from myqueue.service.wakeups import Wakeups
from myqueue.testing import ManualClock

P = PartitionId(5, 0)


@pytest.fixture
def buckets() -> Iterator[Callable[[ManualClock], Buckets]]:
    """Makes shared memory that goes with the test."""
    with ExitStack() as stack:
        yield lambda clock: stack.enter_context(closing(Buckets(clock)))


class World:
    """A store with topic "t", of two partitions."""

    def __init__(self, buckets: Callable[[ManualClock], Buckets], config: dict[str, int]) -> None:
        self.clock, self.store, self.wakeups = ManualClock(), MemoryLogStore(), Wakeups()
        for number in range(2):
            self.store.create(PartitionId(5, number), topic="t", config=config)
        self.quotas = Quotas(self.store, self.wakeups, buckets(self.clock))

    def alter(self, config: dict[str, int]) -> None:
        self.store.configure({5: config})
        self.wakeups.wake(TOPICS_KEY)

    def taken(self, partition: PartitionId = P, size: int = 100) -> int:
        """How many requests are taken at once, at most 50."""
        for count in range(50):
            try:
                self.quotas.take(partition, size)
            except QuotaExceededError:
                return count
        return 50


def test_without_a_quota_nothing_is_refused_and_no_bucket_used(buckets):
    world = World(buckets, {"retention_ms": 1})
    assert world.taken(size=1 << 40) == 50
    assert world.taken(PartitionId(99, 0)) == 50


def test_what_is_refused_says_which_quota_of_which_partition_and_how_long_to_wait(buckets):
    world = World(buckets, {"produce_bytes_per_second": 200})
    assert world.taken() == 3
    with pytest.raises(QuotaExceededError) as error:
        world.quotas.take(P, 1)
    assert error.value.details == {"topic": "t", "partition": 0, "quota": 200, "wait_seconds": 0.5}
    for word in ("partition 0 of topic t", "200 bytes a second", "produce_bytes_per_second", "0.500 s", "nothing was stored"):
        assert word in error.value.message
    world.clock.advance(0.5)
    assert world.taken() == 1


def test_each_partition_has_the_quota_for_itself(buckets):
    world = World(buckets, {"produce_bytes_per_second": 200})
    assert [world.taken(PartitionId(5, number)) for number in range(2)] == [3, 3]


def test_a_change_counts_from_the_moment_in_which_it_is_known(buckets):
    world = World(buckets, {})
    assert world.taken() == 50
    world.alter({"produce_bytes_per_second": 200})
    assert world.taken() == 3
    world.alter({"produce_bytes_per_second": 1_000})
    assert world.taken() == 8, "what was taken before is owed still"
    world.alter({})
    assert world.taken() == 50


def test_the_look_at_the_configs_tells_of_a_change(buckets):
    """What a manager was told becomes the quota here, in every process that shares the stamps."""
    world = World(buckets, {})
    assert world.taken() == 50
    Expiry(world.store, world.clock, configs=lambda: {5: {"produce_bytes_per_second": 200}}, trim=lambda partition, offset: None,
           on_configs=lambda: world.wakeups.wake(TOPICS_KEY)).look()
    assert world.taken() == 3


def test_whatever_an_older_version_let_pass_is_no_quota(buckets):
    assert World(buckets, {"produce_bytes_per_second": 0}).taken() == 50


def test_partitions_that_meet_in_a_group_of_places_stand_apart(buckets):
    """And when there are more of them than places the one that was left alone for longest gives its own away."""
    clock = ManualClock()
    made = buckets(clock)
    meeting = [one for one in (PartitionId(topic, 0) for topic in range(1, 40 * GROUPS)) if hash(one) % GROUPS == 3][:PLACES + 1]
    assert len(meeting) == PLACES + 1
    for partition in meeting[:PLACES]:
        assert made.take(partition, 300, bytes_per_second=100) == 0
        clock.advance(0.001)
    for partition in meeting[:PLACES]:
        assert made.take(partition, 1, bytes_per_second=100) > 1.9
    assert made.take(meeting[PLACES], 300, bytes_per_second=100) == 0
    assert made.take(meeting[1], 1, bytes_per_second=100) > 1.9
    assert made.take(meeting[0], 1, bytes_per_second=100) == 0, "it was forgiven"
