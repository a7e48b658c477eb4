"""Who is the write manager. In this version the configuration says so, and its term is always 1."""

from __future__ import annotations

from dataclasses import dataclass

from db.replication import ReplicaState
from db.wal_store import RaftState

TERM = 1


@dataclass(frozen=True, slots=True)
class FixedRole:
    """The role of one manager where one of them is named the write manager once and for all."""

    node_id: int
    write_manager: int

    @property
    def is_write_manager(self) -> bool:
        return self.node_id == self.write_manager

    def leads(self, state: RaftState) -> bool:
        """Whether this manager leads: it is the one named, and has promised no other term."""
        return self.is_write_manager and state.current_term == TERM

    def replica(self, state: RaftState) -> ReplicaState:
        """This manager as the replication core sees it."""
        return ReplicaState(promised_epoch=state.current_term, commit=state.commit_index, disk_id=state.disk_id,
                            leader_epoch=state.current_term if self.leads(state) else 0)
