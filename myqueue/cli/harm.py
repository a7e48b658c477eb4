"""What ``demo --chaos`` does to its cluster: a broker that leads and the write manager are killed with -9 under load, and come back.

Messages go on slowly while it is done, so that some are in flight at that moment whatever the files' size.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..client.admin import AdminClient
from ..clock import Clock
from ..errors import UnavailableError
from ..supervisor import Cluster

PACE_SECONDS = 0.02  # between two messages of a producer while the harm is done
HARM_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.2
WHOLE_SECONDS_MAX = 60.0
BROKERS_MIN = MANAGERS_MIN = 3  # so that a majority is left
LACKS = ("leaderless", "without_majority", "under_replicated")


class Harm:
    """Done once, in the middle of the messages. ``pace`` is for the producers' threads, ``do`` for one of its own."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._middle, self._done, self._given_up = threading.Event(), threading.Event(), threading.Event()

    def pace(self, *, is_last: bool) -> None:
        """Called before each message of a producer's second half: slow while the harm is being done, and the last one goes out only after it."""
        self._middle.set()
        self._done.wait(HARM_SECONDS_MAX if is_last else PACE_SECONDS)

    def do(self, cluster: Cluster, topics: Sequence[str]) -> list[str]:
        """Kill them once a producer is in the middle; the names of the nodes.

        Raises:
            UnavailableError: no producer came there in time, or there was nobody to kill.
        """
        try:
            if not self._middle.wait(HARM_SECONDS_MAX) or self._given_up.is_set():
                raise UnavailableError("no producer came to the middle of its messages")
            victims = [_leading_broker(cluster, topics), _write_manager(cluster)]
            for name in victims:
                cluster.kill(name)
            return victims
        finally:
            self._done.set()

    def give_up(self) -> None:
        """Whoever waits for the harm, or is about to do it, ends; harm that is done already stays done."""
        self._given_up.set()
        self._middle.set()
        self._done.set()

    def undo(self, cluster: Cluster, names: Sequence[str]) -> None:
        """Start them again; returns when every partition has its leader and all its replicas.

        Raises:
            UnavailableError: that took too long.
        """
        for name in names:
            cluster.start(name)
        deadline = self._clock.monotonic() + WHOLE_SECONDS_MAX
        while lacks := _lacks(cluster):
            if self._clock.monotonic() > deadline:
                raise UnavailableError(f"{WHOLE_SECONDS_MAX:.0f} s after {' and '.join(names)} came back, {lacks}")
            time.sleep(LOOK_SECONDS)


def _leading_broker(cluster: Cluster, topics: Sequence[str]) -> str:
    """The node of the broker that leads the most of these topics' partitions."""
    with AdminClient(cluster.bootstrap) as admin:
        leaders = [partition.leader for topic in topics for partition in admin.describe_topic(topic).partition_list if partition.leader is not None]
        if not leaders:
            raise UnavailableError("no partition has a leader that could be killed")
        leader = max(sorted(set(leaders)), key=leaders.count)
        port = next(broker["port"] for broker in admin.brokers() if broker["broker_id"] == leader)
    return _node_where(cluster, lambda node: node["kind"] == "broker" and str(node["url"]).endswith(f":{port}"))


def _write_manager(cluster: Cluster) -> str:
    return _node_where(cluster, lambda node: (node.get("raft") or {}).get("state") == "leader")


def _node_where(cluster: Cluster, is_it: Callable[[Mapping[str, Any]], bool]) -> str:
    for node in cluster.status()["nodes"]:
        if is_it(node):
            return str(node["name"])
    raise UnavailableError("who was to be killed is not there: an election may be going on")


def _lacks(cluster: Cluster) -> str:
    """What partitions are short of, in words; empty where nothing is."""
    partitions = cluster.status()["partitions"]
    if partitions is None:
        return "no manager answers"
    return ", ".join(f"{name.replace('_', ' ')}: {partitions[name]['count']} partitions" for name in LACKS if partitions[name]["count"])
