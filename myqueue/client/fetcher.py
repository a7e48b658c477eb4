"""Reads partitions ahead of the consumer: one fetch at a time per partition, all partitions in turn, bounded in bytes."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import MyQueueError, UnknownPartitionError, UnknownTopicError
from ..protocol import batch, routes
from ..protocol.types import Message, OffsetRange, TopicPartition
from .connection import Connection
from .housekeeping import attempt
from .progress import Progress
from .slow_start import SlowStart
from .transport import understood

FETCHERS_MAX = 8  # threads
CHUNKS_AHEAD_MAX = 2  # of one partition: one that is read and the next
POLL_SECONDS_MAX = 5.0
POLL_SECONDS_MIN = 0.25  # where partitions outnumber the threads, so that none waits long for its turn
ANSWER_SECONDS = 10.0  # for the answer itself, beyond the poll
EARLIEST, LATEST = "earliest", "latest"


class Reader:
    """One partition as one consumer reads it. ``generation`` rises with every seek: what was fetched before no longer counts."""

    __slots__ = ("chunks_ahead", "claimed_in", "consumer_id", "error", "failures", "generation", "in_flight", "is_parked", "is_paused", "next_fetch",
                 "not_before", "partition", "progress", "slow_start", "start")

    def __init__(self, partition: TopicPartition, consumer_id: int, start: str) -> None:
        self.partition = partition
        self.consumer_id = consumer_id
        self.start = start  # where to begin if nothing was committed
        self.progress: Progress | None = None  # None until the position is known
        self.next_fetch = 0
        self.generation = 0
        self.in_flight = False
        self.chunks_ahead = 0
        self.failures = 0
        self.not_before = 0.0
        self.error: MyQueueError | None = None
        self.is_parked = False  # its error was not yet told to the caller
        self.is_paused = False  # by the caller
        self.claimed_in: int | None = None  # the consumer group's generation in which this partition was got

        self.slow_start: SlowStart | None = None  # while what is handed out of a group's partition is announced before

    def __repr__(self) -> str:
        return f"Reader({self.partition}, consumer {self.consumer_id}, {self.progress})"

    @property
    def is_announced(self) -> bool:
        """Whether it was said that more is in this consumer's hands than what is done."""
        return self.slow_start is not None and self.progress is not None and self.slow_start.announced_end > self.progress.done_up_to

    def begin(self, offset: int, committed: int | None) -> None:
        """The position is known: from a commit, or from where this consumer starts."""
        self.progress = Progress(offset, committed)
        self.next_fetch = offset


class Chunk:
    """What one fetch brought, decoded only as it is handed out."""

    __slots__ = ("generation", "messages", "reader", "size")

    def __init__(self, reader: Reader, body: bytes, from_offset: int) -> None:
        self.reader = reader
        self.generation = reader.generation
        self.size = len(body)
        self.messages: Iterator[Message] = batch.messages_of(body, topic=reader.partition.topic, partition=reader.partition.partition,
                                                             from_offset=from_offset)


@dataclass(frozen=True, slots=True)
class Failure:
    """An error in a partition's place in the queue: it is told after the messages before it."""

    reader: Reader
    generation: int
    error: MyQueueError


