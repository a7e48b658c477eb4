"""What a manager says of itself: who it is, whether it is ready, how far its log is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from db.wal import RaftState
from db.wal_store import WalStore
from manager.node.role import Role
from myqueue.clock import Clock
from myqueue.errors import UnavailableError


class Status:
    """Reads the state of one manager."""

    def __init__(self, *, store: WalStore, role: Role, clock: Clock, urls: Mapping[int, str],
                 database: Mapping[str, Any], ready_lag_seconds: float, is_leaving: Callable[[], bool]) -> None:
        self._store, self._role, self._clock, self._began = store, role, clock, clock.monotonic()
        self._heard = False  # of a leader, since this process was started
        self._urls, self._database, self._ready_lag_seconds, self._is_leaving = urls, database, ready_lag_seconds, is_leaving

    def identity(self) -> dict[str, Any]:
        """Which disk this is and what is on it; peers and the audit ask."""
        state, end = self._state()
        return {"cluster_id": state.cluster_id, "node_id": self._role.node_id, "disk_id": state.disk_id, "end_index": end,
                "term": state.current_term, "role": "write" if self._role.is_write_manager else "read", "database": dict(self._database)}

    def ready(self) -> dict[str, Any]:
        """For /readyz: who leads, as far as it is known. One that is up and was ready once can be read from, also without a leader.

        Raises UnavailableError while this manager cannot do its part.
        """
        if self._is_leaving():
            raise UnavailableError("this manager is about to end")
        state, leader = self._store.state(), self._role.leader()
        if state.cluster_id is None:
            raise UnavailableError("the cluster is not initialised yet: its first start needs all managers")
        if state.applied_index < state.commit_index and not self._heard:
            raise UnavailableError(f"applied {state.applied_index} of {state.commit_index} entries")
        self._heard = self._heard or leader is not None or self._clock.monotonic() - self._began > self._ready_lag_seconds
        if not self._heard:
            raise UnavailableError("nothing was heard of a write manager yet")
        return {"role": "write" if self._role.is_write_manager else "read", "applied_index": state.applied_index,
                "cluster_id": state.cluster_id, "term": self._role.term, "leader": leader}

    def raft(self) -> dict[str, Any]:
        """``raft_status`` of the partition face, and how long ago a leader was heard (None: never)."""
        state, end = self._state()
        leader = self._role.leader()
        return {"self": self._urls[self._role.node_id], "leader": self._urls.get(leader or 0), "state": "leader" if state.leading else "follower",
                "has_quorum": leader is not None, "raft_term": state.current_term, "log_len": end - state.snapshot_index,
                "commit_idx": state.commit_index, "last_applied": state.applied_index, "is_leader": state.leading,
                "freshness_seconds": None if math.isinf(silence := self._role.silence_seconds()) else round(silence, 3)}

    def _state(self) -> tuple[RaftState, int]:
        with self._store.reading() as held:
            return held.state, held.log.end
