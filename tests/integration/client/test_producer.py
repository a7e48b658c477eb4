"""MyProducer with its threads, before a cluster in memory."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator

import pytest

from myqueue import (
    BufferFullError,
    ClosedError,
    DeliveryError,
    MyProducer,
    UnavailableError,
    UnknownPartitionError,
)
from myqueue.errors import BadRequestError, ConfigurationError, InvalidNameError, ReceiptsError, TooLargeError
from myqueue.protocol.receipts import receipts_in
from myqueue.protocol.types import TopicPartition
from myqueue.testing import InMemoryTransport
from tests.support.waiting import wait_until

MIB = 1 << 20


@pytest.fixture
def transport() -> InMemoryTransport:
    return InMemoryTransport(brokers=3)


@pytest.fixture
def producer(transport: InMemoryTransport) -> Iterator[MyProducer]:
    made = MyProducer(topics=["A", "B"], transport=transport, max_block_seconds=0.5)
    yield made
    transport.unreachable.clear()
    with contextlib.suppress(DeliveryError):  # the test's own doing
        made.stop(5.0)


def values(transport: InMemoryTransport, topic: str = "A", partition: int = 0) -> list[bytes]:
    return [message.value for message in transport.messages(topic, partition)]


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_everything_sent_is_stored_once_in_order(producer, transport) -> None:
    for value in numbered(50_000):
        producer.send("A", value)
    producer.stop()
    assert numbered(50_000) == values(transport)


def test_the_loop_of_the_first_assignment(transport) -> None:
    """``while producer.can_send()`` … ``stop()``, with bytes and with text."""
    producer = MyProducer(topics=["A", "B"], broker="localhost:9092", transport=transport)
    work = [("A", b"one"), ("B", "zwölf"), ("A", b"two")]
    while producer.can_send() and work:
        topic, data = work.pop(0)
        producer.send(topic, data)
    producer.stop()
    assert not producer.can_send()
    assert [b"one", b"two"] == values(transport)
    assert ["zwölf".encode()] == values(transport, "B")


def test_a_topic_that_was_not_declared_is_registered_at_the_first_send(producer, transport) -> None:
    assert 0 == producer.send("new", b"1").result(5.0).offset
    assert {"A", "B", "new"} == set(producer.producer_ids)


def test_all_bytes_keys_headers_and_times_arrive_as_they_were(producer, transport) -> None:
    whole = bytes(range(256))
    producer.send("A", whole, key=whole, headers=[("h", whole), ("none", None)], timestamp_us=5).result(5.0)
    producer.send("A", b"", headers={"name": "Wert"}).result(5.0)
    first, second = transport.messages("A")
    assert (whole, whole, (("h", whole), ("none", None)), 5) == (first.value, first.key, first.headers, first.timestamp)
    assert (b"", None, (("name", b"Wert"),)) == (second.value, second.key, second.headers)


def test_a_named_partition_and_a_wrong_one(transport) -> None:
    transport.create_topic("P", 2)
    with MyProducer(["P"], transport=transport) as producer:
        assert (1, 0) == (producer.send("P", b"v", partition=1).result(5.0).partition, producer.send("P", b"v", partition=0).result(5.0).partition)
        with pytest.raises(UnknownPartitionError, match="2 partitions"):
            producer.send("P", b"v", partition=7)


@pytest.mark.parametrize(("arguments", "error"), [
    ({"value": b"x" * (MIB + 1)}, TooLargeError),
    ({"value": b"x" * MIB, "key": b"k"}, TooLargeError),
    ({"value": b"x", "timestamp_us": -1}, BadRequestError),
    ({"value": 5}, TypeError),
    ({"value": b"x", "key": 5}, TypeError),
    ({"value": b"x", "topic": "a/b"}, InvalidNameError),
])
def test_what_can_never_be_delivered_is_refused_at_once(producer, arguments, error) -> None:
    with pytest.raises(error):
        producer.send(**{"topic": "A", **arguments})
    producer.flush(5.0)


def test_a_record_of_exactly_the_most_is_delivered(producer, transport) -> None:
    producer.send("A", b"x" * MIB).result(5.0)
    assert [MIB] == [len(value) for value in values(transport)]


def test_lost_answers_cause_no_duplicates(producer, transport) -> None:
    transport.lose_answers(5)
    for value in numbered(1_000):
        producer.send("A", value)
        if int(value) % 100 == 0:
            producer.flush(10.0)
    producer.flush(10.0)
    assert numbered(1_000) == values(transport)


def test_brokers_away_stop_names_the_ten_messages(producer, transport) -> None:
    """Never silence: ten accepted, ten reported."""
    transport.unreachable.add("*")
    for value in numbered(10):
        producer.send("A", value)
    with pytest.raises(DeliveryError, match="10 messages were not delivered") as raised:
        producer.stop(0.5)
    assert numbered(10) == [undelivered.value for undelivered in raised.value.undelivered]
    assert {("A", 0)} == {(undelivered.topic, undelivered.partition) for undelivered in raised.value.undelivered}
    with pytest.raises(ClosedError):
        producer.send("A", b"late")
    producer.stop()


def test_a_flush_that_ends_early_leaves_the_messages_under_way(producer, transport) -> None:
    transport.unreachable.add("*")
    delivery = producer.send("A", b"1")
    with pytest.raises(DeliveryError, match="of them 1 still under way"):
        producer.flush(0.2)
    transport.unreachable.clear()
    assert 0 == delivery.result(15.0).offset
    producer.flush(5.0)


def test_a_failed_message_is_reported_once_by_flush(producer, transport) -> None:
    transport.refuse(BadRequestError("no"))
    producer.send("A", b"bad")
    with pytest.raises(DeliveryError, match=r"1 message was not delivered.*no"):
        producer.flush(5.0)
    producer.flush(5.0)


def test_a_full_buffer_blocks_for_a_bounded_time_and_then_says_so(transport) -> None:
    transport.create_topic("A")
    producer = MyProducer(["A"], transport=transport, buffer_bytes_max=10_000, max_block_seconds=0.2)
    transport.unreachable.add("*")
    with pytest.raises(BufferFullError):
        for _ in range(1_000):
            producer.send("A", b"x" * 100)
    with pytest.raises(DeliveryError) as raised:
        producer.stop(0.0)
    assert 10_000 // 164 == len(raised.value.undelivered), "all that were accepted, none more"


def test_a_send_that_waits_for_room_goes_on_when_there_is_some(transport) -> None:
    with MyProducer(["A"], transport=transport, buffer_bytes_max=5_000, max_block_seconds=20.0) as producer:
        for value in numbered(2_000):
            producer.send("A", value)
    assert numbered(2_000) == values(transport)


def test_given_up_messages_fill_the_buffer_until_send_reports_them(transport) -> None:
    producer = MyProducer(["A"], transport=transport, buffer_bytes_max=1_000, max_block_seconds=0.5)
    transport.refuse(BadRequestError("no"), 100)
    producer.send("A", b"x" * 900)
    wait_until(lambda: producer._accumulator.failed, what="the refusal")
    with pytest.raises(DeliveryError, match="not accepted") as raised:
        producer.send("A", b"y" * 900)
    assert [b"x" * 900] == [undelivered.value for undelivered in raised.value.undelivered]
    producer.stop()


def test_can_send_says_false_when_no_node_has_answered_for_a_while(transport) -> None:
    producer = MyProducer(["A"], transport=transport, silence_seconds=0.3)
    assert producer.can_send()
    transport.unreachable.add("*")
    producer.send("A", b"1")
    wait_until(lambda: not producer.can_send(), timeout_seconds=10, what="can_send to say false")
    transport.unreachable.clear()
    wait_until(producer.can_send, timeout_seconds=15, what="can_send to say true again")
    producer.stop()
    assert [b"1"] == values(transport)


def test_a_cluster_that_is_away_at_the_start_is_an_error_within_bounds(transport) -> None:
    transport.unreachable.add("*")
    began = time.monotonic()
    with pytest.raises(UnavailableError):
        MyProducer(["A"], transport=transport, max_block_seconds=0.5)
    assert time.monotonic() - began < 3.0


def test_many_threads_share_a_producer(producer, transport) -> None:
    """8 threads, 2,000 messages each: all there once, each thread's in order."""
    def work(thread: int) -> None:
        for number in range(2_000):
            producer.send("A", b"%d %d" % (thread, number))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    producer.flush(10.0)
    by_thread: dict[int, list[int]] = {}
    for value in values(transport):
        thread, number = map(int, value.split())
        by_thread.setdefault(thread, []).append(number)
    assert {number: list(range(2_000)) for number in range(8)} == by_thread


