"""One manager on a desk: what is on disk, and a node that is driven by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from db.replication import AppendReply, AppendRequest, MemoryLog, epoch_before
from manager.raft.log import Proposal, entries_behind
from manager.raft.membership import Member, Membership
from manager.raft.messages import VoteReply
from manager.raft.node import Node, Ready
from manager.raft.state import Changes, Contact, Held, RaftState, state_after

TIMEOUT_SECONDS = 1.0
HEARTBEAT_SECONDS = 0.1


def members(count: int, *, learners: tuple[int, ...] = (), index: int = 0) -> Membership:
    """Managers 1 … count, voters but for the learners, manager n on disk "dn"."""
    return Membership({node: Member(node, f"m{node}", f"d{node}", voter=node not in learners) for node in range(1, count + 1)}, index)


def log_of(*terms: int, start: int = 0) -> MemoryLog:
    """A WAL with one command per term, without what lies below ``start``."""
    log = MemoryLog([])
    for place, term in enumerate(terms):
        log.entries.extend(entries_behind(log, term, (Proposal({"type": "x", "place": place}),)))
    if start:
        log.compact(start)
    return log


@dataclass
class Desk:
    """Manager 1 of a group."""

    state: RaftState = field(default_factory=lambda: RaftState(1, "d1", current_term=1))
    log: MemoryLog = field(default_factory=lambda: log_of(1))
    membership: Membership = field(default_factory=lambda: members(3))
    contact: Contact = field(default_factory=lambda: Contact(0.0))
    now: float = 0.0

    def __post_init__(self) -> None:
        self.node = Node(heartbeat_seconds=HEARTBEAT_SECONDS, election_timeout_seconds=TIMEOUT_SECONDS, entries_max=10)

    def held(self) -> Held:
        return Held(self.state, self.log, self.membership, self.contact)

    def write(self, changes: Changes) -> None:
        self.state = state_after(self.state, changes)
        if changes.delete_from is not None:
            self.log.truncate(changes.delete_from)
        self.log.entries.extend(changes.insert)

    def _take(self, call: Callable[[], None]) -> Ready:
        call()
        ready = self.node.ready()
        self.write(ready.persist)
        return ready

    def tick(self, seconds: float = 0.0) -> Ready:
        self.now += seconds
        return self._take(lambda: self.node.tick(self.held(), now=self.now, timeout_seconds=1.5))

    def advance(self) -> Ready:
        return self._take(lambda: self.node.advance(self.held(), now=self.now))

    def hear(self, source: int, reply: Any) -> Ready:
        return self._take(lambda: self.node.step(self.held(), source, reply, now=self.now))

    def vote(self, source: int, *, pre: bool = False, disk_id: str | None = None, granted: bool = True, asked: int | None = None) -> Ready:
        """An answer to the vote that is asked for now."""
        term = self.state.current_term
        wanted = asked if asked is not None else term + 1 if pre else term
        return self.hear(source, VoteReply(term, wanted, pre, granted, disk_id or f"d{source}"))

    def matched(self, source: int, index: int, *, round: int = 0, term: int | None = None, disk_id: str | None = None) -> Ready:
        return self.hear(source, AppendReply(self.state.current_term if term is None else term, disk_id or f"d{source}", 0, round, matched=index))

    def time_out(self) -> Ready:
        """The election timeout has passed."""
        self.tick()
        return self.tick(2.0)

    def lead(self) -> Ready:
        """Become leader with the votes of 2; the marker is on disk."""
        return self.lead_with(2)

    def lead_with(self, *voters: int) -> Ready:
        """The same with the votes of these."""
        self.time_out()
        for pre in (True, False):
            for voter in voters:
                self.vote(voter, pre=pre)
        assert self.node.role == "leader"
        return self.advance()


def request_of(log: MemoryLog, position: int, *, term: int, commit: int = 0) -> AppendRequest:
    """What a leader with this log sends from there on."""
    return AppendRequest(term, position, epoch_before(log, position), log.between(position, log.end), commit)
