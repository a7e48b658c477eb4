"""``spark.readStream.format("myqueue")`` on real databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg2
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from myqueue.errors import ConflictError, LogFaultError, OffsetOutOfRangeError
from myqueue.protocol.types import PartitionId, Record
from myqueue.testing import ManualClock
from pipeline import schemas
from pipeline.source.options import parse_options
from pipeline.source.stream_reader import MyQueueStreamReader
from tests.pipeline.conftest import FilledCluster
from tests.support.log_filler import execute

pytestmark = pytest.mark.timeout(240)  # the first test of the run also starts Spark, on a machine that may be busy
A = PartitionId(1, 0)
EVERYTHING = ReadAllAvailable()


@pytest.fixture
def stream(cluster: FilledCluster) -> Iterator[FilledCluster]:
    """Topic ``a`` with 30 messages in partition 0 and none in 1."""
    cluster.create_topic("a", topic_id=1, partitions=2)
    cluster.fillers[0].append(A, [Record(b"%d" % number) for number in range(30)])
    yield cluster


def reader(cluster: FilledCluster, **options: str) -> MyQueueStreamReader:
    given = {"myqueue.bootstrap.servers": cluster.server.address, "subscribe": "a", "startingOffsets": "earliest",
             "fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "1", **options}
    return MyQueueStreamReader(parse_options(given, stream=True), schemas.MESSAGES)


def offsets(reader: MyQueueStreamReader, start: dict, end: dict) -> list[int]:
    return sorted(offset for task in reader.partitions(start, end) for batch in reader.read(task) for offset in batch.column("offset").to_pylist())


def run(spark: SparkSession, cluster: FilledCluster, folder: Path, **options: str) -> list[tuple[int, int]]:
    """Read what there is into Parquet, with a checkpoint; the partitions and offsets that are there then."""
    given = {"myqueue.bootstrap.servers": cluster.server.address, "subscribe": "a", "startingOffsets": "earliest", **options}
    query = (spark.readStream.format("myqueue").options(**given).load().select("partition", "offset", "value").writeStream
             .trigger(availableNow=True).option("checkpointLocation", str(folder / "checkpoint")).format("parquet").start(str(folder / "out")))
    try:
        assert query.awaitTermination(120), query.status
    finally:
        query.stop()
    return sorted((row["partition"], row["offset"]) for row in spark.read.parquet(str(folder / "out")).collect())


def test_a_query_that_is_started_again_reads_exactly_the_rest(spark: SparkSession, stream: FilledCluster, tmp_path: Path) -> None:
    """Micro-batches of a limited size; a partition that came meanwhile from its beginning."""
    assert [(0, offset) for offset in range(30)] == run(spark, stream, tmp_path, maxOffsetsPerTrigger="20")
    assert 2 == len([path for path in (tmp_path / "checkpoint" / "commits").iterdir() if path.name.isdecimal()])
    stream.fillers[0].append(A, [Record(b"later")] * 3)
    stream.fillers[1].create_topic(1, "a", 3)
    stream.fillers[1].append(PartitionId(1, 2), [Record(b"new")] * 2)
    stream.server.body["partitions"].append({**stream.server.body["partitions"][0], "partition": 2, "leader": 2, "replicas": [2]})
    assert [(0, offset) for offset in range(33)] + [(2, 0), (2, 1)] == run(spark, stream, tmp_path)


def test_tasks_are_the_same_however_the_log_is_stored(stream: FilledCluster) -> None:
    """A plan made again after the segments changed has the same tasks, and they read the same messages."""
    one = reader(stream, minPartitions="3")
    start = one.initialOffset()
    end = one.latestOffset(start, EVERYTHING)
    before = [task.value for task in one.partitions(start, end)]
    stream.fillers[0].roll(1)
    stream.fillers[0].append(A, [Record(b"later")] * 40)
    again = reader(stream, minPartitions="3")
    assert [(0, 8), (8, 15), (15, 30)] == [(span.start, span.end) for span in before]
    assert before == [task.value for task in again.partitions(start, end)]
    assert list(range(30)) == offsets(again, start, end)
    assert list(range(25, 60)) == offsets(again, {"a/0": {"topic_id": 1, "offset": 25}}, {"a/0": {"topic_id": 1, "offset": 60}})


def test_the_rate_is_limited_and_few_messages_wait_for_more(stream: FilledCluster) -> None:
    """maxOffsetsPerTrigger, minOffsetsPerTrigger and maxTriggerDelay; with AvailableNow nothing waits and nothing newer is read."""
    one = reader(stream, minOffsetsPerTrigger="31", maxTriggerDelay="1h")
    start = one.initialOffset()
    assert start == one.latestOffset(start, EVERYTHING)
    one.prepareForTriggerAvailableNow()
    assert 5 == one.latestOffset(start, ReadMaxRows(5))["a/0"]["offset"]
    stream.fillers[0].append(A, [Record(b"later")] * 10)
    assert 30 == one.latestOffset(start, EVERYTHING)["a/0"]["offset"]
    assert 40 == reader(stream, minOffsetsPerTrigger="31").latestOffset(start, EVERYTHING)["a/0"]["offset"]
    hasty = reader(stream, minOffsetsPerTrigger="99", maxTriggerDelay="0s")
    assert 40 == hasty.latestOffset(start, EVERYTHING)["a/0"]["offset"]


def test_a_new_query_starts_at_the_end_unless_told_otherwise(stream: FilledCluster) -> None:
    """As Kafka's does."""
    assert {"a/0": {"offset": 30, "topic_id": 1}, "a/1": {"offset": 0, "topic_id": 1}} == reader(stream, startingOffsets="latest").initialOffset()
    assert 7 == reader(stream, startingOffsets='{"a": {"0": 7}}').initialOffset()["a/0"]["offset"]


