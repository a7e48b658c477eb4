"""The export, and the command that people type."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.dataset
import pytest
from pyspark.sql import SparkSession

from myqueue.protocol.types import PartitionId, Record
from pipeline.databases import Limits
from pipeline.export import write
from pipeline.export.folder import read_manifest, write_manifest
from pipeline.export.write import export_more
from pipeline.jobs.export import export_at
from pipeline.settings import PipelineSettings
from pipeline.source.cut_reader import cut_reader
from pipeline.source.planner import take_cut
from tests.pipeline.conftest import ROOT, FilledCluster
from tests.support.log_filler import FIRST_TIME, execute
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(240)  # the first test of the run also starts Spark, on a machine that may be busy
RECORDS = [Record(bytes([number % 256, 0, 255]) * (number % 7), b"k" if number % 2 else None, (("h", None),) if number % 3 == 0 else (),
                  1_600_000_000_000_001 + number if number >= 390 else None) for number in range(400)]
PARTITIONING = pyarrow.dataset.partitioning(pyarrow.schema([("topic", pyarrow.string()), ("date", pyarrow.string())]), flavor="hive")
DAY = datetime.fromtimestamp(FIRST_TIME / 1_000_000, UTC).date()
HOUR_MS = 3_600_000


@pytest.fixture
def filled(cluster: FilledCluster) -> FilledCluster:
    """A topic of two partitions, one whose name looks like a number, and an empty one."""
    cluster.create_topic("a", topic_id=1, partitions=2)
    cluster.create_topic("2024", topic_id=2, broker=1)
    cluster.create_topic("none", topic_id=3)
    cluster.fillers[0].append(PartitionId(1, 0), RECORDS)
    cluster.fillers[0].append(PartitionId(1, 1), [Record(b"other")])
    cluster.fillers[1].append(PartitionId(2, 0), [Record(b"number")] * 7)
    return cluster


def _export(spark: SparkSession, cluster: FilledCluster, out: Path, **options: bool) -> int:
    cut = take_cut(cluster.view(), cluster.view().partitions, Limits())
    return export_at(spark, PipelineSettings(out=str(out), bootstrap=cluster.server.address), cut, **{"fail_on_data_loss": True, **options})


def test_the_parquet_equals_the_topics_byte_for_byte(spark: SparkSession, filled: FilledCluster, tmp_path: Path) -> None:
    """Read back by another reader: every column, times in microseconds, zstd, topics as text."""
    assert 0 == _export(spark, filled, tmp_path)
    dataset = pyarrow.dataset.dataset(tmp_path / "messages", format="parquet", partitioning=PARTITIONING)
    rows = sorted(dataset.to_table().to_pylist(), key=lambda row: (row["topic"], row["partition"], row["offset"]))
    assert [("2024", 0, offset) for offset in range(7)] == [(row["topic"], row["partition"], row["offset"]) for row in rows[:7]]
    found = [(row["offset"], row["key"], row["value"], row["headers"] and [tuple(header.values()) for header in row["headers"]])
             for row in rows[7:-1]]
    assert [(offset, record.key, record.value, list(record.headers) or None) for offset, record in enumerate(RECORDS)] == found
    appended = micros(row["appendTime"] for row in rows)
    assert {str(DAY)} == {row["date"] for row in rows} and all(FIRST_TIME <= time <= FIRST_TIME + 10 for time in appended)
    assert [record.timestamp_us for record in RECORDS[388:]] == [time if row["timestampType"] == 0 else None for row, time in zip(
        rows[395:407], micros(row["timestamp"] for row in rows[395:407]), strict=True)]
    assert appended[7:397] == micros(row["timestamp"] for row in rows[7:397])
    chunk = next(dataset.get_fragments()).metadata
    assert ["timestamp[us, tz=UTC]"] * 2 == [str(dataset.schema.field(name).type) for name in ("timestamp", "appendTime")]
    assert "ZSTD" == chunk.row_group(0).column(0).compression
    assert 408 == json.loads((tmp_path / "export.json").read_text(encoding="utf-8"))["messages"]


def micros(times: Iterable[datetime]) -> list[int]:
    return [(time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) for time in times]


def files_in(folder: Path) -> list[str]:
    """The folders of the files, one name a file."""
    return sorted(str(path.parent.relative_to(folder)) for path in folder.rglob("*.parquet"))


def test_a_date_has_files_of_about_the_size_that_was_asked_for(spark: SparkSession, cluster: FilledCluster, tmp_path: Path,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten small partitions give one file a date, a large one several, of bounded row groups; of a date each, every message once and in order."""
    monkeypatch.setattr(write, "ROW_GROUP_BYTES", 1 << 16)
    cluster.create_topic("small", topic_id=1, partitions=10)
    cluster.create_topic("large", topic_id=2, broker=1)
    small, large = (cluster.fillers[number] for number in (0, 1))
    noise = random.Random(4)
    for _ in range(2):
        for partition in range(10):
            small.append(PartitionId(1, partition), [Record(b"%d" % number) for number in range(20)])
            small.pass_time(PartitionId(1, partition), 24 * HOUR_MS)
    large.append(PartitionId(2, 0), [Record(noise.randbytes(1 << 10)) for _ in range(1500)])
    settings = PipelineSettings(out=str(tmp_path), bootstrap=cluster.server.address, file_bytes=1 << 18)
    cut = take_cut(cluster.view(), cluster.view().partitions, Limits())
    assert 0 == export_at(spark, settings, cut, fail_on_data_loss=True)
    dates = [f"topic=small/date={DAY + timedelta(days=days)}" for days in (0, 1)]
    files = files_in(tmp_path / "messages")
    assert dates == [name for name in files if "small" in name]
    sizes = [path.stat().st_size for path in (tmp_path / "messages" / "topic=large").rglob("*.parquet")]
    assert 7 <= len(sizes) <= 9 and max(sizes) < 1.2 * (1 << 18)
    assert all(fragment.num_row_groups > 2 for fragment in pyarrow.dataset.dataset(
        tmp_path / "messages" / "topic=large", format="parquet").get_fragments() if fragment.count_rows() > 175)
    of_large = pyarrow.dataset.dataset(sorted(map(str, (tmp_path / "messages" / "topic=large").rglob("*.parquet"))), format="parquet")
    assert list(range(1500)) == of_large.to_table(columns=["offset"])["offset"].to_pylist()  # in the order of the files' names


