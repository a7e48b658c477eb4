"""The store of partition logs: what every implementation promises. PostgreSQL for service, memory for tests and simulation.

A log is changed only while it is held (:meth:`LogStore.locked`), which is one transaction: everything that was written is on
disk when the ``with`` block has been left without an error, and nothing of it where the block raised. Reads see committed
entries only and never wait for a writer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Protocol

from db.replication.log import LogView
from myqueue.errors import UnavailableError
from myqueue.protocol.chain import GENESIS, EntryHead
from myqueue.protocol.entry import Border, LogEnd, LogEntry, Planned
from myqueue.protocol.fold import LogState
from myqueue.protocol.types import PartitionId, Record

EMPTY_END = LogEnd()


class LogBusyError(UnavailableError):
    """Another transaction holds the log; nothing was stored."""


class HeadMovedError(UnavailableError):
    """The log is not as it was remembered; nothing was stored."""


@dataclass(frozen=True, slots=True)
class Head:
    """A partition's head row, and its commit position as far as this replica knows it."""

    promised_epoch: int = 0
    leader_epoch: int = 0
    voters: Mapping[int, str | None] = field(default_factory=dict)
    replication_factor: int = 1
    learners: Sequence[int] = ()
    start_lsn: int = 0  # what is stored begins here
    start_offset: int = 0
    start_epoch: int = 0
    start_chain: bytes = GENESIS
    end: LogEnd = EMPTY_END
    commit_lsn: int = 0
    commit_offset: int = 0
    applied_lsn: int = 0
    seeding_until: int | None = None
    fault: str | None = None
    trim_offset: int = 0  # as far as this replica has folded

    @property
    def earliest(self) -> int:
        """The first offset that is served."""
        return max(self.start_offset, self.trim_offset)

    def begun_at(self, border: Border, epoch: int, chain: bytes) -> Head:
        """The head of the log that begins at this border, behind an entry of this epoch and chain."""
        return replace(self, start_lsn=border.lsn, start_offset=border.offset, start_epoch=epoch, start_chain=chain)

    def begun_anew(self, start: LogEnd, state: LogState, applied_lsn: int) -> Head:
        """The head of an empty log that begins and ends at ``start`` and waits for the entries up to ``applied_lsn``."""
        begun = self.begun_at(Border(start.lsn, start.offset), start.epoch, start.chain)
        return replace(begun, end=start, commit_lsn=start.lsn, commit_offset=start.offset, applied_lsn=start.lsn, trim_offset=state.trim_offset,
                       seeding_until=applied_lsn if applied_lsn > start.lsn else None, fault=None)


@dataclass(frozen=True, slots=True)
class HeldPartition:
    """A partition that this store holds, as it is listed."""

    topic: str
    id: PartitionId
    head: Head


@dataclass(frozen=True, slots=True)
class Wanted:
    """Whose state a decision needs."""

    producers: frozenset[int] = frozenset()
    consumers: frozenset[str] = frozenset()
    requests: frozenset[tuple[str, str]] = frozenset()  # (consumer, request_id)
    trim: bool = False  # the trim offset, what is not folded yet included

    def __bool__(self) -> bool:
        return bool(self.producers or self.consumers or self.requests or self.trim)


NOTHING = Wanted()


@dataclass(frozen=True, slots=True)
class Remembered:
    """A log as this process left it when it wrote there last. Whether it is so still shows when something is written on it.

    ``state`` holds some of its producers, every entry included; ``place`` is the store's own.
    """

    head: Head
    state: LogState
    place: int = 0

    def holds(self, wanted: Wanted) -> bool:
        """Whether nothing is wanted but these producers."""
        return wanted.producers <= self.state.producers.keys() and not (wanted.consumers or wanted.requests or wanted.trim)


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One committed record at its place."""

    offset: int
    record: Record
    append_time: int


@dataclass(frozen=True, slots=True)
class EntryMark:
    """What a decision looks at of one entry."""

    head: EntryHead
    chain: bytes


@dataclass(frozen=True, slots=True)
class Part:
    """What of a log lies in a segment that is not written to any more."""

    end: Border
    append_time: int | None  # of the last entry there, microseconds since 1970; None where it is not held
    size_bytes: int | None  # None where it was not asked for


@dataclass(frozen=True, slots=True)
class Slice:
    """What a read found: committed blocks as an ``entries`` body, and the log's bounds at that moment."""

    body: bytes  # ENTRIES_MAGIC alone where there was nothing
    record_count: int
    start_offset: int  # the first one that is served
    end_offset: int  # committed
    epoch: int
    fault: str | None = None  # why this log is not served: then the body is empty
    seeding: bool = False  # nor this one, yet


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found of a stretch of a log: what lies below ``next_offset`` has been looked at."""

    records: list[StoredRecord]
    next_offset: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A head, and everything that is folded at its applied position, as of one moment."""

    head: Head
    state: LogState


