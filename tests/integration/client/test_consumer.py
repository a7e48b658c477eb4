"""MyConsumer with its threads, before a cluster in memory."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from myqueue import ClosedError, Message, MyConsumer, MyProducer, OffsetOutOfRangeError, UnavailableError, UnknownPartitionError, UnknownTopicError
from myqueue.client.transport import Response
from myqueue.errors import BadRequestError, ConfigurationError, CorruptBatchError, OutcomeUnknownError
from myqueue.testing import InMemoryTransport, ManualClock
from tests.support.waiting import wait_until

QUIET = 0.3


@pytest.fixture
def transport() -> InMemoryTransport:
    made = InMemoryTransport(brokers=2)
    made.create_topic("A")
    return made


@pytest.fixture
def consumer(transport: InMemoryTransport) -> Iterator[MyConsumer]:
    with MyConsumer(["A"], transport=transport, auto_commit_seconds=None, max_block_seconds=1.0) as made:
        yield made


def send(transport: InMemoryTransport, count: int, topic: str = "A", first: int = 0, **where) -> None:
    with MyProducer([topic], transport=transport) as producer:
        for number in range(first, first + count):
            producer.send(topic, b"%d" % number, **where)


def read(consumer: MyConsumer, quiet: float = QUIET) -> list[int]:
    return [int(message.value) for message in consumer.get_next(quiet)]


def take(consumer: MyConsumer, count: int) -> list[Message]:
    """Ask for so many messages and for no more."""
    reading = consumer.get_next(5.0)
    taken = [next(reading) for _ in range(count)]
    reading.close()
    return taken


def test_everything_is_read_once_in_order(transport, consumer) -> None:
    send(transport, 20_000)
    assert list(range(20_000)) == read(consumer)


def test_the_loop_of_the_first_assignment(transport) -> None:
    """Waits for what comes later; ends when another thread says stop."""
    consumer = MyConsumer(topics=["A"], broker="localhost:9092", transport=transport)
    seen = []

    def loop() -> None:
        for message in consumer.get_next():
            seen.append((message.topic, message.text()))

    reading = threading.Thread(target=loop)
    reading.start()
    send(transport, 3)
    wait_until(lambda: len(seen) == 3, what="three messages")
    consumer.stop()
    reading.join(5.0)
    assert not reading.is_alive()
    assert [("A", "0"), ("A", "1"), ("A", "2")] == seen
    assert [] == list(consumer.get_next())


def test_a_message_wakes_a_waiting_consumer_at_once(transport, consumer) -> None:
    came = []
    reading = threading.Thread(target=lambda: came.append((next(consumer.get_next(10.0)).value, time.monotonic())))
    reading.start()
    wait_until(lambda: any("/records" in url for _, url in transport.requests), what="the long poll")
    sent = time.monotonic()
    send(transport, 1)
    reading.join(10.0)
    assert b"0" == came[0][0]
    assert came[0][1] - sent < 1.0


def test_a_signal_handler_may_stop_the_consumer(transport, consumer) -> None:
    send(transport, 5)
    before = signal.signal(signal.SIGUSR1, lambda *_: consumer.stop())
    try:
        seen = []
        for message in consumer.get_next():
            seen.append(message.offset)
            if message.offset == 4:
                threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        assert [0, 1, 2, 3, 4] == seen
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert 5 == transport.committed("A", 0, consumer.consumer_ids["A"])


def test_unknown_topics_are_all_named_and_nothing_is_registered(transport) -> None:
    with pytest.raises(UnknownTopicError) as raised:
        MyConsumer(["A", "X", "Y"], transport=transport)
    assert ["X", "Y"] == raised.value.topics
    assert 0 == transport._ids["consumers"]


def test_the_message_in_hand_is_not_committed_until_the_next_is_asked_for(transport) -> None:
    """After a crash in mid-work it comes again: at least once."""
    send(transport, 10)
    consumer = MyConsumer(["A"], transport=transport, auto_commit_seconds=None)
    take(consumer, 4)
    consumer.stop()
    assert 3 == transport.committed("A", 0, consumer.consumer_ids["A"])
    with MyConsumer(["A"], transport=transport, consumer_id=consumer.consumer_ids["A"]) as resumed:
        assert list(range(3, 10)) == read(resumed)


def test_commit_says_that_everything_handed_out_is_done(transport, consumer) -> None:
    send(transport, 10)
    take(consumer, 4)
    before = consumer.committed("A", 0)
    consumer.commit()
    assert (0, 4) == (before, consumer.committed("A", 0))
    assert 4 == transport.committed("A", 0, consumer.consumer_ids["A"])
    assert list(range(4, 10)) == read(consumer)


def test_progress_is_committed_in_the_background(transport) -> None:
    send(transport, 10)
    with MyConsumer(["A"], transport=transport, auto_commit_seconds=0.1) as consumer:
        assert list(range(10)) == read(consumer)
        wait_until(lambda: transport.committed("A", 0, consumer.consumer_ids["A"]) == 10, what="a commit")


def test_a_later_message_done_first_never_acknowledges_an_earlier_one(transport) -> None:
    """Four in parallel hands, the second fails: after a restart it comes again."""
    send(transport, 4)
    consumer = MyConsumer(["A"], transport=transport, auto_done=False, auto_commit_seconds=None)
    messages = take(consumer, 4)
    for number in (3, 0, 2):
        consumer.done(messages[number])
    consumer.stop()
    with MyConsumer(["A"], transport=transport, consumer_id=consumer.consumer_ids) as resumed:
        assert [1, 2, 3] == read(resumed)


def test_latest_sees_what_is_sent_after_the_constructor_and_nothing_before(transport) -> None:
    send(transport, 5)
    with MyConsumer(["A"], transport=transport, start="latest") as consumer:
        send(transport, 3, first=5)
        assert [5, 6, 7] == read(consumer)


def test_seek_goes_back_and_forth(transport, consumer) -> None:
    send(transport, 10)
    assert list(range(10)) == read(consumer)
    consumer.seek("A", 0, 7)
    assert 7 == consumer.position("A", 0)
    assert [7, 8, 9] == read(consumer)
    consumer.seek("A", 0, "earliest")
    assert list(range(10)) == read(consumer)
    consumer.seek("A", 0, "latest")
    assert [] == read(consumer)


def test_a_seek_to_a_time_goes_to_the_first_message_since(transport) -> None:
    """By the append time; later than all is the end; of all partitions at once, too."""
    clock = transport.clock = ManualClock()
    transport.create_topic("P", 2)
    with MyConsumer(["A", "P"], transport=transport, auto_commit_seconds=None) as consumer:
        for number in range(5):
            for partition in range(2):
                send(transport, 1, topic="P", first=number, partition=partition)
            clock.advance(1.0)
        first = 1_700_000_000_000_000
        for since, positions in ((0, 0), (first, 0), (first + 1, 1), (first + 1_000_000, 1), (first + 3_999_999, 4), (first + 4_000_001, 5),
                                 (10**18, 5)):
            consumer.seek_to_timestamp("P", 0, since)
            assert positions == consumer.position("P", 0)
        assert 0 == consumer.position("P", 1)
        consumer.seek_to_timestamp("P", None, first + 2_000_000)
        assert [2, 2] == [consumer.position("P", partition) for partition in range(2)]
        for wrong in (-1, 1.5, "x", True, 2**63):
            with pytest.raises(BadRequestError):
                consumer.seek_to_timestamp("P", 0, wrong)
        with pytest.raises(UnknownTopicError, match="it reads A, P"):
            consumer.seek_to_timestamp("B", None, 0)
        with pytest.raises(UnknownPartitionError):
            consumer.seek_to_timestamp("P", 2, 0)
        assert [2, 2] == [consumer.position("P", partition) for partition in range(2)]


def test_a_seek_in_the_middle_of_a_loop_counts_from_the_next_message_on(transport, consumer) -> None:
    send(transport, 10)
    seen = []
    for message in consumer.get_next(QUIET):
        seen.append(message.offset)
        if len(seen) == 3:
            consumer.seek("A", 0, 8)
    assert [0, 1, 2, 8, 9] == seen


@pytest.mark.parametrize("offset", [-5, 11, 10**18])
def test_a_seek_outside_the_log_is_refused_and_moves_nothing(transport, consumer, offset: int) -> None:
    send(transport, 10)
    with pytest.raises(OffsetOutOfRangeError) as raised:
        consumer.seek("A", 0, offset)
    assert (0, 10) == (raised.value.earliest, raised.value.latest)
    assert 10 == len(read(consumer))


def test_a_position_that_retention_took_away_is_an_error_until_a_seek(transport, consumer) -> None:
    send(transport, 10)
    take(consumer, 2)
    consumer.commit()
    consumer.stop()
    transport.trim("A", 0, 5)
    with MyConsumer(["A"], transport=transport, consumer_id=consumer.consumer_ids["A"]) as late:
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError) as raised:
                read(late)
            assert 5 == raised.value.earliest
        late.seek("A", 0, "earliest")
        assert list(range(5, 10)) == read(late)


def test_several_topics_and_partitions_come_all_and_in_order_each(transport) -> None:
    transport.create_topic("P", 12)
    for partition in range(12):
        send(transport, 50, topic="P", partition=partition)
    send(transport, 50)
    with MyConsumer(["A", "P"], transport=transport, fetch_bytes_max=500) as consumer:
        seen: dict[tuple[str, int], list[int]] = {}
        for message in consumer.get_next(1.5):
            seen.setdefault((message.topic, message.partition), []).append(int(message.value))
    assert 13 == len(seen)
    assert all(numbers == list(range(50)) for numbers in seen.values())


def test_new_partitions_are_read_from_their_beginning(transport, consumer) -> None:
    transport.create_topic("A", 2)
    send(transport, 3, partition=1)
    consumer._refresh()
    assert [0, 1, 2] == read(consumer)


def test_the_cluster_goes_away_and_comes_back(transport, consumer) -> None:
    send(transport, 5)
    assert [0, 1, 2, 3, 4] == read(consumer)
    transport.unreachable.add("*")
    transport.wake()
    with pytest.raises(UnavailableError):
        read(consumer, 1.0)
    threading.Timer(0.5, transport.unreachable.clear).start()
    threading.Timer(0.6, send, (transport, 2), {"first": 5}).start()
    reading = consumer.get_next(15.0)
    assert [b"5", b"6"] == [next(reading).value, next(reading).value]


def test_lost_answers_of_commits_and_reads_change_nothing(transport, consumer) -> None:
    send(transport, 100)
    calls = iter(range(1_000))

    def every_third_is_lost(method: str, url: str) -> None:
        if next(calls) % 3 == 0:
            raise OutcomeUnknownError("the connection broke")

    transport.on_request = every_third_is_lost
    assert list(range(100)) == read(consumer, 3.0)
    consumer.commit()
    assert 100 == transport.committed("A", 0, consumer.consumer_ids["A"])


def test_a_commit_that_is_held_up_undoes_no_later_one(transport, consumer, monkeypatch) -> None:
    """Its answer was lost, it was sent again, and the first copy arrives when the consumer has gone on."""
    send(transport, 9)
    sent, request = [], transport.request

    def noting(method: str, url: str, **arguments) -> Response:
        if method == "PUT":
            sent.append((method, url, arguments))
        return request(method, url, **arguments)

    monkeypatch.setattr(transport, "request", noting)
    for count in (3, 2):
        take(consumer, count)
        consumer.commit()
    method, url, arguments = sent[0]
    assert request(method, url, **arguments).json()["offset"] == 5
    assert transport.committed("A", 0, consumer.consumer_ids["A"]) == 5
    consumer.seek("A", 0, 1)
    consumer.commit()
    assert transport.committed("A", 0, consumer.consumer_ids["A"]) == 1, "a way back that the consumer wants"


def test_what_makes_no_sense_is_refused(transport, consumer) -> None:
    with pytest.raises(ConfigurationError, match="earliest"):
        MyConsumer(["A"], transport=transport, start="middle")
    with pytest.raises(ConfigurationError, match="for each topic"):
        MyConsumer(["A", "B"], transport=transport, consumer_id=3)
    with pytest.raises(UnknownPartitionError, match="it reads A/0"):
        consumer.seek("A", 1, 0)
    with pytest.raises(BadRequestError):
        consumer.seek("A", 0, "middle")


def test_a_forked_child_is_told_that_it_needs_a_consumer_of_its_own(transport, consumer) -> None:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            next(consumer.get_next(0.1))
        except ClosedError as error:
            code = 0 if "fork" in error.message else 2
        finally:
            os._exit(code)
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    send(transport, 1)
    assert [0] == read(consumer)


def test_heartbeats_tell_that_an_idle_consumer_lives(transport, consumer) -> None:
    consumer._presence._interval_seconds = 0.0
    consumer._presence.send_due()
    assert {consumer.consumer_ids["A"]} == transport.heartbeats["consumers"]


def test_a_partition_that_cannot_be_committed_keeps_no_other_from_it(transport) -> None:
    """The first of two partitions is away; the second one's progress is durable nevertheless, and the failure is told."""
    transport.create_topic("A", 2)
    with MyConsumer(["A"], transport=transport, auto_commit_seconds=None, max_block_seconds=0.2) as consumer:
        for partition in (0, 1):
            send(transport, 3, partition=partition)
        assert 6 == len(read(consumer))

        def refuse(method: str, url: str) -> None:
            if method == "PUT" and "/partitions/0/" in url:
                raise OutcomeUnknownError("away")

        transport.on_request = refuse
        with pytest.raises(OutcomeUnknownError):
            consumer.commit()
        assert (None, 3) == tuple(transport.committed("A", partition, consumer.consumer_ids["A"]) for partition in (0, 1))
        transport.on_request = None


def test_damaged_data_is_an_error_each_time_and_passes_nothing_over(transport, consumer) -> None:
    """What was read before the damage is handed out; once it is repaired, reading goes on at the very next message."""
    for number in range(3):
        send(transport, 1, first=number)
    request = transport.request

    def damaged(method: str, url: str, **arguments) -> Response:
        answer = request(method, url, **arguments)
        if method != "GET" or not url.endswith("/records") or not answer.body.endswith(b"2"):
            return answer
        return Response(answer.status, answer.headers, answer.body[:-2] + b"\x09" + answer.body[-1:])  # the last length

    transport.request = damaged
    seen = []
    for _ in range(2):
        with pytest.raises(CorruptBatchError):
            for message in consumer.get_next(QUIET):
                seen.append(int(message.value))
    assert [0, 1] == seen
    del transport.request
    transport.wake()
    with suppress(CorruptBatchError):  # one damaged answer may have been fetched ahead
        seen += read(consumer)
    seen += read(consumer)
    assert [0, 1, 2] == seen