def test_tasks_can_be_asked_for_all_the_same(spark: SparkSession, filled: FilledCluster) -> None:
    """min-partitions counts for an export too."""
    tasks = [cut_reader(spark, PipelineSettings(out="", bootstrap=filled.server.address, min_partitions=least),
                        take_cut(filled.view(), filled.view().partitions, Limits()), fail_on_data_loss=True).option("fileBytes", str(1 << 20))
             .load().rdd.getNumPartitions() for least in (1, 4)]
    assert [2, 4] == tasks


def test_an_incremental_export_over_midnight_has_both_dates(spark: SparkSession, cluster: FilledCluster, tmp_path: Path) -> None:
    """What one run adds lies under the dates of its append times, also under one that is there already; the clients' times do not count."""
    cluster.create_topic("a", topic_id=1)
    a, filler = PartitionId(1, 0), cluster.fillers[0]
    settings = PipelineSettings(out=str(tmp_path), bootstrap=cluster.server.address)
    added = []
    for passed in ((0,), (1, 1), (24,)):  # hours; the first is 22:13
        for hours in passed:
            filler.pass_time(a, hours * HOUR_MS)
            filler.append(a, [Record(b"x", timestamp_us=5)] * 10)
        added.append(export_more(spark, cluster.view(), settings).messages)
    manifest = read_manifest(tmp_path)
    rows = pyarrow.dataset.dataset([str(tmp_path / name) for name in manifest.files], format="parquet", partitioning=PARTITIONING,
                                   partition_base_dir=str(tmp_path / "messages")).to_table().to_pylist()
    assert ([10, 20, 10], list(range(40))) == (added, sorted(row["offset"] for row in rows))
    assert all(str(row["appendTime"].date()) == row["date"] for row in rows)
    assert [f"topic=a/date={DAY + timedelta(days=days)}" for days in (0, 0, 1, 2)] == files_in(tmp_path / "messages")


def test_an_incremental_export_adds_each_message_once(spark: SparkSession, filled: FilledCluster, tmp_path: Path) -> None:
    """Run, cut off before its manifest, run again, run with nothing new: the files that the manifest names hold the topic once."""
    settings = PipelineSettings(out=str(tmp_path), bootstrap=filled.server.address, topics=("a",))
    assert 401 == export_more(spark, filled.view(), settings).messages
    first = read_manifest(tmp_path)
    filled.fillers[0].append(PartitionId(1, 0), [Record(b"later %d" % number) for number in range(9)])
    assert 9 == export_more(spark, filled.view(), settings).messages
    write_manifest(tmp_path, first)  # as if the power had gone between the files and the manifest
    assert [9, 0] == [export_more(spark, filled.view(), settings).messages for _ in range(2)]
    manifest = read_manifest(tmp_path)
    rows = pyarrow.dataset.dataset([str(tmp_path / name) for name in manifest.files], format="parquet").to_table().to_pylist()
    assert [(0, offset) for offset in range(409)] + [(1, 0)] == sorted((row["partition"], row["offset"]) for row in rows)
    assert {str(tmp_path / name) for name in manifest.files} == {str(path) for path in (tmp_path / "messages").rglob("*.parquet")}


