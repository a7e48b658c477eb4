"""The invariants R1-R8 over all managers, checked after every step from outside: it believes nothing a node says of itself."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from db.replication import AppendReply, majority
from db.replication.log import chain_before
from manager.raft.log import WalEntry
from manager.raft.membership import SET_MEMBER, Membership
from manager.raft.messages import Reply, VoteReply
from tests.simulation.machine import Machine

if TYPE_CHECKING:
    from manager.raft.node import Event
    from manager.raft.state import Changes, RaftState
    from tests.simulation.manager import Disk


class Violation(AssertionError):
    """An invariant does not hold."""


def require(held: bool, rule: str, text: str) -> None:
    if not held:
        raise Violation(f"{rule}: {text}")


class Checker:
    """What was ever led, stored, voted, committed, acknowledged."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}  # term -> node
        self.chains: dict[tuple[int, int], bytes] = {}  # (index, term) -> chain
        self.holders: dict[tuple[int, int], set[tuple[int, str]]] = {}  # (index, term) -> (node, disk) that ever stored it
        self.votes: dict[tuple[str, int], int] = {}  # (disk, term) -> candidate, as on disk when the reply left
        self.exposed: dict[str, int] = {}  # disk -> the highest term it has shown
        self.ledger: list[WalEntry] = []  # what any node ever called committed
        self.installed: dict[tuple[int, str], int] = {}  # (node, disk) -> the highest state it took in place of a log
        self.named: set[tuple[int, str]] = set()  # (node, disk) that were seen
        self.fold = Machine(Membership())
        self.fingerprints = [self.fold.fingerprint()]  # by index
        self.commands: set[tuple[str, int | None]] = set()  # of clients, in the ledger
        self.seen: Counter[str] = Counter()  # what a run went through, so that it is known to go through it
        self.acknowledged = 0  # the highest index behind an answer to a client
        self.replies: dict[tuple[str, int], int] = {}  # (client, seq) -> the answer it got first

    # --- what was written ---

    def wrote(self, disk: Disk, before: RaftState, changes: Changes, end_before: int) -> None:
        """One transaction of a manager is on disk."""
        state = disk.state
        require(state.current_term >= before.current_term, "R4", f"the term of {state.node_id} fell to {state.current_term}")
        require(state.commit_index >= before.commit_index, "R5", f"the commit of {state.node_id} fell to {state.commit_index}")
        for entry in changes.insert:
            self._stored(disk, entry)
        if changes.install is not None:
            start = changes.install.start
            self._agrees_with_ledger(disk, start.position, "R5", "an installed state")
            self.installed[state.node_id, disk.identity] = start.position
            self.seen["states installed"] += 1
        self.seen["tails cut"] += changes.delete_from is not None
        if state.commit_index > before.commit_index:
            self._committed(disk, state.commit_index)
        if changes.leader_term:
            self._leads(disk, changes.leader_term)

    def _stored(self, disk: Disk, entry: WalEntry) -> None:
        key = entry.index, entry.term
        known = self.chains.setdefault(key, entry.chain)
        require(known == entry.chain, "R2", f"index {entry.index} of term {entry.term} is stored with two contents")
        self.holders.setdefault(key, set()).add((disk.state.node_id, disk.identity))
        if entry.command["type"] == SET_MEMBER and entry.command["voter"] and disk.state.leading:
            self._new_voter_is_ready(disk, entry)

    def _new_voter_is_ready(self, disk: Disk, entry: WalEntry) -> None:
        node, identity, commit = entry.command["node_id"], entry.command["disk_id"], disk.state.commit_index
        if commit > disk.log.start:
            key = commit, disk.log.epoch_at(commit - 1)
            self.seen["voters added"] += 1
            require(self._holds(node, identity, *key), "R7", f"manager {node} becomes a voter and does not hold index {commit}")

    def _holds(self, node: int, identity: str, index: int, term: int) -> bool:
        return (node, identity) in self.holders.get((index, term), ()) or index <= self.installed.get((node, identity), 0)

    def _committed(self, disk: Disk, commit: int) -> None:
        start = disk.log.start
        for entry in disk.log.between(max(start, len(self.ledger)), commit):
            if disk.state.leading:
                self._is_on_a_majority(disk, entry)
            self.ledger.append(entry)
            self._fold(entry)
            self.fingerprints.append(self.fold.fingerprint())
        self._agrees_with_ledger(disk, commit, "R5", "a commit")

    def _fold(self, entry: WalEntry) -> None:
        """The state as it must be, and the naive twin of its sessions: each (client, sequence) counts once."""
        self.fold.apply(entry)
        if entry.client_id is not None:
            self.seen["commands repeated"] += (entry.client_id, entry.client_seq) in self.commands
            self.commands.add((entry.client_id, entry.client_seq))
        require(self.fold.total == len(self.commands), "R8", f"{len(self.commands)} commands were applied {self.fold.total} times")

    def _is_on_a_majority(self, disk: Disk, entry: WalEntry) -> None:
        """Counted here anew: who stored it, on the disk that is registered in the leader's membership."""
        voters = disk.membership().voters
        count = sum(1 for node, identity in voters.items() if identity is not None and self._holds(node, identity, entry.index, entry.term))
        require(count >= majority(len(voters)), "R7", f"index {entry.index} is committed by {count} of {voters}")

    def _agrees_with_ledger(self, disk: Disk, border: int, rule: str, what: str) -> None:
        if border == 0:
            return
        require(border <= len(self.ledger), rule, f"{what} of {disk.state.node_id} at {border} was never committed by anyone")
        require(chain_before(disk.log, border) == self.ledger[border - 1].chain, rule,
                f"{what} of {disk.state.node_id} at {border} differs from what was committed there")

    def _leads(self, disk: Disk, term: int) -> None:
        node = disk.state.node_id
        require(self.leaders.setdefault(term, node) == node, "R1", f"managers {self.leaders[term]} and {node} lead term {term}")
        committed = len(self.ledger)
        require(disk.log.end >= committed, "R3", f"leader {node} of term {term} ends at {disk.log.end}, {committed} are committed")
        if committed >= disk.log.start:
            self._agrees_with_ledger(disk, committed, "R3", "the log of a new leader")
        voters = disk.membership().voters
        count = sum(1 for identity in voters.values() if self.votes.get((identity or "", term)) == node)
        require(count >= majority(len(voters)), "R7", f"leader {node} of term {term} has the votes of {count} of {voters}")

    # --- what left a manager ---

    def own_vote(self, disk: Disk) -> None:
        """A candidate's own vote is on its disk."""
        self._voted(disk.identity, disk.state.current_term, disk.state.voted_for)

    def replied(self, disk: Disk, reply: Reply, candidate: int | None) -> None:
        """An answer leaves: what it promises must be on disk, and never fall."""
        identity = disk.identity
        term = reply.epoch if isinstance(reply, AppendReply) else reply.term
        require(term >= self.exposed.get(identity, 0), "R4", f"{identity} shows term {term} after {self.exposed.get(identity)}")
        self.exposed[identity] = term
        if isinstance(reply, VoteReply) and reply.granted and not reply.pre:
            self._voted(identity, reply.asked, candidate)

    def _voted(self, identity: str, term: int, candidate: int | None) -> None:
        if candidate is not None:
            first = self.votes.setdefault((identity, term), candidate)
            require(first == candidate, "R4", f"{identity} votes for {first} and {candidate} in term {term}")

    def accepted(self, disk: Disk, term: int) -> None:
        """Entries of a leader of this term were accepted."""
        require(term >= self.exposed.get(disk.identity, 0), "R4", f"{disk.identity} accepts term {term} below its promise")

    def reported(self, node: int, event: Event) -> None:
        """A node's driver has something to say. Every lost disk here takes a new identity, so nobody may be accused of a lost one."""
        self.seen[event.name] += 1
        require(event.name != "disk_lost", "R7", f"{node} says: {event.detail}")

    # --- older copies ---

    def put_back(self, disk: Disk) -> None:
        """An older copy stands in a disk's place: it may have lost what that promised, and speaks in its name."""
        self.seen["copies put back"] += 1
        self.knows(disk)

    def knows(self, disk: Disk) -> None:
        """A disk that took a new identity holds under that what it has."""
        name = disk.state.node_id, disk.identity
        if name not in self.named:
            self.named.add(name)
            self.installed[name] = disk.log.start
            for entry in disk.log.between(disk.log.start, disk.log.end):
                self.holders.setdefault((entry.index, entry.term), set()).add(name)

    # --- what was applied and answered ---

    def applied(self, disk: Disk) -> None:
        """The state equals the fold of the committed log up to ``applied_index``."""
        index = disk.state.applied_index
        require(index <= len(self.ledger), "R8", f"{disk.state.node_id} applied {index}, which is not committed")
        require(disk.machine.fingerprint() == self.fingerprints[index], "R8", f"the state of {disk.state.node_id} at {index} is not the fold")

    def answered(self, client: str, seq: int, reply: int, index: int) -> None:
        """A client is told that its command is done."""
        require(index <= len(self.ledger), "R6", f"index {index} is acknowledged and not committed")
        entry = self.ledger[index - 1]
        require((entry.client_id, entry.client_seq) == (client, seq), "R6",
                f"{client}/{seq} is acknowledged at {index}, where {entry.client_id}/{entry.client_seq} was committed")
        require(self.replies.setdefault((client, seq), reply) == reply, "R8", f"{client}/{seq} got two answers")
        self.acknowledged = max(self.acknowledged, index)
        self.seen["commands answered"] += 1

    def read(self, index: int, asked_after: int) -> None:
        """A fresh read is confirmed."""
        self.seen["reads confirmed"] += 1
        require(index >= asked_after, "R6", f"a read at {index} misses what was acknowledged before it began, {asked_after}")
