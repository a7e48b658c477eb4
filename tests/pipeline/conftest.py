"""One Spark session for the whole tier, a read-only login, and clusters made of real databases behind a real HTTP server."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from pipeline.cluster import Cluster, cluster_from_json
from tests.support.log_filler import LogFiller, execute
from tests.support.postgres import PostgresForTests, open_folder
from tests.support.snapshot_server import SnapshotServer, snapshot_server

ROOT = Path(__file__).parents[2]
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dlog4j2.configurationFile=" + (ROOT / "pipeline" / "log4j2.properties").as_uri()


@dataclass
class FilledCluster:
    """Two brokers' and any managers' databases, and the server that answers for them."""

    server: SnapshotServer
    urls: list[str]
    fillers: list[LogFiller]
    topics: dict[str, tuple[int, int, int]] = field(default_factory=dict)  # name → (topic_id, partitions, broker index)

    def create_topic(self, name: str, *, topic_id: int, partitions: int = 1, broker: int = 0) -> None:
        """A topic whose partitions all lie on one broker."""
        self.fillers[broker].create_topic(topic_id, name, partitions)
        self.add_to_snapshot(name, topic_id, partitions, broker)

    def add_to_snapshot(self, name: str, topic_id: int, partitions: int = 1, broker: int = 0) -> None:
        self.server.body["partitions"] += [
            {"topic": name, "topic_id": topic_id, "partition": partition, "epoch": 1, "leader": broker + 1, "replicas": [broker + 1],
             "status": "ACTIVE"} for partition in range(partitions)]

    def view(self) -> Cluster:
        return cluster_from_json(self.server.body)


@pytest.fixture(scope="package")
def reader(postgres: PostgresForTests) -> Iterator[str]:
    """A read-only login that the pipeline uses, its password in a file that PGPASSFILE names."""
    name, password = f"reader_{secrets.token_hex(4)}", secrets.token_hex(8)
    execute(postgres.admin_url, f"CREATE ROLE {name} LOGIN IN ROLE pg_read_all_data PASSWORD %s", password)
    with open_folder() as folder, pytest.MonkeyPatch.context() as environment:
        file = folder / "pgpass"
        file.touch(mode=0o600)
        file.write_text(f"*:*:*:{name}:{password}\n", encoding="utf-8")
        environment.setenv("PGPASSFILE", str(file))
        yield name
    execute(postgres.admin_url, f"DROP ROLE {name}")


@pytest.fixture(scope="session")
def java_home() -> str:
    """The Java that scripts/spark-submit would use."""
    return subprocess.run([ROOT / "scripts" / "spark-submit", "java-home"], check=True, capture_output=True, text=True, timeout=60).stdout.strip()


@pytest.fixture(scope="package")
def spark(reader: str, java_home: str) -> Iterator[object]:
    """The session. It is made after PGPASSFILE is set: Spark's Python workers inherit the environment of the JVM."""
    from pyspark.sql import SparkSession

    from pipeline.session import build_session

    with pytest.MonkeyPatch.context() as environment:
        variables = {"JAVA_HOME": java_home, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
        for variable, value in variables.items():
            environment.setenv(variable, value)
        SparkSession.builder.master("local[2]").config("spark.driver.extraJavaOptions", JAVA_OPTIONS).config(
            "spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")  # options of the one builder that all share
        session = build_session("myqueue tests")
        yield session
        session.stop()


def database_json(url: str, user: str) -> dict[str, object]:
    """A database as the snapshot has it."""
    parts = urlsplit(url)
    return {"host": parts.hostname, "port": parts.port, "name": parts.path.lstrip("/"), "user": user}


@contextmanager
def cluster_of(postgres: PostgresForTests, reader: str, *, brokers: int = 2, managers: int = 0) -> Iterator[FilledCluster]:
    """Empty databases of a cluster, and its server."""
    with ExitStack() as stack:
        broker_urls = [stack.enter_context(postgres.database("broker")) for _ in range(brokers)]
        manager_urls = [stack.enter_context(postgres.database("manager")) for _ in range(managers)]
        body = {
            "cluster_id": "c1", "version": 1, "partitions": [],
            "brokers": [{"broker_id": number, "host": "127.0.0.1", "port": 1, "state": "alive", "database": database_json(url, reader)}
                        for number, url in enumerate(broker_urls, 1)],
            "managers": [{"node_id": number, "url": f"http://127.0.0.1:{number}", "role": "write" if number == 1 else "read",
                          "database": database_json(url, reader)} for number, url in enumerate(manager_urls, 1)]}
        server = stack.enter_context(snapshot_server(body))
        yield FilledCluster(server, broker_urls + manager_urls, [LogFiller(url) for url in broker_urls])


@pytest.fixture
def cluster(postgres: PostgresForTests, reader: str) -> Iterator[FilledCluster]:
    """Two brokers, nothing in them yet."""
    with cluster_of(postgres, reader) as filled:
        yield filled
