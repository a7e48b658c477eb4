"""A log entry as a value: what a replica stores, sends, digests and folds."""

from __future__ import annotations

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
    chain: bytes
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

    def chain_after(self, previous: bytes) -> bytes:
        """The chain computed from the payload, given the one before; equal to ``chain`` unless a byte was damaged."""
        return entry_chain(previous, self.head, *self[2:])


Written = tuple[list[LogEntry], LogEnd]


def record_entries(partition: PartitionId, end: LogEnd, *, epoch: int, append_time: int, blocks: list[Block],
                   sequence: ProducerSequence | None) -> Written:
    """One request's blocks as entries behind ``end``, and where the log ends after them. Costs per block, never per record."""
    producer = (NO_PRODUCER, NO_PRODUCER, NO_PRODUCER) if sequence is None else (sequence.producer_id, sequence.epoch, sequence.seq)
    lsn, offset, _, chain, _ = end
    entries, of_request = [], len(blocks)
    for index, block in enumerate(blocks):
        head = EntryHead(*partition, lsn, epoch, RECORDS, offset, block.count, append_time, *producer, index, of_request)
        columns = block[1:]
        chain = entry_chain(chain, head, *columns)
        entries.append(LogEntry(head, chain, *columns))
        lsn += 1
        offset += block.count
    return entries, LogEnd(lsn, offset, epoch, chain, append_time)


def offset_entry(partition: PartitionId, end: LogEnd, *, epoch: int, append_time: int, body: bytes) -> Written:
    """A consumer-offset commit behind ``end``."""
    return _single(partition, end, OFFSET_COMMIT, epoch, append_time, body)


def trim_entry(partition: PartitionId, end: LogEnd, *, epoch: int, append_time: int, body: bytes) -> Written:
    """A trim behind ``end``: what lies below an offset is not served any more."""
    return _single(partition, end, TRIM, epoch, append_time, body)


def marker_entry(partition: PartitionId, end: LogEnd, *, epoch: int, append_time: int) -> Written:
    """The marker that begins an epoch."""
    return _single(partition, end, MARKER, epoch, append_time, None)


def _single(partition: PartitionId, end: LogEnd, kind: int, epoch: int, append_time: int, body: bytes | None) -> Written:
    head = EntryHead(*partition, end.lsn, epoch, kind, end.offset, 0, append_time, NO_PRODUCER, NO_PRODUCER, NO_PRODUCER, 0, 1)
    chain = entry_chain(end.chain, head, body=body)
    return [LogEntry(head, chain, body=body)], LogEnd(end.lsn + 1, end.offset, epoch, chain, append_time)
