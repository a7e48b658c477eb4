"""The producer's batches, several on their way to a log, over a network that loses, delays and repeats: what was told holds."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field

import pytest

from myqueue.client.accumulator import Accumulator, Batch
from myqueue.client.connection import Connection
from myqueue.client.delivery import Completion, Delivery
from myqueue.client.housekeeping import Presence
from myqueue.client.sender import Sender
from myqueue.errors import (
    CorruptBatchError,
    DuplicateSequenceError,
    MyQueueError,
    NotLeaderError,
    OutcomeUnknownError,
    ProducerFencedError,
    SequenceGapError,
)
from myqueue.protocol.types import Appended, ProducerSequence
from myqueue.testing import InMemoryTransport, ManualClock

SECONDS, BATCH, PARTITIONS = 60.0, 5, 3
REFUSALS = (NotLeaderError, NotLeaderError, CorruptBatchError, ProducerFencedError)


@dataclass
class Log:
    """A partition: takes the next sequence of a producer, knows the ones before, refuses those behind a gap."""

    values: list[bytes] = field(default_factory=list)
    next_seq: dict[tuple[int, int], int] = field(default_factory=dict)

    def append(self, sequence: ProducerSequence, records: list[bytes]) -> Appended | MyQueueError:
        producer = (sequence.producer_id, sequence.epoch)
        expected = self.next_seq.get(producer, 0)
        if sequence.seq > expected:
            return SequenceGapError("gap", expected_seq=expected)
        if sequence.seq < expected:
            return DuplicateSequenceError(expected_seq=expected)
        self.next_seq[producer] = expected + 1
        self.values += records
        return Appended("a", 0, len(self.values) - len(records), len(records), 0)


@dataclass
class Copy:
    """A request on its way. ``batch`` is None once its sender has given up on the answer."""

    log: Log
    sequence: ProducerSequence
    records: list[bytes]
    batch: Batch | None
    answer: Appended | MyQueueError | None = None


class Run:
    """One producer, three partitions, and a network that a seed decides."""

    def __init__(self, seed: int, *, request_bytes_max: int | None = None) -> None:
        self.draw, self.clock, self.logs = random.Random(seed), ManualClock(), [Log() for _ in range(PARTITIONS)]
        transport = InMemoryTransport(clock=self.clock)
        connection = Connection("lb:1", transport=transport, clock=self.clock, pause=self.clock.advance)
        # So small that whatever is full may leave behind another.
        self.accumulator = Accumulator(
            batch_bytes_max=1 << 20, batch_records_max=BATCH, buffer_bytes_max=1 << 24, linger_seconds=0.01, delivery_timeout_seconds=SECONDS,
            request_bytes_max=self.draw.choice([0, 700, 2_000]) if request_bytes_max is None else request_bytes_max, new_completion=Completion)
        self.identities = 1
        self.accumulator.set_topic("a", partitions=PARTITIONS, producer_id=1, producer_epoch=0)
        self.changed = threading.Condition()
        self.sender = Sender(connection, self.accumulator, self.changed, Presence("producers", connection))
        self.sent: list[tuple[bytes, Delivery]] = []
        self.copies: list[Copy] = []  # on their way, or answered and not landed
        self.most_in_flight = 0
        self.trouble = self.draw.choice([0.0, 0.05, 0.3])

    def step(self) -> None:
        kind = self.draw.random()
        if kind < 0.35:
            self.send()
        elif kind < 0.6:
            self.take()
        elif kind < 0.8:
            self.arrive()
        else:
            self.land()
        self.clock.advance(self.draw.choice([0.0, 0.001, 0.02]) if self.draw.random() > self.trouble / 20 else SECONDS * self.draw.random())

    def send(self, partition: int | None = None) -> None:
        """Some messages to one partition, or to those whose turn it is."""
        partition = self.draw.choice([None, *range(PARTITIONS)]) if partition is None else partition
        for _ in range(self.draw.randrange(1, 2 * BATCH)):
            value = b"%d" % len(self.sent)
            added = (self.accumulator.try_add("a", value) if partition is None else None) or self.accumulator.add(
                "a", value, partition=partition, now=self.clock.monotonic())
            assert added is not None
            self.sent.append((value, Delivery(added)))

    def take(self) -> None:
        with self.changed:
            batch = self.sender.take()
        if batch is None:
            return
        if batch.sequence is None:
            self.identities += 1
            self.accumulator.renew(batch.lane, producer_id=self.identities, producer_epoch=0)
        sequence = self.accumulator.assign_sequence(batch)
        self.copies.append(Copy(self.logs[batch.lane.partition.partition], sequence, list(batch.records), batch))  # type: ignore[arg-type]
        self.most_in_flight = max(self.most_in_flight, sum(copy.batch is not None and copy.batch.lane is batch.lane for copy in self.copies))

    def arrive(self) -> None:
        """A copy reaches the log, which stores or refuses it; or a broker that refuses it for sure."""
        waiting = [copy for copy in self.copies if copy.answer is None]
        if not waiting:
            return
        copy = self.draw.choice(waiting)
        refused = self.draw.random() < self.trouble
        copy.answer = self.draw.choice(REFUSALS)() if refused else copy.log.append(copy.sequence, copy.records)

    def land(self) -> None:
        """A sender hears an answer, or that none came; then its copy may still arrive."""
        heard = [copy for copy in self.copies if copy.batch is not None and (copy.answer is not None or self.draw.random() < self.trouble)]
        if heard:
            self.hear(self.draw.choice(heard), lost=self.draw.random() < self.trouble)

    def hear(self, copy: Copy, *, lost: bool = False) -> None:
        batch, copy.batch = copy.batch, None
        assert batch is not None
        answer = OutcomeUnknownError() if lost or copy.answer is None else copy.answer
        if copy.answer is not None:
            self.copies.remove(copy)
        if isinstance(answer, DuplicateSequenceError):
            self.sender.succeeded(batch, None)
        elif isinstance(answer, MyQueueError):
            self.sender.failed(batch, answer)
        else:
            self.sender.succeeded(batch, answer)

    def end(self) -> None:
        """The network works again, and everything is told. Late copies arrive in between."""
        self.trouble = 0.0
        self.accumulator.hurry()
        while self.accumulator.is_occupied() or self.copies:
            self.take()
            self.arrive()
            for copy in [copy for copy in self.copies if copy.answer is not None]:
                if copy.batch is None:
                    self.copies.remove(copy)
                else:
                    self.hear(copy)
            self.clock.advance(0.1)

    def judge(self) -> dict[str, int]:
        outcomes: dict[str, list[bytes]] = {"delivered": [], "unknown": [], "not_done": []}
        for value, delivery in self.sent:
            try:
                delivery.result(0)
                outcomes["delivered"].append(value)
            except MyQueueError as error:
                outcomes["not_done" if error.outcome == "not_done" else "unknown"].append(value)
        stored = [value for log in self.logs for value in log.values]
        assert len(stored) == len(set(stored)), "stored twice"
        told = set(outcomes["delivered"])
        assert told <= set(stored), "delivered, and not stored"
        for log in self.logs:
            mine = [int(value) for value in log.values if value in told]
            assert mine == sorted(mine), "delivered, and not in order"
        assert not set(outcomes["not_done"]) & set(stored), "surely not done, and stored"
        assert set(outcomes["unknown"]) | told >= set(stored)
        self.accumulator.take_failed()
        assert 1 << 24 == self.accumulator.room
        assert all(lane.closed_bytes == 0 for lane in self.accumulator._lanes.values())
        return {"in_flight": self.most_in_flight, "identities": self.identities, **{name: len(values) for name, values in outcomes.items()}}


def run(seed: int) -> dict[str, int]:
    made = Run(seed)
    made.send()
    for _ in range(400):
        made.step()
    made.end()
    return made.judge()


@pytest.mark.parametrize("block", range(8))
def test_what_is_told_of_a_message_holds(block: int) -> None:
    """Delivered: stored once, in the order of sending. Not done: not stored. Unknown: stored at most once. For 25 seeds each."""
    for seed in range(block * 25, block * 25 + 25):
        try:
            run(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_a_request_that_overtook_another_keeps_its_sequence() -> None:
    """Also where the other one is stored before the refusal is heard. No identity is lost for it."""
    made = Run(0, request_bytes_max=0)
    while len(made.sent) < 4 * BATCH:
        made.send(partition=0)
    made.take()
    made.take()
    first, second = made.copies
    second.answer = second.log.append(second.sequence, second.records)
    first.answer = first.log.append(first.sequence, first.records)
    assert isinstance(second.answer, SequenceGapError)
    made.hear(first)
    made.hear(second)
    made.end()
    assert (1, len(made.sent)) == tuple(made.judge()[name] for name in ("identities", "delivered"))


def test_the_runs_above_meet_everything() -> None:
    """Two in flight, lost identities, and messages with each outcome."""
    found = [run(seed) for seed in range(40)]
    assert 2 == max(one["in_flight"] for one in found)
    assert all(any(one[name] for one in found) for name in ("delivered", "unknown", "not_done"))
    assert any(one["identities"] > 2 for one in found)