class Fetcher:
    """Its threads share it; ``changed`` is the lock around all its state and is notified when something arrived or was used up."""

    def __init__(self, connection: Connection, changed: threading.Condition, *, fetch_bytes_max: int, prefetch_bytes_max: int) -> None:
        self.ready: deque[Chunk | Failure] = deque()
        self.readers: dict[TopicPartition, Reader] = {}
        self._turns: deque[Reader] = deque()
        self._connection = connection
        self._changed = changed
        self._fetch_bytes_max = fetch_bytes_max
        self._prefetch_bytes_max = prefetch_bytes_max
        self._under_way = 0  # fetches, also those from before a seek
        self._reserved = 0  # bytes fetched and not used up, and what fetches under way may bring

    # --- with the lock held ---

    def add(self, reader: Reader) -> None:
        self.readers[reader.partition] = reader
        self._turns.append(reader)

    def remove(self, reader: Reader) -> None:
        """It is not read any more; what was fetched of it is dropped."""
        self.refetch(reader, reader.next_fetch)
        del self.readers[reader.partition]
        self._turns.remove(reader)

    def pause(self, reader: Reader) -> None:
        """Hand out and fetch nothing of this partition until ``resume``; it goes on where it was handed out last."""
        reader.is_paused = True
        if reader.progress is not None:
            self.refetch(reader, reader.progress.position)

    def resume(self, reader: Reader) -> None:
        reader.is_paused = False
        self._changed.notify_all()

    def threads_wanted(self) -> int:
        """One per partition; a few more where polls from before a seek are still out."""
        return min(FETCHERS_MAX, max(len(self.readers), self._under_way + 1))

    def finish(self, item: Chunk | Failure) -> None:
        """The first ready item is used up."""
        assert self.ready[0] is item
        self.ready.popleft()
        self._release(item)
        self._changed.notify_all()

    def seek(self, reader: Reader, offset: int) -> None:
        """Go on from another offset; what was fetched of this partition is dropped."""
        if reader.progress is None:
            reader.begin(offset, None)
        else:
            reader.progress.seek(offset)
        self.refetch(reader, offset)

    def refetch(self, reader: Reader, offset: int) -> None:
        """Drop what was fetched of this partition and fetch it from an offset on."""
        for item in [item for item in self.ready if item.reader is reader]:
            self.ready.remove(item)
            self._release(item)
        if reader.in_flight:
            self._reserved -= self._fetch_bytes_max
        reader.next_fetch = offset
        reader.generation += 1
        reader.in_flight, reader.is_parked, reader.chunks_ahead, reader.failures, reader.not_before = False, False, 0, 0, 0.0
        self._changed.notify_all()

    def next_due(self) -> float | None:
        """When a partition may be fetched again, as far as time decides it."""
        return min((reader.not_before for reader in self._turns if self._may_fetch(reader)), default=None)

    def _may_fetch(self, reader: Reader) -> bool:
        room = self._reserved == 0 or self._reserved + self._fetch_bytes_max <= self._prefetch_bytes_max
        return room and not (reader.in_flight or reader.is_parked or reader.is_paused) and reader.chunks_ahead < CHUNKS_AHEAD_MAX

    def _release(self, item: Chunk | Failure) -> None:
        if isinstance(item, Chunk):
            self._reserved -= item.size
            if item.generation == item.reader.generation:
                item.reader.chunks_ahead -= 1
        elif item.generation == item.reader.generation:
            item.reader.is_parked = False  # it is tried again, and tells again

    def _take(self, now: float) -> Reader | None:
        reader = next((reader for reader in self._turns if reader.not_before <= now and self._may_fetch(reader)), None)
        if reader is not None:
            self._turns.remove(reader)
            self._turns.append(reader)
            reader.in_flight = True
            self._under_way += 1
            self._reserved += self._fetch_bytes_max
        return reader

    # --- without the lock ---

    def run_once(self) -> bool:
        """Fetch one partition whose turn it is; false where none may be fetched now."""
        with self._changed:
            reader = self._take(self._connection.clock.monotonic())
            if reader is None:
                return False
            generation, poll_seconds = reader.generation, self._poll_seconds(reader)
        try:
            with understood():
                body = self._fetch(reader, poll_seconds)
                end = batch.end_offset_of(body)
        except MyQueueError as error:
            gone = isinstance(error, (UnknownTopicError, UnknownPartitionError)) and self._is_gone(reader)
            with self._changed:
                self._land(reader, generation)
                self._failed(reader, generation, error, is_final=gone or not (error.retriable or isinstance(error, UnknownPartitionError)))
            return True
        with self._changed:
            self._land(reader, generation)
            if generation == reader.generation:
                self._arrived(reader, body, end)
        return True

    def _poll_seconds(self, reader: Reader) -> float:
        """All partitions get their turn within about a second where they outnumber the threads."""
        if reader.failures:
            return 0.0
        if len(self.readers) <= FETCHERS_MAX:
            return POLL_SECONDS_MAX
        return max(POLL_SECONDS_MIN, FETCHERS_MAX / len(self.readers))

    def _fetch(self, reader: Reader, poll_seconds: float) -> bytes:
        if self._connection.is_stale:
            attempt(self._refresh)
        if reader.progress is None:
            self.resolve(reader)
        partition = reader.partition
        answer = self._connection.partition_call(
            partition, "GET", routes.RECORDS.format(topic=partition.topic, partition=partition.partition),
            params={"offset": reader.next_fetch, "max_bytes": self._fetch_bytes_max, "wait_seconds": round(poll_seconds, 3)},
            headers={"Accept": batch.ENTRIES_TYPE}, read_timeout_seconds=poll_seconds + ANSWER_SECONDS, repeatable=True)
        return answer.body

    def resolve(self, reader: Reader) -> None:
        """Find out where the consumer stands in this partition. Raises MyQueueError."""
        partition = reader.partition
        path = routes.OFFSETS.format(topic=partition.topic, partition=partition.partition, consumer_id=reader.consumer_id)
        committed = self._connection.partition_call(partition, "GET", path, repeatable=True).json()["offset"]
        offset = committed
        if offset is None:
            ends = self.offsets(partition)
            offset = ends.end if reader.start == LATEST else ends.start
        with self._changed:
            if reader.progress is None:
                # Nothing stored means "from the earliest on", so only another start is worth a first commit.
                reader.begin(offset, offset if reader.start == EARLIEST else committed)

    def offsets(self, partition: TopicPartition) -> OffsetRange:
        """The earliest offset and the committed end of a partition, as its leader knows them. Raises MyQueueError."""
        path = routes.PARTITION.format(topic=partition.topic, partition=partition.partition)
        body = self._connection.partition_call(partition, "GET", path, repeatable=True).json()
        return OffsetRange(body["start_offset"], body["end_offset"])

    def offset_since(self, partition: TopicPartition, timestamp_us: int) -> int:
        """The offset of the first message appended at or after a time (microseconds since 1970), the end where there is none. Raises MyQueueError."""
        answer = self._connection.partition_call(
            partition, "GET", routes.RECORDS.format(topic=partition.topic, partition=partition.partition),
            params={"timestamp": timestamp_us, "max_records": 1, "max_bytes": 1}, headers={"Accept": batch.ENTRIES_TYPE}, repeatable=True)
        return int(answer.headers[routes.OFFSET])

    def _refresh(self) -> None:
        self._connection.refresh(when_stale=True)

    def _is_gone(self, reader: Reader) -> bool:
        try:
            with understood():
                return reader.partition not in self._connection.refresh().partitions
        except UnknownTopicError:
            return True
        except MyQueueError:
            return False  # nobody knows: the next fetch asks again

    def _land(self, reader: Reader, generation: int) -> None:
        self._under_way -= 1
        if generation == reader.generation:
            reader.in_flight = False
            self._reserved -= self._fetch_bytes_max

    def _arrived(self, reader: Reader, body: bytes, end: int | None) -> None:
        reader.failures, reader.error, reader.not_before = 0, None, 0.0
        if end is not None and end > reader.next_fetch:
            chunk = Chunk(reader, body, reader.next_fetch)
            reader.next_fetch = end
            reader.chunks_ahead += 1
            self._reserved += chunk.size
            self.ready.append(chunk)
        self._changed.notify_all()

    def _failed(self, reader: Reader, generation: int, error: MyQueueError, *, is_final: bool) -> None:
        if generation != reader.generation:
            return
        reader.failures += 1
        reader.error = error
        delay = self._connection.backoff.delay_seconds(reader.failures, random.random())
        reader.not_before = self._connection.clock.monotonic() + delay
        if is_final:
            reader.is_parked = True
            self.ready.append(Failure(reader, generation, error))
        self._changed.notify_all()
