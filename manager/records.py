"""The queue on top of the partitions: which partition a message goes to or comes from, and the call to its leader."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from zlib import crc32

from db.metadata_store import PartitionRow
from manager.brokers import Brokers
from manager.catalogue import Catalogue, Topic, partition_id
from manager.heartbeats import HeartbeatBook
from manager.node import signals as sig
from manager.node.signals import Signals
from manager.replica import Replica
from myqueue.clock import Clock
from myqueue.errors import (
    MyQueueError,
    NotFoundError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    OverloadedError,
    UnavailableError,
    UnknownTopicError,
)
from myqueue.protocol import wire
from myqueue.protocol.batch import check_record
from myqueue.protocol.partitioner import partition_for
from myqueue.protocol.types import NodeAddress, PartitionId, Record, TopicPartition

T = TypeVar("T")
TURNS_KEPT = 100_000
PARTITIONS_A_CALL = 1_000  # whose positions are asked for
LEADER_WAIT_SECONDS = 2.0  # for a partition's next leader; with the last call the answer comes within 3 s
LEADER_AGAIN_SECONDS = 0.1
REPEATABLE_SECONDS = 4.0  # later a request with a request_id takes nothing any more: it may have been repeated, and answered elsewhere


@dataclass(frozen=True, slots=True)
class Produced:
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Consumed:
    """A message that was handed out. ``value`` is ``{"value": text}`` or ``{"value_base64": …}``."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    value: dict[str, str]


@dataclass(frozen=True, slots=True)
class Position:
    """Where a consumer stands in a partition; ``offset`` is None where it has committed nothing, and so begins at the start."""

    partition: int
    offset: int | None
    start_offset: int
    end_offset: int

    @property
    def lag(self) -> int:
        """The messages that it has not committed."""
        return max(0, self.end_offset - max(self.start_offset, self.offset or 0))

    def to_json(self) -> dict[str, Any]:
        return {"partition": self.partition, "offset": self.offset, "start_offset": self.start_offset, "end_offset": self.end_offset, "lag": self.lag}


def consumer_key(consumer_id: int) -> str:
    """A registered consumer's name in the partitions' logs."""
    return f"#{consumer_id}"


