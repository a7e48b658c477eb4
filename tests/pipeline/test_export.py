"""The export, and the command that people type."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset
import pytest
from pyspark.sql import SparkSession

from myqueue.protocol.types import PartitionId, Record
from pipeline.databases import Limits
from pipeline.export.folder import read_manifest, write_manifest
from pipeline.export.write import export_more
from pipeline.jobs.export import export_at
from pipeline.settings import PipelineSettings
from pipeline.source.planner import take_cut
from tests.pipeline.conftest import ROOT, FilledCluster
from tests.support.log_filler import execute

pytestmark = pytest.mark.timeout(240)  # the first test of the run also starts Spark, on a machine that may be busy
RECORDS = [Record(bytes([number % 256, 0, 255]) * (number % 7), b"k" if number % 2 else None, (("h", None),) if number % 3 == 0 else ())
           for number in range(400)]


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
    partitioning = pyarrow.dataset.partitioning(pyarrow.schema([("topic", pyarrow.string())]), flavor="hive")
    dataset = pyarrow.dataset.dataset(tmp_path / "messages", format="parquet", partitioning=partitioning)
    rows = sorted(dataset.to_table().to_pylist(), key=lambda row: (row["topic"], row["partition"], row["offset"]))
    assert [("2024", 0, offset) for offset in range(7)] == [(row["topic"], row["partition"], row["offset"]) for row in rows[:7]]
    found = [(row["offset"], row["key"], row["value"], row["headers"] and [tuple(header.values()) for header in row["headers"]])
             for row in rows[7:-1]]
    assert [(offset, record.key, record.value, list(record.headers) or None) for offset, record in enumerate(RECORDS)] == found
    chunk = next(dataset.get_fragments()).metadata
    assert "timestamp[us, tz=UTC]" == str(dataset.schema.field("timestamp").type)
    assert "ZSTD" == chunk.row_group(0).column(0).compression
    assert 408 == json.loads((tmp_path / "export.json").read_text(encoding="utf-8"))["messages"]


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


def run_spark_submit(*arguments: str, timeout_seconds: float = 200) -> subprocess.CompletedProcess:
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_LOCAL_IP", "PYSPARK_PYTHON", "PYTHONPATH")}
    return subprocess.run([ROOT / "scripts" / "spark-submit", *arguments], capture_output=True, text=True, timeout=timeout_seconds,
                          env={**environment, "PYTHON": sys.executable}, cwd="/")


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
    (["dance"], 3, "there is no job dance"), (["audit", "--data"], 3, "--data needs a value")])
def test_usage_is_answered_without_java(arguments: list[str], code: int, said: str) -> None:
    """At once, with the exit code that says so."""
    done = run_spark_submit(*arguments, timeout_seconds=20)
    assert code == done.returncode
    assert said in done.stdout + done.stderr
