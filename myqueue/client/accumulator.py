"""PURE: records in, batches out, given now.

A **lane** is one partition's queue of batches. The laws:

* Batches of a lane leave in their order, each with the next sequence, and the log takes no sequence before the one below it: so records keep
  their order, and what is stored of a lane is always a beginning of what was sent.
* The lane's first batch may leave whenever it is due. A second one leaves behind it, before its answer, only where much waits and nothing has
  failed: small batches gather while one is under way, and after a failure nothing overtakes.
* A batch that is taken for the first time takes with it those that have filled up behind it meanwhile, up to a bound in bytes: small batches
  cost a round trip for many of them, not one each. From then on they are one batch.
* A batch lingers for more records, until it is full or as many callers wait for it as did when the last one landed, for that one or behind it:
  they have all sent again by then.
* A batch gets its sequence when it is first taken, and keeps sequence and records until it is delivered or given up:
  so a retry is the same request. Sequences of a lane are 0, 1, 2 … for each producer identity.
* Only the first batch is given up, or found to be refused as a gap (the log has not stored it and never will). Where its sequence may be stored, or
  later ones were used, that costs the lane its identity: none of them may name another request. The batches behind that are
  then **orphans**: one that may be stored is given up in doubt, any other gets a sequence of the next identity.
* ``room`` + the bytes of every record accepted, and not yet delivered or taken over as failed, is the buffer's size.

A record without key and partition joins the batch its topic fills at the moment; the next such batch goes to the next
partition that is not failing. The caller holds a lock around every call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import MyQueueError, UnknownPartitionError, UnknownTopicError
from ..protocol.partitioner import partition_for
from ..protocol.types import ProducerSequence, Record, TopicPartition

REQUEST_BYTES_MAX = 2 << 20  # of batches that leave together
IN_FLIGHT_MAX = 2  # batches of a lane
FAST_RECORDS_MAX = 1_024  # in a row, of a batch: then one takes the slow path
RECORD_OVERHEAD_BYTES = 64  # what an object and its place in a list cost beside the bytes: empty messages are bounded too


class Batch:
    """Records of one partition that travel in one request.

    ``completion`` is the caller's: what a delivery waits for. A batch that took others with it has theirs too: ``completions`` says at which of
    its records each begins.
    """

    __slots__ = ("behind", "capacity", "closed", "completion", "completions", "deadline", "doubtful", "due", "error", "in_flight", "lane", "plain",
                 "records", "room", "sequence", "slow_index", "waiting", "was_taken")

    def __init__(self, lane: Lane, completion: Any, *, room: int, slow_index: int, now: float, linger_seconds: float,
                 timeout_seconds: float) -> None:
        self.lane = lane
        self.completion = completion
        self.completions = [(completion, 0)]
        self.records: list[bytes | Record] = []
        self.plain = True  # values only: packed on the fast path
        self.room = self.capacity = room
        self.slow_index = slow_index  # the place of the next record that takes the slow path
        self.due = now + linger_seconds
        self.deadline = now + timeout_seconds
        self.waiting = 0  # callers that wait for one of its records
        self.closed = False
        self.in_flight = False
        self.was_taken = False  # if it left already, perhaps in vain
        self.behind = False  # if it left last while another one before it was under way
        self.sequence: ProducerSequence | None = None
        self.doubtful = False  # an attempt has an unknown outcome
        self.error: MyQueueError | None = None  # of the last attempt

    @property
    def size(self) -> int:
        """What its records count in the buffer."""
        return self.capacity - self.room

    def absorb(self, following: Batch) -> None:
        """Take the records of the one behind, which is closed, as if they had come here; it is left empty."""
        self.completions += [(completion, len(self.records) + first) for completion, first in following.completions]
        self.records += following.records
        self.plain = self.plain and following.plain
        self.waiting += following.waiting
        self.capacity, self.room = self.size + following.size, 0
        following.records, following.room = [], following.capacity

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"Batch({self.lane.partition}, {len(self.records)} records, {state}, {self.sequence and self.sequence.seq})"


class Lane:
    """One partition's queue."""

    __slots__ = ("batches", "callers", "closed_bytes", "failures", "identity", "next_seq", "not_before", "partition")

    def __init__(self, partition: TopicPartition, identity: tuple[int, int]) -> None:
        self.partition = partition
        self.batches: deque[Batch] = deque()
        self.closed_bytes = 0  # of closed batches that never left
        self.not_before = 0.0
        self.failures = 0  # attempts in a row that failed
        self.identity: tuple[int, int] | None = identity  # producer id and epoch; None: a new one is needed
        self.next_seq = 0
        self.callers = 0  # that waited when the last batch landed

    def next_batch(self, bytes_behind: int) -> Batch | None:
        """The batch that leaves next, now or when it is due; None where nothing may leave before an answer.

        Args:
            bytes_behind: so much of closed batches must wait for one to leave behind another.
        """
        flying = next((place for place, batch in enumerate(self.batches) if not batch.in_flight), len(self.batches))
        if flying == len(self.batches):
            return None
        batch = self.batches[flying]
        if flying == 0:
            return batch
        may_follow = flying < IN_FLIGHT_MAX and not self.failures and batch.sequence is None and self.owns(self.batches[flying - 1])
        return batch if may_follow and batch.closed and self.closed_bytes >= bytes_behind else None

    def ready_at(self, batch: Batch) -> float:
        """When this batch, which leaves next, may do so.

        Callers who wait for each message send the next one once they are released: when all wait again, a linger would gather nothing more. Those
        who waited behind the batch that landed count too, or two halves would take turns for good.
        """
        is_due = batch.closed or (batch.waiting > 0 and batch.waiting >= self.callers)
        return self.not_before if is_due else max(batch.due, self.not_before)

    def landed(self, batch: Batch) -> None:
        """The batch is under way no more, and will not be again."""
        self.failures, self.not_before = 0, 0.0
        self.callers = batch.waiting + sum(one.waiting for one in self.batches if one is not batch and not one.in_flight)

    def owns(self, batch: Batch) -> bool:
        """Whether the batch has a sequence of the lane's present identity."""
        return batch.sequence is not None and (batch.sequence.producer_id, batch.sequence.epoch) == self.identity

    def is_orphan(self, batch: Batch) -> bool:
        """Whether the batch has a sequence of an identity that the lane has lost."""
        return batch.sequence is not None and not self.owns(batch)


