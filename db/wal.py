"""What a manager's WAL and Raft state consist of: plain values, which the pure core decides on and ``db.wal_store`` stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from db.replication import ReplicaState
from myqueue.protocol.chain import GENESIS, wal_chain

Command = dict[str, Any]


@dataclass(frozen=True, slots=True)
class WalEntry:
    """A row of the WAL. It is an ``Entry`` of the replication core: each command is a request of its own."""

    index: int
    term: int
    command: Command
    client_id: str | None
    client_seq: int | None
    chain: bytes

    @property
    def epoch(self) -> int:
        return self.term

    @property
    def request_index(self) -> int:
        return 0

    @property
    def request_count(self) -> int:
        return 1

    def chain_after(self, previous: bytes) -> bytes:
        return wal_chain(previous, index=self.index, term=self.term, command=self.command, client_id=self.client_id,
                         client_seq=self.client_seq)


@dataclass(frozen=True, slots=True)
class RaftState:
    """The one row of ``raft_state``. The snapshot's index, term and chain are the start of the log."""

    node_id: int
    disk_id: str
    current_term: int = 0
    voted_for: int | None = None
    leader_term: int = 0  # this manager leads while it equals current_term and is above 0
    commit_index: int = 0
    applied_index: int = 0
    cluster_id: str | None = None
    life: int = 0
    snapshot_index: int = 0
    snapshot_term: int = 0
    snapshot_chain: bytes = GENESIS
    lives: Mapping[str, int] = field(default_factory=dict)  # disk identity of another manager -> the highest life number seen of it

    @property
    def leading(self) -> bool:
        return 0 < self.leader_term == self.current_term

    def as_replica(self) -> ReplicaState:
        """The same in the words of the replication core."""
        return ReplicaState(self.current_term, self.commit_index, self.disk_id, leader_epoch=self.leader_term)
