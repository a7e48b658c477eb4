"""What the pipeline must know of a cluster: topics, partitions, leaders, and where each node's database is."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from myqueue.errors import BadRequestError, InternalError, UnreachableError
from myqueue.protocol import routes, wire
from myqueue.protocol.types import PartitionInfo

if TYPE_CHECKING:
    from myqueue.client.connection import Connection

DEFAULT_PORT = 9092
ANSWER_BYTES_MAX = 64 << 20
TOKEN = "MYQUEUE_TOKEN"  # noqa: S105 - the variable's name: like the database password, it comes by the environment only


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """Where a node's database is and the read-only login for it. The password comes from PGPASSFILE, never from here."""

    host: str
    port: int
    name: str
    user: str

    def __str__(self) -> str:
        return f"{self.user}@{self.host}:{self.port}/{self.name}"


@dataclass(frozen=True, slots=True)
class Manager:
    """A manager and its database; None where the cluster does not say."""

    node_id: int
    url: str
    role: str
    database: DatabaseAddress | None


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster as of metadata index ``version``."""

    cluster_id: str
    version: int
    brokers: dict[int, DatabaseAddress | None]
    managers: tuple[Manager, ...]
    partitions: tuple[PartitionInfo, ...]  # by topic and partition

    def topics(self) -> dict[str, list[PartitionInfo]]:
        """The partitions of each topic, in order."""
        topics: dict[str, list[PartitionInfo]] = {}
        for info in self.partitions:
            topics.setdefault(info.topic, []).append(info)
        return topics


def cluster_from_json(body: Mapping[str, Any]) -> Cluster:
    """The answer of ``GET /v1/cluster``. Raises InternalError where it is not one."""
    try:
        snapshot = wire.snapshot_from_json(body)
        return Cluster(
            snapshot.cluster_id, snapshot.version,
            {broker["broker_id"]: _database(broker.get("database")) for broker in body["brokers"]},
            tuple(Manager(m["node_id"], m["url"], m["role"], _database(m.get("database"))) for m in body.get("managers", ())),
            tuple(info for _, info in sorted(snapshot.partitions.items())))
    except (KeyError, TypeError, ValueError) as error:
        raise InternalError(f"the answer of {routes.CLUSTER} cannot be read: {error!r}") from error


def _database(body: Mapping[str, Any] | None) -> DatabaseAddress | None:
    return DatabaseAddress(str(body["host"]), int(body["port"]), str(body["name"]), str(body["user"])) if body else None


def parse_bootstrap(text: str) -> list[tuple[str, int]]:
    """``host:port,host`` as addresses; ``http://`` before one is ignored. Raises BadRequestError."""
    addresses = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        host, colon, port = part.removeprefix("http://").rstrip("/").rpartition(":")
        if not colon:
            host, port = port, str(DEFAULT_PORT)
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise BadRequestError(f"{part!r} is not HOST:PORT")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise BadRequestError("no bootstrap address is given")
    return addresses


def fetch_cluster(bootstrap: str, *, timeout_seconds: float = 10.0) -> Cluster:
    """Ask the addresses one after the other until one answers, with the token of the environment where there is one.

    Raises:
        BadRequestError: the bootstrap text is malformed.
        UnreachableError: none answered; the message says why for each.
        MyQueueError: what the last one answered.
    """
    refusals = []
    for host, port in parse_bootstrap(bootstrap):
        try:
            return cluster_from_json(_get_json(host, port, routes.CLUSTER, timeout_seconds))
        except (OSError, http.client.HTTPException, UnreachableError) as error:
            refusals.append(f"{host}:{port}: {error}")
    raise UnreachableError("no cluster answers at " + "; ".join(refusals))


def _get_json(host: str, port: int, path: str, timeout_seconds: float) -> Mapping[str, Any]:
    token = os.environ.get(TOKEN)
    connection = http.client.HTTPConnection(host, port, timeout=timeout_seconds)
    try:
        connection.request("GET", path, headers={"Accept": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})})
        response = connection.getresponse()
        raw = response.read(ANSWER_BYTES_MAX)
    finally:
        connection.close()
    try:
        body = json.loads(raw)
    except ValueError:
        raise UnreachableError(f"status {response.status} and no JSON") from None
    if response.status >= 500:
        raise UnreachableError(wire.error_from_json(body, response.status).message)
    if response.status != 200:
        raise wire.error_from_json(body, response.status)
    return body


@contextmanager
def connected(bootstrap: str) -> Iterator[Connection]:
    """The SDK's connection to the cluster, with the token of the environment where there is one."""
    from myqueue.client.connection import Connection  # heavy: only where it is needed

    connection = Connection(bootstrap, token=os.environ.get(TOKEN))
    try:
        yield connection
    finally:
        connection.close()


def choose_topics(cluster: Cluster, names: Sequence[str]) -> dict[str, list[PartitionInfo]]:
    """The named topics, or all of them. Raises BadRequestError naming all that do not exist."""
    topics = cluster.topics()
    unknown = [name for name in names if name not in topics]
    if unknown:
        raise BadRequestError(f"no such topic: {', '.join(unknown)} (there are: {', '.join(topics) or 'none'})")
    return {name: topics[name] for name in (names or topics)}
