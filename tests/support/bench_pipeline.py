"""What the pipeline costs: ``python -m tests.support.bench_pipeline [--messages N] [--lines N] [--folder DIR]``.

Starts a cluster with three brokers and one manager, stores messages of 100 bytes in a topic of eight partitions with three replicas, and runs each
job on them in turn: the audit with Spark and without, a whole export to Parquet, a load of lines. Told are wall time and CPU seconds, apart by who
spent them: PostgreSQL (all of the cluster's servers), Python and Java (the job with everything below it), and the services of the cluster.
What Spark's start costs is taken by an audit of an empty topic, and is not subtracted. The tables are vacuumed before, so that autovacuum
does not work beside the jobs. Where PostgreSQL's JDBC driver is installed, the program of pipeline/JDBC.md writes the same Parquet for comparison.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from myqueue import AdminClient, MyProducer
from myqueue.supervisor import Cluster, ClusterSpec
from myqueue.supervisor.process import descendants
from tests.support import jdbc
from tests.support.clusters import owner_connection, running_cluster
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
TOPIC, EMPTY, LOADED, PARTITIONS = "measured", "empty", "loaded", 8
LOOK_SECONDS = 0.1
JOB_SECONDS = 1800


def spent(pid: int) -> tuple[str, float]:
    """A process's name, and its CPU seconds without those of its children."""
    with open(f"/proc/{pid}/stat") as file:
        before, after = file.read().rsplit(")", 1)
    name, fields = before.split("(", 1)[1], after.split()
    return name, sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


class Watch:
    """CPU seconds of processes below one, by name, also of those that end meanwhile: each as it was when it was seen last."""

    def __init__(self, pid: int) -> None:
        self._pid, self._most, self._name = pid, dict[int, float](), dict[int, str]()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look_often, daemon=True)
        self._look()
        self._first = dict(self._most)
        self._thread.start()

    def _look_often(self) -> None:
        while not self._done.wait(LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        for one in (self._pid, *descendants(self._pid)):
            try:
                self._name[one], seconds = spent(one)
            except OSError:
                continue  # it has ended since it was listed
            self._most[one] = max(seconds, self._most.get(one, 0.0))

    def end(self) -> dict[str, float]:
        """What each kind of process has spent since the beginning."""
        self._done.set()
        self._thread.join()
        found: dict[str, float] = {}
        for one, seconds in self._most.items():
            name = next((kind for kind in ("java", "postgres", "python") if self._name[one].startswith(kind)), "other")
            found[name] = found.get(name, 0.0) + seconds - self._first.get(one, 0.0)
        return found


def fill(cluster: Cluster, messages: int) -> None:
    with AdminClient(cluster.bootstrap) as admin:
        for topic in (TOPIC, EMPTY, LOADED):
            admin.create_topic(topic, partitions=PARTITIONS, replication_factor=3)
        began = time.perf_counter()
        with MyProducer(topics=[TOPIC], broker=cluster.bootstrap) as producer:
            for number in range(messages):
                producer.send(TOPIC, b"%0100d" % number, partition=number // 1000 % PARTITIONS)
            producer.flush(600)
        print(f"{messages} messages stored in {time.perf_counter() - began:.0f} s")
        wait_until(lambda: sum(len(offsets) for offsets in admin.offsets(TOPIC).values()) == messages, what="all of them to be committed")
    for node in cluster.status()["nodes"]:
        if node["kind"] == "broker":
            with owner_connection(cluster, node["name"]) as connection:
                connection.autocommit = True
                with connection.cursor() as cursor:
                    cursor.execute("VACUUM (ANALYZE)")


def measure(cluster: Cluster, name: str, command: Sequence[str], **environment: str) -> None:
    """Run a job and tell what it cost. It must end well."""
    pids = {node["name"]: node["pid"] for node in cluster.status()["nodes"] if node["pid"]}
    watches = {node: Watch(pid) for node, pid in pids.items()}
    began = time.perf_counter()
    with subprocess.Popen([*command, "--bootstrap", cluster.bootstrap], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env={**os.environ, "PGPASSFILE": str(cluster.folder.pgpass_file), **environment}) as job:
        mine = Watch(job.pid)
        said = job.communicate(timeout=JOB_SECONDS)[0]
    wall, own = time.perf_counter() - began, mine.end()
    there = {node: watch.end() for node, watch in watches.items()}
    assert job.returncode == 0, said
    postgres = sum(kinds.get("postgres", 0.0) for kinds in there.values())
    services = sum(seconds for kinds in there.values() for kind, seconds in kinds.items() if kind != "postgres")
    print(f"{name}: {wall:.1f} s; CPU PostgreSQL {postgres:.1f}, Python {own.get('python', 0.0):.1f}, Java {own.get('java', 0.0):.1f}, "
          f"services {services:.1f} s\n    {said.strip().splitlines()[-1]}", flush=True)


def measure_jdbc(cluster: Cluster, folder: Path) -> None:
    """The page's program with another last line: it writes what it reads."""
    *lines, _ = jdbc.program().strip().splitlines()
    written = folder / "by-jdbc"
    lines += [f'messages.write.option("compression", "zstd").parquet("{written}")',
              f'print("JDBC:", spark.read.parquet("{written}").count(), "messages")']
    (folder / "by_jdbc.py").write_text("\n".join(lines) + "\n", encoding="utf-8")
    java = subprocess.run([ROOT / "scripts" / "spark-submit", "java-home"], check=True, capture_output=True, text=True, timeout=60).stdout
    measure(cluster, "JDBC to Parquet", [sys.executable, str(folder / "by_jdbc.py")], JAVA_HOME=java.strip(), SPARK_LOCAL_IP="127.0.0.1",
            **jdbc.environment(TOPIC, cluster.bootstrap, cluster.folder.pgpass_file, "-XX:+UseParallelGC"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=5_000_000, metavar="N", help="stored before anything is measured (default: 5,000,000)")
    parser.add_argument("--lines", type=int, default=1_000_000, metavar="N", help="that are loaded (default: 1,000,000)")
    parser.add_argument("--folder", metavar="DIR", help="where the jobs write (default: among the temporary files)")
    options = parser.parse_args()
    with running_cluster(ClusterSpec(brokers=3, managers=1, ports=(0,))) as cluster, tempfile.TemporaryDirectory(dir=options.folder) as folder:
        fill(cluster, options.messages)
        lines = Path(folder) / "lines.txt"
        lines.write_bytes(b"".join(b"%0100d\n" % number for number in range(options.lines)))
        submit, here = [str(ROOT / "scripts" / "spark-submit")], [sys.executable, "-m", "myqueue"]
        for name, command in (("audit with Spark of an empty topic", [*submit, "audit", "--bulk", "--topics", EMPTY]),
                              ("audit without Spark of an empty topic", [*here, "audit", "--topics", EMPTY]),
                              ("audit without Spark", [*here, "audit", "--topics", TOPIC]),
                              ("audit with Spark", [*submit, "audit", "--bulk", "--topics", TOPIC]),
                              ("export", [*submit, "export", "--bulk", "--topics", TOPIC]),
                              ("load", [*submit, "load", "--bulk", "--topics", LOADED, str(lines)])):
            measure(cluster, name, [*command, "--out", f"{folder}/{name.replace(' ', '-')}"])
        if jdbc.DRIVER is None:
            print("JDBC: no driver here")
        else:
            measure_jdbc(cluster, Path(folder))
        print(f"load average meanwhile: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
