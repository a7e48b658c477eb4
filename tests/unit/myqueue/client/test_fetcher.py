"""Reading ahead, with time set by hand and no thread."""

from __future__ import annotations

import threading

import pytest

from myqueue.client.connection import Connection
from myqueue.client.fetcher import CHUNKS_AHEAD_MAX, Chunk, Failure, Fetcher, Reader
from myqueue.client.transport import Response
from myqueue.errors import CorruptBatchError, OffsetOutOfRangeError, UnknownTopicError
from myqueue.protocol import batch
from myqueue.protocol.types import TopicPartition
from myqueue.testing import InMemoryTransport, ManualClock


class World:
    """A fetcher before a cluster in memory."""

    def __init__(self, partitions: int = 1, *, fetch_bytes_max: int = 1_000, prefetch_bytes_max: int = 10_000) -> None:
        self.clock = ManualClock()
        self.transport = InMemoryTransport(clock=self.clock)
        self.transport.create_topic("a", partitions)
        self.connection = Connection("lb:1", transport=self.transport, clock=self.clock, pause=self.clock.advance)
        self.connection.refresh_until(["a"], 1.0)
        self.changed = threading.Condition()
        self.fetcher = Fetcher(self.connection, self.changed, fetch_bytes_max=fetch_bytes_max, prefetch_bytes_max=prefetch_bytes_max)
        for number in range(partitions):
            self.fetcher.add(Reader(TopicPartition("a", number), 7, "earliest"))

    def store(self, *values: bytes, partition: int = 0) -> None:
        """One entry per value."""
        for value in values:
            self.connection.partition_call(TopicPartition("a", partition), "POST", f"/v1/topics/a/partitions/{partition}/records",
                                           headers={"Content-Type": batch.BATCH_TYPE}, body=batch.pack_values([value]))

    def reader(self, partition: int = 0) -> Reader:
        return self.fetcher.readers[TopicPartition("a", partition)]

    def use_up(self, item: Chunk | Failure) -> None:
        with self.changed:
            self.fetcher.finish(item)

    def seek(self, offset: int) -> None:
        with self.changed:
            self.fetcher.seek(self.reader(), offset)

    def fetch_all(self, rounds_max: int = 200) -> None:
        """Fetch until nothing may be fetched."""
        for _ in range(rounds_max):
            if not self.fetcher.run_once():
                return
        raise AssertionError("it never stops to read ahead")

    def drain(self) -> list[bytes]:
        """Use up what is ready and fetch on, until a round over all partitions brings nothing."""
        values: list[bytes] = []
        while True:
            for _ in self.fetcher.readers:
                self.fetcher.run_once()
            if not self.fetcher.ready:
                return values
            item = self.fetcher.ready[0]
            assert isinstance(item, Chunk)
            values += [message.value for message in item.messages]
            self.use_up(item)


def test_everything_is_read_once_in_order() -> None:
    world = World()
    values = [b"%d" % number * 50 for number in range(100)]
    world.store(*values)
    assert values == world.drain()


def test_a_commit_is_where_reading_begins() -> None:
    world = World()
    world.store(*[b"%d" % number for number in range(10)])
    world.transport._partitions[TopicPartition("a", 0)].offsets[7] = 6
    assert [b"6", b"7", b"8", b"9"] == world.drain()


def test_nothing_committed_means_the_earliest_message_that_is_left() -> None:
    world = World()
    world.store(*[b"%d" % number for number in range(10)])
    world.transport.trim("a", 0, 4)
    assert b"4" == world.drain()[0]
    assert world.reader().progress.to_commit() is None, "nothing was handed out: nothing to write"


def test_a_partition_is_read_ahead_by_two_fetches_and_no_further() -> None:
    world = World()
    world.store(*[b"x" * 900 for _ in range(10)])
    world.fetch_all()
    assert CHUNKS_AHEAD_MAX == len(world.fetcher.ready)
    world.use_up(world.fetcher.ready[0])
    assert world.fetcher.run_once()
    assert not world.fetcher.run_once()


def test_all_partitions_together_are_bounded_in_bytes() -> None:
    world = World(20, fetch_bytes_max=1_000, prefetch_bytes_max=5_000)
    for partition in range(20):
        world.store(b"x" * 900, b"x" * 900, partition=partition)
    world.fetch_all()
    assert 4_000 < sum(item.size for item in world.fetcher.ready) <= 5_000


