"""MyProducer: send messages, know what became of each, lose none silently."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType

from ..clock import Clock
from ..errors import BufferFullError, ClosedError, DeliveryError, MyQueueError, ReceiptsError, TooLargeError
from ..protocol import batch as batches
from ..protocol import routes
from ..protocol.batch import RECORD_BYTES_MAX
from ..protocol.names import INT64_MAX, check_topic_name, parse_integer
from ..protocol.types import Header, Record
from . import exits
from .accumulator import REQUEST_BYTES_MAX, Accumulator, Batch, record_size
from .connection import Connection
from .delivery import Completion, Delivery, Undelivered
from .housekeeping import HEARTBEAT_INTERVAL_SECONDS, Housekeeper, Presence
from .receipts import ReceiptFile
from .sender import Sender
from .transport import Transport

SENDERS_MAX = 4  # threads; a lane has a request or two in flight, so more partitions than this take turns
METADATA_INTERVAL_SECONDS = 15.0
PAUSE_RECORDS_MIN = 256  # of a batch: a pause after fewer would cost more than it brings
IDLE_WAIT_SECONDS = 5.0
EXIT_FLUSH_SECONDS = 10.0


class MyProducer:
    """Sends messages to topics, in batches, straight to the brokers that lead their partitions. Safe to share between threads.

    A message that ``send`` accepted is delivered once and in order within its partition, or reported: by its Delivery,
    by ``flush`` and ``stop``, and at the latest on stderr when the interpreter exits. Nothing is dropped silently.

    Args:
        topics: registered at once, and created where they do not exist; others are registered at their first ``send``.
        broker: ``"host:port"`` of the balancer, or several.
        linger_seconds: how long a batch waits for more messages before it leaves; less where callers wait for theirs by ``Delivery.result``.
        batch_bytes_max, batch_records_max: a batch leaves at once when it is so full.
        request_bytes_max: batches that wait for the same partition leave together, up to so much; 0: each by itself.
        buffer_bytes_max: bound on what is accepted and not delivered.
        max_block_seconds: how long ``send`` waits for room, and the constructor and a first ``send`` for the cluster.
        delivery_timeout_seconds: how long a message is retried before it is given up.
        silence_seconds: ``can_send`` says false when no node has answered for so long.
        receipts: a file to which a line is appended for each batch that is acknowledged, before anybody is told of it; several producers may
            share one. What cannot be written costs no message: ``flush`` and ``stop`` raise ReceiptsError for it.

    Raises:
        ConfigurationError: the file of receipts cannot be opened; nothing was started.
        MyQueueError: the topics could not be registered; nothing was started.
    """

    def __init__(self, topics: Iterable[str] = (), broker: str | Sequence[str] = "localhost:9092", *, token: str | None = None,
                 linger_seconds: float = 0.005, batch_bytes_max: int = 2 << 20, batch_records_max: int = 10_000,
                 request_bytes_max: int = REQUEST_BYTES_MAX, buffer_bytes_max: int = 64 << 20, max_block_seconds: float = 10.0,
                 delivery_timeout_seconds: float = 60.0, silence_seconds: float = 10.0, receipts: str | os.PathLike[str] | None = None,
                 transport: Transport | None = None, clock: Clock | None = None) -> None:
        self._connection = Connection(broker, token=token, transport=transport, clock=clock)
        self._receipts = None if receipts is None else ReceiptFile(receipts)
        self._clock = self._connection.clock
        self._max_block_seconds = max_block_seconds
        self._silence_seconds = silence_seconds
        self._accumulator = Accumulator(
            batch_bytes_max=min(batch_bytes_max, batches.REQUEST_BYTES_MAX // 2), batch_records_max=batch_records_max,
            request_bytes_max=min(request_bytes_max, batches.REQUEST_BYTES_MAX // 2), buffer_bytes_max=buffer_bytes_max,
            linger_seconds=linger_seconds, delivery_timeout_seconds=delivery_timeout_seconds,
            new_completion=lambda partition: Completion(partition, self._want))
        self._room_enough = min(RECORD_BYTES_MAX, buffer_bytes_max // 4)
        self._try_add = self._accumulator.try_add
        self._lock = threading.RLock()  # around the accumulator
        self._changed = threading.Condition(self._lock)
        self._registering = threading.Lock()
        self._closed: str | None = None  # why, once it is
        self._presence = Presence("producers", self._connection)
        self._sender = Sender(self._connection, self._accumulator, self._changed, self._presence, receipts=self._receipts)
        self._threads: list[threading.Thread] = []
        try:
            self._register([topics] if isinstance(topics, str) else sorted(set(topics)))
        except MyQueueError:
            self._close_doors()
            raise
        self._housekeeper = Housekeeper("myqueue-producer", {self._presence.send_due: HEARTBEAT_INTERVAL_SECONDS,
                                                             self._refresh: METADATA_INTERVAL_SECONDS}, clock=self._clock)
        self._housekeeper.start()
        exits.opened(self)

    def __repr__(self) -> str:
        return f"MyProducer(topics={self._accumulator.topics()}, {self._closed or 'open'}, {self._accumulator!r})"

    # --- sending ---

    def can_send(self) -> bool:
        """Whether it makes sense to go on: false after ``stop`` and when no node has answered for ``silence_seconds``.

        Otherwise waits, at most ``max_block_seconds``, until the buffer has room for a message, and says true.
        """
        if self._closed is None and self._accumulator.room >= self._room_enough and not self._connection.is_failing:
            return True
        deadline = self._clock.monotonic() + self._max_block_seconds
        with self._changed:
            while self._closed is None and not self._connection.is_silent(self._silence_seconds):
                left = deadline - self._clock.monotonic()
                if self._accumulator.room >= self._room_enough or self._accumulator.failed or left <= 0:
                    return True  # send itself says what is wrong, if something is
                self._changed.wait(min(left, 0.5))
        return False

    def send(self, topic: str, value: bytes | str, *, key: bytes | str | None = None, partition: int | None = None,
             headers: Sequence[Header] | Mapping[str, bytes | str | None] = (), timestamp_us: int | None = None) -> Delivery:
        """Accept a message for delivery; waits only for room in the buffer, and once per topic for its registration.

        Text is sent as UTF-8. With a partition it goes there; with a key to the key's partition; with neither it joins the
        batch its topic fills at the moment, and batches go round the partitions.

        Raises:
            BufferFullError: no room within ``max_block_seconds``; the message was not accepted.
            DeliveryError: no room, because earlier messages were given up; ``undelivered`` holds those, this one was not accepted.
            TooLargeError, UnknownPartitionError, InvalidNameError: the message can never be delivered; it was not accepted.
            ClosedError: after ``stop``.
        """
        if type(value) is str:
            value = value.encode()
        if type(value) is bytes and len(value) <= RECORD_BYTES_MAX and key is None and partition is None and not headers and timestamp_us is None:
            with self._lock:  # the lock itself: entering by its condition costs a fifth of all this
                added = self._try_add(topic, value)
            if added is not None:
                return Delivery(added)
            return self._send(topic, value, None)
        record = _record(value, key, headers, timestamp_us)
        batches.check_record(record)
        is_plain = record.key is None and not record.headers and record.timestamp_us is None
        return self._send(topic, record.value if is_plain else record, partition)

    def _send(self, topic: str, record: bytes | Record, partition: int | None) -> Delivery:
        deadline = self._clock.monotonic() + self._max_block_seconds
        size, most = record_size(record), self._accumulator.buffer_bytes_max
        if size > most:
            raise TooLargeError(f"the record takes {size} bytes of the buffer, which has {most}", size=size, maximum=most)
        while True:
            with self._changed:
                self._check_open()
                if self._accumulator.has_topic(topic):
                    added = self._accumulator.add(topic, record, partition=partition, now=self._clock.monotonic())
                    if added is not None:
                        if self._accumulator.take_offered():
                            self._changed.notify_all()
                            self._staff()
                        break
                    self._wait_for_room(deadline)
                    continue
            self._register([topic])
        if (step := self._accumulator.slow_step) >= PAUSE_RECORDS_MIN and (added[1] + 1) % step == 0:
            _let_others_run()
        return Delivery(added)

    def _wait_for_room(self, deadline: float) -> None:
        if self._accumulator.failed:
            raise self._delivery_error(self._accumulator.take_failed(), "before this message, which was not accepted")
        left = deadline - self._clock.monotonic()
        if left <= 0:
            raise BufferFullError(f"the buffer stayed full for {self._max_block_seconds} s; the message was not accepted")
        self._changed.wait(left)

    def _check_open(self) -> None:
        if self._closed is not None:
            raise ClosedError(f"the producer was {self._closed}")

    # --- what was sent ---

    def flush(self, timeout_seconds: float = 30.0) -> None:
        """Wait until every message accepted so far is durable.

        Raises:
            DeliveryError: some are not: given up (they are reported once), or still under way after the time (those go on being sent).
            ReceiptsError: all are, and receipts could not be written (they are reported once).
        """
        with self._changed:
            pending = self._drain(timeout_seconds)
            failed = self._accumulator.take_failed()
            if failed or pending:
                raise self._delivery_error(failed + pending, f"of them {sum(len(batch.records) for batch in pending)} still under way")
        self._check_receipts()

    def stop(self, timeout_seconds: float = 30.0) -> None:
        """Deliver what was accepted, within the time, and close. A second call does nothing.

        Raises:
            DeliveryError: names what was not delivered; it is tried no more. An attempt whose answer is missing may have stored some.
            ReceiptsError: all was delivered, and receipts could not be written.
        """
        with self._changed:
            if self._closed is not None:
                return
            self._closed = "stopped"
            self._drain(timeout_seconds)
            undelivered = self._accumulator.take_failed() + self._accumulator.abandon()
            for batch in undelivered:
                for completion, _ in batch.completions:
                    if not completion.is_done():
                        completion.fail(batch.error or ClosedError("the producer was stopped before the message was delivered"))
            self._changed.notify_all()
        self._close()
        if undelivered:
            raise self._delivery_error(undelivered, "and the producer was stopped")
        self._check_receipts()

    def _want(self, completion: Completion) -> None:
        with self._changed:
            if self._accumulator.want(completion, self._clock.monotonic()):
                self._changed.notify_all()

    def _check_receipts(self) -> None:
        error = self._receipts and self._receipts.take_error()
        if error:
            raise error

    def _drain(self, timeout_seconds: float) -> list[Batch]:
        """Wait, the lock held, for all that is under way now; returns what still is after the time."""
        deadline = self._clock.monotonic() + timeout_seconds
        pending = self._accumulator.hurry()
        self._changed.notify_all()
        while pending := [batch for batch in pending if not batch.completion.is_done()]:
            left = deadline - self._clock.monotonic()
            if left <= 0:
                break
            self._changed.wait(left)
        return pending

    def _delivery_error(self, undelivered: list[Batch], remark: str) -> DeliveryError:
        messages = tuple(Undelivered(*batch.lane.partition, record if isinstance(record, Record) else Record(record), batch.error)
                         for batch in undelivered for record in batch.records)
        last = next((batch.error for batch in undelivered if batch.error), None)
        count = "1 message was" if len(messages) == 1 else f"{len(messages)} messages were"
        unwritten = self._receipts and self._receipts.take_error()
        return DeliveryError(f"{count} not delivered, {remark}" + (f"; the last error: {last.message}" if last else "")
                             + (f"; and {unwritten.message}" if unwritten else ""), messages)

    def __enter__(self) -> MyProducer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.stop()
        except (DeliveryError, ReceiptsError) as own:
            if error is None:
                raise
            error.add_note(f"and {own.message}")  # the caller's own error goes first

    # --- the cluster ---

    @property
    def producer_ids(self) -> dict[str, int]:
        """The id under which each topic was registered."""
        with self._changed:
            return self._accumulator.producer_ids()

    def _register(self, topics: list[str]) -> None:
        """Register a producer for each topic, create what is missing, and learn where the partitions are. Raises MyQueueError."""
        with self._registering:
            wanted = [check_topic_name(topic) for topic in topics if not self._accumulator.has_topic(topic)]
            if not wanted:
                return
            answer = self._connection.persistently(
                lambda: self._connection.call("POST", routes.PRODUCERS, json={"topics": wanted, "create": True}), self._max_block_seconds)
            snapshot = self._connection.refresh_until(wanted, self._max_block_seconds)
            with self._changed:
                for topic in wanted:
                    registered = answer["producers"][topic]
                    self._presence.touch(registered["producer_id"])
                    self._accumulator.set_topic(topic, partitions=snapshot.partition_count(topic), producer_id=registered["producer_id"],
                                                producer_epoch=registered["producer_epoch"])

    def _refresh(self) -> None:
        snapshot = self._connection.refresh()
        with self._changed:
            for topic in self._accumulator.topics():
                self._accumulator.set_partitions(topic, snapshot.partition_count(topic))

    # --- threads ---

    def _staff(self) -> None:
        """Have threads for what may be sent at once, up to a few. Called with the lock held."""
        if len(self._threads) < SENDERS_MAX and len(self._threads) < self._accumulator.senders_wanted():
            thread = threading.Thread(target=self._send_loop, name=f"myqueue-sender-{len(self._threads) + 1}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _send_loop(self) -> None:
        while True:
            due = self._sender.run_once()
            if due == 0.0:
                continue
            with self._changed:
                if self._closed is not None and not self._accumulator.is_occupied():
                    return
                due = self._accumulator.next_due()  # again, under the lock: it may have changed
                wait = IDLE_WAIT_SECONDS if due is None else due - self._clock.monotonic()
                if wait > 0:
                    self._changed.wait(min(wait, IDLE_WAIT_SECONDS))

    def _close(self) -> None:
        exits.closed(self)
        self._housekeeper.stop()
        self._close_doors()

    def _close_doors(self) -> None:
        self._connection.close()
        if self._receipts is not None:
            self._receipts.close()

    def at_exit(self) -> None:
        """The script ended without ``stop``: deliver within bounds, or say on stderr how many messages were not."""
        try:
            self.stop(EXIT_FLUSH_SECONDS)
        except (DeliveryError, ReceiptsError) as error:
            print(f"myqueue: at exit {error.message}", file=sys.stderr, flush=True)

    def after_fork(self) -> None:
        """In a forked child: the threads stayed with the parent, which delivers what was sent before."""
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._accumulator.abandon()
        self._closed = "made before a fork: the child needs a producer of its own"


def _let_others_run() -> None:
    """Leave the interpreter (GIL) to a thread that waits for it: a caller that never pauses makes its senders wait for 5 ms each time they want it.
    This takes some 0.07 ms on Linux, as long as a waiting thread needs to wake. Where it is only released and taken back at once, nobody gets it.
    """
    time.sleep(0)


def _record(value: bytes | str, key: bytes | str | None, headers: Sequence[Header] | Mapping[str, bytes | str | None],
            timestamp_us: int | None) -> Record:
    if timestamp_us is not None:
        parse_integer(timestamp_us, name="timestamp_us", maximum=INT64_MAX)
    return Record(_bytes(value, "a message"), None if key is None else _bytes(key, "a key"), _headers(headers) if headers else (), timestamp_us)


def _headers(headers: Sequence[Header] | Mapping[str, bytes | str | None]) -> tuple[Header, ...]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return tuple((str(name), None if content is None else _bytes(content, f"header {name}")) for name, content in pairs)


def _bytes(value: bytes | str, what: str) -> bytes:
    if type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"{what} must be bytes or str, not {type(value).__name__}")
