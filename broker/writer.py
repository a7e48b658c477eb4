"""Group commit: everything that waits for one partition goes into the next transaction together.

A partition is written by one thread of this process at a time; while its transaction is under way, the requests that
arrive wait for the next one. A large group lets another one follow it once only its commit is waited for: that one sends its rows
meanwhile, and commits behind it. Several processes contend on the head row's lock. The queue is bounded in bytes, every wait
has an end, and a partition whose lock is held by others gives its thread back after a moment.
"""

from __future__ import annotations

import functools
import itertools
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from db.log_store import LogBusyError, Remembered
from myqueue.clock import Clock
from myqueue.errors import MyQueueError, OutcomeUnknownError, OverloadedError, UnavailableError
from myqueue.protocol.types import PartitionId

Q = TypeVar("Q")
A = TypeVar("A")

GROUP_BYTES_MAX = 16 << 20
GROUP_REQUESTS_MAX = 256
REQUEST_OVERHEAD_BYTES = 512
IDLE_CHECK_SECONDS = 0.5
UNDER_WAY_MAX = 2  # groups of a partition
BEFORE_SECONDS = 3.0  # wait for the group before to be over; in an open transaction, which the database ends after 5 s (db/engine.py)


class Later(ABC, Generic[A]):
    """An answer that does not come with the commit: the group's thread goes on, and the request waits for it."""

    @abstractmethod
    def then(self, told: Callable[[A | MyQueueError], None]) -> None:
        """Have ``told`` called once, in any thread, perhaps at once."""


class Turn:
    """A group's place behind the one before it, and before the next."""

    def __init__(self, before: Turn | None = None, offer: Callable[[], None] = lambda: None) -> None:
        self._before, self._offer = before, offer
        self._is_over, self._has_failed = threading.Event(), False
        self.leaves: Remembered | None = None  # the log, if this group is stored; from then on another may follow it

    @property
    def expected(self) -> Remembered | None:
        """The log as the group before leaves it, if that is stored: its commit is under way. None where there is no such group."""
        return None if self._before is None else self._before.leaves

    def let_follow(self, leaves: Remembered) -> None:
        """Only this group's commit is waited for: the next one may begin with what does not depend on it."""
        self.leaves = leaves
        self._offer()

    def wait(self) -> None:
        """Wait for the group before.

        Raises:
            LogBusyError: it is not stored as it was expected, or is not over in time. It comes again, and this one behind it.
        """
        if self._before is not None and (not self._before._is_over.wait(BEFORE_SECONDS) or self._before._has_failed):
            raise LogBusyError("the requests before are not stored yet; nothing was stored")

    def fail(self) -> None:
        """The log is not left as it was told, or nobody knows: whoever follows is to know that at once."""
        self._has_failed = True
        self._is_over.set()

    def end(self) -> None:
        self._is_over.set()
        self._before = None


@dataclass(eq=False, slots=True)
class _Pending(Generic[Q, A]):
    request: Q
    size_bytes: int
    deadline: float
    number: int = 0  # in the order in which they came
    done: threading.Event = field(default_factory=threading.Event)
    answer: A | MyQueueError | None = None
    taken: bool = False

    def resolve(self, answer: A | MyQueueError) -> None:
        self.answer = answer
        self.done.set()


@dataclass(eq=False, slots=True)
class _Line(Generic[Q, A]):
    """What waits for a partition, and the groups of it that are under way."""

    queue: deque[_Pending[Q, A]] = field(default_factory=deque)
    under_way: int = 0
    last: Turn | None = None  # of them
    is_ready: bool = False  # for a thread, which finds it in ``_ready``

    @property
    def may_be_written(self) -> bool:
        return not self.under_way or (self.under_way < UNDER_WAY_MAX and self.last is not None and self.last.leaves is not None)


