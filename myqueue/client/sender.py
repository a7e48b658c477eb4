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
            now = self._connection.clock.monotonic()
            for expired in self._accumulator.take_expired(now):
                self._give_up(expired, expired.error or UnavailableError("not delivered in time; it was not sent yet"))
            batch = self._accumulator.take_ready(now)
            if batch is None:
                return self._accumulator.next_due()
        self._attempt(batch)
        return 0.0

    def _attempt(self, batch: Batch) -> None:
        try:
            with understood():
                appended = self._append(batch)
        except DuplicateSequenceError:
            appended = None  # stored by an earlier attempt, its place no longer known
        except MyQueueError as error:
            self._failed(batch, error)
            return
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
        if batch.lane.identity is None:
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

    def _failed(self, batch: Batch, error: MyQueueError) -> None:
        may_retry = error.retriable or error.outcome == UNKNOWN or (isinstance(error, NOT_THERE) and not self._is_gone(batch))
        with self._changed:
            if not self._accumulator.holds(batch):
                return
            batch.doubtful = batch.doubtful or error.outcome == UNKNOWN
            if not may_retry:
                self._give_up(batch, error)
                return
            if isinstance(error, SequenceGapError):
                self._accumulator.renumber(batch)
            delay = max(wire.wait_seconds_of(error), self._connection.backoff.delay_seconds(batch.lane.failures + 1, random.random()))
            self._accumulator.retry(batch, error, not_before=min(self._connection.clock.monotonic() + delay, batch.deadline))
            self._changed.notify_all()

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