class _Topic:
    __slots__ = ("identity", "partitions", "turn")

    def __init__(self, identity: tuple[int, int], partitions: int) -> None:
        self.identity = identity
        self.partitions = partitions
        self.turn = 0


class Accumulator:
    """The producer's buffer."""

    def __init__(self, *, batch_bytes_max: int, batch_records_max: int, buffer_bytes_max: int, linger_seconds: float,
                 delivery_timeout_seconds: float, request_bytes_max: int = REQUEST_BYTES_MAX,
                 new_completion: Callable[[TopicPartition], Any] = lambda partition: None) -> None:
        self.room = buffer_bytes_max
        self.buffer_bytes_max = buffer_bytes_max
        self.failed: list[Batch] = []  # given up, not yet told to the caller
        self._batch_bytes_max = batch_bytes_max
        self._batch_records_max = batch_records_max
        self._request_bytes_max = request_bytes_max
        self._bytes_behind = max(1, request_bytes_max // 2)
        self.slow_step = min(FAST_RECORDS_MAX, batch_records_max)  # each record whose place ends such a step takes the slow path
        self._linger_seconds = linger_seconds
        self._delivery_timeout_seconds = delivery_timeout_seconds
        self._new_completion = new_completion
        self._topics: dict[str, _Topic] = {}
        self._lanes: dict[TopicPartition, Lane] = {}
        self._waiting: dict[TopicPartition, Lane] = {}  # those with a next batch, the longest waiting first
        self._offered = False
        self._sticky: dict[str, Batch] = {}  # by topic: the open batch for records without key and partition

    def __repr__(self) -> str:
        return f"Accumulator({self.record_count()} records in {len(self._lanes)} lanes, {self.room} of {self.buffer_bytes_max} bytes free)"

    # --- topics ---

    def set_topic(self, topic: str, *, partitions: int, producer_id: int, producer_epoch: int) -> None:
        """Make a topic known under a producer's identity."""
        self._topics[topic] = _Topic((producer_id, producer_epoch), partitions)

    def set_partitions(self, topic: str, partitions: int) -> None:
        """The topic has so many partitions by now; it never has fewer."""
        self._topics[topic].partitions = max(self._topics[topic].partitions, partitions)

    def producer_ids(self) -> dict[str, int]:
        return {topic: known.identity[0] for topic, known in sorted(self._topics.items())}

    def topics(self) -> list[str]:
        return sorted(self._topics)

    def has_topic(self, topic: str) -> bool:
        return topic in self._topics

    def renew(self, lane: Lane, *, producer_id: int, producer_epoch: int) -> None:
        """Give a lane a fresh identity; its sequences begin again."""
        lane.identity, lane.next_seq = (producer_id, producer_epoch), 0

    # --- records in ---

    def try_add(self, topic: str, value: bytes) -> tuple[Any, int] | None:
        """The fast path: append a bare value to the batch that its topic fills at the moment; None where that does not fit."""
        batch = self._sticky.get(topic)
        if batch is None:
            return None
        size = len(value) + RECORD_OVERHEAD_BYTES
        room = self.room
        if size > room or size > batch.room:
            return None
        records = batch.records
        index = len(records)
        if index >= batch.slow_index:
            return None  # so does the last one of a batch, which the slow path closes
        self.room = room - size
        batch.room -= size
        records.append(value)
        return batch.completion, index

    def add(self, topic: str, record: bytes | Record, *, partition: int | None = None, now: float) -> tuple[Any, int] | None:
        """Take a record in; None where the buffer has no room for it.

        Raises:
            UnknownTopicError: ``set_topic`` was not called for it.
            UnknownPartitionError: the topic has no such partition.
        """
        plain = isinstance(record, bytes)
        key = None if plain else record.key
        size = record_size(record)
        if size > self.room:
            return None
        batch = self._batch_for(topic, key, partition, size, now)
        batch.plain = batch.plain and plain
        batch.room -= size
        self.room -= size
        batch.records.append(record)
        count = len(batch.records)
        batch.slow_index = min(count + self.slow_step - count % self.slow_step, self._batch_records_max) - 1
        if count >= self._batch_records_max or batch.room <= 0:
            self._close(batch)
        return batch.completion, count - 1

    def _batch_for(self, topic: str, key: bytes | None, partition: int | None, size: int, now: float) -> Batch:
        known = self._topics.get(topic)
        if known is None:
            raise UnknownTopicError(f"topic {topic!r} is not registered", topic=topic)
        if partition is not None and not 0 <= partition < known.partitions:
            raise UnknownPartitionError(f"topic {topic!r} has {known.partitions} partitions, from 0 on: there is no {partition}",
                                        topic=topic, partition=partition, partitions=known.partitions)
        if partition is None and key is not None:
            partition = partition_for(key, known.partitions)
        if partition is not None:
            return self._open_batch(self._lane(topic, partition, known), size, now)
        batch = self._sticky.get(topic)
        if batch is not None and size <= batch.room:
            return batch
        if batch is not None:
            self._close(batch)
        batch = self._open_batch(self._next_lane(topic, known), size, now)
        self._sticky[topic] = batch
        return batch

    def _next_lane(self, topic: str, known: _Topic) -> Lane:
        turns = [(known.turn + step) % known.partitions for step in range(known.partitions)]
        chosen = next((turn for turn in turns if not self._is_failing(topic, turn)), turns[0])
        known.turn = (chosen + 1) % known.partitions
        return self._lane(topic, chosen, known)

    def _is_failing(self, topic: str, partition: int) -> bool:
        lane = self._lanes.get(TopicPartition(topic, partition))
        return lane is not None and lane.failures > 0

    def _lane(self, topic: str, partition: int, known: _Topic) -> Lane:
        at = TopicPartition(topic, partition)
        lane = self._lanes.get(at)
        if lane is None:
            lane = self._lanes[at] = Lane(at, known.identity)
        return lane

    def _open_batch(self, lane: Lane, size: int, now: float) -> Batch:
        last = lane.batches[-1] if lane.batches else None
        if last is not None and not last.closed:
            if size <= last.room:
                return last
            self._close(last)
        # A record over the batch's size travels alone; RECORD_BYTES_MAX bounds it.
        batch = Batch(lane, self._new_completion(lane.partition), room=max(self._batch_bytes_max, size), slow_index=self.slow_step - 1, now=now,
                      linger_seconds=self._linger_seconds, timeout_seconds=self._delivery_timeout_seconds)
        lane.batches.append(batch)
        self._offer(lane)
        return batch

    def _close(self, batch: Batch) -> None:
        if not batch.closed:
            batch.closed = True
            batch.lane.closed_bytes += batch.size
        if self._sticky.get(batch.lane.partition.topic) is batch:
            del self._sticky[batch.lane.partition.topic]
        self._offer(batch.lane)

    def _offer(self, lane: Lane) -> None:
        """The lane changed: it waits for a sender, in its turn, or does not."""
        if lane.next_batch(self._bytes_behind) is not None:
            self._waiting.setdefault(lane.partition, lane)
            self._offered = True
        else:
            self._waiting.pop(lane.partition, None)

    def want(self, completion: Any, now: float) -> bool:
        """Somebody waits for a record of this completion; whether its batch may leave for that."""
        lane = self._lanes[completion.partition]
        batch = next((batch for batch in reversed(lane.batches) if batch.completion is completion), None)
        if batch is None:
            return False
        batch.waiting += 1
        return not batch.closed and lane.next_batch(self._bytes_behind) is batch and lane.ready_at(batch) <= now

    def take_offered(self) -> bool:
        """Whether a lane has something for a sender, now or when it is due, that it had not when this was asked last."""
        offered, self._offered = self._offered, False
        return offered

    # --- batches out ---

    def take_ready(self, now: float) -> Batch | None:
        """A batch to send now, of the lane that has waited longest, marked as in flight; with its sequence, if the lane has an identity."""
        for lane, batch in self._next_batches():
            if lane.ready_at(batch) <= now:
                break
        else:
            return None
        del self._waiting[lane.partition]
        self._close(batch)
        if not batch.was_taken:
            self._absorb_following(batch)
            lane.closed_bytes -= batch.size
        batch.in_flight = batch.was_taken = True
        batch.behind = not self.is_first(batch)
        if lane.identity is not None:
            self.assign_sequence(batch)
        self._offer(lane)
        return batch

    def _next_batches(self) -> Iterator[tuple[Lane, Batch]]:
        for lane in self._waiting.values():
            batch = lane.next_batch(self._bytes_behind)
            assert batch is not None
            yield lane, batch

    def _absorb_following(self, batch: Batch) -> None:
        waiting = batch.lane.batches
        behind = waiting.index(batch) + 1
        while len(waiting) > behind and waiting[behind].closed and batch.size + waiting[behind].size <= self._request_bytes_max:
            batch.absorb(waiting[behind])
            del waiting[behind]

    def assign_sequence(self, batch: Batch) -> ProducerSequence:
        """The batch's sequence, the same at every attempt."""
        lane = batch.lane
        assert batch.in_flight
        if batch.sequence is None:
            assert lane.identity is not None
            batch.sequence = ProducerSequence(lane.identity[0], lane.identity[1], lane.next_seq)
            lane.next_seq += 1
        return batch.sequence

    def next_due(self) -> float | None:
        """When something becomes ready, if nothing else happens; None where nothing waits."""
        return min((lane.ready_at(batch) for lane, batch in self._next_batches()), default=None)

    def delivered(self, batch: Batch) -> None:
        """The batch is stored: forget it. One before it that is still under way is stored too, and will hear so."""
        lane = batch.lane
        lane.landed(batch)
        self._remove(batch)
        self.room += batch.size

    def is_first(self, batch: Batch) -> bool:
        return batch.lane.batches[0] is batch

    def retry(self, batch: Batch, error: MyQueueError | None, *, not_before: float) -> None:
        """The attempt failed; the same batch leaves again, not before the time given, and once it is the lane's first."""
        lane = batch.lane
        batch.in_flight, batch.error = False, error
        lane.failures += 1
        lane.not_before = max(lane.not_before, not_before)
        if lane.is_orphan(batch):
            self._renumber_or_doubt(batch)
        self._waiting.pop(lane.partition, None)  # to the end of the queue
        self._offer(lane)

    def renumber(self, batch: Batch) -> None:
        """The log misses what the lane has delivered (its topic was made anew): the first batch, not stored there, begins a new identity."""
        batch.lane.identity = batch.sequence = None
        self._orphan(batch)

    def give_up(self, batch: Batch, error: MyQueueError, *, forget_identity: bool = False) -> None:
        """The lane's first batch is not delivered and is tried no more; its records stay in ``failed`` until they are taken over."""
        lane = batch.lane
        batch.error = error
        lane.landed(batch)
        self._close(batch)
        self._remove(batch)
        self.failed.append(batch)
        if lane.owns(batch):
            followed = any(lane.owns(one) for one in lane.batches)
            if batch.doubtful or forget_identity or followed:
                lane.identity = None
                self._orphan(batch)
            else:
                assert batch.sequence is not None
                lane.next_seq = batch.sequence.seq
        self._offer(lane)

    def _orphan(self, lost: Batch) -> None:
        """The lane's identity is gone, and with it the meaning of sequences behind the lost batch. What is in flight sees to it when it lands."""
        for batch in lost.lane.batches:
            if lost.lane.is_orphan(batch):
                if not lost.doubtful:
                    batch.doubtful = False  # the log takes it only behind one that it will never take
                if not batch.in_flight:
                    self._renumber_or_doubt(batch)

    @staticmethod
    def _renumber_or_doubt(batch: Batch) -> None:
        if not batch.doubtful:
            batch.sequence = None

    def take_expired(self, now: float) -> list[Batch]:
        """Batches that wait longer than their time, and orphans that may be stored: they are to be given up, in this order."""
        expired: list[Batch] = []
        for lane in self._waiting.values():
            for batch in lane.batches:
                if batch.in_flight or not (batch.deadline <= now or lane.is_orphan(batch)):
                    break
                expired.append(batch)
        return expired

    def holds(self, batch: Batch) -> bool:
        """Whether the batch is still this buffer's to deliver; not after ``abandon``."""
        return batch in batch.lane.batches

    def _remove(self, batch: Batch) -> None:
        if batch.closed and not batch.was_taken:
            batch.lane.closed_bytes -= batch.size
        batch.in_flight = False
        batch.lane.batches.remove(batch)
        self._waiting.pop(batch.lane.partition, None)
        self._offer(batch.lane)

    # --- flush, stop ---

    def hurry(self) -> list[Batch]:
        """Everything accepted so far becomes ready; returns what is still under way."""
        pending = list(self.pending())
        for batch in pending:
            self._close(batch)
        return pending

    def pending(self) -> Iterator[Batch]:
        for lane in self._lanes.values():
            yield from lane.batches

    def abandon(self) -> list[Batch]:
        """Give up everything at once, what is in flight too; returns it. An attempt that lands later is not ours any more."""
        pending = list(self.pending())
        self._sticky.clear()
        self._waiting.clear()
        for lane in self._lanes.values():
            lane.batches.clear()
            lane.closed_bytes = 0
        self.room += sum(batch.size for batch in pending)
        return pending

    def take_failed(self) -> list[Batch]:
        """The batches given up since the last call; their bytes are free again."""
        failed, self.failed = self.failed, []
        self.room += sum(batch.size for batch in failed)
        return failed

    def is_occupied(self) -> bool:
        """Whether anything is under way."""
        return any(lane.batches for lane in self._lanes.values())

    def senders_wanted(self) -> int:
        """One for each lane in use, and one more for what may leave behind a batch in flight."""
        return len(self._lanes) + any(batch.lane.batches[0] is not batch for _, batch in self._next_batches())

    def record_count(self) -> int:
        return sum(len(batch.records) for batch in self.pending())


def record_size(record: bytes | Record) -> int:
    """What a record counts in the buffer and towards a batch's size."""
    if isinstance(record, bytes):
        return len(record) + RECORD_OVERHEAD_BYTES
    size = len(record.value) + len(record.key or b"") + 2 * RECORD_OVERHEAD_BYTES
    return size + sum(len(name) * 4 + len(value or b"") + RECORD_OVERHEAD_BYTES for name, value in record.headers) if record.headers else size
