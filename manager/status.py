"""What a manager says of itself: who it is, whether it is ready, how far its log is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from db.wal_store import RaftState, WalStore
from manager.node import signals as sig
from manager.node.role import FixedRole
from manager.node.signals import Signals
from manager.proposer import Proposer
from myqueue.errors import UnavailableError


class Status:
    """Reads the state of one manager."""

    def __init__(self, *, store: WalStore, role: FixedRole, proposer: Proposer, signals: Signals, urls: Mapping[int, str],
                 database: Mapping[str, Any], ready_lag_seconds: float) -> None:
        self._store, self._role, self._proposer, self._signals = store, role, proposer, signals
        self._urls, self._database, self._ready_lag_seconds = urls, database, ready_lag_seconds

    def identity(self) -> dict[str, Any]:
        """Which disk this is and what is on it; peers and the audit ask."""
        state, end = self._state()
        return {"cluster_id": state.cluster_id, "node_id": self._role.node_id, "disk_id": state.disk_id, "end_index": end,
                "term": state.current_term, "role": "write" if self._role.is_write_manager else "read", "database": dict(self._database)}

    def ready(self) -> dict[str, Any]:
        """For /readyz. Raises UnavailableError while this manager cannot do its part."""
        state = self._store.state()
        if state.cluster_id is None:
            raise UnavailableError("the cluster is not initialised yet: its first start needs all managers")
        if self._role.is_write_manager:
            if not self._proposer.has_majority():
                raise UnavailableError("no majority of the managers answers")
        elif self._signals.age(sig.LEADER) > self._ready_lag_seconds:
            raise UnavailableError("nothing was heard of the write manager lately: what is read here may be old")
        elif state.applied_index < state.commit_index:
            raise UnavailableError(f"applied {state.applied_index} of {state.commit_index} entries")
        return {"role": "write" if self._role.is_write_manager else "read", "applied_index": state.applied_index,
                "cluster_id": state.cluster_id}

    def raft(self) -> dict[str, Any]:
        """``raft_status`` of the partition face."""
        state, end = self._state()
        leads = self._role.leads(state)
        quorum = self._proposer.has_majority() if leads else self._signals.age(sig.LEADER) <= self._ready_lag_seconds
        return {"self": self._urls[self._role.node_id], "leader": self._urls[self._role.write_manager], "state": "leader" if leads else "follower",
                "has_quorum": quorum, "raft_term": state.current_term, "log_len": end - state.snapshot_index, "commit_idx": state.commit_index,
                "last_applied": state.applied_index, "is_leader": leads}

    def _state(self) -> tuple[RaftState, int]:
        with self._store.reading() as held:
            return held.state, held.log.end
