"""Group commit: everything that waits for one partition goes into the next transaction together.

A partition is written by one thread of this process at a time; while its transaction is under way, the requests that
arrive wait for the next one. Several processes contend on the head row's lock. The queue is bounded in bytes, every wait
has an end, and a partition whose lock is held by others gives its thread back after a moment.
"""

from __future__ import annotations

import functools
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from db.log_store import LogBusyError
from myqueue.clock import Clock
from myqueue.errors import MyQueueError, OutcomeUnknownError, OverloadedError, UnavailableError
from myqueue.protocol.types import PartitionId

Q = TypeVar("Q")
A = TypeVar("A")

GROUP_BYTES_MAX = 16 << 20
GROUP_REQUESTS_MAX = 256
REQUEST_OVERHEAD_BYTES = 512
IDLE_CHECK_SECONDS = 0.5


class Later(ABC, Generic[A]):
    """An answer that does not come with the commit: the group's thread goes on, and the request waits for it."""

    @abstractmethod
    def then(self, told: Callable[[A | MyQueueError], None]) -> None:
        """Have ``told`` called once, in any thread, perhaps at once."""


@dataclass(eq=False, slots=True)
class _Pending(Generic[Q, A]):
    request: Q
    size_bytes: int
    deadline: float
    done: threading.Event = field(default_factory=threading.Event)
    answer: A | MyQueueError | None = None
    taken: bool = False

    def resolve(self, answer: A | MyQueueError) -> None:
        self.answer = answer
        self.done.set()


class GroupWriter(Generic[Q, A]):
    """Hands requests of a partition to ``write`` in groups, in the order they came.

    Args:
        write: stores a group in one transaction and returns an answer, an error, or one that comes later, per request. It may raise
            LogBusyError: the group is tried again until its requests' time is over; any other MyQueueError is the answer of the whole group.
        queue_bytes_max: what may wait; beyond it requests are refused.
    """

    def __init__(self, write: Callable[[PartitionId, Sequence[Q]], Sequence[A | Later[A] | MyQueueError]], *, clock: Clock, queue_bytes_max: int,
                 on_queued: Callable[[int], None] = lambda size: None) -> None:
        self._write, self._clock, self._queue_bytes_max, self._on_queued = write, clock, queue_bytes_max, on_queued
        self._changed = threading.Condition()
        # Guarded by the condition. A partition is in ``ready`` or in ``busy`` exactly when it has a queue.
        self._queues: dict[PartitionId, deque[_Pending[Q, A]]] = {}
        self._ready: deque[PartitionId] = deque()
        self._queued_bytes = 0
        self._threads = 0

    def submit(self, partition: PartitionId, request: Q, *, size_bytes: int, timeout_seconds: float) -> A:
        """Wait until the request is stored; the answer, or the error it met.

        Raises:
            OverloadedError: too much waits already, or the turn did not come in time; nothing was done.
            OutcomeUnknownError: it was being written when the time was over.
        """
        pending = _Pending[Q, A](request, size_bytes + REQUEST_OVERHEAD_BYTES, self._clock.monotonic() + timeout_seconds)
        self._enqueue(partition, pending)
        if not pending.done.wait(timeout_seconds):
            self._give_up(partition, pending)
        answer = pending.answer
        if isinstance(answer, MyQueueError):
            raise answer
        return answer  # type: ignore[return-value]

    def run(self, stopping: threading.Event) -> None:
        """Write groups until told to stop; then what waits is still written. Run it in several threads."""
        with self._changed:
            self._threads += 1
        try:
            while (taken := self._take(stopping)) is not None:
                self._write_group(*taken)
        finally:
            with self._changed:
                self._threads -= 1

    @property
    def queued_bytes(self) -> int:
        return self._queued_bytes

    def _enqueue(self, partition: PartitionId, pending: _Pending[Q, A]) -> None:
        with self._changed:
            if not self._threads:
                raise UnavailableError("this broker is starting or stopping; nothing was stored")
            if self._queued_bytes + pending.size_bytes > self._queue_bytes_max:
                raise OverloadedError(f"{self._queued_bytes} bytes wait to be written already; nothing was stored")
            self._count(pending.size_bytes)
            queue = self._queues.get(partition)
            if queue is None:
                self._queues[partition] = deque([pending])
                self._ready.append(partition)
                self._changed.notify()
            else:
                queue.append(pending)

    def _give_up(self, partition: PartitionId, pending: _Pending[Q, A]) -> None:
        with self._changed:
            if pending.done.is_set():
                return
            if pending.taken:
                raise OutcomeUnknownError()
            self._queues[partition].remove(pending)
            self._count(-pending.size_bytes)
        raise OverloadedError("the turn did not come in time; nothing was stored")

    def _take(self, stopping: threading.Event) -> tuple[PartitionId, list[_Pending[Q, A]]] | None:
        with self._changed:
            while True:
                while self._ready:
                    partition = self._ready.popleft()
                    group = self._group(self._queues[partition])
                    if group:
                        return partition, group
                    del self._queues[partition]  # all of them gave up
                if stopping.is_set():
                    return None
                self._changed.wait(IDLE_CHECK_SECONDS)

    @staticmethod
    def _group(queue: deque[_Pending[Q, A]]) -> list[_Pending[Q, A]]:
        group: list[_Pending[Q, A]] = []
        size = 0
        while queue and len(group) < GROUP_REQUESTS_MAX and (not group or size + queue[0].size_bytes <= GROUP_BYTES_MAX):
            pending = queue.popleft()
            pending.taken = True
            size += pending.size_bytes
            group.append(pending)
        return group

    def _write_group(self, partition: PartitionId, group: list[_Pending[Q, A]]) -> None:
        again: list[_Pending[Q, A]] = []
        try:
            answers: Sequence[A | Later[A] | MyQueueError] = self._write(partition, [pending.request for pending in group])
        except LogBusyError as error:
            now = self._clock.monotonic()
            again = [pending for pending in group if pending.deadline > now]
            group = [pending for pending in group if pending.deadline <= now]
            answers = [error] * len(group)
        except MyQueueError as error:
            answers = [error] * len(group)
        with self._changed:
            queue = self._queues[partition]
            for pending in reversed(again):
                pending.taken = False
                queue.appendleft(pending)
            later = [(pending, answer) for pending, answer in zip(group, answers, strict=True) if isinstance(answer, Later)]
            for pending, answer in zip(group, answers, strict=True):
                if not isinstance(answer, Later):
                    pending.resolve(answer)
                    self._count(-pending.size_bytes)
            if queue:
                self._ready.append(partition)
                self._changed.notify()
            else:
                del self._queues[partition]
        for pending, answer in later:
            answer.then(functools.partial(self._told, pending))

    def _told(self, pending: _Pending[Q, A], answer: A | MyQueueError) -> None:
        pending.resolve(answer)
        with self._changed:
            self._count(-pending.size_bytes)

    def _count(self, size_bytes: int) -> None:
        self._queued_bytes += size_bytes
        self._on_queued(self._queued_bytes)
