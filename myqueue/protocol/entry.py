"""A log entry as a value: what a replica stores, sends, digests and folds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from .batch import Block
from .chain import GENESIS, MARKER, NO_PRODUCER, OFFSET_COMMIT, RECORDS, TRIM, Bytes, EntryHead, entry_chain
from .types import PartitionId, ProducerSequence


class LogEnd(NamedTuple):
    """Where a log ends, and so where its next entry goes. Positions are exclusive."""

    lsn: int = 0
    offset: int = 0
    epoch: int = 0  # of the last entry
    chain: bytes = GENESIS  # after the last entry
    append_time: int = 0  # of the last entry, microseconds since 1970; it never falls


class Border(NamedTuple):
    """A place between two requests of a log: the position and the offset of what comes next."""

    lsn: int
    offset: int


class LogEntry(NamedTuple):
    """One row of the log. Array columns are their elements only, as in a batch."""

    head: EntryHead
    chain: bytes  # UNCHAINED until it is written
    keys: Bytes | None = None
    values: Bytes | None = None
    headers: Bytes | None = None
    timestamps: Bytes | None = None
    body: Bytes | None = None

    @property
    def epoch(self) -> int:
        return self.head.epoch

    @property
    def request_index(self) -> int:
        return self.head.request_index

    @property
    def request_count(self) -> int:
        return self.head.request_count

    @property
    def size_bytes(self) -> int:
        """Of its columns."""
        return sum(len(column) for column in self[2:] if column is not None)

    def chain_after(self, previous: bytes) -> bytes:
        """The chain computed from the payload, given the one before; equal to ``chain`` unless a byte was damaged."""
        return entry_chain(previous, self.head, *self[2:])


UNCHAINED = b""
Planned = tuple[list[LogEntry], LogEnd]


def chained(previous: bytes, entries: Iterable[LogEntry]) -> Iterator[LogEntry]:
    """The entries behind ``previous``, each with its chain; one that has a chain keeps it. Digests are the dearest part of an entry: they are made
    one by one, as the entries are taken, so that a database can store the first ones meanwhile.
    """
    chain = previous
    for entry in entries:
        if not entry.chain:
            entry = LogEntry(entry[0], entry.chain_after(chain), *entry[2:])
        chain = entry.chain
        yield entry


def end_chained(end: LogEnd, entries: Sequence[LogEntry], previous: bytes) -> LogEnd:
    """Where a log ends behind these entries, which were chained behind ``previous``."""
    return end._replace(chain=entries[-1].chain if entries else previous)


def record_entries(partition: PartitionId, end: LogEnd, *, epoch: int, append_time: int, blocks: list[Block],
                   sequence: ProducerSequence | None) -> Planned:
    """One request's blocks as entries behind ``end``, and where the log ends after them, not chained yet. Costs per block, never per record."""
    producer = (NO_PRODUCER, NO_PRODUCER, NO_PRODUCER) if sequence is None else (sequence.producer_id, sequence.epoch, sequence.seq)
    lsn, offset = end[:2]
    entries, of_request = [], len(blocks)
    for index, block in enumerate(blocks):
        head = EntryHead(*partition, lsn, epoch, RECORDS, offset, block.count, append_time, *producer, index, of_request)
        entries.append(LogEntry(head, UNCHAINED, *block[1:]))
        lsn += 1
        offset += block.count
    return entries, LogEnd(lsn, offset, epoch, UNCHAINED, append_time)


def offset_entry(partition: PartitionId, end: LogEnd, *, epoch: int, append_time: int, body: bytes) -> Planned:
    """A consumer-offset commit behind ``end``."""
    return _single(partition, end, OFFSET_COMMIT, epoch, append_time, body)


def trim_entry(partition: PartitionId, end: LogEnd, *, epoch: int, append_time: int, body: bytes) -> Planned:
    """A trim behind ``end``: what lies below an offset is not served any more."""
    return _single(partition, end, TRIM, epoch, append_time, body)


def marker_entry(partition: PartitionId, end: LogEnd, *, epoch: int, append_time: int) -> Planned:
    """The marker that begins an epoch."""
    return _single(partition, end, MARKER, epoch, append_time, None)


def _single(partition: PartitionId, end: LogEnd, kind: int, epoch: int, append_time: int, body: bytes | None) -> Planned:
    head = EntryHead(*partition, end.lsn, epoch, kind, end.offset, 0, append_time, NO_PRODUCER, NO_PRODUCER, NO_PRODUCER, 0, 1)
    return [LogEntry(head, UNCHAINED, body=body)], LogEnd(end.lsn + 1, end.offset, epoch, UNCHAINED, append_time)
