"""What became of a message that was sent."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from ..errors import MyQueueError, OutcomeUnknownError
from ..protocol.types import Appended, Record, TopicPartition

RESULT_TIMEOUT_SECONDS = 120.0
LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Receipt:
    """Where a message is stored. ``offset`` is None where only a very late retry was answered: stored once, place no longer known."""

    topic: str
    partition: int
    offset: int | None
    append_time_us: int | None = None


@dataclass(frozen=True, slots=True)
class Undelivered:
    """A message that was accepted and not delivered, and the last error it met. Its outcome may be unknown: it may be stored."""

    topic: str
    partition: int
    record: Record
    error: MyQueueError | None = None

    @property
    def value(self) -> bytes:
        return self.record.value


class Completion:
    """One batch's outcome, shared by the deliveries of its records.

    Whoever waits for it is woken by the one woken before, not all at once: they would only wait for each other again, for the interpreter (GIL).
    So that nobody sleeps on, everybody who leaves once it is done wakes the next one, however it is left; whoever an interruption (Ctrl-C) in the
    very moment of leaving has cost his turn looks for himself a second later.

    Args:
        wanted: called whenever somebody begins to wait for it.
    """

    __slots__ = ("_is_done", "_waiting", "_wanted", "appended", "error", "first", "partition")

    def __init__(self, partition: TopicPartition, wanted: Callable[[Completion], object] = lambda completion: None) -> None:
        self.partition = partition
        self._wanted = wanted
        self.appended: Appended | None = None
        self.first = 0
        self.error: MyQueueError | None = None
        self._is_done = False
        self._waiting: deque[threading.Lock] = deque()  # a held one for each caller that sleeps

    def succeed(self, appended: Appended | None, first: int = 0) -> None:
        """Stored, from the ``first`` of the appended records on; None where the place is no longer known."""
        self.appended, self.first = appended, first
        self._release()

    def fail(self, error: MyQueueError) -> None:
        self.error = error
        self._release()

    def is_done(self) -> bool:
        return self._is_done

    def wait(self, timeout_seconds: float) -> bool:
        """Whether it is done within the time."""
        if self._is_done:
            return True
        self._wanted(self)
        turn, is_woken, left = threading.Lock(), False, timeout_seconds
        turn.acquire()
        try:
            self._waiting.append(turn)
            while not self._is_done and left > 0:
                is_woken = turn.acquire(timeout=min(left, LOOK_SECONDS))
                left -= LOOK_SECONDS
            return self._is_done
        finally:
            if not is_woken:
                self._forget(turn)
            if self._is_done:
                self._wake_next()

    def _release(self) -> None:
        """Done is said before anybody is woken: who begins to wait meanwhile is among those that are, or sees it."""
        self._is_done = True
        self._wake_next()

    def _wake_next(self) -> None:
        try:
            turn = self._waiting.popleft()
        except IndexError:
            return  # nobody sleeps
        turn.release()

    def _forget(self, turn: threading.Lock) -> None:
        with suppress(ValueError):  # it has just been woken after all
            self._waiting.remove(turn)


class Delivery(tuple):
    """A message under way: (the batch's completion, its place in the batch). A tuple because one is made per message."""

    __slots__ = ()

    def __repr__(self) -> str:
        completion = self[0]
        state = "under way" if not completion.is_done() else "failed" if completion.error else "delivered"
        return f"Delivery({completion.partition}, {state})"

    def is_done(self) -> bool:
        """Whether the outcome is known, good or bad."""
        return self[0].is_done()

    def result(self, timeout_seconds: float = RESULT_TIMEOUT_SECONDS) -> Receipt:
        """Wait until the message is durable, and say where it is. A batch lingers no longer once as many wait as did for the one before it.

        Raises:
            OutcomeUnknownError: no outcome within the time; the message goes on being sent.
            MyQueueError: it was given up; ``outcome`` says whether it may be stored nevertheless.
        """
        completion, index = self
        if not completion.wait(timeout_seconds):
            raise OutcomeUnknownError(f"the message to {completion.partition} is still under way after {timeout_seconds} s")
        if completion.error is not None:
            raise completion.error
        topic, partition = completion.partition
        appended = completion.appended
        if appended is None:
            return Receipt(topic, partition, None)
        return Receipt(topic, partition, appended.base_offset + completion.first + index, appended.append_time_us)
