"""Sends chunks to the partitions' leaders, each once: named producers whose requests are numbered the same way when a write is repeated."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from myqueue.errors import ConflictError, DuplicateSequenceError, UnavailableError, UnknownPartitionError, UnknownTopicError
from myqueue.protocol import routes, wire
from myqueue.protocol.batch import BATCH_TYPE

from .chunks import Chunk, Chunker, Row, rows_of
from .options import WriteOptions

if TYPE_CHECKING:
    from myqueue.client.connection import Connection

NAMED_PRODUCERS_FROM = 1 << 62  # ids of named producers; the managers count theirs up from 1 and never come so far


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes: a task of a query or of a named write. ``epoch`` rises with every micro-batch; an older one is refused from then on."""

    name: str
    epoch: int
    number: int  # of the task

    @property
    def producer_id(self) -> int:
        """The same for the same name, in whatever process and after whatever crash."""
        digest = hashlib.sha256(f"{self.name}/{self.number}".encode()).digest()
        return NAMED_PRODUCERS_FROM | int.from_bytes(digest[:8], "big") >> 2


@dataclass(frozen=True, slots=True)
class Written:
    """What a task wrote. ``repeated`` of the messages were there already."""

    messages: int = 0
    requests: int = 0
    repeated: int = 0


def write_batches(batches: Iterable[Any], writer: Writer, options: WriteOptions, connection: Connection) -> Written:
    """Store the rows of Arrow batches. See :func:`write_rows`."""
    groups = (rows_of(batch, topic=options.topic, include_headers=options.include_headers) for batch in batches)
    return write_rows(groups, writer, options, connection)


def write_rows(groups: Iterable[Iterable[Row]], writer: Writer, options: WriteOptions, connection: Connection) -> Written:
    """Store rows; when this returns, each is on disk exactly once, also if the same writer wrote the same rows before.

    Raises:
        BadRequestError, UnknownTopicError, TooLargeError: a row that cannot be written. Chunks before it may be stored.
        ConflictError: a request of this writer is there with another number of messages: the write is not the same as before.
        ProducerFencedError: a later micro-batch of this query has been written: this task is a left-over.
        UnavailableError: no leader answered within ``retryTimeoutSeconds``. To be repeated.
    """
    counts: dict[str, int] = {}

    def partition_count(topic: str) -> int:
        if topic not in counts:
            counts[topic] = connection.refresh_until([topic], options.retry_timeout_seconds).partition_count(topic)
        return counts[topic]

    chunker, written = Chunker(partition_count, writer.number), Written()
    for rows in groups:
        for chunk in chunker.add(rows):
            written = _send(connection, chunk, writer, options, written)
    for chunk in chunker.rest():
        written = _send(connection, chunk, writer, options, written)
    return written


def _send(connection: Connection, chunk: Chunk, writer: Writer, options: WriteOptions, so_far: Written) -> Written:
    path = routes.RECORDS.format(topic=chunk.partition.topic, partition=chunk.partition.partition)
    headers = {"Content-Type": BATCH_TYPE, routes.PRODUCER_ID: str(writer.producer_id), routes.PRODUCER_EPOCH: str(writer.epoch),
               routes.PRODUCER_SEQ: str(chunk.seq)}
    body = chunk.body()

    def attempt() -> bool:
        connection.refresh(when_stale=True)
        try:
            answer = connection.partition_call(chunk.partition, "POST", path, headers=headers, body=body,
                                               read_timeout_seconds=options.request_timeout_seconds, repeatable=True)
        except DuplicateSequenceError:
            return True  # stored, and so long ago that the leader does not know where
        except (UnknownTopicError, UnknownPartitionError) as error:
            if chunk.partition not in connection.refresh().partitions:
                raise
            raise UnavailableError(f"the leader of {chunk.partition} does not know it yet: {error.message}") from error
        stored = wire.appended_from_json(answer.json())
        if stored.duplicate and stored.record_count != len(chunk.records):
            raise ConflictError(f"{chunk.partition}: request {chunk.seq} of this writer was stored before with {stored.record_count} messages, "
                                f"now it has {len(chunk.records)}: other rows under the same name are not stored")
        return stored.duplicate

    repeated = connection.persistently(attempt, options.retry_timeout_seconds)
    count = len(chunk.records)
    return Written(so_far.messages + count, so_far.requests + 1, so_far.repeated + (count if repeated else 0))