def test_partitions_take_turns() -> None:
    world = World(3, prefetch_bytes_max=100_000)
    for partition in range(3):
        world.store(b"x" * 900, b"x" * 900, partition=partition)
    for _ in range(6):
        world.fetcher.run_once()
    assert [0, 1, 2, 0, 1, 2] == [item.reader.partition.partition for item in world.fetcher.ready]


def test_a_seek_drops_what_was_fetched_and_its_late_arrivals() -> None:
    world = World()
    world.store(*[b"%d" % number for number in range(10)])
    world.fetcher.run_once()
    world.seek(8)
    assert [b"8", b"9"] == world.drain()


def test_an_answer_on_its_way_during_a_seek_is_dropped() -> None:
    world = World()
    world.store(*[b"%d" % number for number in range(10)])
    world.fetcher.resolve(world.reader())

    def seek_once(method: str, url: str) -> None:
        world.transport.on_request = None
        world.seek(5)

    world.transport.on_request = seek_once
    world.fetcher.run_once()
    assert [] == list(world.fetcher.ready)
    assert [b"5", b"6", b"7", b"8", b"9"] == world.drain()


def test_a_position_below_the_log_is_told_after_the_messages_before_it_and_never_moved() -> None:
    world = World()
    world.store(*[b"%d" % number for number in range(10)])
    world.transport._partitions[TopicPartition("a", 0)].offsets[7] = 2
    world.transport.trim("a", 0, 5)
    world.fetcher.run_once()
    failure = world.fetcher.ready[0]
    assert isinstance(failure, Failure)
    assert isinstance(failure.error, OffsetOutOfRangeError)
    assert (5, 10) == (failure.error.earliest, failure.error.latest)
    assert not world.fetcher.run_once(), "parked until it was told"
    world.use_up(failure)
    world.clock.advance(1.0)
    world.fetcher.run_once()
    assert isinstance(world.fetcher.ready[0], Failure), "and told again"
    world.seek(5)
    assert b"5" == world.drain()[0]


def test_a_cluster_that_is_away_is_asked_again_with_back_off_and_then_read_on() -> None:
    world = World()
    world.store(b"1")
    world.transport.unreachable.add("*")
    for _ in range(20):
        world.fetcher.run_once()
        world.clock.advance(0.01)
    assert 1 < world.reader().failures < 10
    assert [] == list(world.fetcher.ready)
    world.transport.unreachable.clear()
    world.clock.advance(10.0)
    assert [b"1"] == world.drain()


def test_an_answer_that_makes_no_sense_is_told_and_read_on_behind() -> None:
    """It ends no thread: whoever asks for the next message sees the error, and what comes after it is read."""
    world = World()
    world.store(b"1")
    request = world.transport.request
    world.transport.request = lambda *_, **__: Response(200, {}, b"[]")  # type: ignore[method-assign]
    world.fetcher.run_once()
    world.transport.request = request  # type: ignore[method-assign]
    told = world.fetcher.ready[0]
    assert isinstance(told, Failure)
    assert "cannot be understood" in told.error.message
    world.use_up(told)
    world.clock.advance(10.0)
    assert [b"1"] == world.drain()


def test_a_deleted_topic_is_told() -> None:
    world = World()
    world.transport.delete_topic("a")
    world.fetcher.run_once()
    assert isinstance(world.fetcher.ready[0].error, UnknownTopicError)


def test_polls_get_shorter_where_partitions_outnumber_the_threads() -> None:
    assert 5.0 == World(8).fetcher._poll_seconds(World(8).reader())
    many = World(16)
    assert 0.5 == many.fetcher._poll_seconds(many.reader())


@pytest.mark.parametrize("body", [b"", b"MQE", b"MQE1\0", b"MQE1" + bytes(24) + b"\0\0\0\1\0\0\0\2\0\0\0\x7f"])
def test_a_body_that_is_cut_off_is_an_error_and_no_end(body: bytes) -> None:
    with pytest.raises(CorruptBatchError):
        batch.end_offset_of(body)


def test_an_error_on_its_way_during_a_seek_is_dropped_too() -> None:
    """The old position was out of the log; the new one is not, and must not be told of it."""
    world = World()
    world.store(*[b"%d" % number for number in range(10)])
    world.transport._partitions[TopicPartition("a", 0)].offsets[7] = 2
    world.fetcher.resolve(world.reader())
    world.transport.trim("a", 0, 5)

    def seek_once(method: str, url: str) -> None:
        world.transport.on_request = None
        world.seek(6)

    world.transport.on_request = seek_once
    world.fetcher.run_once()
    assert [] == list(world.fetcher.ready)
    assert 0 == world.reader().failures
    assert b"6" == world.drain()[0]
