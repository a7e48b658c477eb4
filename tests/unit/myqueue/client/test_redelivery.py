"""Messages that are tried again: each at its time, each counted, none after its partition went."""

from __future__ import annotations

from myqueue.client.redelivery import Redelivery
from myqueue.protocol.types import Message, TopicPartition


def message(offset: int, partition: int = 0) -> Message:
    return Message("t", partition, offset, b"x")


def test_each_comes_at_its_time_and_in_turn():
    redelivery = Redelivery()
    for offset, due in ((1, 5.0), (2, 3.0), (3, 3.0)):
        redelivery.retry(message(offset), due)
    assert (redelivery.next_due(), redelivery.take(2.9)) == (3.0, None)
    assert [redelivery.take(9.0).offset for _ in range(3)] == [2, 3, 1]
    assert (redelivery.take(9.0), redelivery.next_due()) == (None, None)


def test_deliveries_are_counted_until_it_is_done():
    redelivery = Redelivery()
    assert redelivery.deliveries(message(1)) == 1
    redelivery.retry(message(1), 0.0)
    redelivery.retry(redelivery.take(0.0), 0.0)
    assert (redelivery.deliveries(message(1)), redelivery.deliveries(message(1, partition=1))) == (3, 1)
    redelivery.done(message(1))
    assert redelivery.deliveries(message(1)) == 1


def test_what_went_to_another_member_is_forgotten():
    redelivery = Redelivery()
    redelivery.retry(message(1), 0.0)
    redelivery.retry(message(1, partition=1), 0.0)
    redelivery.drop({TopicPartition("t", 0)})
    assert redelivery.take(0.0).partition == 1
    assert (redelivery.take(0.0), redelivery.deliveries(message(1))) == (None, 1)
