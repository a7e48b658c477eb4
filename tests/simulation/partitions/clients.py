"""Producers and consumers as they are written by careful people: a request is repeated under its name until it is answered.

Some requests of producers are on a condition, that nothing has come since what was acknowledged. One that is refused for it, so that nothing is
stored, goes on under the same name without.
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace
from typing import Any

from broker.core.append import AppendRequest, AppendResult
from broker.core.group import Handed, Request
from broker.core.offsets import DequeueRequest
from broker.core.replica import is_leading
from myqueue.errors import DuplicateSequenceError, EndOffsetMismatchError, MyQueueError, OffsetOutOfRangeError
from myqueue.protocol.batch import blocks_of, pack_values
from myqueue.protocol.types import ProducerSequence
from tests.simulation.partitions.world import World

TIMEOUT_SECONDS = 0.5
IN_FLIGHT_MAX = 3
CONDITIONAL_EVERY = 5


class Client:
    """Sends requests to whoever leads, or seems to, and again after a time-out under the same name."""

    def __init__(self, world: World, *, pause_seconds: float) -> None:
        self.world, self.rng, self.pause_seconds = world, world.rng, pause_seconds
        self.idle = self.finishing = False

    def send(self, request: Request) -> None:
        """Hand a request to a broker that thinks it leads, if there is one. The request may get lost, and a refusal is repeated by the timer."""
        leaders = [broker_id for broker_id, broker in self.world.brokers.items() if broker.up and is_leading(broker.disk.head)]
        if leaders and self.rng.random() >= self.world.rates.drop:
            with suppress(MyQueueError):
                self.world.take(self.rng.choice(leaders), request)

    def later(self, call: Any, *args: Any) -> None:
        self.world.at(self.rng.uniform(0.005, self.pause_seconds), call, *args)


class Producer(Client):
    """Numbered requests of one to three records, a few in flight at a time."""

    def __init__(self, world: World, producer_id: int, *, pause_seconds: float) -> None:
        super().__init__(world, pause_seconds=pause_seconds)
        self.producer_id = producer_id
        self.next_seq = 0
        self.open: dict[int, AppendRequest] = {}
        self.later(self._new)

    def _new(self) -> None:
        if not self.finishing and len(self.open) < IN_FLIGHT_MAX:
            values = [b"%d.%d.%d" % (self.producer_id, self.next_seq, place) for place in range(self.rng.randint(1, 3))]
            groups = [[value] for value in values] if self.rng.random() < 0.4 else [values]
            blocks = [block for group in groups for block in blocks_of(pack_values(group))]
            expected = self.world.checker.records_acknowledged if self.next_seq % CONDITIONAL_EVERY == CONDITIONAL_EVERY - 1 else None
            self.open[self.next_seq] = AppendRequest(blocks, ProducerSequence(self.producer_id, 0, self.next_seq), expected)
            self.next_seq += 1
            self._attempt(self.next_seq - 1)
        self.later(self._new)

    def _attempt(self, seq: int) -> None:
        if seq in self.open:
            self.send(self.open[seq])
            self.world.at(TIMEOUT_SECONDS * self.rng.uniform(0.5, 1.5), self._attempt, seq)

    def owns(self, request: AppendRequest) -> bool:
        return request.sequence is not None and request.sequence.producer_id == self.producer_id

    def answered(self, request: AppendRequest, outcome: Any) -> None:
        """An answer, which may get lost; a gap or a doubt is repeated by the timer."""
        assert request.sequence is not None
        if isinstance(outcome, EndOffsetMismatchError) and request.sequence.seq in self.open:
            self.open[request.sequence.seq] = replace(self.open[request.sequence.seq], expected_end_offset=None)
        if isinstance(outcome, (AppendResult, DuplicateSequenceError)) and self.rng.random() >= self.world.rates.drop:
            self.open.pop(request.sequence.seq, None)

    @property
    def done(self) -> bool:
        return self.finishing and not self.open


class Consumer(Client):
    """Dequeues one message after another, each call under a request id until it is answered. Several may share one consumer."""

    def __init__(self, world: World, consumer: str, name: str, *, pause_seconds: float) -> None:
        super().__init__(world, pause_seconds=pause_seconds)
        self.consumer, self.name, self.calls = consumer, name, 0
        self.request = self._next_request()
        self.began = 0
        self.empty = False
        self.later(self._attempt, self.request)

    def _next_request(self) -> DequeueRequest:
        self.calls += 1
        self.began = self.world.checker.records_acknowledged
        return DequeueRequest(self.consumer, f"{self.name}.{self.calls}")

    def _attempt(self, request: DequeueRequest) -> None:
        if request is self.request:
            self.send(request)
            self.world.at(TIMEOUT_SECONDS * self.rng.uniform(0.5, 1.5), self._attempt, request)

    def owns(self, request: DequeueRequest) -> bool:
        return request.request_id is not None and request.request_id.startswith(f"{self.name}.")

    def answered(self, request: DequeueRequest, outcome: Any) -> None:
        """An answer, which may get lost. That the message was dropped meanwhile is one too: it was handed out before."""
        if request is not self.request or not isinstance(outcome, (Handed, OffsetOutOfRangeError)) or self.rng.random() < self.world.rates.drop:
            return
        self.empty = isinstance(outcome, Handed) and outcome.offset is None
        if self.empty:
            self.world.checker.found_empty(request, self.began)
        self.request = self._next_request()
        self.world.at(self.rng.uniform(0.05, 0.3) if self.empty else self.rng.uniform(0.005, self.pause_seconds), self._attempt, self.request)


def pick(rng: random.Random) -> float:
    """How busy the clients of a run are."""
    return rng.choice((0.03, 0.1, 0.3))
