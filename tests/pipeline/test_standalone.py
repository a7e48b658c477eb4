"""The jobs on a Spark cluster of several processes, whose executors have this project's code from a zip only; and the source as pip installs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.dataset
import pytest

from myqueue.protocol.types import PartitionId, Record
from myqueue.testing import InMemoryTransport
from tests.pipeline.conftest import ROOT, FilledCluster, cluster_of
from tests.support.postgres import PostgresForTests
from tests.support.served_memory import served
from tests.support.spark_cluster import environment_of_spark, spark_cluster, spark_home

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
SMALL = ("--conf", "spark.executor.memory=512m", "--conf", "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
OWN_JOB = """
import sys
from pyspark.sql import SparkSession
from pipeline import register

address, folder = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
register(spark)
options = {"myqueue.bootstrap.servers": address, "subscribe": "a", "startingOffsets": "earliest"}
messages = spark.read.format("myqueue").options(**options).option("minPartitions", "4").load()
print("read", messages.where("length(value) > 0").count())

def where(rows):
    import myqueue
    yield len(list(rows)), myqueue.__file__

from_zip = {".zip" in path for _, path in messages.select("offset").rdd.mapPartitions(where).collect()}
print("code from the zip", from_zip)
query = (spark.readStream.format("myqueue").options(**options).load().select("partition", "offset").writeStream.format("parquet")
         .option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True).start(folder + "/rows"))
query.awaitTermination()
print("streamed", spark.read.parquet(folder + "/rows").count())
"""


@dataclass(frozen=True)
class Standalone:
    """A Spark cluster and a cluster of ours to read."""

    master: str
    folder: Path
    cluster: FilledCluster
    java_home: str


@pytest.fixture(scope="module")
def standalone(postgres: PostgresForTests, reader: str, java_home: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """Topic ``a``: 900 messages in three partitions, on one broker; ``b``: 100 on the other."""
    folder = tmp_path_factory.mktemp("spark")
    with cluster_of(postgres, reader) as cluster, spark_cluster(java_home, folder) as master:
        cluster.create_topic("a", topic_id=1, partitions=3)
        cluster.create_topic("b", topic_id=2, broker=1)
        for partition in range(3):
            cluster.fillers[0].append(PartitionId(1, partition), [Record(b"%d" % number, b"k") for number in range(300)])
        cluster.fillers[1].append(PartitionId(2, 0), [Record(b"%d" % number) for number in range(100)])
        yield Standalone(master, folder, cluster, java_home)


def run_job(standalone: Standalone, job: str, *arguments: str, bootstrap: str = "") -> str:
    """A job by the command that people type; what it printed."""
    own = ("JAVA_HOME", "SPARK_LOCAL_IP", "PYSPARK_PYTHON", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if name not in own}
    done = subprocess.run([ROOT / "scripts" / "spark-submit", job, "--master", standalone.master, *SMALL,
                           "--bootstrap", bootstrap or standalone.cluster.server.address, *arguments],
                          capture_output=True, text=True, timeout=400, env=environment, cwd="/")
    assert (0, "") == (done.returncode, done.stderr), done.stdout
    return done.stdout


def test_the_audit_runs_on_a_cluster(standalone: Standalone, tmp_path: Path) -> None:
    """It checks everything, on both workers."""
    assert "audit clean: 1000 messages in 4 partitions" in run_job(standalone, "audit", "--out", str(tmp_path), "--range-bytes", "1048576")
    assert "clean" == json.loads((tmp_path / "audit.json").read_text(encoding="utf-8"))["result"]
    assert [True, True] == [any((standalone.folder / f"worker-{number}").glob("app-*")) for number in (0, 1)]


def test_the_export_and_the_load_run_on_a_cluster(standalone: Standalone, tmp_path: Path) -> None:
    """Whole and incremental; the files hold every message, and a load brings them into another topic."""
    assert "exported 1000 messages of 2 topics" in run_job(standalone, "export", "--out", str(tmp_path / "whole"))
    assert "900 messages added" in run_job(standalone, "export", "--incremental", "--topics", "a", "--out", str(tmp_path / "more"))
    for folder, expected in (("whole", 1000), ("more", 900)):
        assert expected == pyarrow.dataset.dataset(tmp_path / folder / "messages", format="parquet", partitioning="hive").count_rows()
    memory = InMemoryTransport()
    memory.create_topic("to", 3)
    with served(memory) as address:
        said = run_job(standalone, "load", "--topics", "to", "--out", str(tmp_path), str(tmp_path / "more"), bootstrap=address)
    assert "load complete: 900 messages of" in said
    values = sorted(b"%d" % number for number in range(300))
    assert [values] * 3 == [sorted(message.value for message in memory.messages("to", partition)) for partition in range(3)]


def test_a_job_of_one_s_own_has_the_code_from_a_zip(standalone: Standalone, tmp_path: Path) -> None:
    """By Spark's own command, from a folder that knows nothing of this project: batch, stream, and code in the executors."""
    archive, job = tmp_path / "code.zip", tmp_path / "job.py"
    subprocess.run([ROOT / "scripts" / "spark-submit", "zip", archive], check=True, timeout=60, stdout=subprocess.DEVNULL)
    job.write_text(OWN_JOB, encoding="utf-8")
    (tmp_path / "out").mkdir()
    environment = environment_of_spark(standalone.java_home, PYSPARK_PYTHON=sys.executable, PGPASSFILE=os.environ["PGPASSFILE"])
    done = subprocess.run([spark_home() / "bin" / "spark-submit", "--master", standalone.master, "--py-files", archive, *SMALL,
                           "--conf", f"spark.executorEnv.PGPASSFILE={os.environ['PGPASSFILE']}", "--conf", "spark.driver.host=127.0.0.1",
                           job, standalone.cluster.server.address, tmp_path / "out"],
                          capture_output=True, text=True, timeout=400, env=environment, cwd=tmp_path)
    assert 0 == done.returncode, done.stderr[-3000:]
    assert ["read 900", "code from the zip {True}", "streamed 900"] == done.stdout.strip().split("\n")


def test_the_source_works_from_a_pip_install(standalone: Standalone, tmp_path: Path) -> None:
    """Installed into a fresh folder, and read from by a Python that knows nothing but that folder and the packages that are needed."""
    tree = tmp_path / "tree"
    for name in ("myqueue", "db", "broker", "manager", "load_balancer", "pipeline"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tree / name)
    done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-input", "--no-deps",
                           "--target", tmp_path / "site", tree], capture_output=True, text=True, timeout=300)
    if "setuptools" in done.stderr and not os.environ.get("CI"):
        pytest.skip("pip cannot fetch what it builds with")
    assert 0 == done.returncode, done.stderr
    program = """
import pipeline, sys
from pipeline.source.data_source import MyQueueDataSource
source = MyQueueDataSource({"myqueue.bootstrap.servers": sys.argv[1], "subscribe": "a"})
reader = source.reader(source.schema())
print(pipeline.__file__, sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part)))
"""
    packages = os.pathsep.join([str(tmp_path / "site"), *(path for path in sys.path if path.endswith("site-packages"))])
    done = subprocess.run([sys.executable, "-c", program, standalone.cluster.server.address], capture_output=True, text=True, timeout=100,
                          env={**os.environ, "PYTHONPATH": packages}, cwd=tmp_path)
    assert (f"{tmp_path / 'site' / 'pipeline' / '__init__.py'} 900\n", "") == (done.stdout, done.stderr)
