"""The load on Spark's executors."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from myqueue.protocol.partitioner import partition_for
from myqueue.protocol.types import PartitionId, Record
from myqueue.testing import InMemoryTransport
from pipeline.cluster import fetch_cluster
from pipeline.databases import Limits
from pipeline.jobs.export import export_at
from pipeline.jobs.load import plan_of
from pipeline.load.data_source import execute_in_spark
from pipeline.load.fields import ROW, Fields
from pipeline.load.run import load
from pipeline.settings import PipelineSettings
from pipeline.source.planner import take_cut
from tests.pipeline.conftest import FilledCluster
from tests.support.served_memory import served

pytestmark = pytest.mark.timeout(240)  # the first test of the run also starts Spark, on a machine that may be busy


def test_files_are_loaded_by_tasks_and_not_again(spark: SparkSession, tmp_path: Path) -> None:
    """Two files, keys from a field; the second run has nothing to do, and without its notes it adds nothing."""
    lines = [b'{"user": "u%d", "n": %d}' % (number % 7, number) for number in range(500)]
    (tmp_path / "one.ndjson").write_bytes(b"\n".join(lines[:300]))
    (tmp_path / "two.ndjson").write_bytes(b"\n".join(lines[300:]) + b"\n")
    memory = InMemoryTransport()
    memory.create_topic("to", 3)
    with served(memory) as address:
        plan = plan_of(PipelineSettings(out=str(tmp_path), bootstrap=address, topics=("to",)), fetch_cluster(address),
                       [str(tmp_path / name) for name in ("one.ndjson", "two.ndjson")], Fields("user"))
        told: list[int] = []
        for _ in range(2):
            load(plan, tmp_path, lambda plan, splits: execute_in_spark(spark, plan, splits), wave=2,
                 tell=lambda progress: told.append(progress.messages))
            (tmp_path / "load.json").unlink()
    assert [0, 500, 0, 500] == told
    found = [(message.partition, message.key, message.value) for partition in range(3) for message in memory.messages("to", partition)]
    keys = [b"u%d" % (number % 7) for number in range(500)]
    assert sorted((partition_for(key, 3), key, line) for key, line in zip(keys, lines, strict=True)) == sorted(found)


def test_an_exported_topic_is_loaded_into_another_and_is_equal(spark: SparkSession, cluster: FilledCluster, tmp_path: Path) -> None:
    """Partition by partition, offset by offset, byte for byte, over two dates and several files; of the times the clients' own."""
    cluster.create_topic("from", topic_id=1, partitions=2)
    sent: list[list[Record]] = [[], []]
    for part in range(4):
        for partition in (0, 1):
            records = [Record(b"\xff%d" % number, b"k%d" % number if number % 3 else None, (("h", b"x"), ("h", None)) if number % 5 == 0 else (),
                              1_600_000_000_000_000 + number if number % 7 == 0 else None) for number in range(part * 1000, part * 1000 + 1000)]
            cluster.fillers[0].append(PartitionId(1, partition), records)
            cluster.fillers[0].pass_time(PartitionId(1, partition), 3_600_000)
            sent[partition] += records
    settings = PipelineSettings(out=str(tmp_path), bootstrap=cluster.server.address, min_partitions=5)
    assert 0 == export_at(spark, settings, take_cut(cluster.view(), cluster.view().partitions, Limits()), fail_on_data_loss=True)
    memory = InMemoryTransport()
    memory.create_topic("to", 2)
    with served(memory) as address:
        plan = plan_of(PipelineSettings(out=str(tmp_path), bootstrap=address, topics=("to",)), fetch_cluster(address),
                       [str(tmp_path / "messages" / "topic=from")], ROW)
        assert 5 <= len(plan.splits)
        for _ in range(2):
            done = load(plan, tmp_path, lambda plan, splits: execute_in_spark(spark, plan, splits), wave=1, tell=lambda progress: None)
            assert 8000 == done.messages
            (tmp_path / "load.json").unlink()
    for partition in (0, 1):
        found = memory.messages("to", partition)
        assert [(record.value, record.key, record.headers) for record in sent[partition]] == [(one.value, one.key, one.headers) for one in found]
        times = [(record.timestamp_us, message.timestamp) for record, message in zip(sent[partition], found, strict=True) if record.timestamp_us]
        assert 572 == len(times) and all(expected == found for expected, found in times)
