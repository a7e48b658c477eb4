"""The report on real databases: every number from messages that are known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from myqueue.errors import BadRequestError
from myqueue.protocol.types import PartitionId, Record
from pipeline.report.figures import Report, Window
from pipeline.report.run import report_cluster
from pipeline.settings import PipelineSettings
from tests.pipeline.conftest import FilledCluster, cluster_of
from tests.pipeline.test_export import run_spark_submit
from tests.support.log_filler import FIRST_TIME, execute, restored
from tests.support.markup import check_page
from tests.support.postgres import PostgresForTests, open_folder
from tests.support.snapshot_server import NOBODY

pytestmark = pytest.mark.timeout(240)  # the first test of the run also starts Spark, on a machine that may be busy
HOUR = 3_600_000_000
FIRST_HOUR = FIRST_TIME // HOUR * HOUR
A0, A1, NUMBER = PartitionId(1, 0), PartitionId(1, 1), PartitionId(2, 0)
BINARY = b"\x00\xff<b>"
FUTURE = 2**63 - 1  # a client's time that no calendar has


@pytest.fixture(scope="module")
def logs(postgres: PostgresForTests, reader: str) -> Iterator[FilledCluster]:
    """Topic ``a``: four keys and none, in two hours; ``2024`` on the other broker; ``none`` is empty. A manager knows two consumers."""
    with cluster_of(postgres, reader, managers=1) as cluster:
        cluster.create_topic("a", topic_id=1, partitions=2)
        cluster.create_topic("2024", topic_id=2, broker=1)
        cluster.create_topic("none", topic_id=3)
        filler = cluster.fillers[0]
        filler.append(A0, [Record(b"12345", b"k1")] * 5 + [Record(b"1", BINARY)] * 2 + [Record(b"", None)] * 3)
        filler.append(A1, [Record(b"1234567", b"k1", timestamp_us=FUTURE)])
        filler.pass_time(A0, 2 * HOUR // 1000)
        filler.append(A0, [Record(b"123", b"")] * 2 + [Record(b"x" * 1000, b"k2")])
        filler.append(A0, [Record(b"not committed", b"k3")] * 9, committed=False)
        cluster.fillers[1].append(NUMBER, [Record(b"v", b"%d" % (number % 4)) for number in range(10)])
        for topic_id, name, consumer_id in ((1, "a", 7), (2, "2024", 8)):
            execute(cluster.urls[2], "INSERT INTO topic (topic_id, name, replication_factor, config, created_at) VALUES (%s, %s, 1, '{}', 0)",
                    topic_id, name)
            execute(cluster.urls[2], "INSERT INTO consumer (consumer_id, topic_id, start, created_at) VALUES (%s, %s, 'earliest', 0)",
                    consumer_id, topic_id)
        yield cluster


@pytest.fixture
def filled(logs: FilledCluster) -> Iterator[FilledCluster]:
    """The same, and the same again after the test."""
    answers = logs.server.answers
    logs.server.answers = dict(NOBODY)
    with restored(logs.urls[0], ("log_segment_1",)):
        yield logs
    logs.server.answers = answers


def report(spark: SparkSession, cluster: FilledCluster, out: Path, *, top: int = 10, window: Window | None = None,
           topics: tuple[str, ...] = ()) -> Report:
    out.mkdir(exist_ok=True)
    settings = PipelineSettings(out=str(out), bootstrap=cluster.server.address, topics=topics)
    return report_cluster(spark, cluster.view(), settings, top=top, window=window or Window())


def rows(out: Path, name: str) -> list[dict[str, Any]]:
    [file] = (out / name).glob("*.parquet")
    return pyarrow.parquet.read_table(file).to_pylist()


def utc(time_us: int) -> datetime:
    return datetime.fromtimestamp(time_us / 1_000_000, UTC)


def columns(row: dict[str, Any], *names: str) -> tuple:
    return tuple(row[name] for name in names)


@pytest.fixture(scope="module")
def whole(spark: SparkSession, logs: FilledCluster) -> Iterator[tuple[Path, Report]]:
    """A report of everything, with a group and a consumer, and its folder."""
    logs.server.answers = {
        "/v1/groups": {"groups": [{"group": "g.1"}]}, "/v1/health": {"consumers": [{"consumer_id": 7, "age_seconds": 3.0}]},
        "/v1/groups/g.1/offsets": {"offsets": [{"topic": "a", "partition": 0, "offset": 4}, {"topic": "2024", "partition": 0, "offset": 99}]},
        "/v1/topics/a/lag": {"topic": "a", "partitions": [{"partition": 0, "offset": None}, {"partition": 1, "offset": 1}]}}
    with open_folder() as folder:
        yield folder, report(spark, logs, folder, top=3)


def test_traffic_is_counted_by_partition_and_hour_of_the_append_time(whole: tuple[Path, Report]) -> None:
    """Exactly, whatever times the clients gave; nothing that is not committed."""
    folder, made = whole
    names = ("topic", "partition", "hour", "messages", "without_key", "key_bytes", "value_bytes", "largest_bytes", "first_offset", "last_offset")
    assert [("2024", 0, utc(FIRST_HOUR), 10, 0, 10, 10, 2, 0, 9), ("a", 0, utc(FIRST_HOUR), 10, 3, 20, 27, 7, 0, 9),
            ("a", 0, utc(FIRST_HOUR + 2 * HOUR), 3, 0, 2, 1006, 1002, 10, 12), ("a", 1, utc(FIRST_HOUR), 1, 0, 2, 7, 9, 0, 0)] == [
                columns(row, *names) for row in rows(folder, "traffic")]
    assert utc(FIRST_TIME) < rows(folder, "traffic")[1]["first_at"] <= rows(folder, "traffic")[1]["last_at"] < utc(FIRST_TIME + 1000)
    assert [("2024", 1, 10, 20, 0), ("a", 2, 14, 1064, 3), ("none", 1, 0, 0, 0)] == [
        (one.topic, one.partitions, one.messages, one.bytes, one.without_key) for one in made.traffic.topics]
    assert (0, 1, [(0, "2024", 10, 20), (0, "a", 11, 56), (2, "a", 3, 1008)]) == (
        made.exit_code, made.traffic.period_hours,
        [(one.number - FIRST_HOUR // HOUR, one.topic, one.messages, one.bytes) for one in made.traffic.periods])
    body = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    assert ("complete", 24, 1084, 4) == (body["result"], body["messages"], body["bytes"], len(body["cut"]["partitions"]))


def test_the_keys_that_occur_most_are_found(whole: tuple[Path, Report]) -> None:
    """Over partitions and hours, the empty key among them and no key not; any bytes, whole; of equally frequent ones those with more bytes first."""
    folder, _ = whole
    names = ("topic", "place", "key", "messages", "bytes")
    assert [("2024", 1, b"0", 3, 6), ("2024", 2, b"1", 3, 6), ("2024", 3, b"2", 2, 4), ("a", 1, b"k1", 6, 44), ("a", 2, BINARY, 2, 12),
            ("a", 3, b"", 2, 6)] == [columns(row, *names) for row in rows(folder, "top_keys")]
    page = (folder / "report.html").read_text(encoding="utf-8")
    check_page(page)
    assert "hex 00 ff 3c 62 3e" in page and "42.9 %" in page


def test_lag_is_what_the_managers_say_up_to_the_cut(whole: tuple[Path, Report]) -> None:
    """Groups, and the consumers that were heard of, each in the topic that it is registered for."""
    folder, _ = whole
    assert [("consumer", "7", "a", 0, None, 13, 13), ("consumer", "7", "a", 1, 1, 1, 0), ("group", "g.1", "2024", 0, 99, 10, 0),
            ("group", "g.1", "a", 0, 4, 13, 9)] == [tuple(row.values()) for row in rows(folder, "lag")]


def test_who_does_not_answer_leaves_the_report_incomplete(spark: SparkSession, filled: FilledCluster, tmp_path: Path) -> None:
    """It is written all the same, and says so."""
    del filled.server.answers["/v1/groups"]
    assert 2 == report(spark, filled, tmp_path, topics=("none",)).exit_code
    assert [{"what": "groups", "why": "no such path"}] == json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))["not_asked"]


def test_a_window_of_times_is_counted_exactly(spark: SparkSession, filled: FilledCluster, tmp_path: Path) -> None:
    """What was appended in it, against the offsets that the logs have for its ends; also a window of nothing."""
    late = report(spark, filled, tmp_path / "late", window=Window(FIRST_HOUR + HOUR, FIRST_HOUR + 3 * HOUR))
    assert (0, 3, 1008, 24) == (late.exit_code, late.messages, late.bytes, late.cut.messages())
    assert ["", "k2"] == [row["key"].decode() for row in rows(tmp_path / "late", "top_keys")]
    nothing = report(spark, filled, tmp_path / "nothing", window=Window(None, FIRST_HOUR))
    assert (0, 0, 3) == (nothing.exit_code, nothing.messages, len(nothing.traffic.topics))
    assert ([], [], ["kind", "name", "topic", "partition", "offset", "end_offset", "lag"]) == (
        rows(tmp_path / "nothing", "traffic"), rows(tmp_path / "nothing", "top_keys"),
        pyarrow.parquet.read_table(tmp_path / "nothing" / "lag").column_names)


def test_a_cluster_without_topics_has_a_report(spark: SparkSession, cluster: FilledCluster, tmp_path: Path) -> None:
    made = report(spark, cluster, tmp_path)
    assert (0, 0, ()) == (made.exit_code, made.messages, made.traffic.topics)
    assert "There are no topics." in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_messages_that_are_missing_are_named(spark: SparkSession, filled: FilledCluster, tmp_path: Path) -> None:
    """The rest is reported; the exit code is 1."""
    assert 1 == execute(filled.urls[0], "DELETE FROM log_segment_1 WHERE partition = 1 AND kind = 1")
    made = report(spark, filled, tmp_path)
    assert (1, ("a/1: nothing is there of 1 messages",), 23) == (made.exit_code, made.traffic.differences, made.messages)


def test_no_report_is_written_over_another(spark: SparkSession, filled: FilledCluster, tmp_path: Path) -> None:
    """And what one that was cut off has left in the staging does no harm."""
    (tmp_path / "report-staging" / "traffic").mkdir(parents=True)
    report(spark, filled, tmp_path, topics=("none",))
    assert {"report.html", "report.json", "traffic", "top_keys", "lag", ".lock"} == {path.name for path in tmp_path.iterdir()}
    with pytest.raises(BadRequestError, match=r"report\.json is there already"):
        report(spark, filled, tmp_path)


@pytest.mark.long
def test_one_command_reports(filled: FilledCluster, tmp_path: Path) -> None:
    """Quiet but for the table, whose last line says the result; a second one into the same folder is refused."""
    command = ("report", "--bootstrap", filled.server.address, "--out", str(tmp_path / "out"), "--top", "2", "--since", "2023-11-14")
    done = run_spark_submit(*command)
    assert (0, "") == (done.returncode, done.stderr), done.stdout
    assert done.stdout.strip().split("\n")[-1].startswith("report complete: 24 messages of 3 topics, 1.1 kB, ")
    again = run_spark_submit(*command)
    assert (3, True) == (again.returncode, "report.json is there already" in again.stdout + again.stderr)


@pytest.mark.parametrize("arguments", [["--top", "0"], ["--top", "x"], ["--since", "yesterday"], ["--until", "2026-13-01"],
                                       ["--since", "2026-01-02", "--until", "2026-01-01"], ["--topics", "nowhere"]])
def test_a_wrong_argument_is_told_before_spark_starts(cluster: FilledCluster, tmp_path: Path, arguments: list[str],
                                                      capsys: pytest.CaptureFixture) -> None:
    """In a sentence, with exit code 3."""
    from pipeline.jobs.report import main

    with pytest.raises(SystemExit) as ended:
        raise SystemExit(main(["--bootstrap", cluster.server.address, "--out", str(tmp_path / "out"), *arguments]))
    assert (3, 1) == (ended.value.code, capsys.readouterr().err.count("\n"))