class HeldLog(Protocol):
    """A log under its lock. ``head`` and ``state`` are as of the lock; ``state`` holds what was wanted, every entry included."""

    @property
    def head(self) -> Head: ...

    @property
    def state(self) -> LogState: ...

    @property
    def log(self) -> LogView:
        """The log as a decision reads it."""

    def append(self, entries: Sequence[LogEntry], end: LogEnd, changes: LogState | None = None) -> tuple[Sequence[LogEntry], LogEnd]:
        """Add entries behind the end; ``end`` is where the log ends then. Those that are not chained yet are chained here: both are returned so.

        With ``changes``, what folding these entries changes, the log may be remembered.

        Raises:
            CorruptBatchError: an entry cannot be stored. The whole transaction is lost.
        """

    def commit(self, lsn: int, offset: int, changes: LogState) -> None:
        """Raise the commit position, and fold up to it: ``changes`` is what folding the entries below ``lsn`` changes."""

    def offset_at(self, lsn: int) -> int:
        """The offset of the next record at this border of the log, start <= lsn <= end."""

    def truncate(self, lsn: int) -> None:
        """Forget the entries from ``lsn`` on, which is not below what is committed; ``head.end`` is there then."""

    def raise_commit(self, lsn: int, offset: int) -> None:
        """Raise the commit position and fold nothing."""

    def begin_anew(self, start: LogEnd, state: LogState, applied_lsn: int) -> None:
        """Forget what is held here and begin at ``start``, the end of a log whose earlier entries are not to be had, with the state folded at
        ``applied_lsn``, at or above it. Until the log reaches that, this replica is being seeded: it folds nothing and keeps the state as it is.

        ``start`` is above what is committed here, or this replica is damaged, which it is no longer.
        """

    def end_seeding(self, offset: int) -> None:
        """The log has reached the position of the state it was given, ``seeding_until``, where the next record has ``offset``: the fold goes on."""

    def set_learners(self, learners: Sequence[int]) -> None:
        """Who gets the log beside the voters."""

    def set_fault(self, text: str) -> None:
        """This log is served no longer, and why."""

    def promise(self, epoch: int) -> None:
        """Promise ``epoch``, which is above the present promise: nothing below it is taken any more, and a leadership ends."""

    def lead(self, epoch: int, voters: Mapping[int, str | None], replication_factor: int, learners: Sequence[int] = ()) -> None:
        """Promise ``epoch`` and lead in it."""

    def borders(self) -> Sequence[Border]:
        """Where this log may begin, in order: behind its part of each segment that takes no more entries. Each is the end of a whole request."""

    def begin_at(self, border: Border) -> None:
        """Let the log begin at one of its borders, which is at or below what is folded; what lies below is not held any more.

        The head remembers epoch and chain of the entry before. The disk is given back when no log begins in a segment any more.
        """

    def record_at(self, offset: int) -> StoredRecord:
        """The record at an offset that is committed and not below the start."""

    def has_entry(self, lsn: int, chain: bytes) -> bool:
        """Whether the entry at ``lsn`` has this chain, and so whether the log up to it is the one that was meant."""