class Records:
    """Produce, consume and size for registered producers and consumers."""

    def __init__(self, *, replica: Replica, brokers: Brokers, book: HeartbeatBook, clock: Clock, signals: Signals) -> None:
        self._replica, self._brokers, self._book, self._clock, self._signals = replica, brokers, book, clock, signals
        self._turns: dict[tuple, itertools.count] = {}

    def produce(self, *, producer_id: int, topic_name: str, value: bytes, key: bytes | None = None, partition: int | None = None) -> Produced:
        """Store one message; when this returns it is durable.

        A partition that is named is taken; else a key decides; else the partitions take turns.

        Raises:
            UnknownTopicError, UnknownPartitionError, UnknownProducerError, TooLargeError: nothing was stored.
            OutcomeUnknownError: it may have been stored.
            UnavailableError: the partition's leader cannot take it now; nothing was stored.
        """
        check_record(Record(value, key))
        topic, number = self._replica.certain(lambda known: self._place(known.topic(topic_name), key, partition))
        self._replica.certain(lambda _: self._replica.check_producer(producer_id, topic.topic_id, topic_name))
        self._book.heard("producer", producer_id)
        body = {**wire.value_to_json(value), **(wire.value_to_json(key, "key") if key is not None else {})}
        row = topic.partitions[number]
        appended = self.at_leader(topic, row, lambda broker_id, address: self._brokers.append(broker_id, address, partition_id(row), body))
        return Produced(number, appended["base_offset"])

    def consume(self, *, consumer_id: int, topic_name: str, partition: int | None = None, request_id: str | None = None) -> Consumed | None:
        """Hand out the consumer's next message, at most once; None when nothing is left in the partition, or in all of them.

        With a ``request_id`` the call may be repeated: for five minutes it gives the same message.

        Raises:
            UnknownTopicError, UnknownPartitionError, UnknownConsumerError: nothing was handed out.
            OutcomeUnknownError: a message may have been handed out; no other partition was tried.
            UnavailableError: no message was found where it could be looked, and somewhere it could not; or this manager was held up
                for so long that the call may have been repeated meanwhile. Nothing was handed out.
        """
        began, end = self._clock.monotonic(), None  # in one partition alone the same request gets the same message, however late
        topic, rows = self._for_consumer(consumer_id, topic_name, partition)
        if partition is None and len(rows) > 1:
            if request_id is not None:
                end = began + REPEATABLE_SECONDS
                known = self._handed_out_before(topic, rows, consumer_id, request_id)
                if known is not None:
                    return known
                first = crc32(request_id.encode()) % len(rows)  # two attempts at the same time begin at the same partition, which gives both the same
            else:
                first = self._turn("consume", consumer_id, topic.topic_id) % len(rows)
            rows = (*rows[first:], *rows[:first])
        return self._first_of(topic, rows, {"consumer": consumer_key(consumer_id), "request_id": request_id}, consumer_id, end)

    def sizes(self, *, consumer_id: int, topic_name: str, partition: int | None = None) -> list[tuple[int, int]]:
        """(partition, messages that this consumer has not read), of one partition or of all. Raises like ``consume``."""
        topic, rows = self._for_consumer(consumer_id, topic_name, partition)
        sizes, failures = self._ask_sizes(topic, rows, consumer_id, wait_seconds=LEADER_WAIT_SECONDS)
        if failures:
            raise failures[0]
        return sorted(sizes.items())

    def positions(self, *, consumer_id: int, topic_name: str) -> list[Position]:
        """Where a consumer stands in each partition. It was not heard of by that.

        Raises:
            UnknownTopicError, UnknownConsumerError: no such topic, or no such consumer of it.
            UnavailableError: not every leader has said it.
        """
        topic = self._replica.certain(lambda known: known.topic(topic_name))
        self._replica.certain(lambda _: self._replica.check_consumer(consumer_id, topic.topic_id, topic_name))
        return self.positions_of(consumer_key(consumer_id), topic)

    def positions_of(self, consumer: str, topic: Topic) -> list[Position]:
        """The same, by a consumer's or a group's name in the logs, whoever that is. Raises UnavailableError."""
        return self.positions_in(consumer, [topic])[topic.name]

    def positions_in(self, consumer: str, topics: Sequence[Topic], *, wait_seconds: float = LEADER_WAIT_SECONDS) -> dict[str, list[Position]]:
        """The same in several topics, by name: so many topics take as many calls as there are brokers.

        Raises:
            UnavailableError: not every leader has said it, or a partition had none for ``wait_seconds``.
        """
        said, failures = self._ask_leaders([(topic, topic.partitions) for topic in topics], PARTITIONS_A_CALL, lambda broker_id, address, group:
                                           self._brokers.positions(broker_id, address, consumer, group), wait_seconds)
        if failures:
            raise failures[0]
        found: dict[str, list[Position]] = {topic.name: [] for topic in topics}
        for at, one in sorted(said.items()):
            found[at.topic].append(Position(at.partition, one["offset"], one["start_offset"], one["end_offset"]))
        return found

    def pin_latest(self, *, consumer_id: int, topic_name: str) -> None:
        """Let a new consumer begin at the present end of every partition.

        Raises:
            OutcomeUnknownError: not every partition has said that it did; the consumer may begin earlier there.
        """
        topic = self._replica.certain(lambda known: known.topic(topic_name))
        body = {"consumer": consumer_key(consumer_id), "start": "latest"}
        failures = [outcome for outcome in self.set_offsets([(topic, row, body) for row in topic.partitions]) if isinstance(outcome, MyQueueError)]
        if failures:
            raise OutcomeUnknownError(f"consumer {consumer_id} is registered, but its start could not be set everywhere: {failures[0].message}; "
                                      "register again", **failures[0].details)

    def set_offsets(self, wanted: Sequence[tuple[Topic, PartitionRow, dict[str, Any]]]) -> list[dict[str, Any] | MyQueueError]:
        """Have offsets set in several partitions side by side, each with the body that its leader gets; the answer or the error of each."""
        def ask(topic: Topic, row: PartitionRow, body: dict[str, Any]) -> Callable[[], dict[str, Any]]:
            return lambda: self.at_leader(topic, row, lambda broker_id, address: self._brokers.set_offset(
                broker_id, address, partition_id(row), body))

        return self._brokers.each([ask(*one) for one in wanted]) if wanted else []

    def _for_consumer(self, consumer_id: int, topic_name: str, partition: int | None) -> tuple[Topic, tuple[PartitionRow, ...]]:
        def look(known: Catalogue) -> tuple[Topic, tuple[PartitionRow, ...]]:
            topic = known.topic(topic_name)
            return topic, topic.partitions if partition is None else (topic.partition(partition),)

        topic, rows = self._replica.certain(look)
        self._replica.certain(lambda _: self._replica.check_consumer(consumer_id, topic.topic_id, topic_name))
        self._book.heard("consumer", consumer_id)
        return topic, rows

    def _first_of(self, topic: Topic, rows: Sequence[PartitionRow], body: dict[str, Any], consumer_id: int, end: float | None) -> Consumed | None:
        """From the first partition that has something: the one whose turn it is is asked at once, the others only if they have."""
        failures: list[MyQueueError] = []
        found = self._try_dequeue(topic, rows[0], body, end, failures)
        rest = rows[1:]
        if found is None and len(rest) > 1:
            sizes, unknown = self._ask_sizes(topic, rest, consumer_id)
            failures += unknown
            rest = [row for row in rest if sizes.get(row.partition)]
        for row in rest:
            found = found or self._try_dequeue(topic, row, body, end, failures)
        if found is None and failures:
            raise failures[0]
        return found

    def _try_dequeue(self, topic: Topic, row: PartitionRow, body: dict[str, Any], end: float | None, failures: list[MyQueueError]) -> Consumed | None:
        self._check_in_time(end)
        try:
            return self._dequeue(topic, row, body, end)
        except OutcomeUnknownError:
            raise  # a second message may not be handed out for it
        except MyQueueError as error:
            failures.append(error)
            return None

    def _handed_out_before(self, topic: Topic, rows: Sequence[PartitionRow], consumer_id: int, request_id: str) -> Consumed | None:
        """The message that this request got before; every leader must have said that it knows of none before another is taken."""
        body = {"consumer": consumer_key(consumer_id), "request_id": request_id, "known_only": True}

        def ask(row: PartitionRow) -> Callable[[], Consumed | None]:
            return lambda: self._dequeue(topic, row, body)

        outcomes = self._brokers.each([ask(row) for row in rows])
        for outcome in outcomes:
            if isinstance(outcome, Consumed):
                return outcome
            if isinstance(outcome, OffsetOutOfRangeError):
                raise outcome  # it got one that is gone, and so it will be told as long as the request is known
        for outcome in outcomes:
            if isinstance(outcome, MyQueueError):
                raise UnavailableError(f"whether this request was answered before cannot be told now: {outcome.message}", **outcome.details)
        return None

    def _dequeue(self, topic: Topic, row: PartitionRow, body: dict[str, Any], end: float | None = None) -> Consumed | None:
        def ask(broker_id: int, address: NodeAddress) -> dict[str, Any]:
            self._check_in_time(end)
            return self._brokers.dequeue(broker_id, address, partition_id(row), body)

        answer = self.at_leader(topic, row, ask)
        if answer.get("empty"):
            return None
        value = {name: answer[name] for name in ("value", "value_base64") if name in answer}
        return Consumed(topic.name, row.partition, answer["offset"], answer["timestamp"], value)

    def _check_in_time(self, end: float | None) -> None:
        if end is not None and self._clock.monotonic() >= end:
            raise OverloadedError("this manager was held up, and the request may have been repeated meanwhile: nothing was handed out by it")

    def _ask_sizes(self, topic: Topic, rows: Sequence[PartitionRow], consumer_id: int, *,
                   wait_seconds: float = 0.0) -> tuple[dict[int, int], list[MyQueueError]]:
        """Unread messages by partition; and the errors of brokers that did not say."""
        consumer = consumer_key(consumer_id)
        return self.ask_leaders(topic, rows, lambda broker_id, address, group: self._brokers.sizes(broker_id, address, consumer, group),
                                wait_seconds=wait_seconds)

    def ask_leaders(self, topic: Topic, rows: Sequence[PartitionRow],
                    make: Callable[[int, NodeAddress, list[PartitionId]], list[T]],
                    *, at_once: int | None = None, wait_seconds: float = 0.0) -> tuple[dict[int, T], list[MyQueueError]]:
        """What the leaders say, by partition, one call a broker, or one for so many partitions ``at_once``; and the errors of those that did not,
        and of partitions that nobody led for ``wait_seconds``.
        """
        said, failures = self._ask_leaders([(topic, rows)], at_once, make, wait_seconds)
        return {at.partition: one for at, one in said.items()}, failures

    def _ask_leaders(self, places: Sequence[tuple[Topic, Sequence[PartitionRow]]], at_once: int | None,
                     make: Callable[[int, NodeAddress, list[PartitionId]], list[T]],
                     wait_seconds: float) -> tuple[dict[TopicPartition, T], list[MyQueueError]]:
        """The same in several topics."""
        catalogue, led, failures = self._led(places, wait_seconds)
        names = {catalogue.topics.get(topic.name, topic).topic_id: topic.name for topic, _ in places}
        groups = [(broker_id, group[first:first + size]) for broker_id, group in led.items() for size in (at_once or len(group),)
                  for first in range(0, len(group), size)]

        def ask(broker_id: int, group: Sequence[PartitionRow]) -> Callable[[], list[T]]:
            return lambda: self._held(lambda: make(broker_id, catalogue.address(broker_id), [partition_id(row) for row in group]))

        said: dict[TopicPartition, T] = {}
        for (_, group), outcome in zip(groups, self._brokers.each([ask(*group) for group in groups]), strict=True):
            if isinstance(outcome, MyQueueError):
                failures.append(outcome)
            else:
                said |= {TopicPartition(names[row.topic_id], row.partition): one for row, one in zip(group, outcome, strict=True)}
        return said, failures

    def _led(self, places: Sequence[tuple[Topic, Sequence[PartitionRow]]],
             wait_seconds: float) -> tuple[Catalogue, dict[int, list[PartitionRow]], list[MyQueueError]]:
        """Who leads which of these partitions, once all have a leader or the time is over; and an error for each that has none."""
        end = self._clock.monotonic() + wait_seconds
        while True:
            stamp = self._signals.stamp(sig.CATALOGUE)
            catalogue, led, failures = self._replica.catalogue(), dict[int, list[PartitionRow]](), list[MyQueueError]()
            for topic, rows in places:
                wanted, now = {row.partition for row in rows}, catalogue.topics.get(topic.name, topic)
                for row in now.partitions:
                    try:
                        if row.partition in wanted:
                            led.setdefault(catalogue.leader(now, row)[0], []).append(row)
                    except UnavailableError as error:
                        failures.append(error)
            left = end - self._clock.monotonic()
            if not failures or left <= 0:
                return catalogue, led, failures
            self._signals.wait(sig.CATALOGUE, stamp, min(left, LEADER_AGAIN_SECONDS))

    def _place(self, topic: Topic, key: bytes | None, partition: int | None) -> tuple[Topic, int]:
        if partition is not None:
            return topic, topic.partition(partition).partition
        count = len(topic.partitions)
        return topic, partition_for(key, count) if key is not None else self.turn(topic) % count

    def _turn(self, *who: Any) -> int:
        if who not in self._turns and len(self._turns) >= TURNS_KEPT:
            self._turns = {}
        return next(self._turns.setdefault(who, itertools.count()))

    def turn(self, topic: Topic) -> int:
        """A number that grows with each call, for what is produced to a topic without saying where to."""
        return self._turn("produce", topic.topic_id)

    def at_leader(self, topic: Topic, row: PartitionRow, make: Callable[[int, NodeAddress], T]) -> T:
        """Call the partition's leader; what surely was not done because the leadership moves is tried again for a while.

        Raises:
            UnavailableError: nobody led it, or could do it, in time. Nothing was done.
            OutcomeUnknownError: it may have been done.
        """
        end = self._clock.monotonic() + LEADER_WAIT_SECONDS
        while True:
            stamp = self._signals.stamp(sig.CATALOGUE)
            try:
                broker_id, address = self._leader(topic, row)
                return self._held(lambda broker_id=broker_id, address=address: make(broker_id, address))  # type: ignore[misc]
            except (OutcomeUnknownError, OverloadedError):
                raise
            except UnavailableError:
                left = end - self._clock.monotonic()
                if left <= 0:
                    raise
            self._signals.wait(sig.CATALOGUE, stamp, min(left, LEADER_AGAIN_SECONDS))

    def _leader(self, topic: Topic, row: PartitionRow) -> tuple[int, NodeAddress]:
        """Who leads the partition now, which may be another one than when the request came. A topic that was deleted meanwhile is unknown."""
        catalogue = self._replica.catalogue()
        now = catalogue.topics.get(topic.name)
        if now is None or now.topic_id != topic.topic_id:
            raise UnknownTopicError(f"Topic '{topic.name}' does not exist any more", topic=topic.name, topics=[topic.name])
        return catalogue.leader(now, now.partition(row.partition))

    @staticmethod
    def _held(make: Callable[[], T]) -> T:
        """A leader that does not know its partition (yet) is a matter of time, not the caller's mistake."""
        try:
            return make()
        except NotFoundError as error:
            raise UnavailableError(error.message, **error.details) from error
