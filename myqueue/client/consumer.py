"""MyConsumer: messages of topics, in order within each partition, at least once."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType

from ..clock import Clock
from ..errors import (
    BadRequestError,
    ClosedError,
    ConfigurationError,
    MyQueueError,
    OffsetOutOfRangeError,
    UnavailableError,
    UnknownPartitionError,
    UnknownTopicError,
)
from ..protocol import routes
from ..protocol.names import check_topic_name, parse_integer
from ..protocol.types import ClusterSnapshot, Message, TopicPartition
from . import exits
from .connection import Connection
from .dead_letters import DeadLetters
from .fetcher import EARLIEST, LATEST, Chunk, Failure, Fetcher, Reader
from .group_reading import GroupReading
from .housekeeping import HEARTBEAT_INTERVAL_SECONDS, Housekeeper, Presence, attempt
from .membership import Membership
from .producer import MyProducer
from .redelivery import Redelivery
from .stamps import Stamps
from .transport import Transport

METADATA_INTERVAL_SECONDS = 10.0
IDLE_WAIT_SECONDS = 5.0
HEARD_AGAIN_SECONDS = 0.1  # between looks whether the group is heard again
EXIT_SECONDS = 3.0
OFFSET = Message._fields.index("offset")  # in the tuple: half the cost of its name
DEADLY = "each consumer that had it alone in its hands died"
log = logging.getLogger(__name__)


class MyConsumer:
    """Reads topics natively, ahead of the caller and bounded in bytes. One thread reads; ``stop`` and ``done`` are safe from any.

    At least once: what was handed out counts as done when the next message is asked for (or at ``commit``), and only what
    is done without a gap is committed. After a crash the messages since the last commit come again.

    With a ``group`` its members share the partitions, and where they stand is the group's: a member that leaves or falls silent is
    replaced by the others within its session timeout, from what it has committed.

    Args:
        topics: must exist.
        broker: ``"host:port"`` of the balancer, or several.
        start: ``"earliest"`` or ``"latest"``: where a new consumer begins.
        consumer_id: goes on as a consumer that was registered before: its id, or ``{topic: id}`` for several topics.
        group: the name of a consumer group; then ``start`` is where the group begins where it has committed nothing.
        group_strategy: how its members share partitions: ``"sticky"``, ``"range"`` or ``"round_robin"``; all members say the same.
        session_timeout_seconds: a member that the managers have not heard of for so long is replaced; 6 at least.
        instance_id: a member that comes again under the same one takes its old place over from itself.
        max_deliveries, dead_letter_topic: a message that ``retry`` was called for as often goes to that topic instead. In a group also one that
            as many members had alone in their hands when they died.
        auto_commit_seconds: how often progress is committed in the background; None: only by ``commit`` and ``stop``.
        auto_done: false: the caller says ``done(message)`` for each message, in any order and from any thread.
        fetch_bytes_max, prefetch_bytes_max: bounds on one fetch and on all that is held ahead.
        max_block_seconds: how long the constructor, ``seek``, ``seek_to_timestamp``, ``position`` and ``commit`` wait for the cluster.

    Raises:
        UnknownTopicError: names all topics that do not exist, in ``topics``; nothing was registered.
        MyQueueError: the cluster could not be asked.
    """

    def __init__(self, topics: Iterable[str], broker: str | Sequence[str] = "localhost:9092", *, start: str = EARLIEST,
                 group: str | None = None, group_strategy: str = "sticky", session_timeout_seconds: float = 10.0, instance_id: str | None = None,
                 max_deliveries: int = 5, dead_letter_topic: str | None = None,
                 consumer_id: int | Mapping[str, int] | None = None, auto_commit_seconds: float | None = 5.0, auto_done: bool = True,
                 fetch_bytes_max: int = 2 << 20, prefetch_bytes_max: int = 16 << 20, max_block_seconds: float = 10.0,
                 token: str | None = None, transport: Transport | None = None, clock: Clock | None = None) -> None:
        wanted = [check_topic_name(topic) for topic in ([topics] if isinstance(topics, str) else dict.fromkeys(topics))]
        if start not in (EARLIEST, LATEST):
            raise ConfigurationError(f"start is {start!r}: it must be {EARLIEST!r} or {LATEST!r}")
        if group is not None and consumer_id is not None:
            raise ConfigurationError("a member of a group has no consumer_id: where the group stands is the group's")
        if max_deliveries < 1:
            raise ConfigurationError(f"max_deliveries is {max_deliveries}: it must be 1 or more")
        self._connection = Connection(broker, token=token, transport=transport, clock=clock)
        self._clock = self._connection.clock
        self._max_block_seconds = max_block_seconds
        self._auto_done = auto_done
        self._stopped: str | None = None  # why, once it is
        self._changed = threading.Condition()  # re-entrant, so that a signal handler may stop the consumer it interrupts
        self._committing = threading.Lock()
        self._stamps = Stamps()
        self._threads: list[threading.Thread] = []
        self._presence = Presence("consumers", self._connection)
        self._redelivery = Redelivery()
        self._dead_letters = DeadLetters(dead_letter_topic, max_deliveries, lambda: MyProducer(
            [dead_letter_topic or ""], broker, token=token, transport=transport, clock=clock, max_block_seconds=max_block_seconds))
        self._fetcher = Fetcher(self._connection, self._changed, fetch_bytes_max=fetch_bytes_max, prefetch_bytes_max=prefetch_bytes_max)
        self._group: GroupReading | None = None
        self.consumer_ids: dict[str, int] = {}  # by topic; a member of a group has none
        try:
            if group is not None:
                membership = Membership(self._connection, group, wanted, strategy=group_strategy, start=start,
                                        session_timeout_seconds=session_timeout_seconds, instance_id=instance_id)
                self._group = GroupReading(membership, self._connection, self._fetcher, self._changed, on_readers=self._restaff,
                                           on_gone=self._redelivery.drop,
                                           on_suspect=None if dead_letter_topic is None else self._redelivery.suspect)
                self._connection.watch(wanted)
                self._group.begin(max_block_seconds)
            else:
                self.consumer_ids = self._ids(wanted, start, consumer_id)
                self._add_partitions(self._connection.refresh_until(wanted, max_block_seconds), start)
            if group is None and start == LATEST:  # now, not at the first fetch: what is sent from here on is seen
                for reader in self._fetcher.readers.values():
                    self._resolve(reader)
        except MyQueueError:
            self._connection.close()
            raise
        tasks = {self._presence.send_due: HEARTBEAT_INTERVAL_SECONDS, self._refresh: METADATA_INTERVAL_SECONDS}
        if auto_commit_seconds is not None:
            tasks[self._commit_done] = auto_commit_seconds
        self._housekeeper = Housekeeper("myqueue-consumer", tasks, clock=self._clock, last=self._finish)
        self._housekeeper.start()
        if self._group is not None:
            interval = self._group.membership.heartbeat_interval_seconds
            self._heart: Housekeeper | None = Housekeeper("myqueue-group", {self._group.beat: interval}, clock=self._clock)
            self._heart.start()  # of its own, so that no commit keeps a heartbeat waiting
        else:
            self._heart = None
        exits.opened(self)

    def __repr__(self) -> str:
        who = f"consumer_ids={self.consumer_ids}" if self._group is None else repr(self._group.membership)
        return f"MyConsumer({who}, {self._stopped or 'open'}, {len(self._fetcher.readers)} partitions)"

    # --- reading ---

    def get_next(self, timeout_seconds: float | None = None) -> Iterator[Message]:
        """Yield messages until ``stop``; with a time-out, until none came for so long. Goes on where the last call ended.

        While the cluster is away it waits and goes on when it is back.

        Raises:
            OffsetOutOfRangeError: the position is no longer in the log (``earliest``, ``latest``): ``seek`` decides where to go on.
            UnknownTopicError: the topic was deleted.
            CorruptBatchError: what was read is damaged; the next call reads it again.
            UnavailableError: the time-out is over, and no partition could be asked.
        """
        with self._changed:
            self._check_usable()
            if self._auto_done:
                self._all_done()
            self._staff()
        while (item := self._wait_for_next(timeout_seconds)) is not None:
            if isinstance(item, Message):
                yield item  # again
            else:
                yield from self._hand_out(item)

    def _hand_out(self, chunk: Chunk) -> Iterator[Message]:
        reader, progress, generation, auto_done = chunk.reader, chunk.reader.progress, chunk.generation, self._auto_done
        assert progress is not None
        try:
            for message in chunk.messages:  # one iterator, however often it is taken up; what follows is done for each message
                if self._stopped is not None or generation != reader.generation:
                    return
                if reader.slow_start is not None:
                    if self._was_deadly(reader, message):
                        continue
                    if self._stopped is not None or generation != reader.generation:
                        return  # the partition went to another member while that was said
                progress.position = message[OFFSET] + 1
                yield message
                if auto_done and generation == reader.generation:
                    progress.done_up_to = progress.position  # nothing is done out of its order
            if auto_done and reader.slow_start is not None and generation == reader.generation:
                attempt(lambda: self._group.settle(reader))  # type: ignore[union-attr] # what comes next may be another partition's
        except MyQueueError:
            with self._changed:
                if generation == reader.generation:
                    self._fetcher.refetch(reader, progress.position)  # the rest of the chunk is not passed over
            raise
        with self._changed:
            if generation == reader.generation:
                self._fetcher.finish(chunk)

    def _was_deadly(self, reader: Reader, message: Message) -> bool:
        """Whether so many members of the group died of this message that it is among the dead letters now, and done. Else it is announced where
        that is due.

        Raises:
            DeliveryError, MyQueueError: the dead-letter topic did not take it; the next ``get_next`` tries again.
        """
        assert self._group is not None and reader.progress is not None
        deaths = self._redelivery.deliveries(message) - 1
        if not self._dead_letters.is_due(deaths):
            self._group.announce(reader, message.offset)
            return False
        self._dead_letters.send(message, deliveries=deaths, reason=DEADLY)
        with self._changed:
            self._redelivery.done(message)
            reader.progress.handed(message.offset)
            reader.progress.done(message.offset)
        return True

    def _wait_for_next(self, timeout_seconds: float | None) -> Chunk | Message | None:
        deadline = None if timeout_seconds is None else self._clock.monotonic() + timeout_seconds
        with self._changed:
            while self._stopped is None:
                may_read = self._group is None or not self._group.membership.is_silenced
                again = self._redelivery.take(self._clock.monotonic()) if may_read else None
                if again is not None:
                    return again
                if may_read and self._fetcher.ready:
                    item = self._fetcher.ready[0]
                    if isinstance(item, Chunk):
                        return item
                    self._raise(item)
                if self._group is not None and self._group.failure is not None:
                    raise self._group.failure
                left = IDLE_WAIT_SECONDS if deadline is None else deadline - self._clock.monotonic()
                if left <= 0:
                    self._check_reachable()
                    return None
                due = self._redelivery.next_due()
                soon = HEARD_AGAIN_SECONDS if not may_read else IDLE_WAIT_SECONDS if due is None else max(0.0, due - self._clock.monotonic())
                self._changed.wait(min(left, soon))
        return None

    def _raise(self, failure: Failure) -> None:
        self._fetcher.finish(failure)
        raise failure.error

    def _check_reachable(self) -> None:
        """Silence because nothing can be asked is not the silence of an empty topic."""
        errors = [reader.error for reader in self._fetcher.readers.values()]
        if errors and all(isinstance(error, UnavailableError) for error in errors):
            raise errors[0]  # type: ignore[misc]

    def _check_usable(self) -> None:
        if self._stopped is not None and self._stopped != "stopped":
            raise ClosedError(f"the consumer was {self._stopped}")

    # --- progress ---

    def done(self, message: Message) -> None:
        """The message was dealt with (with ``auto_done=False``). Any order; a commit never passes one that is not done.

        Of a partition that went to another member of the group it changes nothing: the message may come again there.
        """
        with self._changed:
            if self._is_anothers(message):
                return
            reader = self._reader(message.topic, message.partition)
            self._redelivery.done(message)
            if reader.progress is not None:
                reader.progress.done(message.offset)
            is_last = reader.slow_start is not None and reader.progress is not None and reader.progress.done_up_to == reader.slow_start.announced_end
        if is_last and self._group is not None:
            attempt(lambda: self._group.commit([reader]))  # type: ignore[union-attr] # at once: it must not be suspect of what comes next

    def retry(self, message: Message, *, delay_seconds: float = 0.0, reason: str = "") -> None:
        """The message could not be dealt with (with ``auto_done=False``): it is handed out again, behind later ones, after ``delay_seconds``.

        With a ``dead_letter_topic``, one that was handed out ``max_deliveries`` times goes there instead, with headers that say
        where it stood and the reason; then it is done. Deliveries are counted by this consumer; in a group also those to members that died
        with this one message in their hands.

        Raises:
            ConfigurationError: with ``auto_done`` every message is done when the next one is asked for.
            DeliveryError, MyQueueError: the dead-letter topic did not take it; the message is not done, and ``retry`` may be called again.
        """
        if self._auto_done:
            raise ConfigurationError("retry needs auto_done=False: else the message is done when the next one is asked for")
        if self._dead_letters.is_due(self._redelivery.deliveries(message)):
            self._dead_letters.send(message, deliveries=self._redelivery.deliveries(message), reason=reason)
            self.done(message)
            return
        with self._changed:
            if not self._is_anothers(message):
                self._reader(message.topic, message.partition)
                self._redelivery.retry(message, self._clock.monotonic() + delay_seconds)
                self._changed.notify_all()

    def deliveries(self, message: Message) -> int:
        """How often this consumer has handed the message out, and members that died of it."""
        with self._changed:
            return self._redelivery.deliveries(message)

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that this consumer reads now."""
        with self._changed:
            return sorted(self._fetcher.readers)

    def pause(self, topic: str, partition: int) -> None:
        """Hand out nothing of a partition until ``resume``. In a group it stays this member's. Raises UnknownPartitionError."""
        with self._changed:
            self._fetcher.pause(self._reader(topic, partition))

    def resume(self, topic: str, partition: int) -> None:
        """Go on with a partition where it was paused. Raises UnknownPartitionError."""
        with self._changed:
            self._fetcher.resume(self._reader(topic, partition))

    def _is_anothers(self, message: Message) -> bool:
        return self._group is not None and TopicPartition(message.topic, message.partition) not in self._fetcher.readers

    def commit(self) -> None:
        """Write durably how far this consumer is; with ``auto_done`` that is everything handed out so far. Raises MyQueueError."""
        with self._changed:
            self._check_usable()
            if self._auto_done:
                self._all_done()
        self._connection.persistently(self._commit_done, self._max_block_seconds)

    def position(self, topic: str, partition: int) -> int:
        """The offset of the next message to be handed out. Raises MyQueueError."""
        reader = self._reader(topic, partition)
        self._resolve(reader)
        assert reader.progress is not None
        return reader.progress.position

    def committed(self, topic: str, partition: int) -> int | None:
        """Where this consumer, or its group, would go on after a crash, as far as it knows. Raises MyQueueError.

        That is what was committed last, or the earliest offset where it began; None where it began at the latest and has not committed yet.
        """
        reader = self._reader(topic, partition)
        self._resolve(reader)
        assert reader.progress is not None
        return reader.progress.committed

    def seek(self, topic: str, partition: int, offset: int | str) -> None:
        """Go on from an offset, or from ``"earliest"`` or ``"latest"``. What was fetched is dropped; nothing is committed by it.

        Raises:
            OffsetOutOfRangeError: the log does not have it; names earliest and latest. The position is as before.
        """
        reader = self._reader(topic, partition)
        if isinstance(offset, str) and offset not in (EARLIEST, LATEST):
            raise BadRequestError(f"offset must be a whole number, {EARLIEST!r} or {LATEST!r}, not {offset!r}")
        ends = self._connection.persistently(lambda: self._fetcher.offsets(reader.partition), self._max_block_seconds)
        named = {EARLIEST: ends.start, LATEST: ends.end}
        target = named[offset] if isinstance(offset, str) else parse_integer(offset, name="offset", minimum=-(2**63))
        if not ends.start <= target <= ends.end:
            raise OffsetOutOfRangeError(f"{reader.partition} has offsets {ends.start} to {ends.end}, not {target}",
                                        earliest=ends.start, latest=ends.end)
        self._go_on_from(reader, target)

    def seek_to_timestamp(self, topic: str, partition: int | None, timestamp_us: int) -> None:
        """Go on from the first message appended at or after a time (microseconds since 1970, as in ``Message.timestamp``), from the end
        where there is none yet.

        The time is the brokers', when they appended it, whatever time its producer gave it.

        Args:
            partition: None for all partitions of the topic that this consumer reads now; where one of them cannot be asked, none is moved.
        """
        timestamp_us = parse_integer(timestamp_us, name="timestamp_us")
        readers = [self._reader(topic, partition)] if partition is not None else self._readers_of(topic)
        targets = [self._connection.persistently(lambda reader=reader: self._fetcher.offset_since(reader.partition, timestamp_us),
                                                 self._max_block_seconds) for reader in readers]
        for reader, target in zip(readers, targets, strict=True):
            self._go_on_from(reader, target)

    def _go_on_from(self, reader: Reader, offset: int) -> None:
        self._resolve(reader)  # so that what is committed stays known
        with self._changed:
            self._fetcher.seek(reader, offset)
            if self._threads:
                self._staff()

    def _all_done(self) -> None:
        for reader in self._fetcher.readers.values():
            if reader.progress is not None:
                reader.progress.all_done()

    def _commit_done(self) -> None:
        """Commit every partition; one that fails keeps none of the others from it. Raises the first failure."""
        failure: MyQueueError | None = None
        if self._group is not None:
            self._group.commit(list(self._fetcher.readers.values()))
            return
        with self._committing:
            for reader in list(self._fetcher.readers.values()):
                try:
                    self._commit_reader(reader)
                except MyQueueError as error:
                    failure = failure or error
        if failure is not None:
            raise failure

    def _commit_reader(self, reader: Reader) -> None:
        progress = reader.progress
        offset = progress.to_commit() if progress is not None else None
        if progress is None or offset is None:
            return
        path = routes.OFFSETS.format(topic=reader.partition.topic, partition=reader.partition.partition, consumer_id=reader.consumer_id)
        self._connection.partition_call(reader.partition, "PUT", path, headers={"Content-Type": "application/json"},
                                        body=json.dumps({"offset": offset, **self._stamps.next()._asdict()}).encode(), repeatable=True)
        progress.committed = offset
        self._presence.touch(reader.consumer_id)

    # --- the end ---

    def stop(self, timeout_seconds: float = 10.0) -> None:
        """End every ``get_next``, commit what is done and close. Safe from another thread or a signal handler; a second call does nothing.

        The message handed out last is not done unless the next was asked for or ``commit`` was called: it comes again.
        """
        with self._changed:
            if self._stopped is not None:
                return
            self._stopped = "stopped"
            self._changed.notify_all()
        exits.closed(self)
        if self._heart is not None:
            self._heart.stop()
        self._housekeeper.stop()
        if not self._housekeeper.join(timeout_seconds):
            log.warning("the last commit is still under way after %s s: messages since the one before it may come again", timeout_seconds)

    def _finish(self) -> None:
        """The last commit, in the housekeeper's thread: a signal handler must not wait for locks that it interrupted."""
        try:
            if self._group is not None:
                self._group.let_go(list(self._fetcher.readers.values()))
            else:
                self._commit_done()
        except MyQueueError as error:
            log.warning("the last commit failed, messages since the one before it may come again: %s", error.message)
        if self._group is not None:
            attempt(self._group.membership.leave)
        self._dead_letters.close()
        self._connection.close()

    def __enter__(self) -> MyConsumer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def at_exit(self) -> None:
        self.stop(EXIT_SECONDS)

    def after_fork(self) -> None:
        """In a forked child: the threads stayed with the parent, and so does the consumer."""
        self._changed = threading.Condition()
        self._stopped = "made before a fork: the child needs a consumer of its own"

    # --- the cluster ---

    def _ids(self, topics: list[str], start: str, consumer_id: int | Mapping[str, int] | None) -> dict[str, int]:
        if consumer_id is not None:
            given = dict(consumer_id) if isinstance(consumer_id, Mapping) else dict.fromkeys(topics[:1], consumer_id)
            if set(given) != set(topics):
                raise ConfigurationError("consumer_id needs an id for each topic: {topic: id}")
            ids = {topic: parse_integer(given[topic], name="consumer_id", minimum=1) for topic in topics}
        else:
            answer = self._connection.persistently(
                lambda: self._connection.call("POST", routes.CONSUMERS, json={"topics": topics, "start": start}, repeatable=False),
                self._max_block_seconds)
            ids = {topic: answer["consumers"][topic]["consumer_id"] for topic in topics}
        for actor in ids.values():
            self._presence.touch(actor)
        return ids

    def _add_partitions(self, snapshot: ClusterSnapshot, start: str) -> None:
        with self._changed:
            for partition in sorted(snapshot.partitions):
                if partition.topic in self.consumer_ids and partition not in self._fetcher.readers:
                    self._fetcher.add(Reader(partition, self.consumer_ids[partition.topic], start))

    def _refresh(self) -> None:
        """Partitions that were added meanwhile are read from their beginning on; a group says itself who reads them."""
        self._add_partitions(self._connection.refresh(), EARLIEST)
        with self._changed:
            self._restaff()
            self._changed.notify_all()

    def _restaff(self) -> None:
        """Where reading has begun. Called with the lock held."""
        if self._threads:
            self._staff()

    def _reader(self, topic: str, partition: int) -> Reader:
        reader = self._fetcher.readers.get(TopicPartition(topic, partition))
        if reader is None:
            known = sorted(str(at) for at in self._fetcher.readers)
            raise UnknownPartitionError(f"this consumer does not read {topic}/{partition}, it reads {', '.join(known[:20])}")
        return reader

    def _readers_of(self, topic: str) -> list[Reader]:
        with self._changed:
            readers = [reader for at, reader in sorted(self._fetcher.readers.items()) if at.topic == topic]
        if not readers and self._group is None:  # a member of a group may have none
            raise UnknownTopicError(f"this consumer does not read topic {topic}, it reads {', '.join(sorted(self.consumer_ids))}")
        return readers

    def _resolve(self, reader: Reader) -> None:
        if reader.progress is None:
            self._connection.persistently(lambda: self._fetcher.resolve(reader), self._max_block_seconds)

    # --- threads ---

    def _staff(self) -> None:
        """Have a thread per partition, up to a few. Called with the lock held."""
        while self._stopped is None and len(self._threads) < self._fetcher.threads_wanted():
            thread = threading.Thread(target=self._fetch_loop, name=f"myqueue-fetcher-{len(self._threads) + 1}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _fetch_loop(self) -> None:
        while self._stopped is None:
            if self._fetcher.run_once():
                continue
            with self._changed:
                due = self._fetcher.next_due()
                wait = IDLE_WAIT_SECONDS if due is None else due - self._clock.monotonic()
                if self._stopped is None and wait > 0:
                    self._changed.wait(min(wait, IDLE_WAIT_SECONDS))
