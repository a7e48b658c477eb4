"""Clusters for tests: a data folder that is gone afterwards, whatever happened, and stand-ins for the services."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg2
import requests

from myqueue.supervisor import KINDS, Cluster, ClusterSpec, Kind
from myqueue.supervisor.plan import MARK
from myqueue.supervisor.process import marked

from .postgres import open_folder

STAND_IN = ("{python}", str(Path(__file__).with_name("stand_in_node.py")), "--port", "{port}")
# Real PostgreSQL, real processes; only what the services would do is left out.
STAND_INS: Mapping[str, Kind] = {**KINDS, **{name: replace(KINDS[name], command=STAND_IN) for name in ("manager", "broker", "balancer")}}
SMALL = ClusterSpec(brokers=1, managers=1, ports=(0,))
# For tests that are not about lateness: on a busy machine nobody is suspect because a heartbeat comes late. Whose door is shut is found out as soon.
# And no leader of the managers is gone because it answers late.
PATIENT = {"MYQUEUE_MANAGER_NODE_SUSPECT_AFTER_SECONDS": "60", "MYQUEUE_MANAGER_NODE_DEAD_AFTER_SECONDS": "180",
           "MYQUEUE_MANAGER_ELECTION_TIMEOUT_SECONDS": "5", "MYQUEUE_MANAGER_PROPOSE_TIMEOUT_SECONDS": "15"}


def kinds_with(environment: Mapping[str, str]) -> Mapping[str, Kind]:
    """The services as they are, with more in their environment."""
    return {name: replace(kind, environment={**kind.environment, **environment}) for name, kind in KINDS.items()}


@contextmanager
def cluster_folder() -> Iterator[Path]:
    """A data folder in a path with a space; at the end its cluster is down and its data go, wherever they are."""
    with open_folder("myqueue cluster ") as parent:
        data = parent / "data"
        try:
            yield data
        finally:
            if (data / "cluster.json").exists():
                discard(Cluster(data, kinds=STAND_INS))


@contextmanager
def running_cluster(spec: ClusterSpec, *, kinds: Mapping[str, Kind] = KINDS) -> Iterator[Cluster]:
    """A cluster that is up; gone with its data afterwards."""
    with cluster_folder() as data:
        cluster = Cluster(data, spec, kinds=kinds)
        try:
            cluster.up()
            yield cluster
        finally:
            discard(cluster)


def discard(cluster: Cluster) -> None:
    """Take a cluster down whose data go with the folder that it is in; where PostgreSQL's are elsewhere they go now."""
    cluster.down(lasting=False)
    saved = cluster.folder.load()
    if saved is not None and not Path(saved.postgres_home).is_relative_to(cluster.data):
        cluster.folder.remove()


def owner_connection(cluster: Cluster, node: str) -> closing[Any]:
    """To the database of a node, as its owner; closed at the end of the block."""
    saved = cluster.folder.load()
    assert saved is not None
    places, address = cluster.folder.places(saved, None), cluster.node(node)["database"]
    return closing(psycopg2.connect(host=address["host"], port=address["port"], dbname=address["name"], user=f"{places.prefix}_owner",
                                    password=places.owner_password, connect_timeout=5))


def processes_of(cluster: Cluster) -> list[int]:
    """Every process that runs on behalf of a cluster, and still does."""
    saved = cluster.folder.load()
    return marked(MARK, f"{saved.cluster_id}:") if saved else []


def get(url: str) -> Any:
    """The JSON that a stand-in answers with."""
    return requests.get(url, timeout=5).json()


def is_root() -> bool:
    return os.geteuid() == 0