def test_an_export_that_misses_messages_says_so(spark: SparkSession, filled: FilledCluster, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """What can be read is written, the difference is named, the exit code is 1."""
    assert 1 == execute(filled.urls[0], "DELETE FROM log_entry WHERE topic_id = 1 AND partition = 1 AND kind = 1")
    assert 1 == _export(spark, filled, tmp_path, fail_on_data_loss=False)
    assert "DIFFERS a/1: nothing is there of 1 messages" in capsys.readouterr().out


def environment_of_a_user() -> dict[str, str]:
    """This process's environment without what the tests' own Spark has set."""
    own = ("JAVA_HOME", "SPARK_LOCAL_IP", "PYSPARK_PYTHON", "PYTHONPATH")
    return {**{name: value for name, value in os.environ.items() if name not in own}, "PYTHON": sys.executable}


def run_spark_submit(*arguments: str, timeout_seconds: float = 200) -> subprocess.CompletedProcess:
    return subprocess.run([ROOT / "scripts" / "spark-submit", *arguments], capture_output=True, text=True, timeout=timeout_seconds,
                          env=environment_of_a_user(), cwd="/")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_an_incremental_export_that_is_killed_has_each_message_once(filled: FilledCluster, tmp_path: Path) -> None:
    """kill -9 while it plans, while it writes, when all is staged, when a file is moved in, when the manifest is there; then two whole runs."""
    command = [ROOT / "scripts" / "spark-submit", "export", "--incremental", "--bootstrap", filled.server.address, "--out", str(tmp_path)]
    manifest = tmp_path / "manifest.json"
    points: list[tuple[str, Callable[[], object]]] = [
        ("the lock", (tmp_path / ".lock").exists),
        ("a file that is written", lambda: any((tmp_path / "staging").rglob("*.parquet"))),
        ("all staged", (tmp_path / "staging" / "_SUCCESS").exists),
        ("a file moved in", lambda: any((tmp_path / "messages").rglob("*.parquet"))),
        ("the manifest", manifest.exists)]
    for number, (what, reached) in enumerate(points):
        filled.fillers[0].pass_time(PartitionId(1, 0), HOUR_MS)
        filled.fillers[0].append(PartitionId(1, 0), [Record(b"%d" % number)] * 30)
        with (tmp_path / "said").open("w+", encoding="utf-8") as said:
            process = subprocess.Popen(command, stdout=said, stderr=said, env=environment_of_a_user(), cwd="/", start_new_session=True)
            try:
                wait_until(lambda reached=reached, process=process: reached() or process.poll() is not None, timeout_seconds=120, what=what,
                           interval_seconds=0.001)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)
            said.seek(0)
            assert -signal.SIGKILL == process.returncode, (what, said.read())
    for _ in range(2):
        done = run_spark_submit(*map(str, command[1:]))
        assert 0 == done.returncode, done.stdout + done.stderr
    named = read_manifest(tmp_path).files
    rows = pyarrow.dataset.dataset([str(tmp_path / name) for name in named], format="parquet", partitioning=PARTITIONING,
                                   partition_base_dir=str(tmp_path / "messages")).to_table(columns=["topic", "partition", "offset"]).to_pylist()
    places = [("2024", 0, offset) for offset in range(7)] + [("a", 0, offset) for offset in range(550)] + [("a", 1, 0)]
    assert places == sorted((row["topic"], row["partition"], row["offset"]) for row in rows)
    assert {str(tmp_path / name) for name in named} == {str(path) for path in tmp_path.rglob("*.parquet")}


@pytest.mark.long  # the demo's test runs the same command
def test_one_command_audits_and_exports(filled: FilledCluster, tmp_path: Path) -> None:
    """From any folder, into one with a space, with the password from the data folder; quiet but for the result, which is the last line."""
    secrets = tmp_path / "data folder" / "secrets"
    secrets.mkdir(parents=True)
    (secrets / "pgpass").write_text(Path(os.environ["PGPASSFILE"]).read_text(encoding="utf-8"), encoding="utf-8")
    (secrets / "pgpass").chmod(0o600)
    out = tmp_path / "out folder"
    environment_file = os.environ.pop("PGPASSFILE")
    try:
        done = run_spark_submit("export", "--audit", "--bootstrap", filled.server.address, "--out", str(out), "--data", str(tmp_path / "data folder"))
    finally:
        os.environ["PGPASSFILE"] = environment_file
    lines = done.stdout.strip().split("\n")
    assert (0, "") == (done.returncode, done.stderr), done.stdout
    assert any(line.startswith("audit clean: 408 messages in 4 partitions") for line in lines)
    assert lines[-1].startswith("export complete: exported 408 messages of 3 topics")
    assert "clean" == json.loads((out / "audit.json").read_text(encoding="utf-8"))["result"]


@pytest.mark.parametrize(("arguments", "code", "said"), [
    (["--help"], 0, "usage: scripts/spark-submit JOB"), ([], 3, "usage: scripts/spark-submit JOB"),
    (["dance"], 3, "there is no job dance"), (["audit", "--data"], 3, "--data needs a value"),
    (["audit", "--conf"], 3, "--conf needs a value"), (["zip"], 3, "usage: spark-submit zip FILE")])
def test_usage_is_answered_without_java(arguments: list[str], code: int, said: str) -> None:
    """At once, with the exit code that says so."""
    done = run_spark_submit(*arguments, timeout_seconds=20)
    assert code == done.returncode
    assert said in done.stdout + done.stderr
