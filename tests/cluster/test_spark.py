"""Spark on a cluster of real processes that is under load and loses some of them. In the long form only: Spark's start alone takes seconds."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pyarrow.parquet
import pytest

from myqueue import AdminClient, MyConsumer, MyProducer
from myqueue.supervisor import Cluster, ClusterSpec
from tests.support import jdbc
from tests.support.clusters import running_cluster
from tests.support.load import QueueFaceLoad, SdkLoad, Worker
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_200)]
ROOT = Path(__file__).parents[2]
KILLS, QUERIES = 5, ("files", "copy")
AUDITS_HERE, AUDITS_BY_SPARK = 17, 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster(ClusterSpec(brokers=3, managers=3, ports=(0,))) as made:
        yield made


def environment(cluster: Cluster) -> dict[str, str]:
    """What a job of one's own needs: Java, the project, and the login that reads."""
    asked = subprocess.run([ROOT / "scripts" / "spark-submit", "java-home"], check=True, capture_output=True, text=True, timeout=60)
    return {**os.environ, "JAVA_HOME": asked.stdout.strip(), "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
            "PGPASSFILE": str(cluster.folder.pgpass_file),
            "PYSPARK_SUBMIT_ARGS": "--master local[2] --driver-java-options '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' pyspark-shell"}


