"""The sink's parts: rows to requests, the names of writers, and what a repeated write adds."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from myqueue.client.connection import Connection
from myqueue.errors import BadRequestError, ConflictError, ProducerFencedError, TooLargeError, UnknownPartitionError, UnknownTopicError
from myqueue.protocol.partitioner import partition_for
from myqueue.protocol.types import Record
from myqueue.testing import InMemoryTransport
from pipeline.sink.chunks import CHUNK_BYTES, CHUNK_RECORDS, TURN_RECORDS, Chunk, Chunker, Row, rows_of
from pipeline.sink.options import WriteOptions, check_columns, parse_write_options
from pipeline.sink.sender import NAMED_PRODUCERS_FROM, Writer, write_batches, write_rows

BASE = {"myqueue.bootstrap.servers": "h:1"}
OPTIONS = WriteOptions("h:1", "a")


def connected_to(memory: InMemoryTransport) -> Connection:
    return Connection("h:1", transport=memory, clock=memory.clock, pause=lambda seconds: None)


def chunks(rows: list[Row], *, partitions: int = 2, first_turn: int = 0, step: int = 1000) -> list[Chunk]:
    chunker = Chunker(lambda topic: partitions, first_turn)
    full = [chunk for at in range(0, len(rows), step) for chunk in chunker.add(rows[at:at + step])]
    return [*full, *chunker.rest()]


def test_the_same_rows_give_the_same_requests_however_they_come() -> None:
    """Numbered from 0 by partition, in order, bounded by count and by bytes."""
    rows = [Row("a", None, Record(b"%d" % number)) for number in range(25_000)]
    assert chunks(rows, step=7) == chunks(rows, step=25_000)
    assert [(0, 10_000), (0, 10_000), (1, 2500), (1, 2500)] == sorted((chunk.seq, len(chunk.records)) for chunk in chunks(rows))
    large = [Row("a", 1, Record(bytes(400_000))) for _ in range(5)]
    assert [(0, 2), (1, 2), (2, 1)] == [(chunk.seq, len(chunk.records)) for chunk in chunks(large)]
    assert 400_000 * 2 < CHUNK_BYTES and CHUNK_RECORDS == 10_000


def test_rows_go_to_the_partition_they_name_or_their_keys_or_in_turn() -> None:
    """Writers begin at different partitions."""
    rows = [Row("a", 1, Record(b"x", b"k")), Row("a", None, Record(b"y", b"k")), *[Row("a", None, Record(b"z"))] * (TURN_RECORDS + 1)]
    placed = {(chunk.partition.partition, record.value) for chunk in chunks(rows, partitions=5, first_turn=3) for record in chunk.records}
    assert {(1, b"x"), (partition_for(b"k", 5), b"y"), (3, b"z"), (4, b"z")} == placed
    with pytest.raises(UnknownPartitionError, match="topic 'a' has 2 partitions"):
        chunks([Row("a", 2, Record(b"x"))])
    with pytest.raises(TooLargeError):
        chunks([Row("a", 0, Record(bytes((1 << 20) + 1)))])


def test_a_batch_s_columns_become_records() -> None:
    """Text as UTF-8; headers only where they are wanted; a NULL value or topic is refused."""
    batch = pa.RecordBatch.from_pylist([{"value": "ä", "key": b"k", "topic": "a", "headers": [{"key": "h", "value": None}], "offset": 3}])
    assert [Row("a", None, Record("ä".encode(), b"k"))] == list(rows_of(batch, topic=None, include_headers=False))
    assert [Row("b", None, Record("ä".encode(), b"k", (("h", None),)))] == list(rows_of(batch, topic="b", include_headers=True))
    for row, said in (({"value": None, "topic": "a"}, "value is NULL"), ({"value": "x", "topic": None}, "topic is NULL")):
        broken = pa.RecordBatch.from_pylist([row], schema=pa.schema([("value", pa.string()), ("topic", pa.string())]))
        with pytest.raises(BadRequestError, match=said):
            list(rows_of(broken, topic=None, include_headers=False))


@pytest.mark.parametrize(("options", "columns", "said"), [
    ({}, {"value": BinaryType()}, "topic is needed"), ({"topic": "a"}, {"key": BinaryType()}, "column value is needed"),
    ({"topic": "a"}, {"value": LongType()}, "the column value must be binary or string, not bigint"),
    ({"topic": "a b"}, {"value": StringType()}, "topic name"), ({"topic": "a", "acks": "all"}, {}, "no option acks"),
    ({"topic": "a", "writeId": ""}, {}, "writeId")])
def test_a_write_that_cannot_be_is_refused_by_name(options: dict, columns: dict, said: str) -> None:
    """Before anything is stored."""
    with pytest.raises(BadRequestError, match=said):
        check_columns(StructType([StructField(name, kind) for name, kind in columns.items()]), parse_write_options({**BASE, **options}, stream=False))


def test_a_writer_has_one_id_for_ever() -> None:
    """Another one for another task or name, far from the ids that are counted up."""
    ids = [Writer(*who).producer_id for who in (("query x", 3, 0), ("query x", 4, 0), ("query x", 3, 1), ("query y", 3, 0))]
    assert (6_899_200_466_328_496_384, 3) == (ids[0], len(set(ids)))
    assert ids[0] == ids[1] and all(NAMED_PRODUCERS_FROM <= one < 1 << 63 for one in ids)


def test_what_is_written_again_is_there_once() -> None:
    """After lost answers, after a break in the middle, and where the requests are too old for the leader to know where they stand."""
    memory = InMemoryTransport()
    memory.create_topic("a", 2)
    batches = [pa.RecordBatch.from_pylist([{"value": b"%d.%d" % (batch, number), "partition": 0} for number in range(CHUNK_RECORDS)],
                                          schema=pa.schema([("value", pa.binary()), ("partition", pa.int32())])) for batch in range(12)]
    connection = connected_to(memory)
    memory.lose_answers(2)
    write_batches(batches[:5], Writer("w", 0, 0), OPTIONS, connection)
    again = write_batches(batches, Writer("w", 0, 0), OPTIONS, connection)
    once_more = write_batches(batches, Writer("w", 0, 0), OPTIONS, connection)
    assert (120_000, 50_000, 120_000) == (again.messages, again.repeated, once_more.repeated)
    assert [value for batch in batches for value in batch.column("value").to_pylist()] == [message.value for message in memory.messages("a")]
    write_batches(batches[:1], Writer("w", 1, 0), OPTIONS, connection)
    assert 130_000 == len(memory.messages("a"))


def test_a_left_over_task_of_an_older_micro_batch_is_refused() -> None:
    """What it wrote before stays, what it has left is not written."""
    memory = InMemoryTransport()
    memory.create_topic("a")
    memory.refuse(ProducerFencedError("producer 1 has epoch 2, the request 1", epoch=2))
    with pytest.raises(ProducerFencedError):
        write_batches([pa.RecordBatch.from_pylist([{"value": b"x"}])], Writer("w", 1, 0), OPTIONS, connected_to(memory))
    assert [] == memory.messages("a")


def test_other_rows_under_the_name_of_a_write_are_refused() -> None:
    """A name that was used before is no licence to drop what is written under it today."""
    memory = InMemoryTransport()
    memory.create_topic("a")
    connection = connected_to(memory)
    rows = pa.RecordBatch.from_pylist([{"value": b"1"}, {"value": b"2"}])
    write_batches([rows], Writer("write nightly", 0, 0), OPTIONS, connection)
    with pytest.raises(ConflictError, match="a/0: request 0 of this writer was stored before with 2 messages, now it has 4"):
        write_batches([rows, rows], Writer("write nightly", 0, 0), OPTIONS, connection)
    assert [b"1", b"2"] == [message.value for message in memory.messages("a")]


def test_a_leader_that_does_not_know_a_new_topic_yet_is_asked_again() -> None:
    """Until a picture of the cluster has no such topic either."""
    memory = InMemoryTransport()
    memory.create_topic("a")
    connection = connected_to(memory)
    write_batches([pa.RecordBatch.from_pylist([{"value": b"1"}])], Writer("w", 0, 0), OPTIONS, connection)
    memory.refuse(UnknownTopicError("no topic a here"))
    write_batches([pa.RecordBatch.from_pylist([{"value": b"2"}])], Writer("w", 1, 0), OPTIONS, connection)
    assert [b"1", b"2"] == [message.value for message in memory.messages("a")]

    def and_then_it_is_gone() -> Iterator[list[Row]]:
        yield [Row("a", None, Record(b"3"))] * CHUNK_RECORDS
        memory.delete_topic("a")
        yield [Row("a", None, Record(b"4"))]

    with pytest.raises(UnknownTopicError):
        write_rows(and_then_it_is_gone(), Writer("w", 2, 0), OPTIONS, connection)
