"""What is due to be sent to which follower, and from when on: the part of replication that threads share out among themselves."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Sequence

from myqueue.clock import Clock
from myqueue.errors import MyQueueError
from myqueue.protocol.types import PartitionId

PARTITIONS_MAX = 64  # in one request
UNDER_WAY_MAX = 2  # requests to one follower; a silent one holds one thread only
BACKOFF_SECONDS, BACKOFF_MAX_SECONDS = 0.05, 1.0
IDLE_SECONDS = 0.5
_log = logging.getLogger(__name__)


class Due:
    """Partitions by follower. A partition is under way to a follower once at a time. Safe to share between threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        # Guarded by the condition.
        self._due: dict[int, dict[PartitionId, float]] = {}
        self._under_way: dict[int, set[PartitionId]] = {}
        self._requests: Counter[int] = Counter()
        self._not_before: dict[int, float] = {}
        self._failures: Counter[int] = Counter()

    def mark(self, partition: PartitionId, followers: Sequence[int], delay_seconds: float = 0.0) -> None:
        """Have this partition sent to these followers, soon or after a delay; the sooner one of two holds."""
        at = self._clock.monotonic() + delay_seconds
        with self._changed:
            for follower in followers:
                due = self._due.setdefault(follower, {})
                due[partition] = min(at, due.get(partition, at))
            if followers:
                self._changed.notify_all()

    def take(self) -> tuple[int, list[PartitionId]] | None:
        """A follower and what to send it, from now on under way until :meth:`done`; None after a while without anything due."""
        with self._changed:
            now = self._clock.monotonic()
            wake = now + IDLE_SECONDS
            for follower, due in self._due.items():
                if not due or self._requests[follower] >= (1 if self._failures[follower] else UNDER_WAY_MAX):
                    continue
                not_before = self._not_before.get(follower, 0.0)
                under_way = self._under_way.setdefault(follower, set())
                ready = [partition for partition, at in due.items() if max(at, not_before) <= now and partition not in under_way][:PARTITIONS_MAX]
                if ready:
                    for partition in ready:
                        del due[partition]
                    under_way.update(ready)
                    self._requests[follower] += 1
                    return follower, ready
                wake = min([wake, *(max(at, not_before) for partition, at in due.items() if partition not in under_way)])
            self._changed.wait(max(0.0, wake - now))
            return None

    def done(self, follower: int, partitions: Sequence[PartitionId], *, left: Sequence[PartitionId] = (), error: MyQueueError | None = None) -> None:
        """These are not under way any more; those ``left`` are due at once, or after a back-off where the follower did not answer."""
        with self._changed:
            self._requests[follower] -= 1
            self._under_way[follower].difference_update(partitions)
            if error is None:
                self._answered(follower)
            else:
                self._failed(follower, error)
            due = self._due.setdefault(follower, {})
            for partition in left:
                due.setdefault(partition, self._clock.monotonic())
            self._changed.notify_all()

    def _answered(self, follower: int) -> None:
        if self._failures.pop(follower, 0):
            _log.info("broker %d answers again", follower)
        self._not_before.pop(follower, None)

    def _failed(self, follower: int, error: MyQueueError) -> None:
        self._failures[follower] += 1
        if self._failures[follower] == 1:
            _log.warning("broker %d cannot be sent appends: %s", follower, error.message, extra={"code": error.code})
        delay = min(BACKOFF_MAX_SECONDS, BACKOFF_SECONDS * 2 ** min(10, self._failures[follower] - 1))
        self._not_before[follower] = self._clock.monotonic() + delay