@contextmanager
def stream_job(cluster: Cluster, folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The job with Java and all below it in a process group of its own, which is killed at the end."""
    command = [sys.executable, "-m", "tests.support.stream_job", "--bootstrap", cluster.bootstrap, "--topic", "from", "--to", "to",
               "--folder", str(folder), *arguments]
    with (folder / "job.log").open("a") as log, subprocess.Popen(
            command, cwd=ROOT, env=environment(cluster), stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True) as job:
        try:
            yield job
        finally:
            with suppress(ProcessLookupError):  # it has ended by itself
                os.killpg(job.pid, signal.SIGKILL)


def values(cluster: Cluster, topic: str) -> list[tuple[int, int, bytes | None, bytes]]:
    """All of a topic, as (partition, offset, key, value)."""
    with AdminClient(cluster.bootstrap) as admin:
        wanted = sum(len(offsets) for offsets in admin.offsets(topic).values())
    found: list[tuple[int, int, bytes | None, bytes]] = []
    with MyConsumer([topic], cluster.bootstrap) as consumer:
        def all_read() -> bool:
            found.extend((message.partition, message.offset, message.key, message.value) for message in consumer.get_next(1.0))
            return len(found) >= wanted
        wait_until(all_read, timeout_seconds=60, what=f"all of {topic}")
    return found


def test_a_stream_that_is_killed_five_times_while_a_broker_dies_has_each_message_once(cluster: Cluster, tmp_path: Path) -> None:
    """Into files and into another topic: what was acknowledged is there once, in both, and in the order of its key."""
    with AdminClient(cluster.bootstrap) as admin:
        for topic in ("from", "to"):
            admin.create_topic(topic, partitions=3)
    load, dice = SdkLoad(cluster.bootstrap, "from"), random.Random(5)
    for number in range(KILLS):
        with stream_job(cluster, tmp_path) as job:
            assert job.stdout is not None
            assert job.stdout.readline() == "streams run\n", (tmp_path / "job.log").read_text()[-2000:]
            before = [batches(tmp_path, query) for query in QUERIES]
            wait_until(lambda before=before: all(batches(tmp_path, query) > done for query, done in zip(QUERIES, before, strict=True)),
                       timeout_seconds=120, what="a micro-batch of each query")
            if number == 2:
                with AdminClient(cluster.bootstrap) as admin:
                    leader = admin.describe_topic("from").partition_list[0].leader
                    port = next(broker["port"] for broker in admin.brokers() if broker["broker_id"] == leader)
                dead = next(node["name"] for node in cluster.status()["nodes"] if (node["url"] or "").endswith(f":{port}"))
                cluster.kill(dead)
            threading.Event().wait(dice.uniform(0.0, 3.0))  # anywhere in a micro-batch
    load.finish()
    cluster.start(dead)
    with stream_job(cluster, tmp_path, "--rest") as job:
        assert job.wait(400) == 0, (tmp_path / "job.log").read_text()[-2000:]
    assert [] == load.faults()
    source = values(cluster, "from")
    assert load.sent == len(source) > 5_000
    exported = pyarrow.parquet.read_table(named_files(tmp_path / "files")).to_pylist()
    assert Counter(source) == Counter((row["partition"], row["offset"], row["key"], row["value"]) for row in exported)
    copied = values(cluster, "to")
    assert Counter((key, value) for _, _, key, value in source) == Counter((key, value) for _, _, key, value in copied)
    for key in {key for _, _, key, _ in source}:
        assert ordered(source, key) == ordered(copied, key)
    print(f"{len(source)} messages, {[batches(tmp_path, query) for query in QUERIES]} micro-batches, {KILLS} kills of the job, one of a leader")


def ordered(messages: list[tuple[int, int, bytes | None, bytes]], key: bytes | None) -> list[bytes]:
    return [value for _, _, one, value in sorted(messages) if one == key]


def batches(folder: Path, query: str) -> int:
    """How many micro-batches a query has committed."""
    return sum(path.name.isdecimal() for path in (folder / f"{query}-checkpoint" / "commits").glob("*"))


def named_files(folder: Path) -> list[str]:
    """The files that Spark's own log of the sink names: others are left-overs of killed tasks."""
    names = set()
    for note in (folder / "_spark_metadata").iterdir():
        if not note.name.startswith("."):
            names |= {json.loads(line)["path"].removeprefix("file://") for line in note.read_text(encoding="utf-8").splitlines()[1:]}
    return sorted(names)


def test_twenty_audits_of_a_cluster_under_load_find_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """Three replicas, both faces producing, a topic that is trimmed and one that retention shortens; with Spark and without."""
    with ExitStack() as stack:
        admin = stack.enter_context(AdminClient(cluster.bootstrap))
        for topic, config in (("audited", {}), ("kept", {"retention_ms": 2_000}), ("plain", {})):
            admin.create_topic(topic, partitions=3, config=config)
        load, queue = SdkLoad(cluster.bootstrap, "audited"), QueueFaceLoad(cluster.balancer_url, "plain")
        producer = stack.enter_context(MyProducer(topics=["kept"], broker=cluster.bootstrap))
        kept = Worker(lambda: producer.send("kept", b"x" * 200).result(60)).start()
        for number in range(AUDITS_HERE + AUDITS_BY_SPARK):
            if number % 5 == 4:
                for place, offsets in admin.offsets("plain").items():
                    admin.trim("plain", place.partition, (offsets.start + offsets.end) // 2)
            command = [str(ROOT / "scripts" / "spark-submit"), "audit"] if number >= AUDITS_HERE else [sys.executable, "-m", "myqueue", "audit"]
            done = subprocess.run([*command, "--bootstrap", cluster.bootstrap, "--out", str(tmp_path / "audit")], capture_output=True, text=True,
                                  timeout=240, env=environment(cluster), cwd=ROOT)
            assert done.returncode == 0, (number, done.stdout, done.stderr)
            print(f"audit {number + 1}: {done.stdout.strip().splitlines()[-1]}")
        for one in (load, queue):
            one.finish()
        kept.join(60)
    assert [] == load.faults()


def test_what_was_sent_read_and_exported_is_the_same_and_what_was_not_is_named(cluster: Cluster, tmp_path: Path) -> None:
    """Receipts of a producer, a group, two generations of an export; then three messages more that nobody keeps receipts of, reads or exports."""
    receipts, topic = tmp_path / "receipts.ndjson", "counted"

    def job(name: str, *arguments: str) -> tuple[int, str]:
        done = subprocess.run([str(ROOT / "scripts" / "spark-submit"), name, "--bootstrap", cluster.bootstrap, "--topics", topic, *arguments],
                              capture_output=True, text=True, timeout=240, env=environment(cluster), cwd=ROOT)
        return done.returncode, done.stdout + done.stderr

    def reconcile(name: str) -> tuple[int, str]:
        return job("reconcile", "--receipts", str(receipts), "--group", "auditors", "--export", str(tmp_path / "export"),
                   "--out", str(tmp_path / name))

    with AdminClient(cluster.bootstrap) as admin:
        admin.create_topic(topic, partitions=3)
    for part in range(2):
        with MyProducer(topics=[topic], broker=cluster.bootstrap, receipts=receipts) as producer:
            for number in range(500):
                producer.send(topic, b"%d" % number, key=b"%d" % (number % 7))
        with MyConsumer([topic], cluster.bootstrap, group="auditors") as consumer:
            read: list[bytes] = []
            wait_until(lambda read=read, consumer=consumer: read.extend(one.value for one in consumer.get_next(1.0)) or len(read) >= 500,
                       timeout_seconds=60, what="the group to read it")
            consumer.commit()
        code, said = job("export", "--incremental", "--out", str(tmp_path / "export"))
        assert (code, f"generation {part + 1}" in said) == (0, True), said
    code, said = reconcile("same")
    assert code == 0, said
    with MyProducer(topics=[topic], broker=cluster.bootstrap) as producer:
        for number in range(3):
            producer.send(topic, b"more", partition=number)
    assert reconcile("more")[0] == 1
    told = json.loads((tmp_path / "more" / "reconcile.json").read_text(encoding="utf-8"))
    assert Counter({"unacknowledged": 3, "not_consumed": 3, "not_exported": 3}) == Counter(one["kind"] for one in told["differences"])


@pytest.mark.skipif(jdbc.DRIVER is None, reason="PostgreSQL's JDBC driver is not here: MYQUEUE_JDBC_DRIVER names it")
def test_the_page_about_jdbc_does_what_it_says(cluster: Cluster, tmp_path: Path) -> None:
    """Its program, as it stands there, counts what was sent."""
    with AdminClient(cluster.bootstrap) as admin, MyProducer(topics=[], broker=cluster.bootstrap) as producer:
        admin.create_topic("by-jdbc", partitions=4)
        for number in range(1_000):
            producer.send("by-jdbc", b"%d" % number, partition=number % 7 % 4)
        producer.flush()
    (tmp_path / "messages.py").write_text(jdbc.program(), encoding="utf-8")
    done = subprocess.run([sys.executable, str(tmp_path / "messages.py")], capture_output=True, text=True, timeout=200, cwd=tmp_path, env={
        **environment(cluster), **jdbc.environment("by-jdbc", cluster.bootstrap, cluster.folder.pgpass_file, "-XX:TieredStopAtLevel=1")})
    assert done.returncode == 0, done.stderr[-2000:]
    counts = Counter(number % 7 % 4 for number in range(1_000))
    assert [("by-jdbc", partition, counts[partition]) for partition in range(4)] == [
        (topic, int(partition), int(count)) for topic, partition, count in re.findall(r"\| *(\S+)\| *(\d+)\| *(\d+)\|", done.stdout)]
