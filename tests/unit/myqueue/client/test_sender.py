"""Batches to brokers, one attempt at a time, with time set by hand and no thread."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from myqueue.client.accumulator import Accumulator
from myqueue.client.connection import Connection
from myqueue.client.delivery import Completion, Delivery
from myqueue.client.housekeeping import Presence
from myqueue.client.sender import Sender
from myqueue.client.transport import Response
from myqueue.errors import (
    CorruptBatchError,
    InternalError,
    MyQueueError,
    NotLeaderError,
    OutcomeUnknownError,
    OverloadedError,
    ProducerFencedError,
    QuotaExceededError,
    UnknownTopicError,
)
from myqueue.protocol import routes
from myqueue.testing import InMemoryTransport, ManualClock


class World:
    """A sender before a cluster in memory."""

    def __init__(self, *, brokers: int = 1, partitions: int = 1, request_bytes_max: int = 1 << 20) -> None:
        self.clock = ManualClock()
        self.transport = InMemoryTransport(brokers=brokers, clock=self.clock)
        self.transport.create_topic("a", partitions)
        self.connection = Connection("lb:1", transport=self.transport, clock=self.clock, pause=self.clock.advance)
        self.connection.refresh_until(["a"], 1.0)
        self.accumulator = Accumulator(batch_bytes_max=1 << 20, batch_records_max=10, buffer_bytes_max=1 << 24, linger_seconds=0.0,
                                       delivery_timeout_seconds=60.0, request_bytes_max=request_bytes_max, new_completion=Completion)
        self.accumulator.set_topic("a", partitions=partitions, producer_id=77, producer_epoch=0)
        self.sender = Sender(self.connection, self.accumulator, threading.Condition(), Presence("producers", self.connection))

    def send(self, *values: bytes) -> list[Delivery]:
        return [Delivery(self.accumulator.add("a", value, now=self.clock.monotonic())) for value in values]

    def run(self, seconds: float = 300.0) -> None:
        """Attempt whatever is ready until nothing waits or the time is over."""
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() <= end:
            due = self.sender.run_once()
            if due is None:
                return
            self.clock.advance(max(0.0, due - self.clock.monotonic()) if due else 0.0)

    def stored(self, partition: int = 0) -> list[bytes]:
        return [message.value for message in self.transport.messages("a", partition)]


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_deliveries_say_where_each_message_is() -> None:
    world = World()
    deliveries = world.send(*numbered(25))
    world.run()
    assert list(range(25)) == [delivery.result(0).offset for delivery in deliveries]
    assert numbered(25) == world.stored()


def test_what_leaves_together_shares_its_outcome() -> None:
    """Three batches, one request and one refusal; whoever waits for any of them is told."""
    world = World()
    deliveries = world.send(*numbered(30))
    world.transport.refuse(CorruptBatchError("no"))
    world.run()
    for delivery in deliveries[::10]:
        with pytest.raises(CorruptBatchError):
            delivery.result(0)
    assert [30] == [len(batch.records) for batch in world.accumulator.take_failed()]


def test_answers_that_are_lost_cause_no_duplicate_and_no_other_order() -> None:
    """Every batch's first answer is lost; the retries are answered from what is stored."""
    world = World()
    deliveries = world.send(*numbered(100))
    world.transport.lose_answers(9)
    world.run()
    assert numbered(100) == world.stored()
    assert list(range(100)) == [delivery.result(0).offset for delivery in deliveries]


@pytest.mark.parametrize("error", [OverloadedError(), NotLeaderError(), InternalError()])
def test_what_may_be_retried_is_retried_in_order(error: MyQueueError) -> None:
    world = World()
    world.send(*numbered(30))
    world.transport.refuse(error, 4)
    world.run()
    assert numbered(30) == world.stored()


def test_a_quota_is_waited_for_as_told_and_the_same_request_is_sent_again() -> None:
    """The user sees a slower acknowledgement, no error."""
    world = World()
    began = world.clock.monotonic()
    deliveries = world.send(*numbered(20))
    world.transport.refuse(QuotaExceededError(wait_seconds=7.5), 2)
    world.run()
    assert numbered(20) == world.stored()
    assert [0, 1] == [delivery.result(0).offset for delivery in deliveries[:2]]
    assert 15.0 <= world.clock.monotonic() - began < 16.0


def test_a_quota_is_waited_for_no_longer_than_the_delivery_may_take() -> None:
    """The wait that is told ends behind it: the message is given up when its time is over, and surely not stored."""
    world = World()
    began = world.clock.monotonic()
    deliveries = world.send(*numbered(1))
    world.transport.refuse(QuotaExceededError(wait_seconds=500.0), 1_000)
    world.run()
    with pytest.raises(QuotaExceededError) as error:
        deliveries[0].result(0)
    assert "not_done" == error.value.outcome
    assert 60.0 == world.clock.monotonic() - began


def test_a_request_that_can_never_be_stored_fails_alone_and_the_next_goes_on() -> None:
    world = World(request_bytes_max=0)
    deliveries = world.send(*numbered(20))
    world.transport.refuse(CorruptBatchError("no"))
    world.run()
    with pytest.raises(CorruptBatchError):
        deliveries[0].result(0)
    assert numbered(20)[10:] == world.stored()
    assert numbered(10) == world.accumulator.take_failed()[0].records


def test_away_for_longer_than_the_delivery_time_everything_is_given_up_with_its_error() -> None:
    world = World()
    deliveries = world.send(*numbered(20))
    world.transport.unreachable.add("*")
    world.run()
    assert 20 == sum(len(batch.records) for batch in world.accumulator.take_failed())
    with pytest.raises(MyQueueError, match="no connection"):
        deliveries[0].result(0)


