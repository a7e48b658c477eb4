"""A LogStore in memory, with the same contract as the one over PostgreSQL: for simulation and unit tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from db.replication.log import MemoryLog, chain_before, epoch_before
from myqueue.errors import CorruptBatchError, UnknownPartitionError
from myqueue.protocol.batch import ENTRIES_MAGIC, Block, elements, encode_block, pack_entry_head, record_bytes, records_of
from myqueue.protocol.chain import RECORDS
from myqueue.protocol.entry import Border, LogEnd, LogEntry, Planned, chained, end_chained
from myqueue.protocol.fold import LogState
from myqueue.protocol.types import PartitionId

from .log_store import (
    NOTHING,
    EntryMark,
    Found,
    Head,
    HeadMovedError,
    HeldPartition,
    LogBusyError,
    Part,
    Remembered,
    Slice,
    Snapshot,
    StoredRecord,
    Wanted,
)


@dataclass
class _Log:
    head: Head = field(default_factory=Head)
    entries: list[LogEntry] = field(default_factory=list)
    folded: LogState = field(default_factory=LogState)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def committed_blocks(self) -> Iterator[LogEntry]:
        return (entry for entry in self.entries if entry.head.kind == RECORDS and entry.head.lsn < self.head.commit_lsn)


@dataclass
class _Held:
    """Changes are made on copies and put in place when the block is left."""

    head: Head
    state: LogState
    entries: list[LogEntry]
    changes: LogState = field(default_factory=LogState)
    given: LogState | None = None  # the folded state is this one from now on
    is_known: bool = False  # what was appended changes the state in a way that was said

    def append(self, entries: Sequence[LogEntry], end: LogEnd, changes: LogState | None = None) -> tuple[Sequence[LogEntry], LogEnd]:
        self.is_known = changes is not None
        for entry in entries:
            _check_storable(entry)
        written = list(chained(self.head.end.chain, entries))
        end = end_chained(end, written, self.head.end.chain)
        self.entries = [*self.entries, *map(_copy, written)]
        self.head = replace(self.head, end=end)
        return written, end

    @property
    def log(self) -> MemoryLog:
        head = self.head
        return MemoryLog(list(self.entries), head.start_lsn, head.start_epoch, head.start_chain)

    def offset_at(self, lsn: int) -> int:
        return self.head.start_offset if lsn == self.head.start_lsn else _after(self.entries[lsn - self.head.start_lsn - 1]).offset

    def truncate(self, lsn: int) -> None:
        head = self.head
        self.entries = self.entries[:lsn - head.start_lsn]
        start = LogEnd(head.start_lsn, head.start_offset, head.start_epoch, head.start_chain, head.end.append_time)
        self.head = replace(head, end=_after(self.entries[-1]) if self.entries else start)

    def raise_commit(self, lsn: int, offset: int) -> None:
        self.head = replace(self.head, commit_lsn=max(lsn, self.head.commit_lsn), commit_offset=max(offset, self.head.commit_offset))

    def begin_anew(self, start: LogEnd, state: LogState, applied_lsn: int) -> None:
        self.entries, self.given = [], state.copy()
        self.head = self.head.begun_anew(start, state, applied_lsn)

    def end_seeding(self, offset: int) -> None:
        until = self.head.seeding_until
        assert until is not None, "it is not being seeded"
        self.raise_commit(until, offset)
        self.head = replace(self.head, applied_lsn=until, seeding_until=None)

    def set_learners(self, learners: Sequence[int]) -> None:
        self.head = replace(self.head, learners=tuple(learners))

    def set_fault(self, text: str) -> None:
        self.head = replace(self.head, fault=text)

    def commit(self, lsn: int, offset: int, changes: LogState) -> None:
        self.head = replace(self.head, commit_lsn=lsn, commit_offset=offset, applied_lsn=lsn,
                            trim_offset=max(self.head.trim_offset, changes.trim_offset))
        self.changes = changes

    def promise(self, epoch: int) -> None:
        self.head = replace(self.head, promised_epoch=epoch)

    def lead(self, epoch: int, voters: Mapping[int, str | None], replication_factor: int, learners: Sequence[int] = ()) -> None:
        self.head = replace(self.head, promised_epoch=epoch, leader_epoch=epoch, voters=dict(voters), replication_factor=replication_factor,
                            learners=tuple(learners))

    def borders(self) -> list[Border]:
        return [Border(*_after(entry)[:2]) for entry in self.entries if entry.request_index == entry.request_count - 1]

    def begin_at(self, border: Border) -> None:
        epoch, chain = epoch_before(self.log, border.lsn), chain_before(self.log, border.lsn)
        self.entries = self.entries[border.lsn - self.head.start_lsn:]
        self.head = self.head.begun_at(border, epoch, chain)

    def record_at(self, offset: int) -> StoredRecord:
        entry = next(entry for entry in self.entries if entry.head.kind == RECORDS and _holds(entry, offset))
        return StoredRecord(offset, records_of(_block(entry))[offset - entry.head.base_offset], entry.head.append_time)

    def has_entry(self, lsn: int, chain: bytes) -> bool:
        return any(entry.head.lsn == lsn and entry.chain == chain for entry in self.entries)


def _identity(head: Head) -> tuple[object, ...]:
    """What a head must have kept for what is remembered of the log to hold."""
    return head.promised_epoch, head.leader_epoch, head.end, tuple(head.learners), head.fault, head.seeding_until


class MemoryLogStore:
    """Keeps everything in a dictionary."""

    def __init__(self) -> None:
        self._logs: dict[PartitionId, _Log] = {}
        self._names: dict[int, str] = {}
        self._topics: dict[int, tuple[str, Mapping[str, object]]] = {}
        self._promises: dict[PartitionId, int] = {}  # of replicas that were dropped
        self._memory: dict[PartitionId, Remembered] = {}

    def create(self, partition: PartitionId, *, topic: str, config: Mapping[str, object]) -> None:
        self._names[partition.topic_id] = topic
        self._topics[partition.topic_id] = topic, dict(config)
        self._logs.setdefault(partition, _Log(Head(promised_epoch=self._promises.get(partition, 0))))

    def configure(self, configs: Mapping[int, Mapping[str, object]]) -> None:
        for topic_id in configs.keys() & self._topics.keys():
            self._topics[topic_id] = self._topics[topic_id][0], dict(configs[topic_id])

    def drop(self, topic_id: int) -> list[PartitionId]:
        self._names.pop(topic_id, None)
        gone = sorted(partition for partition in self._logs if partition.topic_id == topic_id)
        for partition in gone:
            del self._logs[partition]
        self._promises = {partition: epoch for partition, epoch in self._promises.items() if partition.topic_id != topic_id}
        return gone

    def drop_partition(self, partition: PartitionId, *, before_epoch: int) -> bool:
        log = self._logs.get(partition)
        if log is not None and log.head.promised_epoch >= before_epoch:
            return False
        if log is not None:
            del self._logs[partition]
            self._promises[partition] = log.head.promised_epoch
        return True

    def discard_damaged(self, partition: PartitionId, *, rows_max: int) -> bool:
        log = self._log(partition)
        if log.head.fault is not None:
            log.entries = log.entries[rows_max:]
        return log.head.fault is None or not log.entries

    def topic(self, topic_id: int) -> tuple[str, Mapping[str, object]] | None:
        return self._topics.get(topic_id)

    @contextmanager
    def locked(self, partition: PartitionId, wanted: Wanted = NOTHING, *, lock_timeout_seconds: float = 5.0) -> Iterator[_Held]:
        log = self._log(partition)
        if not log.lock.acquire(timeout=lock_timeout_seconds):
            raise LogBusyError()
        try:
            held = _Held(log.head, _part(_above_applied(log), wanted), log.entries)
            yield held
            log.head, log.entries = held.head, held.entries
            log.folded = log.folded if held.given is None else held.given
            for of_log, changed in zip(_maps(log.folded), _maps(held.changes), strict=True):
                of_log.update(changed)
            log.folded.trim_offset = log.head.trim_offset
            self._memory.pop(partition, None)
            if held.is_known:
                self._memory[partition] = Remembered(log.head, LogState(dict(_above_applied(log).producers), trim_offset=log.head.trim_offset))
        finally:
            log.lock.release()

    def remembered(self, partition: PartitionId, wanted: Wanted) -> Remembered | None:
        found = self._memory.get(partition)
        return found if found is not None and found.holds(wanted) else None

    def append_expecting(self, partition: PartitionId, remembered: Remembered, entries: Sequence[LogEntry], end: LogEnd, changes: LogState, *,
                         commits: bool, wait: Callable[[], None] | None = None, on_sent: Callable[[Remembered], None] = lambda left: None,
                         lock_timeout_seconds: float = 5.0) -> Planned:
        if wait is not None:
            wait()
        self._memory.pop(partition, None)
        with self.locked(partition, Wanted(frozenset(changes.producers)), lock_timeout_seconds=lock_timeout_seconds) as held:
            if _identity(held.head) != _identity(remembered.head):
                raise HeadMovedError("the log is not as it was remembered")
            planned = held.append(entries, end, changes)
            if commits:
                held.commit(end.lsn, end.offset, changes)
        return planned

    def advance(self, partition: PartitionId, lsn: int, offset: int) -> None:
        log = self._log(partition)
        if lsn > log.head.commit_lsn:
            log.head = replace(log.head, commit_lsn=lsn, commit_offset=offset)

    def fold(self, partition: PartitionId, *, entries_max: int = 2_000) -> bool:
        log = self._log(partition)
        head = log.head
        behind = [entry for entry in log.entries if head.applied_lsn <= entry.head.lsn < head.commit_lsn]
        tail = behind[:max(entries_max, behind[0].request_count if behind else 0)]
        while tail and tail[-1].request_index != tail[-1].request_count - 1:
            tail.pop()
        if head.seeding_until is None and tail:
            log.folded = _fold(log.folded.copy(), tail)
            log.head = replace(head, applied_lsn=tail[-1].head.lsn + 1, trim_offset=log.folded.trim_offset)
        return log.head.applied_lsn < head.commit_lsn and head.seeding_until is None

    def entries(self, partition: PartitionId, first: int, end: int, *, bytes_max: int) -> list[LogEntry]:
        found, size = [], 0
        for entry in self._log(partition).entries:
            if first <= entry.head.lsn < end:
                size += entry.size_bytes
                if found and size > bytes_max:
                    break
                found.append(entry)
        return found

    def snapshot(self, partition: PartitionId) -> Snapshot:
        log = self._log(partition)
        return Snapshot(log.head, log.folded.copy())

    def mark(self, partition: PartitionId, lsn: int) -> EntryMark | None:
        return next((EntryMark(entry.head, entry.chain) for entry in self._log(partition).entries if entry.head.lsn == lsn), None)

    def parts(self, partition: PartitionId, *, with_sizes: bool) -> list[Part]:
        return [Part(Border(*_after(entry)[:2]), entry.head.append_time, len(entry.values or b"") if with_sizes else None)
                for entry in self._log(partition).entries if entry.request_index == entry.request_count - 1]

    def may_begin_later(self) -> list[PartitionId]:
        return sorted(partition for partition, log in self._logs.items() if log.head.trim_offset > log.head.start_offset)

    def drop_segments(self) -> list[int]:
        return []

    def head(self, partition: PartitionId) -> Head:
        return self._log(partition).head

    def read(self, partition: PartitionId, offset: int, *, bytes_max: int, records_max: int) -> Slice:
        log, body, records, until = self._log(partition), [ENTRIES_MAGIC], 0, offset + records_max
        fault, seeding = log.head.fault, log.head.seeding_until is not None
        if log.head.earliest <= offset and fault is None and not seeding:
            for entry in log.committed_blocks():
                if entry.head.base_offset + entry.head.record_count <= offset or (records and entry.head.base_offset >= until):
                    continue
                block = encode_block(_block(entry))
                if records and sum(map(len, body)) + len(block) > bytes_max:
                    break
                body += (pack_entry_head(entry.head.base_offset, entry.head.append_time, entry.epoch), block)
                records += entry.head.record_count
        return Slice(b"".join(body), records, log.head.earliest, log.head.commit_offset, log.head.promised_epoch, fault, seeding)

    def first_offset_since(self, partition: PartitionId, append_time: int) -> int | None:
        log = self._log(partition)
        late = [max(entry.head.base_offset, log.head.earliest) for entry in log.committed_blocks()
                if entry.head.append_time >= append_time and entry.head.base_offset + entry.head.record_count > log.head.earliest]
        return late[0] if late else None

    def search(self, partition: PartitionId, offset: int, end: int, *, key: bytes | None, records_max: int, bytes_max: int, scan_max: int) -> Found:
        log = self._log(partition)
        offset = max(offset, log.head.earliest)
        until, size, records = min(end, log.head.commit_offset, offset + scan_max), 0, []
        for entry in log.committed_blocks():
            for at, record in enumerate(records_of(_block(entry)), entry.head.base_offset):
                if not offset <= at < until or key not in (None, record.key):
                    continue
                size += record_bytes(record)
                if len(records) == records_max or (records and size > bytes_max):
                    return Found(records, records[-1].offset + 1)
                records.append(StoredRecord(at, record, entry.head.append_time))
        return Found(records, max(offset, until))

    def _consumer_offset(self, partition: PartitionId, consumer: str) -> int | None:
        log = self._log(partition)
        behind = [entry for entry in log.entries if log.head.applied_lsn <= entry.head.lsn < log.head.commit_lsn]
        known = _fold(log.folded.copy(), behind).consumers.get(consumer)
        return None if known is None else known.next_offset

    def consumer_offsets(self, partitions: Sequence[PartitionId], consumer: str) -> dict[PartitionId, tuple[Head, int | None]]:
        return {partition: (self.head(partition), self._consumer_offset(partition, consumer)) for partition in partitions if partition in self._logs}

    def topic_id(self, topic: str) -> int | None:
        return max((topic_id for topic_id, name in self._names.items() if name == topic), default=None)

    def held(self, topic: str | None = None) -> list[HeldPartition]:
        return sorted((HeldPartition(self._names[partition.topic_id], partition, log.head) for partition, log in self._logs.items()
                       if topic in (None, self._names[partition.topic_id])), key=lambda one: (one.topic, one.id))

    def sizes(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for partition, log in self._logs.items():
            name = self._names[partition.topic_id]
            found[name] = found.get(name, 0) + sum(
                len(column or b"") for entry in log.entries for column in (entry.keys, entry.values, entry.headers, entry.timestamps, entry.body))
        return found

    def _log(self, partition: PartitionId) -> _Log:
        if partition not in self._logs:
            raise UnknownPartitionError(f"partition {partition} is not held here")
        return self._logs[partition]


def _maps(state: LogState) -> tuple[dict, dict, dict]:
    return state.producers, state.consumers, state.requests


def _above_applied(log: _Log) -> LogState:
    return _fold(log.folded.copy(), [entry for entry in log.entries if entry.head.lsn >= log.head.applied_lsn])


def _fold(state: LogState, tail: Sequence[LogEntry]) -> LogState:
    """Whole requests, onto a state of our own."""
    for place, entry in enumerate(tail):
        if entry.request_index == 0:
            of_request = tail[place:place + entry.request_count]
            state.fold(entry.head, sum(one.head.record_count for one in of_request), entry.body)  # type: ignore[arg-type]
    return state


def _copy(entry: LogEntry) -> LogEntry:
    """An entry whose columns are its own, not views of a request's body."""
    return LogEntry(*entry[:2], *(None if column is None else bytes(column) for column in entry[2:]))


