"""``spark.read.format("myqueue")`` on real databases."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from myqueue.protocol.types import PartitionId, Record
from pipeline.source.planner import Limits, take_cut, take_cut_between
from tests.pipeline.conftest import FilledCluster, cluster_of
from tests.support.log_filler import FIRST_TIME, execute
from tests.support.postgres import PostgresForTests

pytestmark = pytest.mark.timeout(240)  # the first test of the run also starts Spark, on a machine that may be busy
RECORDS = [
    *(Record(f"line {number}".encode()) for number in range(700)),
    *(Record(bytes([number % 256]) * 3, None if number % 3 else b"k%d" % number, (("h", b"\x00\xff"), ("none", None)) if number % 5 == 0 else (),
             1_600_000_000_000_000 + number if number % 2 else None) for number in range(700)),
    Record(b""), Record(b"x" * (1 << 20)), Record(b"y" * 50_000, b""), *(Record(b"z%d" % number) for number in range(300))]


@pytest.fixture(scope="module")
def filled(postgres: PostgresForTests, reader: str) -> Iterator[FilledCluster]:
    """Topic ``a`` has all of RECORDS in partition 0, over two segments; ``b`` lies on the other broker; ``none`` is empty."""
    with cluster_of(postgres, reader) as cluster:
        cluster.create_topic("a", topic_id=1, partitions=2)
        cluster.create_topic("b", topic_id=2, broker=1)
        cluster.create_topic("none", topic_id=3, broker=1)
        filler = cluster.fillers[0]
        filler.append(PartitionId(1, 0), RECORDS[:900])
        filler.commit_offset(PartitionId(1, 0), "#1", 5)
        filler.append(PartitionId(1, 1), [Record(b"other partition")])
        filler.roll(1)
        filler.append(PartitionId(1, 0), RECORDS[900:])
        filler.append(PartitionId(1, 0), [Record(b"not committed")], committed=False)
        cluster.fillers[1].append(PartitionId(2, 0), [Record(b"%d" % number) for number in range(50)])
        yield cluster


def read(spark: SparkSession, cluster: FilledCluster, **options: str) -> DataFrame:
    given = {"myqueue.bootstrap.servers": cluster.server.address, "subscribe": "a,b", **options}
    return spark.read.format("myqueue").options(**{name: value for name, value in given.items() if value}).load()


def expected_row(offset: int) -> dict[str, Any]:
    record = RECORDS[offset]
    headers = [{"key": name, "value": value} for name, value in record.headers] or None
    return {"key": record.key, "value": record.value, "topic": "a", "partition": 0, "offset": offset,
            "timestampType": 1 if record.timestamp_us is None else 0, "headers": headers}


def test_every_committed_message_comes_byte_for_byte(spark: SparkSession, filled: FilledCluster) -> None:
    """All columns of all messages, over segments and brokers, NULLs and empty values told apart; nothing above the committed end."""
    rows = [row.asDict(recursive=True) for row in read(spark, filled, includeHeaders="true", minPartitions="5", rangeBytes="200000").collect()]
    mine = sorted((row for row in rows if (row["topic"], row["partition"]) == ("a", 0)), key=lambda row: row["offset"])
    assert [expected_row(offset) for offset in range(len(RECORDS))] == [{name: row[name] for name in expected_row(0)} for row in mine]
    assert {("a", 0): len(RECORDS), ("a", 1): 1, ("b", 0): 50} == _counts(rows)


def test_timestamps_are_the_clients_or_the_brokers(spark: SparkSession, filled: FilledCluster) -> None:
    """Microseconds are kept."""
    rows = read(spark, filled, assign='{"a": [0]}', subscribe="", startingOffsets='{"a": {"0": 700}}', endingOffsets='{"a": {"0": 702}}').collect()
    assert [datetime(2023, 11, 14, 22, 13, 20).date(), datetime(2020, 9, 13).date()] == [row["timestamp"].date() for row in rows]
    seconds = rows[1]["timestamp"].astimezone(UTC).timestamp() if rows[1]["timestamp"].tzinfo else rows[1]["timestamp"].timestamp()
    assert 1_600_000_000_000_001 == round(seconds * 1_000_000)


def test_the_append_time_is_there_where_a_schema_names_it(spark: SparkSession, filled: FilledCluster) -> None:
    """Whatever time the client gave."""
    reader = spark.read.format("myqueue").option("myqueue.bootstrap.servers", filled.server.address).option("subscribe", "a")
    rows = reader.schema("offset long, appendTime timestamp, partition int").load().where("partition = 0 AND offset IN (0, 701)")
    assert {0: True, 701: True} == {row[0]: row[1] >= FIRST_TIME for row in rows.selectExpr("offset", "unix_micros(appendTime)").collect()}
    assert "appendTime" not in read(spark, filled).columns


def test_offsets_bound_the_read_and_tasks_can_be_asked_for(spark: SparkSession, filled: FilledCluster) -> None:
    """A start in the middle of a block, an end in another segment, and as many tasks as wanted."""
    frame = read(spark, filled, startingOffsets='{"a": {"0": 855}}', endingOffsets='{"a": {"0": 905}}', minPartitions="6")
    rows = [row.asDict() for row in frame.select("topic", "partition", "offset").collect()]
    assert list(range(855, 905)) == sorted(row["offset"] for row in rows if (row["topic"], row["partition"]) == ("a", 0))
    assert 6 == frame.rdd.getNumPartitions()


def test_times_bound_the_read(spark: SparkSession, cluster: FilledCluster) -> None:
    """By append time, over segments, to the millisecond; where nothing is so late, an error or nothing."""
    cluster.create_topic("a", topic_id=1)
    a, filler = PartitionId(1, 0), cluster.fillers[0]
    for number in range(4):
        filler.pass_time(a, 1000)
        filler.append(a, [Record(b"%d" % number)] * 10)
        filler.roll(1) if number == 1 else filler.commit_offset(a, "#1", 0)
    second = FIRST_TIME // 1000 + 2000
    options = {"subscribe": "a", "startingTimestamp": str(second), "endingOffsetsByTimestamp": json.dumps({"a": {"0": second + 1001}})}
    assert list(range(10, 30)) == sorted(row["offset"] for row in read(spark, cluster, **options).select("offset").collect())
    whole, part = take_cut_between(cluster.view(), cluster.view().partitions, Limits(), since_us=second * 1000, until_us=(second + 1001) * 1000)
    assert (40, 20) == (whole.messages(), part.messages())
    late = {"subscribe": "a", "startingTimestamp": str(second + 9000)}
    with pytest.raises(PySparkException, match="a/0 has no message at or after"):
        read(spark, cluster, **late).count()
    assert 0 == read(spark, cluster, **late, startingOffsetsByTimestampStrategy="latest").count()


def test_conditions_of_the_query_prune_what_is_read(spark: SparkSession, filled: FilledCluster) -> None:
    """pushFilters: one partition and the segment that is left, in fewer tasks, with the same rows."""
    frame = read(spark, filled, pushFilters="true").where("topic = 'a' AND partition = 0 AND offset >= 899 AND offset < 903")
    assert [899, 900, 901, 902] == sorted(row["offset"] for row in frame.select("offset").collect())
    assert 2 == frame.rdd.getNumPartitions()
    assert [] == read(spark, filled, pushFilters="true").where("topic = 'zzz'").collect()


def test_the_copy_to_read_can_be_chosen(spark: SparkSession, filled: FilledCluster) -> None:
    """A broker without one is refused by name; where there is no follower the leader is read."""
    assert 50 == read(spark, filled, subscribe="b", readFrom="replica=2").count() == read(spark, filled, subscribe="b", readFrom="follower").count()
    with pytest.raises(PySparkException, match="broker 1 holds no copy of b/0"):
        read(spark, filled, subscribe="b", readFrom="replica=1").count()


def test_a_schema_of_ones_own_chooses_the_columns(spark: SparkSession, filled: FilledCluster) -> None:
    """Projection; a column that is not there is refused by name."""
    reader = spark.read.format("myqueue").option("myqueue.bootstrap.servers", filled.server.address).option("subscribePattern", "b|none")
    assert [(0, 0), (49, 0)] == [tuple(row) for row in reader.schema("offset bigint, partition int").load().orderBy("offset").collect()][::49]
    with pytest.raises(PySparkException, match="no column size bigint"):
        reader.schema("size bigint").load().collect()


def test_an_empty_topic_has_no_rows(spark: SparkSession, filled: FilledCluster) -> None:
    """No range at all is not an error."""
    assert [] == read(spark, filled, subscribe="none").collect()


def test_a_wrong_name_or_offset_is_one_sentence(spark: SparkSession, filled: FilledCluster) -> None:
    """The error names what was asked and what there is."""
    with pytest.raises(PySparkException, match="no such topic or partition: nowhere"):
        read(spark, filled, subscribe="a,nowhere").collect()
    with pytest.raises(PySparkException, match="startingOffsets 51 of b/0 lies outside the log: it has 0 to 50"):
        read(spark, filled, subscribe="b", startingOffsets='{"b": {"0": 51}}').collect()


def test_one_frame_is_one_cut_and_so_is_a_named_cut(spark: SparkSession, cluster: FilledCluster) -> None:
    """What is appended later is in neither; a topic made anew since is an error that says so."""
    cluster.create_topic("a", topic_id=1)
    cluster.fillers[0].append(PartitionId(1, 0), [Record(b"%d" % number) for number in range(20)])
    cut = take_cut(cluster.view(), cluster.view().partitions, Limits()).to_json()
    frame = read(spark, cluster, subscribe="a")
    assert 20 == frame.count()
    cluster.fillers[0].append(PartitionId(1, 0), [Record(b"later")])
    assert (20, 20, 21) == (frame.count(), read(spark, cluster, subscribe="a", cut=cut).count(), read(spark, cluster, subscribe="a").count())
    cluster.server.body["partitions"] = []
    cluster.create_topic("a", topic_id=9)
    with pytest.raises(PySparkException, match="topic a was made anew since the cut was taken: it had id 1, now 9"):
        read(spark, cluster, subscribe="a", cut=cut).count()


def test_missing_messages_are_an_error_unless_they_are_to_be_passed_over(spark: SparkSession, cluster: FilledCluster) -> None:
    """A deleted block is noticed by the read itself."""
    cluster.create_topic("a", topic_id=1)
    for number in range(3):
        cluster.fillers[0].append(PartitionId(1, 0), [Record(b"%d" % number)] * 10)
    assert 1 == execute(cluster.urls[0], "DELETE FROM log_entry WHERE topic_id = 1 AND base_offset = 10 AND kind = 1")
    with pytest.raises(PySparkException, match="a/0: of the offsets 0 to 30 only 20 are there"):
        read(spark, cluster, subscribe="a").count()
    assert 20 == read(spark, cluster, subscribe="a", failOnDataLoss="false").count()


def _counts(rows: list[dict[str, Any]]) -> dict[tuple[str, int], int]:
    counts: dict[tuple[str, int], int] = {}
    for row in rows:
        at = (row["topic"], row["partition"])
        counts[at] = counts.get(at, 0) + 1
    return counts
