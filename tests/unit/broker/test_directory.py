"""From a name to what is held here, and why something is not."""

from __future__ import annotations

from typing import Any

import pytest

from broker.directory import Directory
from broker.service import TOPICS_KEY
from db.memory_log import MemoryLogStore
from myqueue.errors import NotLeaderError, UnavailableError, UnknownTopicError
from myqueue.protocol.types import PartitionId
from myqueue.service.wakeups import Wakeups


class World:
    """A store that holds topic "t" with id 5, and a manager that knows one description of it, or cannot be asked."""

    def __init__(self) -> None:
        self.store, self.wakeups = MemoryLogStore(), Wakeups()
        self.hold(5)
        self.told: dict[str, Any] | None = {"topic_id": 5, "partitions": 2, "partition_list": [{"partition": 0, "leader": 3}]}
        self.directory = Directory(self.store, self.wakeups, self.describe)

    def hold(self, topic_id: int) -> None:
        self.store.create(PartitionId(topic_id, 0), topic="t", config={})
        self.wakeups.wake(TOPICS_KEY)

    def describe(self, topic: str) -> dict[str, Any]:
        if self.told is None:
            raise UnavailableError
        return self.told


def test_a_topic_is_found_by_name_and_by_name_and_id():
    world = World()
    for _ in range(2):
        assert world.directory.find("t", 0) == world.directory.find("t", 0, 5) == PartitionId(5, 0)


def test_a_topic_that_was_made_anew_is_another_one():
    """What is known here came later: no manager is needed to say so."""
    world = World()
    world.told = None
    world.hold(9)
    assert world.directory.find("t", 0) == PartitionId(9, 0)
    with pytest.raises(UnknownTopicError) as error:
        world.directory.find("t", 0, 5)
    assert error.value.details == {"topic": "t", "topic_id": 9}


def test_a_topic_that_is_not_known_here_yet_may_be_elsewhere():
    """Of a later id than the one held here: a manager knows whether there is one, and who leads it."""
    world = World()
    world.told = {"topic_id": 9, "partitions": 2, "partition_list": [{"partition": 0, "leader": 3}]}
    with pytest.raises(NotLeaderError) as leader:
        world.directory.find("t", 0, 9)
    assert leader.value.details == {"leader": 3}
    with pytest.raises(UnknownTopicError) as error:
        world.directory.find("t", 0, 10)
    assert error.value.details == {"topic": "t", "topic_id": 9}
    world.told = None
    with pytest.raises(NotLeaderError):
        world.directory.find("t", 0, 9)


def test_a_topic_that_is_not_held_here_at_all():
    world = World()
    world.store.drop(5)
    world.wakeups.wake(TOPICS_KEY)
    with pytest.raises(NotLeaderError):
        world.directory.find("t", 0, 5)
    with pytest.raises(UnknownTopicError):
        world.directory.find("t", 0, 4)
