"""Managers, a network and a clock under one seeded scheduler. Everything random comes from one generator, so a seed is a schedule."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from db.replication import AppendReply, has_majority
from manager.raft.bootstrap import plan_bootstrap
from manager.raft.leader import SnapshotOrder
from manager.raft.log import Command, Proposal
from manager.raft.membership import INIT_CLUSTER, Membership
from manager.raft.messages import Append, Envelope, InstallSnapshot, TimeoutNow, TimeoutNowReply, VoteReply, VoteRequest
from manager.raft.node import Node, Ready, Role
from manager.raft.proposal import plan_propose
from manager.raft.state import Held, RaftState
from myqueue.errors import NotLeaderError, RefusedError
from tests.simulation.checker import Checker
from tests.simulation.machine import Machine
from tests.simulation.manager import Disk, Manager, Waiting
from tests.simulation.schedule import Schedule

TICK_SECONDS = 0.03


@dataclass
class Rates:
    """How hostile the network and the machines are, per message or step."""

    drop: float = 0.0
    duplicate: float = 0.0
    slow: float = 0.0  # delayed so long that much happens before: reordering
    crash_between: float = 0.0  # after the write, before what follows from it leaves


class Founding(Enum):
    """Where the first entry is, and whom it names."""

    ALL_LOGS = "all members, in all logs"
    ONE_LOG = "all members, in the log of the first"
    ONE_MEMBER = "the first member, which adds the others"


@dataclass
class Kinds:
    """The classes under test; a mutant may put another one here."""

    node: type[Node] = Node
    disk: type[Disk] = Disk


@dataclass
class World(Schedule):
    """One run."""

    rng: random.Random
    size: int
    kinds: Kinds = field(default_factory=Kinds)
    rates: Rates = field(default_factory=Rates)
    trace: list[str] | None = None
    founding: Founding = Founding.ALL_LOGS
    entries_max: int = 4  # in one append
    automatic: bool = True  # False: a scenario delivers messages itself

    def __post_init__(self) -> None:
        self.begin()
        self.cut: set[tuple[int, int]] = set()  # (source, target) that do not get through
        self.network: list[Envelope] = []  # only where not automatic
        self._disks = 0
        self.backups: dict[int, Disk] = {}
        self.checker = Checker()
        self.on_answer: Callable[[Waiting, int | None], None] = lambda wait, reply: None
        self.managers = {node: self._manager(node, f"d{node}") for node in range(1, self.size + 1)}
        for node in self.managers:
            self.start(node)
        self._bootstrap()

    def _manager(self, node: int, disk_id: str) -> Manager:
        return Manager(self.kinds.disk(RaftState(node, disk_id), Machine(Membership())), self.checker, make_node=self.kinds.node,
                       entries_max=self.entries_max)

    def _bootstrap(self) -> None:
        """The first entry is on all managers, or on the first one only, which then has to win the others or to add them."""
        members = [1] if self.founding is Founding.ONE_MEMBER else list(self.managers)
        command = {"type": INIT_CLUSTER, "cluster_id": "c", "members": [{"node_id": n, "url": f"m{n}", "disk_id": f"d{n}"} for n in members]}
        for node in self.managers if self.founding is Founding.ALL_LOGS else [1]:
            manager = self.managers[node]
            manager.write(plan_bootstrap(manager.held(), command))

    # --- machines ---

    def start(self, node: int) -> None:
        manager = self.managers[node]
        if not manager.up:
            self.note(f"{node} starts")
            manager.start(self.now)
            if self.automatic:
                self.at(self.rng.uniform(0, TICK_SECONDS), self._tick_loop, node, manager.node)

    def crash(self, node: int) -> None:
        self.note(f"{node} crashes")
        self.managers[node].crash()

    def lose_disk(self, node: int) -> str:
        """The machine comes back with an empty disk of another identity; it knows nobody."""
        self.crash(node)
        self._disks += 1
        disk_id = f"d{node}.{self._disks}"
        self.managers[node] = self._manager(node, disk_id)
        self.note(f"{node} has an empty disk, {disk_id}")
        return disk_id

    def back_up(self, node: int) -> None:
        """Keep a copy of the disk as it is now."""
        self.backups[node] = self.managers[node].disk.copy()
        self.note(f"{node} is backed up in term {self.managers[node].disk.state.current_term}")

    def put_back(self, node: int) -> None:
        """The machine comes back with the copy in place of its disk."""
        self.crash(node)
        self._disks += 1
        disk = self.backups.pop(node)
        disk.copies = self._disks
        self.managers[node] = Manager(disk, self.checker, make_node=self.kinds.node, entries_max=self.entries_max)
        self.checker.put_back(disk)
        self.note(f"{node} runs on an older copy of its disk")

    def is_outlived(self, node: int) -> bool:
        """Whether there is a backup of this disk that all others have seen to be passed, and that needs one of them to do any harm.

        One whose owner was the only voter, by its own log, asks nobody: no protocol can tell it (manager/DESIGN.md, life numbers).
        """
        backup, present = self.backups.get(node), self.managers[node].disk
        if backup is None or (backup.state.disk_id, backup.copies) != (present.state.disk_id, present.copies):
            return False
        if has_majority(backup.membership().voters, {node: backup.state.disk_id}):
            return False
        others = (manager.disk.state for name, manager in self.managers.items() if name != node)
        return all(other.lives.get(backup.state.disk_id, 0) > backup.state.life for other in others)

    def exchange_lives(self, one: int, other: int) -> None:
        """A heartbeat and its answer, if both are there and nothing cuts them."""
        first, second = self.managers[one], self.managers[other]
        if first.up and second.up and not {(one, other), (other, one)} & self.cut:
            first.live(second.live(first.live(None)))

    def repair(self, node: int) -> None:
        """The leader's driver looks for members that do not vote with the disk they have."""
        self._drive(node, lambda held: self.managers[node].node.repair(held, now=self.now))

    def _tick_loop(self, node: int, running: Node) -> None:
        manager = self.managers[node]
        if manager.up and manager.node is running:
            self.tick(node)
            self.at(TICK_SECONDS * self.rng.uniform(0.8, 1.2), self._tick_loop, node, running)

    # --- steps of a manager: load, decide, write, then what follows ---

    def tick(self, node: int) -> None:
        manager = self.managers[node]
        timeout = self.rng.uniform(0.2, 0.4)
        manager.disk.tick()
        self._drive(node, lambda held: manager.node.tick(held, now=self.now, timeout_seconds=timeout))

    def advance(self, node: int) -> None:
        self._drive(node, lambda held: self.managers[node].node.advance(held, now=self.now))

    def propose(self, node: int, client: str, seq: int) -> bool:
        """A worker takes a client's command. False where this manager does not lead."""
        manager = self.managers[node]
        if manager.disk.copies and manager.node.role is not Role.LEADER:
            return False  # it may say of itself that it leads; a worker asks first whether a driver of its own process group says so
        try:
            changes = plan_propose(manager.held(), (Proposal({"type": "Add"}, client, seq),))
        except NotLeaderError:
            return False
        manager.write(changes)
        index, term = manager.disk.log.end, manager.disk.state.current_term
        self.note(f"{node} takes {client}/{seq} at {index} in term {term}")
        manager.waiting.append(Waiting(client, seq, index, term))
        if not self._crashes_between(node):
            self.advance(node)
        return True

    def change_member(self, node: int, command: Command) -> bool:
        """Ask the leader's driver for a member command. False where it refuses."""
        manager, refused = self.managers[node], False

        def ask(held: Held) -> None:
            nonlocal refused
            try:
                manager.node.change_member(held, command, now=self.now)
            except (NotLeaderError, RefusedError) as error:
                refused = True
                self.note(f"{node} refuses {command}: {error.message}")
        self._drive(node, ask)
        return not refused

    def read(self, node: int, read_id: int) -> bool:
        """Ask for a fresh read. False where this manager cannot confirm any."""
        manager, refused = self.managers[node], False

        def ask(held: Held) -> None:
            nonlocal refused
            try:
                manager.node.read(held, read_id, now=self.now)
            except NotLeaderError:
                refused = True
        manager.reads[read_id] = self.checker.acknowledged
        self._drive(node, ask)
        return not refused

    def hand_over(self, node: int) -> bool:
        """Ask the leader's driver to hand the leadership over. False where it refuses."""
        manager, refused = self.managers[node], False

        def ask(held: Held) -> None:
            nonlocal refused
            try:
                manager.node.hand_over(held, now=self.now)
            except (NotLeaderError, RefusedError) as error:
                refused = True
                self.note(f"{node} refuses to hand over: {error.message}")
        self._drive(node, ask)
        return not refused

    def _drive(self, node: int, step: Callable[[Held], None]) -> None:
        manager = self.managers[node]
        self.guard(node, lambda: step(manager.held()))
        self._carry_out(node, manager.node.ready())

    def _carry_out(self, node: int, ready: Ready) -> None:
        manager = self.managers[node]
        for event in ready.events:
            self.checker.reported(node, event)
            self.note(f"{node} {event.name} in term {event.term}" + (f": {event.detail}" if event.detail else ""))
        self.guard(node, lambda: manager.persist(ready))
        if ready.persist and self._crashes_between(node):
            return
        for envelope in ready.send:
            self.send(envelope)
        for order in ready.snapshots:
            self._send_snapshot(manager, order)
        for read in ready.reads:
            self.checker.read(read.index, manager.reads.pop(read.read_id, 0))
        self.apply_and_answer(node)
        if manager.up and (ready.persist.insert or ready.persist.term_vote is not None):
            self.advance(node)

    def _send_snapshot(self, manager: Manager, order: SnapshotOrder) -> None:
        envelope = manager.snapshot_for(order)
        if envelope is not None:
            self.send(envelope)

    def apply_and_answer(self, node: int) -> None:
        manager = self.managers[node]
        while manager.apply_next():
            if self._crashes_between(node):
                return
        if manager.waiting:
            for wait, reply in manager.answers():
                if reply is not None:
                    self.checker.answered(wait.client, wait.seq, reply, wait.index)
                self.on_answer(wait, reply)

    def _crashes_between(self, node: int) -> bool:
        if self.rates.crash_between and self.rng.random() < self.rates.crash_between:
            self.crash(node)
            self.checker.seen["crashes between"] += 1
            self.at(self.rng.uniform(0.01, 0.6), self.start, node)
            return True
        return False

    # --- network ---

    def send(self, envelope: Envelope) -> None:
        """Put a message on its way, and perhaps lose, double or delay it."""
        if not self.automatic:
            self.network.append(envelope)
            return
        rates, rng = self.rates, self.rng
        for _ in range(2 if rates.duplicate and rng.random() < rates.duplicate else 1):
            if rates.drop and rng.random() < rates.drop:
                continue
            delay = rng.uniform(0.3, 1.5) if rates.slow and rng.random() < rates.slow else rng.uniform(0.001, 0.012)
            self.at(delay, self.deliver, envelope)

    def deliver(self, envelope: Envelope) -> None:
        """A message arrives, if both ends are there and nothing cuts them."""
        source, target, message = envelope
        manager = self.managers[target]
        if not manager.up or (source, target) in self.cut:
            return
        if self.trace is not None:
            self.note(f"{source} -> {target} {describe(message)}")
        if isinstance(message, (VoteRequest, Append, InstallSnapshot, TimeoutNow)):
            reply = self.guard(target, lambda: manager.handle(message, self.now))
            if reply is None:
                self.note(f"{target} is another disk from now on, {manager.disk.state.disk_id}")
                return
            if self._crashes_between(target):
                return
            manager.expose(message, reply)
            self.send(Envelope(target, source, reply))
            self.apply_and_answer(target)
            if isinstance(reply, TimeoutNowReply) and reply.taken and manager.up:
                self.tick(target)  # a worker wakes the driver
        else:
            self._drive(target, lambda held: manager.node.step(held, source, message, now=self.now))


def describe(message: Any) -> str:
    """One line for a trace."""
    if isinstance(message, VoteRequest):
        return f"{'pre-vote' if message.pre else 'vote'} term={message.term} last={message.last_index}@{message.last_term}"
    if isinstance(message, VoteReply):
        return f"{'pre-vote' if message.pre else 'vote'} {'granted' if message.granted else 'refused'} term={message.term}"
    if isinstance(message, Append):
        inner = message.request
        return (f"append term={inner.epoch} prev={inner.position}@{inner.prev_epoch} "
                f"entries=[{' '.join(f'{e.index}@{e.epoch}' for e in inner.entries)}] commit={inner.commit}")
    if isinstance(message, TimeoutNow):
        return f"timeout-now term={message.term}"
    if isinstance(message, TimeoutNowReply):
        return f"timeout-now {'taken' if message.taken else 'refused'} term={message.term}"
    if isinstance(message, InstallSnapshot):
        return f"snapshot term={message.term} at={message.start.position}@{message.start.epoch}"
    assert isinstance(message, AppendReply)
    if message.matched is not None:
        return f"matched {message.matched} term={message.epoch}"
    return f"{message.refusal} term={message.epoch}" + (f" next={message.hint.next}" if message.hint else "")
