"""Carries batches from the accumulator to the partitions' leaders, one attempt at a time."""

from __future__ import annotations

import random
import threading

from ..errors import (
    UNKNOWN,
    ClosedError,
    DuplicateSequenceError,
    MyQueueError,
    OutcomeUnknownError,
    ProducerFencedError,
    SequenceGapError,
    UnavailableError,
    UnknownPartitionError,
    UnknownProducerError,
    UnknownTopicError,
)
from ..protocol import batch as batches
from ..protocol import routes, wire
from ..protocol.receipts import receipt_of
from ..protocol.types import Appended, ProducerSequence, Record
from .accumulator import Accumulator, Batch
from .connection import Connection
from .housekeeping import Presence, attempt
from .receipts import ReceiptFile
from .transport import understood

PRODUCE_TIMEOUT_SECONDS = 10.0
NOT_THERE = (UnknownTopicError, UnknownPartitionError)  # of a leader that may just be behind
NOT_US = (UnknownProducerError, ProducerFencedError)  # the identity is of no more use


class Sender:
    """Its threads share it; ``changed`` is the lock around the accumulator and is notified when a batch has landed."""

    def __init__(self, connection: Connection, accumulator: Accumulator, changed: threading.Condition, presence: Presence, *,
                 receipts: ReceiptFile | None = None, produce_timeout_seconds: float = PRODUCE_TIMEOUT_SECONDS) -> None:
        self._connection = connection
        self._accumulator = accumulator
        self._changed = changed
        self._presence = presence
        self._receipts = receipts
        self._produce_timeout_seconds = produce_timeout_seconds

    def run_once(self) -> float | None:
        """Attempt one batch that is ready. Returns 0 after an attempt, else the time of the next one due, None if nothing waits."""
        with self._changed:
            batch = self.take()
            if batch is None:
                return self._accumulator.next_due()
        try:
            with understood():
                appended = self._append(batch)
        except DuplicateSequenceError:
            self.succeeded(batch, None)  # stored by an earlier attempt, its place no longer known
        except MyQueueError as error:
            self.failed(batch, error)
        else:
            self.succeeded(batch, appended)
        return 0.0

    def take(self) -> Batch | None:
        """A batch to attempt now; those whose time is over are given up. With the lock held."""
        now = self._connection.clock.monotonic()
        while expired := self._accumulator.take_expired(now):  # again, since one may cost others their sequence
            for batch in expired:
                self._give_up(batch, batch.error or UnavailableError("not delivered in time; it was not sent yet"))
        return self._accumulator.take_ready(now)

    def succeeded(self, batch: Batch, appended: Appended | None) -> None:
        """An attempt's batch is stored."""
        if self._receipts is not None:  # before anybody is told: who knows of an acknowledgement finds its receipt
            self._receipts.write(receipt_of(batch.lane.partition, len(batch.records), appended))
        with self._changed:
            if self._accumulator.holds(batch):
                self._accumulator.delivered(batch)
                for completion, first in batch.completions:
                    completion.succeed(appended, first)
                self._changed.notify_all()

    def _append(self, batch: Batch) -> Appended:
        if self._connection.is_stale:
            attempt(self._refresh)  # without a fresh picture the old one may still do
        if batch.sequence is None:  # then it is its lane's first, and only this thread cares for the lane's identity
            self._renew(batch)
        with self._changed:
            if not self._accumulator.holds(batch):
                raise ClosedError("the batch was given up before it left")
            sequence = self._accumulator.assign_sequence(batch)
        partition = batch.lane.partition
        answer = self._connection.partition_call(
            partition, "POST", routes.RECORDS.format(topic=partition.topic, partition=partition.partition),
            headers=_headers(sequence), body=body_of(batch), read_timeout_seconds=self._produce_timeout_seconds,
            repeatable=False)  # a repeat is an attempt of its own here: the first one's doubt must not hide behind the second one's answer
        self._presence.touch(sequence.producer_id)
        return wire.appended_from_json(answer.json())

    def _refresh(self) -> None:
        self._connection.refresh(when_stale=True)

    def _renew(self, batch: Batch) -> None:
        topic = batch.lane.partition.topic
        answer = self._connection.call("POST", routes.PRODUCERS, json={"topics": [topic], "create": False})
        registered = answer["producers"][topic]
        with self._changed:
            self._accumulator.renew(batch.lane, producer_id=registered["producer_id"], producer_epoch=registered["producer_epoch"])

    def failed(self, batch: Batch, error: MyQueueError) -> None:
        """An attempt did not end with what is surely stored."""
        may_retry = error.retriable or error.outcome == UNKNOWN or (isinstance(error, NOT_THERE) and not self._is_gone(batch))
        with self._changed:
            if self._accumulator.holds(batch):
                batch.doubtful = batch.doubtful or error.outcome == UNKNOWN
                self._conclude(batch, error, may_retry=may_retry)
                self._changed.notify_all()

    def _conclude(self, batch: Batch, error: MyQueueError, *, may_retry: bool) -> None:
        """What becomes of a batch whose attempt failed."""
        now, lane = self._connection.clock.monotonic(), batch.lane
        if not self._accumulator.is_first(batch):
            # Whatever it met: it is tried, and judged, once nothing is before it. That it came too early for the log is no error of its own.
            self._accumulator.retry(batch, batch.error if isinstance(error, SequenceGapError) else error, not_before=now)
            return
        orphan = lane.is_orphan(batch)
        if not may_retry and not (orphan and isinstance(error, NOT_US)):
            self._give_up(batch, error)
            return
        if isinstance(error, SequenceGapError) and not orphan and not batch.behind:  # else it may just have overtaken the one before it
            self._accumulator.renumber(batch)
        delay = max(wire.wait_seconds_of(error), self._connection.backoff.delay_seconds(lane.failures + 1, random.random()))
        self._accumulator.retry(batch, error, not_before=min(now + delay, batch.deadline))

    def _is_gone(self, batch: Batch) -> bool:
        """Whether a fresh picture has no such partition either: the leader that did not know it was not just behind."""
        try:
            with understood():
                return batch.lane.partition not in self._connection.refresh().partitions
        except UnknownTopicError:
            return True
        except MyQueueError:
            return False  # nobody knows: the next attempt asks again

    def _give_up(self, batch: Batch, error: MyQueueError) -> None:
        """What the last attempt met is told, but never that nothing was done where an earlier one may have stored it."""
        if batch.doubtful and error.outcome != UNKNOWN:
            error = OutcomeUnknownError(f"{error.message}; an earlier attempt may have stored it")
        self._accumulator.give_up(batch, error, forget_identity=isinstance(error, NOT_US))
        for completion, _ in batch.completions:
            completion.fail(error)
        self._changed.notify_all()


def body_of(batch: Batch) -> bytes:
    """The request's body: the same bytes at every attempt, since the records of a closed batch do not change."""
    if batch.plain:
        return batches.pack_values(batch.records)  # type: ignore[arg-type]
    return batches.pack([record if isinstance(record, Record) else Record(record) for record in batch.records])


def _headers(sequence: ProducerSequence) -> dict[str, str]:
    return {"Content-Type": batches.BATCH_TYPE, routes.PRODUCER_ID: str(sequence.producer_id),
            routes.PRODUCER_EPOCH: str(sequence.epoch), routes.PRODUCER_SEQ: str(sequence.seq)}
