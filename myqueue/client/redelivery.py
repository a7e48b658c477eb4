"""PURE: messages that could not be dealt with, and when they are handed out again."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection

from ..protocol.types import Message, TopicPartition


class Redelivery:
    """Counts how often each message that is tried again was handed out, in this process and to members that died of it. A message that is done,
    or whose partition went to another member, is forgotten.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[float, int, Message]] = []  # due, turn: a heap
        self._deliveries: dict[tuple[str, int, int], int] = {}  # of what was tried again and is not done
        self._turns = itertools.count()

    def deliveries(self, message: Message) -> int:
        """How often this message was handed out: 1 where it was never tried again."""
        return self._deliveries.get(_place(message), 1)

    def suspect(self, partition: TopicPartition, offset: int, deaths: int) -> None:
        """So many members of the group ended with this message alone in their hands: each of them had been handed it out."""
        self._deliveries[(*partition, offset)] = deaths + 1

    def retry(self, message: Message, due: float) -> None:
        """Hand it out again from this moment on."""
        self._deliveries[_place(message)] = self.deliveries(message) + 1
        heapq.heappush(self._waiting, (due, next(self._turns), message))

    def take(self, now: float) -> Message | None:
        """The message whose time has come first."""
        if self._waiting and self._waiting[0][0] <= now:
            return heapq.heappop(self._waiting)[2]
        return None

    def next_due(self) -> float | None:
        return self._waiting[0][0] if self._waiting else None

    def done(self, message: Message) -> None:
        self._deliveries.pop(_place(message), None)

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Forget all of these partitions."""
        self._waiting = [one for one in self._waiting if TopicPartition(one[2].topic, one[2].partition) not in partitions]
        heapq.heapify(self._waiting)
        self._deliveries = {place: count for place, count in self._deliveries.items() if TopicPartition(*place[:2]) not in partitions}


def _place(message: Message) -> tuple[str, int, int]:
    return message.topic, message.partition, message.offset
