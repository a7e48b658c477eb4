"""PURE: rows → requests. The same rows in the same order give the same requests, however they came in batches.

That is what makes a write repeatable: request number n of a writer to a partition is the same request when the rows are written again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from myqueue.errors import BadRequestError, UnknownPartitionError
from myqueue.protocol.batch import check_record, pack, pack_values, record_bytes
from myqueue.protocol.partitioner import partition_for
from myqueue.protocol.types import Record, TopicPartition

CHUNK_BYTES, CHUNK_RECORDS = 1 << 20, 10_000
TURN_RECORDS = 500  # keyless rows that go to one partition before the next one has its turn


class Chunk(NamedTuple):
    """One produce request: the ``seq``-th of its writer to this partition."""

    partition: TopicPartition
    seq: int
    records: list[Record]

    def body(self) -> bytes:
        """In the batch format."""
        plain = all(record.key is None and not record.headers and record.timestamp_us is None for record in self.records)
        return pack_values([record.value for record in self.records]) if plain else pack(self.records)


class Row(NamedTuple):
    """What one row says; None where it has not got the column."""

    topic: str
    partition: int | None
    record: Record


@dataclass(slots=True)
class _Waiting:
    records: list[Record] = field(default_factory=list)
    bytes: int = 0
    next_seq: int = 0


class Chunker:
    """Collects rows by partition and gives a chunk whenever one is full."""

    def __init__(self, partition_count: Callable[[str], int], first_turn: int) -> None:
        """``partition_count`` says how many partitions a topic has; ``first_turn`` spreads the writers over them."""
        self._partition_count, self._first_turn = partition_count, first_turn
        self._waiting: dict[TopicPartition, _Waiting] = {}
        self._keyless: dict[str, int] = {}

    def add(self, rows: Iterable[Row]) -> Iterator[Chunk]:
        """Take rows in. Raises BadRequestError, TooLargeError for a row that cannot be written."""
        for row in rows:
            check_record(row.record)
            place = TopicPartition(row.topic, self._place(row))
            waiting = self._waiting.setdefault(place, _Waiting())
            size = record_bytes(row.record)
            if waiting.records and waiting.bytes + size > CHUNK_BYTES:
                yield self._take(place, waiting)
            waiting.records.append(row.record)
            waiting.bytes += size
            if len(waiting.records) == CHUNK_RECORDS:
                yield self._take(place, waiting)

    def rest(self) -> Iterator[Chunk]:
        """What is not in a full chunk, at the end."""
        for place, waiting in self._waiting.items():
            if waiting.records:
                yield self._take(place, waiting)

    def _take(self, place: TopicPartition, waiting: _Waiting) -> Chunk:
        chunk = Chunk(place, waiting.next_seq, waiting.records)
        waiting.records, waiting.bytes, waiting.next_seq = [], 0, waiting.next_seq + 1
        return chunk

    def _place(self, row: Row) -> int:
        count = self._partition_count(row.topic)
        if row.partition is not None:
            if not 0 <= row.partition < count:
                raise UnknownPartitionError(f"topic {row.topic!r} has {count} partitions, from 0 on, and no {row.partition}", partitions=count)
            return row.partition
        if row.record.key is not None:
            return partition_for(row.record.key, count)
        number = self._keyless.get(row.topic, 0)
        self._keyless[row.topic] = number + 1
        return (self._first_turn + number // TURN_RECORDS) % count


def rows_of(batch: Any, *, topic: str | None, include_headers: bool) -> Iterator[Row]:
    """The rows of an Arrow batch. Raises BadRequestError where a value or a topic is NULL."""
    columns = {name: batch.column(name).to_pylist() for name in batch.schema.names if name in ("value", "key", "partition")}
    if topic is None:
        columns["topic"] = batch.column("topic").to_pylist()
    if include_headers and "headers" in batch.schema.names:
        columns["headers"] = batch.column("headers").to_pylist()
    nothing = [None] * batch.num_rows
    for value, key, partition, named, headers in zip(
            *(columns.get(name, nothing) for name in ("value", "key", "partition", "topic", "headers")), strict=True):
        if value is None:
            raise BadRequestError("a value is NULL: a message has a value, which may be empty")
        if topic is None and named is None:
            raise BadRequestError("a topic is NULL: give every row one, or the option topic")
        yield Row(topic or named, partition, Record(_bytes(value), None if key is None else _bytes(key),
                                                    tuple((header["key"], header["value"]) for header in headers or ())))


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
