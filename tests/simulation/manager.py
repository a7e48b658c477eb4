"""One simulated manager: the shell around the real functions, with a disk that survives and a process that does not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from db.replication import MemoryLog, OfferedStart, chain_before, epoch_before
from manager.raft.follower import handle
from manager.raft.leader import SnapshotOrder
from manager.raft.life import LifeSign, Seen, is_registered_lost, loses_disk, plan_life, shown_by, sign_of
from manager.raft.membership import Membership, in_force
from manager.raft.messages import Append, Envelope, InstallSnapshot, Reply, Request, VoteRequest
from manager.raft.node import Node, Ready
from manager.raft.proposal import Outcome, proposal_outcome
from manager.raft.state import Changes, Contact, Held, RaftState, state_after
from myqueue.errors import DiskLostError
from tests.simulation.checker import Checker
from tests.simulation.machine import Machine


@dataclass
class Disk:
    """What a crash does not take. Each write is one transaction."""

    state: RaftState
    machine: Machine
    log: MemoryLog = field(default_factory=lambda: MemoryLog([]))
    copies: int = 0  # how often an older copy was put in its place, and speaks in its name without being it
    names: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def identity(self) -> str:
        """Who this is in truth, whatever it says of itself."""
        return self.state.disk_id + "'" * self.copies

    def copy(self) -> Disk:
        """A backup as of now."""
        log = replace(self.log, entries=list(self.log.entries))
        return type(self)(self.state, self.machine.copy(), log, self.copies, self.names)

    def live(self, shown: Seen) -> None:
        """Raise the life number, as the shell does once a second; an older copy that is told becomes another disk."""
        if shown.get(self.state.disk_id, 0) > self.state.life:
            self.take_new_disk()
            return
        members = self.membership().members.values()
        life, lives = plan_life(self.state, shown, disks=[member.disk_id for member in members if member.disk_id is not None])
        self.state = replace(self.state, life=life, lives=lives)

    def take_new_disk(self) -> None:
        """Another identity, with the log that is there."""
        self.state = replace(self.state, disk_id=f"{self.state.disk_id}+{next(self.names)}", life=0, leader_term=0)
        self.copies = 0

    def membership(self) -> Membership:
        """The one in force: by the last member command in the log."""
        return in_force(self.machine.membership, self.log.between(self.state.applied_index, self.log.end))

    def write(self, changes: Changes) -> None:
        """Carry out the changes in their order."""
        self.state = state_after(self.state, changes)
        if changes.install is not None:
            start = changes.install.start
            self.log.entries.clear()
            self.log.start, self.log.start_epoch, self.log.start_chain = start.position, start.epoch, start.chain
            self.machine = changes.install.state.copy()
            if is_registered_lost(self.machine.membership, self.state.node_id):
                self.take_new_disk()
        if changes.delete_from is not None:
            self.log.truncate(changes.delete_from)
        self.log.entries.extend(changes.insert)

    def apply_next(self) -> None:
        """Fold one entry; state and applied index move together."""
        index = self.state.applied_index + 1
        self.machine.apply(self.log.at(index - 1))
        self.state = replace(self.state, applied_index=index)
        if loses_disk(self.log.at(index - 1).command, self.state):
            self.take_new_disk()

    def compact(self) -> None:
        """Let the state at ``applied_index`` stand for the entries below."""
        self.log.compact(self.state.applied_index)

    def crash(self) -> None:
        """The process is gone; a disk forgets nothing."""

    def tick(self) -> None:
        """Time passes; a disk has nothing left to do."""


@dataclass
class Waiting:
    """A client's command in the log of the manager that took it."""

    client: str
    seq: int
    index: int
    term: int