class LogStore(Protocol):
    """Logs by partition. Every call has a limit on its waits; foreign errors come out as ours."""

    def create(self, partition: PartitionId, *, topic: str, config: Mapping[str, object]) -> None:
        """Make an empty log with its topic's first segment, unless it is there. The topic's name and config are set in any case. What a replica
        that was dropped here had promised is promised still.
        """

    def configure(self, configs: Mapping[int, Mapping[str, object]]) -> None:
        """Set the configs of topics, by id; one that is not here is no error."""

    def drop(self, topic_id: int) -> list[PartitionId]:
        """Forget a topic and all its logs here, and give the disk back; which there were. None is no error."""

    def drop_partition(self, partition: PartitionId, *, before_epoch: int) -> bool:
        """Forget one replica but for its promise, unless it has promised this epoch or a later one; whether it is gone now, or was.
        Its topic may have others here.
        """

    def discard_damaged(self, partition: PartitionId, *, rows_max: int) -> bool:
        """Delete some entries of a log that has a fault, from its beginning on; whether none is left, or it has no fault any more."""

    def topic(self, topic_id: int) -> tuple[str, Mapping[str, object]] | None:
        """A topic's name and config; None where nothing of it is here."""

    def locked(self, partition: PartitionId, wanted: Wanted = NOTHING, *, lock_timeout_seconds: float = 5.0) -> AbstractContextManager[HeldLog]:
        """Hold a log: one transaction.

        Raises:
            UnknownPartitionError: there is no such log here.
            LogBusyError: the lock was not to be had in time; nothing was stored.
            UnavailableError: the database cannot be reached or gave up before the commit; nothing was stored.
            OutcomeUnknownError: the commit's answer was lost. Hold the log again and look before doing anything else.
        """

    def remembered(self, partition: PartitionId, wanted: Wanted) -> Remembered | None:
        """A log as it was left last, with the state of all these producers; None where that is not known, or where more than producers is wanted."""

    def append_expecting(self, partition: PartitionId, remembered: Remembered, entries: Sequence[LogEntry], end: LogEnd, changes: LogState, *,
                         commits: bool, wait: Callable[[], None] | None = None, on_sent: Callable[[Remembered], None] = lambda left: None,
                         lock_timeout_seconds: float = 5.0) -> Planned:
        """Append entries to a log that is as it was remembered: what :meth:`locked` does in one exchange, or two where that is much, instead of
        three; the entries and the end, chained.

        Args:
            changes: what folding the entries changes.
            commits: the commit position is raised to the end, and the entries are folded.
            wait: the log is to become as it was remembered by a transaction that is under way. Waits for that, and raises where it did not;
                much is sent before, and looked at by nobody until it is committed.
            on_sent: called where it is much, once all is sent and only the commit is waited for: how the log is left then.

        Raises:
            HeadMovedError: the log is not as it was remembered, and is not remembered so any more. Nothing was stored.
            CorruptBatchError: an entry cannot be stored. Nothing was stored.
            LogBusyError, UnavailableError, OutcomeUnknownError: as from ``locked``.
        """

    def advance(self, partition: PartitionId, lsn: int, offset: int) -> None:
        """Raise the commit position to a border of the log, without the log's lock and without waiting for the disk: it is a lower bound."""

    def fold(self, partition: PartitionId, *, entries_max: int = 2_000) -> bool:
        """Fold what is committed and not folded, about so many entries; whether something is left. Does not wait for the disk either."""

    def entries(self, partition: PartitionId, first: int, end: int, *, bytes_max: int) -> list[LogEntry]:
        """Stored entries from lsn ``first`` to below ``end``, as many as fit, at least one if there is one. Committed or not.

        The rows up to ``end`` are looked at, so that the caller bounds their number too.
        """

    def snapshot(self, partition: PartitionId) -> Snapshot:
        """Head and all folded state of one moment. Raises UnknownPartitionError."""

    def mark(self, partition: PartitionId, lsn: int) -> EntryMark | None:
        """The entry at ``lsn`` without its columns; None where it is not held."""

    def parts(self, partition: PartitionId, *, with_sizes: bool) -> list[Part]:
        """A log's parts that may be dropped whole, from its start on; the segment that is written to is none. Each is looked at once."""

    def may_begin_later(self) -> list[PartitionId]:
        """The logs here that have a border to begin at, by what is trimmed and folded, as a look without their locks shows."""

    def drop_segments(self) -> list[int]:
        """Drop what no log begins in any more and nobody is reading; the segments dropped. What is busy is left for the next time."""

    def head(self, partition: PartitionId) -> Head:
        """The head without a lock. Raises UnknownPartitionError."""

    def read(self, partition: PartitionId, offset: int, *, bytes_max: int, records_max: int) -> Slice:
        """Committed blocks from the one that holds ``offset`` on, at least one if there is one.

        ``bytes_max`` and ``records_max`` bound it as far as whole blocks allow; the first block may begin before ``offset``.
        At or beyond the committed end, or below the first offset that is served, the body is empty and the bounds say so.

        Raises:
            UnknownPartitionError: there is no such log here.
        """

    def first_offset_since(self, partition: PartitionId, append_time: int) -> int | None:
        """The offset of the first committed record that was appended at or after a time (microseconds since 1970) and is served; None where
        there is none yet. Does not look at the log as a whole.

        Raises:
            UnknownPartitionError: there is no such log here.
            LogFaultError: an entry is missing.
        """

    def search(self, partition: PartitionId, offset: int, end: int, *, key: bytes | None, records_max: int, bytes_max: int, scan_max: int) -> Found:
        """Committed records from ``offset`` to below ``end`` that have this key, or (None) all of them, in order.

        Looks at no more than ``scan_max`` records and comes at least one further, unless ``end`` is reached or nothing more is committed. Ends
        early where ``records_max`` are found, or ``bytes_max`` of values, keys and headers; the first one comes however large it is. What is
        not served any more is passed over.

        Raises:
            UnknownPartitionError: there is no such log here.
        """

    def consumer_offsets(self, partitions: Sequence[PartitionId], consumer: str) -> dict[PartitionId, tuple[Head, int | None]]:
        """Heads, and the offsets of one consumer by all that is committed, folded or not (None: it has none). What is not held here is missing."""

    def topic_id(self, topic: str) -> int | None:
        """The identity of the topic with this name, the newest where there are several."""

    def held(self, topic: str | None = None) -> list[HeldPartition]:
        """The logs here, by topic and partition."""

    def sizes(self) -> dict[str, int]:
        """Bytes on disk by topic, whatever is trimmed and not dropped yet included."""