def _after(entry: LogEntry) -> LogEnd:
    """Where a log ends whose last entry this is."""
    head = entry.head
    return LogEnd(head.lsn + 1, head.base_offset + head.record_count, head.epoch, entry.chain, head.append_time)


def _part(state: LogState, wanted: Wanted) -> LogState:
    return LogState(*({key: of[key] for key in keys if key in of}
                      for of, keys in zip(_maps(state), (wanted.producers, wanted.consumers, wanted.requests), strict=True)),
                    trim_offset=state.trim_offset)


def _block(entry: LogEntry) -> Block:
    return Block(entry.head.record_count, *(None if column is None else memoryview(column) for column in entry[2:6]))  # type: ignore[arg-type]


def _holds(entry: LogEntry, offset: int) -> bool:
    return entry.head.base_offset <= offset < entry.head.base_offset + entry.head.record_count


def _check_storable(entry: LogEntry) -> None:
    """What PostgreSQL checks in COPY: elements fill their columns exactly, no value is NULL, a timestamp has eight bytes."""
    try:
        for name, column in zip(("keys", "values", "headers", "timestamps"), entry[2:6], strict=True):
            for element in elements(column, entry.head.record_count) if column is not None else ():  # type: ignore[arg-type]
                if (element is None and name == "values") or (name == "timestamps" and element is not None and len(element) != 8):
                    raise CorruptBatchError(f"an element of {name} is of no use")
    except CorruptBatchError as error:
        raise CorruptBatchError(f"the batch cannot be stored: {error.message}") from None
