"""Ours: a cluster of real processes, spoken to by the SDK, by a broker's own address, and by the queue face."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

from myqueue.client.admin import AdminClient
from myqueue.client.consumer import MyConsumer
from myqueue.client.producer import MyProducer
from myqueue.protocol.batch import BATCH_TYPE, pack_values
from myqueue.supervisor import Cluster, ClusterSpec
from tests.bench.plan import OURS
from tests.support.clusters import discard

from .base import CALL_SECONDS, HOST, WORK_SECONDS, Contender
from .http import Http
from .postgres import checkpoint, connect, fsyncs

SERVER = "postgres"  # the node that holds all databases
KIND_OF_ROOTS = {"broker": "server", "postgres": "postgres"}  # managers and balancer: "other"
FROM_COMMAND_LINE = "SELECT name, setting || coalesce(unit, '') FROM pg_settings WHERE source = 'command line' AND name = ANY(%s)"
COMPARED = ["max_connections", "shared_buffers", "jit", "recovery_init_sync_method"]
MUST_BE_ON = ("fsync", "synchronous_commit", "full_page_writes")


class MyQueue(Contender):
    name = OURS

    def __init__(self, folder: Path, stack: ExitStack, *, brokers: int = 1, environment: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self.cluster = Cluster(folder, ClusterSpec(brokers=brokers, managers=1, ports=(0,)), environment=environment)
        stack.callback(discard, self.cluster)
        self.cluster.up()
        self.bootstrap = self.cluster.bootstrap
        nodes = self.cluster.status()["nodes"]
        self.nodes = {node["name"]: node for node in nodes}
        roots: dict[str, list[int]] = {"server": [], "postgres": [], "other": []}
        for node in nodes:
            roots[KIND_OF_ROOTS.get(node["kind"], "other")].append(node["pid"])
        self.roots = roots
        saved = self.cluster.folder.load()
        assert saved is not None
        password = quote((Path(saved.postgres_home) / f"{SERVER}.password").read_text().strip())
        self._login = f"postgresql://postgres:{password}@{HOST}:{saved.ports[SERVER]}"
        self.dsn = self.database("postgres")
        self._names = itertools.count()

    def database(self, name: str) -> str:
        """The superuser's URL of a database of the brokers' server."""
        return f"{self._login}/{name}"

    def settings(self) -> dict[str, str]:
        """What the brokers' server was started with, for a server that shall be compared. Raises AssertionError where it is not durable."""
        with ExitStack() as stack:
            cursor = connect(self.dsn, stack).cursor()
            for name in MUST_BE_ON:
                cursor.execute(f"SHOW {name}")
                assert cursor.fetchone() == ("on",), f"{name} is off"
            cursor.execute(FROM_COMMAND_LINE, (COMPARED,))
            return dict(cursor.fetchall())

    def create(self, log: str, *, partitions: int = 1, factor: int | None = None, config: Mapping[str, Any] | None = None) -> None:
        with AdminClient(self.bootstrap, max_block_seconds=CALL_SECONDS) as admin:
            admin.create_topic(log, partitions=partitions, replication_factor=factor, config=config)

    def producing(self, log: str, value: bytes, count: int, batch: int, stack: ExitStack) -> Callable[[], None]:
        producer = stack.enter_context(MyProducer([log], self.bootstrap, batch_records_max=batch, max_block_seconds=CALL_SECONDS))

        def work() -> None:
            send = producer.send
            for _ in range(count):
                send(log, value)
            producer.flush(WORK_SECONDS)

        return work

    def consuming(self, log: str, stack: ExitStack) -> Callable[[int], int]:
        consumer = stack.enter_context(MyConsumer([log], self.bootstrap, auto_commit_seconds=None))

        def work(count: int) -> int:
            return sum(1 for _ in itertools.islice(consumer.get_next(CALL_SECONDS), count))

        return work

    def caller(self, log: str, stack: ExitStack) -> Callable[[bytes], None]:
        return self.direct_caller(log, stack)

    def shared_sdk_caller(self, log: str, stack: ExitStack) -> Callable[[bytes], None]:
        """May be used by many threads at once: they share a producer."""
        producer = stack.enter_context(MyProducer([log], self.bootstrap))

        def call(value: bytes) -> None:
            producer.send(log, value).result(CALL_SECONDS)

        return call

    def direct_caller(self, log: str, stack: ExitStack) -> Callable[[bytes], None]:
        """By the native face of the first broker."""
        client = Http(self.nodes["broker-1"]["url"].removeprefix("http://"), stack)
        path = f"/v1/topics/{log}/partitions/0/records"

        def call(value: bytes) -> None:
            client.ask("POST", path, pack_values([value]), BATCH_TYPE)

        return call

    def queue_caller(self, log: str, stack: ExitStack) -> Callable[[bytes], None]:
        """By the queue face: balancer, manager, broker."""
        client, form = Http(self.bootstrap, stack), "application/x-www-form-urlencoded"
        registered = json.loads(client.ask("POST", "/producer/register", f"topic={log}".encode(), form))
        head = f"topic={log}&producer_id={registered['producer_id']}&message="

        def call(value: bytes) -> None:
            client.ask("POST", "/producer/produce", f"{head}{quote(value)}".encode(), form)

        return call

    def reader(self, log: str, stack: ExitStack) -> Callable[[int], None]:
        """What is returned reads one message of partition 0 by its offset, from the first broker."""
        client = Http(self.nodes["broker-1"]["url"].removeprefix("http://"), stack)

        def read(offset: int) -> None:
            client.ask("GET", f"/v1/topics/{log}/partitions/0/records?offset={offset}&max_records=1")

        return read

    def settle(self) -> None:
        checkpoint(self.dsn)

    def fsyncs(self) -> int | None:
        return fsyncs(self.dsn)