def test_a_doubt_is_not_hidden_by_what_a_later_attempt_met() -> None:
    """The first attempt was stored and its answer lost; the ones after it surely did nothing, until the time was over."""
    world = World(request_bytes_max=0)
    deliveries = world.send(*numbered(20))
    world.transport.lose_answers(1)
    world.sender.run_once()
    world.transport.refuse(NotLeaderError(), 1_000)
    world.run()
    with pytest.raises(OutcomeUnknownError, match="an earlier attempt may have stored it") as error:
        deliveries[0].result(0)
    assert error.value.outcome == "unknown"
    with pytest.raises(MyQueueError, match="it was not sent yet") as error:
        deliveries[10].result(0)
    assert error.value.outcome == "not_done"
    assert numbered(10) == world.stored()


def test_after_a_doubtful_failure_the_next_batch_has_a_new_identity_and_is_stored() -> None:
    """The given-up batch was stored in truth. With its sequence used again the next one would be taken for its repeat."""
    world = World()
    world.send(*numbered(1))
    world.transport.lose_answers(1_000)
    world.run()
    world.transport.lose_answers(-world.transport._answers_to_lose)
    deliveries = world.send(b"next")
    world.run()
    assert [b"0", b"next"] == world.stored()
    assert 1 == deliveries[0].result(0).offset


def test_a_fenced_identity_is_replaced_for_what_follows() -> None:
    world = World()
    world.send(*numbered(1))
    world.transport.refuse(ProducerFencedError())
    world.run()
    world.send(b"next")
    world.run()
    assert [b"next"] == world.stored()


def test_batches_follow_the_leader_when_it_moves() -> None:
    world = World(brokers=2)
    leader = world.connection.snapshot.partitions["a", 0].leader
    world.send(b"1")
    world.run()
    world.transport.move_leader("a", 0, 3 - leader)
    world.send(b"2")
    world.run()
    assert [b"1", b"2"] == world.stored()
    assert f"http://broker-{3 - leader}" in world.transport.requests[-1][1]


def test_a_broker_that_cannot_be_reached_is_passed_through_the_balancer() -> None:
    world = World()
    world.transport.unreachable.add("http://broker-1:5001")
    world.send(b"1")
    world.run()
    assert [b"1"] == world.stored()
    assert ("POST", "http://lb:1/v1/topics/a/partitions/0/records") == world.transport.requests[-1]


def test_a_deleted_topic_fails_its_batches_at_once() -> None:
    world = World()
    deliveries = world.send(b"1")
    world.transport.delete_topic("a")
    world.run(seconds=1.0)
    with pytest.raises(UnknownTopicError):
        deliveries[0].result(0)


def test_a_leader_that_does_not_know_a_new_topic_yet_is_asked_again() -> None:
    world = World()
    world.transport.refuse(UnknownTopicError(), 2)
    world.send(b"1")
    world.run()
    assert [b"1"] == world.stored()


def test_a_result_that_lands_after_the_producer_gave_up_changes_nothing() -> None:
    world = World()
    deliveries = world.send(b"1")

    def abandon(method: str, url: str) -> None:
        if method == "POST":
            world.accumulator.abandon()

    world.transport.on_request = abandon
    world.run(seconds=1.0)
    assert not deliveries[0].is_done()
    with pytest.raises(OutcomeUnknownError, match="still under way"):
        deliveries[0].result(0)


def test_an_append_is_never_repeated_below_the_accumulator() -> None:
    """The answer to a hidden second try would say that nothing was stored, while the first one may have been."""
    world, asked = World(), []
    request = world.transport.request

    def watched(method: str, url: str, *, repeatable: bool = False, **arguments: Any) -> Response:
        if method == "POST" and url.endswith("/records"):
            asked.append(repeatable)
        return request(method, url, repeatable=repeatable, **arguments)

    world.transport.request = watched  # type: ignore[method-assign]
    world.send(b"1")
    world.run()
    assert asked == [False]


def test_a_topic_made_anew_takes_what_follows_at_once() -> None:
    """Its log knows none of the earlier sequences, and waiting would not bring them."""
    world = World()
    world.send(*numbered(20))
    world.run()
    world.transport.delete_topic("a")
    world.transport.create_topic("a")
    deliveries = world.send(b"1") + world.send(b"2")
    world.run(seconds=5.0)
    assert [b"1", b"2"] == world.stored()
    assert [0, 1] == [delivery.result(0).offset for delivery in deliveries]


def test_a_producer_that_stops_while_an_identity_is_fetched_sends_nothing_more() -> None:
    world = World()
    world.send(b"0")
    world.transport.refuse(ProducerFencedError())
    world.run()
    world.send(b"1")

    def abandon(method: str, url: str) -> None:
        if url.endswith(routes.PRODUCERS):
            world.accumulator.abandon()

    world.transport.on_request = abandon
    world.run()
    assert [] == world.stored()


@pytest.mark.parametrize("body", [b"{}", b"[]", b"null", b'{"base_offset": "x"}', b"not json"])
def test_an_answer_that_makes_no_sense_ends_no_thread_and_stores_nothing_twice(body: bytes) -> None:
    """The batch is sent again under its sequence, as after any answer that tells nothing."""
    world = World()
    request, left = world.transport.request, [2]

    def garbled(method: str, url: str, **arguments: Any) -> Response:
        answer = request(method, url, **arguments)
        if method == "POST" and left[0]:
            left[0] -= 1
            return Response(200, {}, body)
        return answer

    world.transport.request = garbled  # type: ignore[method-assign]
    deliveries = world.send(b"1", b"2")
    world.run()
    assert [0, 1] == [delivery.result(0).offset for delivery in deliveries]
    assert [b"1", b"2"] == world.stored()