def test_messages_without_key_reach_every_partition_evenly(transport) -> None:
    transport.create_topic("P", 4)
    with MyProducer(["P"], transport=transport, batch_records_max=100) as producer:
        for value in numbered(4_000):
            producer.send("P", value)
    counts = [len(values(transport, "P", partition)) for partition in range(4)]
    assert 4_000 == sum(counts)
    assert max(counts) - min(counts) <= 400


def test_an_error_in_the_with_block_goes_first_and_tells_of_undelivered_messages(transport) -> None:
    with pytest.raises(ZeroDivisionError) as raised, MyProducer(["A"], transport=transport) as producer:
        transport.refuse(BadRequestError("no"))
        producer.send("A", b"1")
        raise ZeroDivisionError
    assert ["and 1 message was not delivered, and the producer was stopped; the last error: no"] == raised.value.__notes__


def test_a_forked_child_is_told_that_it_needs_a_producer_of_its_own(producer, transport) -> None:
    """And the parent goes on undisturbed; the child reports through its exit code."""
    producer.send("A", b"1")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            producer.send("A", b"2")
        except ClosedError as error:
            code = 0 if "fork" in error.message and not producer.can_send() else 2
        finally:
            os._exit(code)
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    producer.send("A", b"3")
    producer.stop()
    assert [b"1", b"3"] == values(transport)


