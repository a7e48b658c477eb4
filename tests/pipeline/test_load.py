"""The load on Spark's executors."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from myqueue.protocol.partitioner import partition_for
from myqueue.testing import InMemoryTransport
from pipeline.cluster import fetch_cluster
from pipeline.jobs.load import plan_of
from pipeline.load.data_source import execute_in_spark
from pipeline.load.run import load
from pipeline.settings import PipelineSettings
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
                       [str(tmp_path / name) for name in ("one.ndjson", "two.ndjson")], "user")
        told: list[int] = []
        for _ in range(2):
            load(plan, tmp_path, lambda plan, splits: execute_in_spark(spark, plan, splits), wave=2,
                 tell=lambda progress: told.append(progress.messages))
            (tmp_path / "load.json").unlink()
    assert [0, 500, 0, 500] == told
    found = [(message.partition, message.key, message.value) for partition in range(3) for message in memory.messages("to", partition)]
    keys = [b"u%d" % (number % 7) for number in range(500)]
    assert sorted((partition_for(key, 3), key, line) for key, line in zip(keys, lines, strict=True)) == sorted(found)
