"""Brokers, coordinators, clients, a network and a clock under one seeded scheduler."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from broker.core.group import Request
from manager.cluster import commands
from manager.cluster.memory import MemoryMetadata
from manager.cluster.state import Change, apply
from myqueue.errors import MyQueueError
from tests.simulation.partitions.broker import Broker
from tests.simulation.partitions.checker import Checker
from tests.simulation.partitions.describe import describe, name_of, outcome_of
from tests.simulation.partitions.disk import Disk
from tests.simulation.schedule import Schedule
from tests.simulation.world import Rates

KEEPER_SECONDS = 0.06
TOPIC_ID = 1
Reply = Callable[[Any], None]


@dataclass
class Kinds:
    """The classes under test; a mutant may put another one here."""

    broker: type[Broker] = Broker
    disk: type[Disk] = Disk


@dataclass(frozen=True, eq=False)
class Message:
    """A question or an answer on its way."""

    source: Any
    target: Any
    arrive: Callable[..., None]
    args: tuple


@dataclass
class World(Schedule):
    """One run: a single partition with its replicas."""

    rng: random.Random
    size: int
    replication_factor: int
    kinds: Kinds = field(default_factory=Kinds)
    rates: Rates = field(default_factory=Rates)
    trace: list[str] | None = None
    entries_max: int = 4
    automatic: bool = True  # False: a scenario delivers messages and gives the keepers their turns itself
    stale: float = 0.0  # how often a coordinator decides on an old row
    misled: float = 0.0  # how often it takes somebody for dead, or alive, who is not
    restless: float = 0.0  # how often it moves a leadership without need

    def __post_init__(self) -> None:
        self.begin()
        self.cut: set[tuple[Any, Any]] = set()
        self.network: list[Message] = []  # only where not automatic
        self.checker = Checker()
        self.metadata = MemoryMetadata()
        self.brokers: dict[int, Broker] = {}
        self.skew: dict[int, int] = {}
        self.on_answers: Callable[[Any, Any], None] = lambda wait, outcome: None
        for _ in range(self.size):
            self.add_broker()
        self.propose(commands.CreateReplicatedTopic("t", 1, self.replication_factor, {}, 0, tuple(self.brokers)))

    # --- metadata: one register, as the managers' log makes it ---

    def propose(self, command: commands.Command) -> Change:
        """Apply a command; every manager has it, as far as this simulation goes."""
        moving = self.is_moving()
        change = apply(self.metadata, command)
        self.metadata.write(change.changes)
        row = self.row()
        self.checker.seen["moves done"] += moving and not self.is_moving() and isinstance(command, commands.BeginElections)
        if row is not None and row["status"] == "ACTIVE" and row["leader"] is not None:
            self.checker.appoints(row["epoch"], row["leader"])
        return change

    def row(self) -> dict[str, Any] | None:
        """The partition as the metadata has it."""
        return self.metadata.get("partition", topic_id=TOPIC_ID, partition=0)

    def is_moving(self) -> bool:
        row = self.row()
        return row is not None and row["wanted"] is not None

    def move(self, brokers: tuple[int, ...] | None) -> None:
        """An operator wants the replicas on these brokers, or (None) stops where they are."""
        self.note(f"the replicas are wanted on {brokers}")
        self.propose(commands.MovePartitions((commands.Move(TOPIC_ID, 0, brokers),)))

    # --- machines ---

    def add_broker(self) -> int:
        """A broker with an empty disk, which is another broker to the metadata."""
        number = len(self.brokers) + 1
        disk_id = f"d{number}"
        broker_id = self.propose(commands.AddBroker(disk_id, "h", number, {})).reply["result"]["broker_id"]
        self.brokers[broker_id] = self.kinds.broker(self.kinds.disk(broker_id, disk_id), self.checker, entries_max=self.entries_max)
        self.skew[broker_id] = self.rng.randint(-2_000_000, 2_000_000)
        self.start(broker_id)
        return broker_id

    def start(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        if not broker.up and not broker.lost:
            self.note(f"{broker_id} starts")
            broker.start()
            if self.automatic:
                self.at(self.rng.uniform(0, KEEPER_SECONDS), self._keep, broker_id, broker.life)

    def crash(self, broker_id: int, *, database: bool = False) -> None:
        self.note(f"{broker_id} crashes{' with its database' if database else ''}")
        self.brokers[broker_id].crash(database=database)

    def lose_disk(self, broker_id: int) -> int:
        """The disk is gone; the machine comes back as another broker."""
        self.crash(broker_id)
        self.brokers[broker_id].lost = True
        self.checker.seen["disks lost"] += 1
        new = self.add_broker()
        self.note(f"{broker_id} lost its disk and is {new} now")
        return new

    def damage(self, broker_id: int) -> None:
        """The replica is found not to hold what it was given: it serves nothing."""
        self.note(f"{broker_id} is found damaged")
        self.brokers[broker_id].disk.set_fault("an entry does not have its digest")
        self.checker.seen["replicas damaged"] += 1

    def replace_disk(self, broker_id: int) -> str:
        """The disk is gone; the machine comes back as the same broker with an empty one, under another identity, and registers it."""
        self.crash(broker_id)
        before = self.brokers[broker_id]
        disk = self.kinds.disk(broker_id, f"{before.disk.disk_id}'")
        self.propose(commands.ReplaceDisk(broker_id, before.disk.disk_id, disk.disk_id, "h", broker_id, {}))
        self.brokers[broker_id] = self.kinds.broker(disk, self.checker, entries_max=self.entries_max)
        self.brokers[broker_id].life = before.life
        self.note(f"{broker_id} has an empty disk, {disk.disk_id}")
        return disk.disk_id

    def _keep(self, broker_id: int, life: int) -> None:
        """The keeper comes back as long as this process lives."""
        broker = self.brokers[broker_id]
        if broker.up and broker.life == life:
            self.keep(broker_id)
            self.at(KEEPER_SECONDS * self.rng.uniform(0.7, 1.3), self._keep, broker_id, life)

    def keep(self, broker_id: int) -> None:
        """The keeper's turn: it sends to every follower what it lacks, folds, answers who waits."""
        self.guard(broker_id, self.brokers[broker_id].fold)
        self.replicate(broker_id)

    def replicate(self, broker_id: int) -> None:
        """Send every follower the next append, entries or none."""
        broker = self.brokers[broker_id]
        for target in dict.fromkeys((*broker.disk.head.voters, *broker.learners)):
            if target != broker_id and target in self.brokers:
                self.send(broker_id, target)
        self.tell_answers(broker_id)

    def send(self, broker_id: int, target: int) -> None:
        """What goes to a follower next, if anything does."""
        message = self.guard(broker_id, lambda: self.brokers[broker_id].ask(target))
        if message is not None:
            is_voter = self.brokers[broker_id].may_need(target)
            self.call(broker_id, target, message, lambda: self.brokers[target].receive(message, is_voter=is_voter),
                      lambda reply: self._learn(broker_id, target, reply))

    def _learn(self, broker_id: int, source: int, reply: Any) -> None:
        broker = self.brokers[broker_id]
        if isinstance(reply, MyQueueError):
            broker.not_taken(source)
        else:
            self.guard(broker_id, lambda: broker.learn(source, reply))
        self.tell_answers(broker_id)
        if isinstance(reply, MyQueueError) or reply.matched is None:
            return  # what was refused is tried again at the keeper's next turn
        if broker.wants_more(source):
            self.send(broker_id, source)

    def take(self, broker_id: int, request: Request) -> None:
        """A client's request reaches a broker, which stores what it plans and sends it on. Raises what the broker refuses it with."""
        if self.trace is not None:
            self.note(f"{broker_id} takes {name_of(request)}")
        broker = self.brokers[broker_id]
        self.guard(broker_id, lambda: broker.write([request], self.now_us(broker_id)))
        self.replicate(broker_id)

    def tell_answers(self, broker_id: int) -> None:
        for wait, outcome in self.brokers[broker_id].answers():
            if self.trace is not None:
                self.note(f"{broker_id} tells {name_of(wait.request)}: {outcome_of(outcome)}")
            if outcome is not None:
                self.checker.answered(wait.request, outcome, wait.position)
            self.on_answers(wait, outcome)

    def now_us(self, broker_id: int) -> int:
        """A broker's own clock, which may be wrong and may jump."""
        return 1_000_000_000 + round(self.now * 1_000_000) + self.skew[broker_id]

    # --- network ---

    def call(self, source: Any, target: int, question: Any, do: Callable[[], Any], reply: Reply) -> None:
        """A call from a broker or a coordinator to a broker, which may be lost, doubled or late; and so may its answer.

        ``do`` may raise one of our errors: that is an answer too.
        """
        for _ in range(2 if self.rng.random() < self.rates.duplicate else 1):
            self._pass(source, target, self._carry_out, source, target, question, do, reply)

    def _carry_out(self, source: Any, target: int, question: Any, do: Callable[[], Any], reply: Reply) -> None:
        broker = self.brokers[target]
        if not broker.up:
            return
        self._note_message(source, target, question)
        try:
            answer = self.guard(target, do)
        except MyQueueError as error:
            answer = error
        if self.rates.crash_between and self.rng.random() < self.rates.crash_between:
            self.checker.seen["crashes between"] += 1
            self.crash(target, database=self.rng.random() < 0.5)
            self.at(self.rng.uniform(0.01, 0.6), self.start, target)
            return
        self.tell_answers(target)
        life = self.brokers[source].life if source in self.brokers else None
        self._pass(target, source, self._arrive, source, target, life, answer, reply)

    def _arrive(self, source: Any, target: int, life: int | None, answer: Any, reply: Reply) -> None:
        broker = self.brokers.get(source)
        if broker is None or (broker.up and broker.life == life):
            self._note_message(target, source, answer)
            reply(answer)

    def _pass(self, source: Any, target: Any, what: Callable[..., None], *args: Any) -> None:
        message, rates, rng = Message(source, target, what, args), self.rates, self.rng
        if not self.automatic:
            self.network.append(message)
            return
        if rng.random() < rates.drop:
            return
        delay = rng.uniform(0.3, 1.5) if rng.random() < rates.slow else rng.uniform(0.001, 0.012)
        self.at(delay, self.deliver, message)

    def deliver(self, message: Message) -> None:
        """A message arrives, if nothing cuts the two."""
        if (message.source, message.target) not in self.cut:
            message.arrive(*message.args)

    def _note_message(self, source: Any, target: Any, message: Any) -> None:
        if self.trace is not None:
            self.note(f"{source} -> {target} {describe(message)}")