def test_no_thread_is_left_after_stop(transport) -> None:
    before = set(threading.enumerate())
    producer = MyProducer(["A"], transport=transport)
    producer.send("A", b"1")
    producer.stop()
    wait_until(lambda: not set(threading.enumerate()) - before, timeout_seconds=10, what="its threads to end")


def test_receipts_say_where_every_message_is(transport, tmp_path) -> None:
    """Of two producers into one file; each offset once, with the topic's identity and the time at which it was appended."""
    for _ in range(2):
        with MyProducer(["A"], transport=transport, receipts=tmp_path / "receipts", batch_records_max=100) as producer:
            for value in numbered(1_000):
                producer.send("A", value)
            producer.flush()
            with (tmp_path / "receipts").open("rb") as file:
                receipts = list(receipts_in(file))
    assert list(range(2_000)) == sorted(offset for one in receipts for offset in range(one.base_offset, one.base_offset + one.record_count))
    assert {(TopicPartition("A", 0), 1)} == {(one.name, one.topic_id) for one in receipts}


def test_receipts_that_cannot_be_written_are_told_and_the_messages_are_delivered(transport) -> None:
    """By ``flush``, by ``stop``, and beside what was not delivered; never as a message that failed."""
    producer = MyProducer(["A"], transport=transport, receipts="/dev/full")
    delivery = producer.send("A", b"1")
    with pytest.raises(ReceiptsError, match=r"1 batch was acknowledged and has no receipt in /dev/full: No space left on device") as raised:
        producer.flush()
    assert (0, "unknown") == (delivery.result(0).offset, raised.value.outcome)
    producer.flush()
    producer.send("A", b"2")
    wait_until(lambda: len(values(transport)) == 2, what="the second message to be stored")
    with pytest.raises(ReceiptsError):
        producer.stop()
    with pytest.raises(ZeroDivisionError) as other, MyProducer(["A"], transport=transport, receipts="/dev/full") as producer:
        producer.send("A", b"3")
        raise ZeroDivisionError
    assert other.value.__notes__[0].startswith("and 1 batch was acknowledged")
    assert [b"1", b"2", b"3"] == values(transport)


def test_a_failed_message_and_a_missing_receipt_are_told_together(transport) -> None:
    with MyProducer(["A"], transport=transport, receipts="/dev/full") as producer:
        producer.send("A", b"1").result(5.0)
        transport.refuse(BadRequestError("no"))
        producer.send("A", b"2")
        with pytest.raises(DeliveryError, match=r"1 message was not delivered.*; and 1 batch was acknowledged and has no receipt"):
            producer.flush(5.0)


def test_a_file_of_receipts_that_cannot_be_opened_starts_nothing(transport, tmp_path) -> None:
    with pytest.raises(ConfigurationError, match="Is a directory"):
        MyProducer(["A"], transport=transport, receipts=tmp_path)
    assert [] == transport.requests