class Manager:
    """Disk and process of one manager."""

    def __init__(self, disk: Disk, checker: Checker, *, make_node: type[Node] = Node, entries_max: int = 4) -> None:
        self.disk = disk
        self.checker = checker
        self.make_node = make_node
        self.entries_max = entries_max
        self.up = False
        self.waiting: list[Waiting] = []
        self.reads: dict[int, int] = {}  # read id -> what was acknowledged when it was asked
        self.node: Node
        self.contact: Contact

    @property
    def node_id(self) -> int:
        return self.disk.state.node_id

    def start(self, now: float) -> None:
        self.up = True
        self.node = self.make_node(heartbeat_seconds=0.05, election_timeout_seconds=0.2, entries_max=self.entries_max)
        self.contact = Contact(now)

    def crash(self) -> None:
        self.up = False
        self.waiting.clear()
        self.reads.clear()
        self.disk.crash()

    def held(self) -> Held:
        """What a decision sees. That this manager hands over is known to its workers too."""
        contact, handing_over = self.contact, self.node.handing_over
        if contact.handing_over != handing_over:
            contact = replace(contact, handing_over=handing_over)
        return Held(self.disk.state, self.disk.log, self.disk.membership(), contact)

    def write(self, changes: Changes) -> None:
        """One transaction; then the checker looks at what is on disk."""
        if not changes:
            return
        before, end = self.disk.state, self.disk.log.end
        self.disk.write(changes)
        self.checker.knows(self.disk)
        self.checker.wrote(self.disk, before, changes, end)

    def live(self, sign: LifeSign | None) -> LifeSign:
        """The shell's turn once a second, with what another manager said of itself; what this one may say."""
        self.disk.live({} if sign is None else shown_by(sign))
        self.checker.knows(self.disk)
        return sign_of(self.disk.state)

    def handle(self, request: Request, now: float) -> Reply | None:
        """Any worker: answer another manager, if the disk is no older copy. The caller may crash us before the reply leaves."""
        try:
            handled = handle(self.held(), request, now=now, election_timeout_seconds=0.2)
        except DiskLostError:
            self.disk.take_new_disk()
            self.checker.knows(self.disk)
            return None
        if isinstance(request, Append) and (handled.changes.insert or handled.changes.delete_from is not None):
            self.checker.accepted(self.disk, request.request.epoch)
        self.write(handled.changes)
        if handled.contact is not None:
            self.contact = handled.contact
        return handled.reply

    def expose(self, request: Request, reply: Reply) -> None:
        """The reply leaves."""
        self.checker.replied(self.disk, reply, request.candidate if isinstance(request, VoteRequest) else None)

    def persist(self, ready: Ready) -> None:
        """The driver's transaction, before anything is sent."""
        self.write(ready.persist)
        if ready.persist.term_vote is not None and ready.persist.term_vote.voted_for == self.node_id:
            self.checker.own_vote(self.disk)

    def snapshot_for(self, order: SnapshotOrder) -> Envelope | None:
        """The state at ``applied_index`` with the border of the log there; None where we stopped leading meanwhile."""
        state, log = self.disk.state, self.disk.log
        if not state.leading:
            return None
        index = state.applied_index
        start = OfferedStart(index, epoch_before(log, index), chain_before(log, index))
        message = InstallSnapshot(state.current_term, self.node_id, start, self.disk.machine.copy(), order.round)
        return Envelope(self.node_id, order.target, message)

    def apply_next(self) -> bool:
        """Apply one entry, if one is committed and not applied."""
        if self.disk.state.applied_index >= self.disk.state.commit_index:
            return False
        self.disk.apply_next()
        self.checker.applied(self.disk)
        self.checker.knows(self.disk)
        return True

    def answers(self) -> list[tuple[Waiting, int | None]]:
        """The clients that can be answered now, with the reply, or None where the outcome is unknown."""
        done, still = [], []
        for wait in self.waiting:
            outcome = proposal_outcome(self.disk.state, self.disk.log, index=wait.index, term=wait.term)
            if outcome is Outcome.UNKNOWN:
                done.append((wait, None))
            elif outcome is Outcome.COMMITTED and wait.index <= self.disk.state.applied_index:
                last_seq, reply = self.disk.machine.sessions.get(wait.client, (None, None))
                done.append((wait, reply if last_seq == wait.seq else None))
            else:
                still.append(wait)
        self.waiting = still
        return done
