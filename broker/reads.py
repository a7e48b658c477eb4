"""What a broker answers from its partitions: records, at once or when they come, where consumers stand, and what is searched for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from db.log_store import Head, LogStore, Slice, StoredRecord
from myqueue.clock import Clock
from myqueue.errors import (
    BadRequestError,
    NotLeaderError,
    NotYetError,
    OverloadedError,
    UnavailableError,
    UnknownPartitionError,
    UnknownTopicError,
)
from myqueue.protocol.batch import ENTRIES_MAGIC, end_offset_of, record_bytes
from myqueue.protocol.types import PartitionId
from myqueue.service import metrics
from myqueue.service.wakeups import Wakeups

from .core.offsets import LogRange, Since, out_of_range
from .core.ranges import records_wanted
from .core.replica import check_leading
from .standing import Standing, being_made

RELOOK_SECONDS = 5.0  # a read that waits looks at the database this often even when nothing woke it
GONE_SECONDS = 1.0  # between looks whether its client is still there
KEEP_ALIVE_SECONDS = 15.0  # of silence in a stream
STREAM_BYTES, STREAM_RECORDS = 256 << 10, 1_000  # that a stream holds in memory, more only of a larger record
SCAN_RECORDS = 50_000  # that a search looks at in one statement


@dataclass(frozen=True, slots=True)
class Query:
    """What is searched for in a partition.

    Args:
        key: None where any will do.
        end: where the search ends.
        offset: where it goes on; None where it begins, with what was appended at ``since_us`` or later.
    """

    key: bytes | None
    end: int
    offset: int | None = None
    since_us: int | None = None


@dataclass(frozen=True, slots=True)
class Searched:
    """What was found of a partition, in order; where to go on, and how many records were looked at."""

    records: list[StoredRecord]
    next_offset: int
    scanned: int


@dataclass(frozen=True, slots=True)
class Position:
    """Where a consumer stands in a partition; ``offset`` is None where it has committed nothing."""

    offset: int | None
    start_offset: int
    end_offset: int

    @property
    def unread(self) -> int:
        return max(0, self.end_offset - max(self.start_offset, self.offset or 0))


class Reads:
    """Any worker of the node may serve any read.

    Args:
        long_polls_max: reads that may wait at one time in this process; the other request threads stay free.
    """

    def __init__(self, store: LogStore, wakeups: Wakeups, standing: Standing, *, clock: Clock, stopping: threading.Event,
                 long_polls_max: int) -> None:
        self._store, self._wakeups, self._standing, self._clock, self._stopping = store, wakeups, standing, clock, stopping
        self._long_polls = threading.BoundedSemaphore(long_polls_max)

    def read(self, partition: PartitionId, start: int | str | Since, *, bytes_max: int, records_max: int, wait_seconds: float = 0.0,
             until_offset: int | None = None, is_gone: Callable[[], bool] = lambda: False) -> tuple[int, Slice]:
        """Committed records from an offset (or "earliest", "latest", or a time) on, waiting for some to come; the offset meant, and what was found.

        Args:
            until_offset: exclusive, as far as whole blocks allow. Where it is not above the offset meant there is nothing to find or to wait for.
            is_gone: whether the client has hung up: then it is not waited for.

        Raises:
            OffsetOutOfRangeError: the offset is below the start or above the end, which it names.
            OverloadedError: too many reads wait already.
            UnknownTopicError: the topic was deleted meanwhile.
        """
        deadline = self._clock.monotonic() + wait_seconds
        stamp = self._wakeups.stamp(partition)
        offset, found = self._look(partition, start, bytes_max, records_max, until_offset)
        if found.record_count or wait_seconds <= 0 or not records_wanted(records_max, offset, until_offset):
            return offset, found
        with self.waiting():
            while not found.record_count and (left := deadline - self._clock.monotonic()) > 0 and not self._stopping.is_set() and not is_gone():
                self._wait_for_news(partition, stamp, min(left, RELOOK_SECONDS), is_gone)
                stamp = self._wakeups.stamp(partition)
                found = self._look_again(partition, offset, bytes_max, records_max, until_offset)
            return offset, found

    def begin_stream(self, partition: PartitionId, start: int | str | Since) -> tuple[int, int]:
        """The offset that a stream from an offset (or "earliest", "latest", or a time) on begins at, and the epoch that it belongs to.

        Raises:
            NotLeaderError: a stream is told by the leader.
            OffsetOutOfRangeError: the offset is below the start or above the end, which it names.
        """
        check_leading(self._standing.head(partition))
        begin, found = self._look(partition, start, 1, 1)
        return begin, found.epoch

    def follow(self, partition: PartitionId, offset: int, epoch: int, *, is_gone: Callable[[], bool]) -> Iterator[Slice | None]:
        """Committed records from ``offset`` on, as they come; None where none came for ``KEEP_ALIVE_SECONDS``.

        Nothing is read before it is asked for. It ends when the process is stopping or the client has hung up.

        Args:
            epoch: from ``begin_stream``.

        Raises:
            NotLeaderError, UnavailableError: this broker does not lead any more, or no majority says that it does.
            UnknownTopicError: the topic was deleted.
            UnknownPartitionError: the partition is not held here any more.
            OffsetOutOfRangeError: what comes next was trimmed meanwhile.
        """
        quiet_since = self._clock.monotonic()
        while not self._stopping.is_set() and not is_gone():
            stamp = self._wakeups.stamp(partition)
            found = self._look_again(partition, offset, STREAM_BYTES, STREAM_RECORDS)
            if found.epoch != epoch:
                check_leading(self._standing.head(partition))
                epoch = found.epoch
            if found.record_count:
                yield found
                offset = end_offset_of(found.body) or offset
                quiet_since = self._clock.monotonic()
            elif (left := quiet_since + KEEP_ALIVE_SECONDS - self._clock.monotonic()) > 0:
                self._wait_for_news(partition, stamp, min(left, RELOOK_SECONDS), is_gone)
            else:
                self._standing.confirm(partition)
                yield None
                quiet_since = self._clock.monotonic()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A place among the reads that may wait. Raises OverloadedError where there is none."""
        if not self._long_polls.acquire(blocking=False):
            raise OverloadedError("too many reads wait for data already")
        metrics.LONG_POLLS.inc()
        try:
            yield
        finally:
            metrics.LONG_POLLS.dec()
            self._long_polls.release()

    def offset(self, partition: PartitionId, consumer: str) -> int | None:
        """The consumer's committed offset, no older than what anybody was told before this call; None where it has none.

        Raises:
            NotLeaderError, UnavailableError: this broker does not lead the partition, or somebody else may.
        """
        self._settle([partition])
        return self.positions(consumer, [partition])[0].offset

    def _settle(self, partitions: Sequence[PartitionId]) -> None:
        found = self._store.consumer_offsets(partitions, "")
        if missing := next((partition for partition in partitions if partition not in found), None):
            raise _not_held(missing)
        self._standing.settle({partition: found[partition][0] for partition in partitions})

    def sizes(self, consumer: str, partitions: Sequence[PartitionId]) -> list[int]:
        """How many messages the consumer has not read, per partition. Raises NotLeaderError where one is not led here."""
        return [position.unread for position in self.positions(consumer, partitions)]

    def positions(self, consumer: str, partitions: Sequence[PartitionId]) -> list[Position]:
        """Where the consumer stands in each partition. Raises NotLeaderError where one is not led here."""
        told, found = self._standing.told(partitions), self._store.consumer_offsets(partitions, consumer)
        unsettled = [partition for partition, (head, _) in found.items() if not self._standing.is_settled(partition, head, told[partition])]
        if unsettled:
            for partition in unsettled:
                self._standing.head(partition)
            told, found = self._standing.told(partitions), self._store.consumer_offsets(partitions, consumer)
            for partition, (head, _) in found.items():
                self._standing.check_settled(partition, head, told[partition])
        return [_position(partition, *found.get(partition, (None, None))) for partition in partitions]

    def ends(self, partitions: Sequence[PartitionId], *, before_us: int | None = None) -> list[int]:
        """Where each partition ends: behind all that was acknowledged when this was called, or behind what was appended before a time.

        Raises:
            NotLeaderError, UnavailableError: one of them is not led here, or somebody else may lead it.
        """
        self._settle(partitions)
        ends = [position.end_offset for position in self.positions("", partitions)]
        if before_us is None:
            return ends
        return [min(end, self._offset_at(partition, before_us, end)) for partition, end in zip(partitions, ends, strict=True)]

    def search(self, partition: PartitionId, query: Query, *, records_max: int, bytes_max: int, scan_max: int) -> Searched:
        """The next of a partition's records that are searched for, in order, and where to go on; done where that is ``query.end``.

        Looks at about ``scan_max`` records at most, and comes further with each call.

        Raises:
            BadRequestError: the search's end lies above the committed end.
            UnknownPartitionError, NotLeaderError, UnavailableError: not here, or not now.
        """
        head = self._standing.head(partition)
        check_leading(head)
        _check_whole(partition, head.fault)
        if query.end > head.commit_offset and not (self._standing.knows_the_end(partition)
                                                   and query.end <= self._store.head(partition).commit_offset):
            self._check_beyond(partition, query.end, head.commit_offset)
            raise BadRequestError(f"partition {partition.partition} ends before offset {query.end}", end_offset=head.commit_offset)
        offset = query.offset
        if offset is None:
            offset = head.earliest if query.since_us is None else self._offset_at(partition, query.since_us, head.commit_offset)
        records: list[StoredRecord] = []
        scanned = size = 0
        while offset < query.end and scanned < scan_max and len(records) < records_max and size < bytes_max:
            found = self._store.search(partition, offset, query.end, key=query.key, records_max=records_max - len(records),
                                       bytes_max=bytes_max - size, scan_max=min(scan_max - scanned, SCAN_RECORDS))
            records += found.records
            size += sum(record_bytes(one.record) for one in found.records)
            scanned, offset = scanned + found.next_offset - offset, found.next_offset
        return Searched(records, min(offset, query.end), scanned)

    def _offset_at(self, partition: PartitionId, time_us: int, end: int) -> int:
        """The first offset served that was appended at a time or later; ``end`` where there is none."""
        found = self._store.first_offset_since(partition, time_us)
        return end if found is None else found

    def _offset_of(self, partition: PartitionId, start: int | str | Since) -> int:
        """The offset that is meant now. Raises NotLeaderError where it may be the end, and another replica may not know of that."""
        if isinstance(start, int):
            return start
        head = self._standing.head(partition)
        if start == "earliest":
            return head.earliest
        if isinstance(start, Since):
            _check_whole(partition, head.fault)
            found = self._store.first_offset_since(partition, start.append_time)
            if found is not None:
                return found
        check_leading(head)
        return head.commit_offset

    def _look(self, partition: PartitionId, start: int | str | Since, bytes_max: int, records_max: int,
              until_offset: int | None = None) -> tuple[int, Slice]:
        offset = self._offset_of(partition, start)
        wanted = records_wanted(records_max, offset, until_offset)
        records_max = max(1, wanted)
        found = self._store.read(partition, offset, bytes_max=bytes_max, records_max=records_max)
        _check_served(partition, found)
        if offset > found.end_offset:
            if not self._standing.knows_the_end(partition):
                raise NotYetError(f"offset {offset} is not committed here yet: this replica knows {found.end_offset}", end_offset=found.end_offset)
            found = self._store.read(partition, offset, bytes_max=bytes_max, records_max=records_max)  # it may have moved before that was sure
            self._check_beyond(partition, offset, found.end_offset)
        if not found.start_offset <= offset <= found.end_offset:
            raise out_of_range(offset, LogRange(found.start_offset, found.end_offset))
        return offset, found if wanted else replace(found, body=ENTRIES_MAGIC, record_count=0)

    def _check_beyond(self, partition: PartitionId, offset: int, committed: int) -> None:
        """That an offset is not committed anywhere, given that a majority follows this leader and that ``committed`` is what it knows of.

        Another process of this broker may know more, and a follower that was told has served it: only what is not in the log is committed nowhere.

        Raises:
            NotYetError: it may be committed.
        """
        if committed < offset <= self._store.head(partition).end.offset:
            raise NotYetError(f"offset {offset} is not known to be committed here yet, {committed} is", end_offset=committed)

    def _look_again(self, partition: PartitionId, offset: int, bytes_max: int, records_max: int, until_offset: int | None = None) -> Slice:
        """A look of one who has waited. Raises UnknownTopicError where the topic was deleted meanwhile: nobody needs to be asked."""
        try:
            return self._look(partition, offset, bytes_max, records_max, until_offset)[1]
        except UnknownPartitionError:
            if self._store.topic(partition.topic_id) is None:
                raise UnknownTopicError("the topic was deleted meanwhile") from None
            raise

    def _wait_for_news(self, partition: PartitionId, stamp: int, seconds: float, is_gone: Callable[[], bool]) -> None:
        end = self._clock.monotonic() + seconds
        while (left := end - self._clock.monotonic()) > 0 and not self._stopping.is_set() and not is_gone():
            if self._wakeups.wait(partition, stamp, min(left, GONE_SECONDS), self._stopping):
                return


def _check_whole(partition: PartitionId, fault: str | None) -> None:
    """Raises UnavailableError where this replica is damaged: another one is not."""
    if fault is not None:
        raise UnavailableError(f"this replica of partition {partition.partition} is damaged and not served: {fault}", component="replicas")


def _check_served(partition: PartitionId, found: Slice) -> None:
    """Raises UnavailableError where this replica serves nothing: another one does."""
    _check_whole(partition, found.fault)
    if found.seeding:
        raise being_made(partition)


def _position(partition: PartitionId, head: Head | None, offset: int | None) -> Position:
    if head is None:
        raise _not_held(partition)
    check_leading(head)
    return Position(offset, head.earliest, head.commit_offset)


def _not_held(partition: PartitionId) -> NotLeaderError:
    return NotLeaderError(f"partition {partition} is not held here")