class GroupWriter(Generic[Q, A]):
    """Hands requests of a partition to ``write`` in groups, in the order they came.

    Args:
        write: stores a group in one transaction, in its turn, and returns an answer, an error, or one that comes later, per request. It may raise
            LogBusyError: the group is tried again until its requests' time is over; any other MyQueueError is the answer of the whole group.
        queue_bytes_max: what may wait; beyond it requests are refused.
    """

    def __init__(self, write: Callable[[PartitionId, Sequence[Q], Turn], Sequence[A | Later[A] | MyQueueError]], *, clock: Clock,
                 queue_bytes_max: int, on_queued: Callable[[int], None] = lambda size: None) -> None:
        self._write, self._clock, self._queue_bytes_max, self._on_queued = write, clock, queue_bytes_max, on_queued
        self._changed = threading.Condition()
        # Guarded by the condition. A partition has a line exactly while something of it waits or is under way.
        self._lines: dict[PartitionId, _Line[Q, A]] = {}
        self._ready: deque[PartitionId] = deque()
        self._numbers = itertools.count()
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
            pending.number = next(self._numbers)
            line = self._lines.setdefault(partition, _Line())
            line.queue.append(pending)
            self._offer(partition, line)

    def _offer(self, partition: PartitionId, line: _Line[Q, A]) -> None:
        """Have a thread take the partition, if there is something to write now."""
        if line.queue and not line.is_ready and line.may_be_written:
            line.is_ready = True
            self._ready.append(partition)
            self._changed.notify()

    def _let_follow(self, partition: PartitionId) -> None:
        with self._changed:
            self._offer(partition, self._lines[partition])

    def _give_up(self, partition: PartitionId, pending: _Pending[Q, A]) -> None:
        with self._changed:
            if pending.done.is_set():
                return
            if pending.taken:
                raise OutcomeUnknownError()
            self._lines[partition].queue.remove(pending)
            self._count(-pending.size_bytes)
        raise OverloadedError("the turn did not come in time; nothing was stored")

    def _take(self, stopping: threading.Event) -> tuple[PartitionId, list[_Pending[Q, A]], Turn] | None:
        with self._changed:
            while True:
                while self._ready:
                    partition = self._ready.popleft()
                    line = self._lines[partition]
                    line.is_ready = False
                    group = self._group(line.queue)
                    if group:
                        line.last = Turn(line.last if line.under_way else None, functools.partial(self._let_follow, partition))
                        line.under_way += 1
                        return partition, group, line.last
                    self._forget(partition, line)  # all of them gave up
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

    def _write_group(self, partition: PartitionId, group: list[_Pending[Q, A]], turn: Turn) -> None:
        again: list[_Pending[Q, A]] = []
        try:
            answers: Sequence[A | Later[A] | MyQueueError] = self._write(partition, [pending.request for pending in group], turn)
        except LogBusyError as error:
            turn.fail()
            now = self._clock.monotonic()
            again = [pending for pending in group if pending.deadline > now]
            group = [pending for pending in group if pending.deadline <= now]
            answers = [error] * len(group)
        except MyQueueError as error:
            turn.fail()
            answers = [error] * len(group)
        with self._changed:
            line = self._lines[partition]
            for pending in again:
                pending.taken = False
            if again:  # the group before may have come back already: the order is theirs
                line.queue = deque(sorted([*again, *line.queue], key=_number))
            line.under_way -= 1
            line.last = None if line.last is turn else line.last
            turn.end()
            later = [(pending, answer) for pending, answer in zip(group, answers, strict=True) if isinstance(answer, Later)]
            for pending, answer in zip(group, answers, strict=True):
                if not isinstance(answer, Later):
                    pending.resolve(answer)
                    self._count(-pending.size_bytes)
            self._offer(partition, line)
            self._forget(partition, line)
        for pending, answer in later:
            answer.then(functools.partial(self._told, pending))

    def _forget(self, partition: PartitionId, line: _Line[Q, A]) -> None:
        if not (line.queue or line.under_way or line.is_ready):
            del self._lines[partition]

    def _told(self, pending: _Pending[Q, A], answer: A | MyQueueError) -> None:
        pending.resolve(answer)
        with self._changed:
            self._count(-pending.size_bytes)

    def _count(self, size_bytes: int) -> None:
        self._queued_bytes += size_bytes
        self._on_queued(self._queued_bytes)


def _number(pending: _Pending[Any, Any]) -> int:
    return pending.number
