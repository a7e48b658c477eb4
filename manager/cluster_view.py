"""The cluster as clients, the balancer and Spark jobs see it: the routing snapshot with managers, states and databases."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from db.engine import parse_url
from manager.catalogue import Catalogue
from manager.heartbeats import Liveness
from manager.node.role import Role
from manager.node.transport import Peers
from manager.replica import Replica
from myqueue.clock import Clock
from myqueue.errors import NotFoundError, StaleMetadataError, UnavailableError
from myqueue.protocol import wire

STATES_KEPT_SECONDS = 0.5


def database_of(database_url: str, reader_user: str) -> dict[str, Any]:
    """Where a Spark job reads this manager's database, and as whom. Never a password."""
    url = parse_url(database_url)
    return {"host": url.host or "localhost", "port": url.port or 5432, "name": url.database, "user": reader_user}


class ClusterView:
    """``GET /v1/cluster``."""

    REFRESH_SECONDS = 2.0  # between looks for managers whose database is not known yet
    RENEW_TURNS = 30  # after so many looks all are asked again

    def __init__(self, *, replica: Replica, liveness: Liveness, role: Role, peers: Peers, urls: Mapping[int, str],
                 database: Mapping[str, Any], clock: Clock) -> None:
        """``urls`` are those of the settings, shown until the members are known."""
        self._replica, self._liveness, self._role, self._peers, self._urls, self._clock = replica, liveness, role, peers, urls, clock
        self._databases: dict[int, Mapping[str, Any]] = {role.node_id: database}
        self._turns = 0
        self._cached: tuple[int, Sequence[str] | None, dict[str, Any]] | None = None
        self._states: tuple[float, dict[tuple[str, int], str]] = (float("-inf"), {})

    def to_json(self, topics: Sequence[str] | None) -> dict[str, Any]:
        """The snapshot, of all topics or of those named, as of the index that is applied here.

        A topic that is named and not known here is asked for at the write manager first, so that whoever has just created it finds it.
        """
        if topics:
            with contextlib.suppress(NotFoundError, StaleMetadataError):  # it is not there, or cannot be known: then the snapshot is without it
                self._replica.certain(lambda known: [known.topic(name) for name in topics])
        catalogue = self._replica.current()
        snapshot = self._cached
        if snapshot is None or snapshot[0] != catalogue.version or snapshot[1] != topics:
            snapshot = self._cached = (catalogue.version, topics, wire.snapshot_to_json(catalogue.snapshot(topics)))
        states, leader = self._known_states(), self._role.leader()
        brokers = [{**one, "state": states.get(("broker", one["broker_id"]), "unknown"), "database": catalogue.brokers[one["broker_id"]].database}
                   for one in snapshot[2]["brokers"]]
        return {**snapshot[2], "brokers": brokers, "term": self._role.term,
                "managers": [self._manager(node_id, states, leader) for node_id in self._node_ids(catalogue)]}

    def managers(self) -> list[dict[str, Any]]:
        """The members: which disk each has, whether it votes, what is known of it."""
        states, leader = self._known_states(), self._role.leader()
        return [{"node_id": member.node_id, "url": self._peers.url(member.node_id), "role": "write" if member.node_id == leader else "read",
                 "state": states.get(("manager", member.node_id), "unknown"), "voter": member.voter, "disk_id": member.disk_id}
                for member in self._replica.current().members]

    def _node_ids(self, catalogue: Catalogue) -> list[int]:
        return sorted(member.node_id for member in catalogue.members) or sorted(self._urls)

    def refresh(self) -> None:
        """Ask the other managers where their databases are; called now and then in the background."""
        again = self._turns % self.RENEW_TURNS == 0
        self._turns += 1
        for node_id in self._node_ids(self._replica.catalogue()):
            if node_id != self._role.node_id and (again or node_id not in self._databases):
                try:
                    database = self._peers.identity(node_id).database
                except UnavailableError:
                    continue  # it is down or starting: asked again the next time, what is known of it stays
                self._databases = {**self._databases, node_id: database}

    def _manager(self, node_id: int, states: Mapping[tuple[str, int], str], leader: int | None) -> dict[str, Any]:
        told = {"node_id": node_id, "url": self._peers.url(node_id), "role": "write" if node_id == leader else "read",
                "state": states.get(("manager", node_id), "unknown")}
        return {**told, "database": dict(self._databases[node_id])} if node_id in self._databases else told

    def _known_states(self) -> dict[tuple[str, int], str]:
        """Soft state, read at most twice a second; an old one where the database cannot be asked."""
        now = self._clock.monotonic()
        if now - self._states[0] > STATES_KEPT_SECONDS:
            try:
                rows = self._liveness.rows(("broker", "manager"))
            except UnavailableError:
                return self._states[1]
            self._states = (now, {(row.type, row.actor_id): state.value for row, state in rows})
        return self._states[1]
