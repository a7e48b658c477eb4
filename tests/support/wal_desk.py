"""One manager's WAL with a Raft node over it, driven step by step by a test: no thread, no network."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from db.wal_store import WalStore
from manager.cluster import commands as c
from manager.node.role import Role
from manager.node.signals import Signals
from manager.node.wal import Applied, Wal
from manager.raft.bootstrap import plan_bootstrap
from manager.raft.messages import VoteReply
from manager.raft.node import Node, Ready
from manager.raft.state import Held
from myqueue.clock import SystemClock
from myqueue.service.wakeups import Wakeups

CLUSTER = "6c6f6700-0000-4000-8000-000000000001"


class WalDesk:
    """A manager whose steps the test makes."""

    def __init__(self, store: WalStore, node_id: int = 1) -> None:
        clock = SystemClock()
        self.store, self.node_id = store, node_id
        self.disk_id = store.claim(node_id).disk_id
        self.role = Role(node_id, clock, leader_kept_seconds=2.0)
        self.wal = Wal(store, self.role, Signals(Wakeups(), threading.Event()), clock, election_timeout_seconds=1.0)
        self.node = Node(heartbeat_seconds=0.2, election_timeout_seconds=1.0)
        self.now = clock.monotonic()
        self.ready = Ready()

    def found(self, others: Mapping[int, str] | None = None) -> None:
        """The first entry: this manager and others by their disks."""
        disks = {self.node_id: self.disk_id, **(others or {})}
        members = tuple(c.Member(node_id, f"http://127.0.0.1:{node_id}", disk_id) for node_id, disk_id in sorted(disks.items()))
        with self.wal.deciding() as desk:
            desk.write(plan_bootstrap(desk.held, c.to_json(c.InitCluster(CLUSTER, members))))

    def take(self, step: Callable[[Held], None]) -> Applied:
        """One step of the node, as the driver takes it."""
        with self.wal.deciding() as desk:
            step(desk.held)
            self.ready = self.node.ready()
            return desk.write(self.ready.persist, apply=True)

    def tick(self) -> Applied:
        self.now += 10.0
        return self.take(lambda held: self.node.tick(held, now=self.now, timeout_seconds=0.0))

    def advance(self) -> Applied:
        return self.take(lambda held: self.node.advance(held, now=self.now))

    def grant(self, source: int, disk_id: str) -> None:
        """Another manager gives what was asked for last: a pre-vote, then a vote."""
        request = self.ready.send[0].message
        reply = VoteReply(request.term - request.pre, request.term, request.pre, True, disk_id)
        self.take(lambda held: self.node.step(held, source, reply, now=self.now))

    def lead_alone(self) -> None:
        """The only member: founded, elected, its marker committed."""
        self.found()
        self.tick()
        self.tick()
        self.advance()
        self.advance()