def test_lost_messages_end_the_query_unless_they_are_to_be_passed_over(stream: FilledCluster) -> None:
    """Taken by retention, by a topic that went and came, or by damage."""
    one, lax = reader(stream), reader(stream, failOnDataLoss="false")
    start, end = one.initialOffset(), one.latestOffset(one.initialOffset(), EVERYTHING)
    execute(stream.urls[0], "UPDATE partition_state SET start_offset = 10 WHERE topic_id = 1 AND partition = 0")
    with pytest.raises(OffsetOutOfRangeError, match="a/0: the stream has read to offset 0, the log begins at 10"):
        one.latestOffset(start, EVERYTHING)
    assert end == lax.latestOffset(start, EVERYTHING)
    assert 1 == execute(stream.urls[0], "DELETE FROM log_entry WHERE topic_id = 1 AND kind = 1")
    with pytest.raises(LogFaultError, match="only 0 are there"):
        offsets(one, start, end)
    stream.server.body["partitions"] = []
    stream.create_topic("a", topic_id=9)
    stream.fillers[0].append(PartitionId(9, 0), [Record(b"new")] * 2)
    with pytest.raises(ConflictError, match="made anew"):
        one.latestOffset({"a/0": start["a/0"]}, EVERYTHING)
    entered = lax.latestOffset(end, EVERYTHING)
    fresh = lax.latestOffset(entered, EVERYTHING)
    assert ({"a/0": {"offset": 2, "topic_id": 9}}, [], [0, 1]) == (fresh, offsets(lax, end, entered), offsets(lax, entered, fresh))


def test_a_new_partition_enters_the_checkpoint_before_it_is_read(stream: FilledCluster) -> None:
    """So a micro-batch that is planned again has the same messages, wherever retention has moved the log's start meanwhile."""
    one = reader(stream)
    start = one.latestOffset(one.initialOffset(), EVERYTHING)
    stream.fillers[1].create_topic(1, "a", 3)
    stream.fillers[1].append(PartitionId(1, 2), [Record(b"new")] * 9)
    stream.server.body["partitions"].append({**stream.server.body["partitions"][0], "partition": 2, "leader": 2, "replicas": [2]})
    entered = one.latestOffset(start, EVERYTHING)
    end = one.latestOffset(entered, EVERYTHING)
    assert (0, 9) == (entered["a/2"]["offset"], end["a/2"]["offset"])
    planned = [task.value for task in one.partitions(entered, end)]
    execute(stream.urls[1], "UPDATE partition_state SET start_offset = 5 WHERE topic_id = 1 AND partition = 2")
    assert planned == [task.value for task in reader(stream).partitions(entered, end)]
    assert list(range(9)) == offsets(one, entered, end)


def test_an_idle_stream_looks_into_the_databases_a_few_times_a_second(stream: FilledCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often Spark asks, and by connections that stay open."""
    opened: list[str] = []
    connect = psycopg2.connect
    monkeypatch.setattr(psycopg2, "connect", lambda uri, **named: opened.append(uri) or connect(uri, **named))
    one, clock = reader(stream), ManualClock()
    one._clock = clock
    end = one.latestOffset(one.initialOffset(), EVERYTHING)
    del opened[:]
    for _ in range(10):
        assert end == one.latestOffset(end, EVERYTHING)
    assert [] == opened
    stream.fillers[0].append(A, [Record(b"later")])
    del opened[:]
    assert end == one.latestOffset(end, EVERYTHING)
    clock.advance(0.2)
    assert 31 == one.latestOffset(end, EVERYTHING)["a/0"]["offset"]
    assert [] == opened
    one.stop()
    clock.advance(1)
    one.latestOffset(end, EVERYTHING)
    assert len(opened) == len(set(opened)) > 0
    one.stop()
