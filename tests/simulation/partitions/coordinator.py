"""A manager that believes that it runs the elections. Two of them may believe so at once, and either may stop in the middle of anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker.core.replica import Appointment
from manager.cluster import commands
from manager.cluster.election import Ballot, Broker, Outlook, Promise, Replicas, choose_leader, damaged_leaderships, damaged_voters, election_due
from manager.cluster.reassignment import ChangeVoters, next_step
from myqueue.errors import MyQueueError, RefusedError
from myqueue.protocol.types import PartitionId
from tests.simulation.partitions.broker import Promised, Status
from tests.simulation.partitions.disk import PARTITION
from tests.simulation.partitions.world import TOPIC_ID, World

TURN_SECONDS = 0.08
GATHER_SECONDS = 0.04  # after a majority promised, for the others
RETRY_SECONDS = 0.4
Begin = commands.BeginElections | commands.ForceElections


class Coordinator:
    """Remembers nothing over a stop."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.rng, self.name, self.life, self.up = world, world.rng, name, 0, False
        self.start()

    def start(self) -> None:
        self.up, self.life = True, self.life + 1
        self.ballot: Ballot | None = None
        self.deciding = False
        self.began_at = 0.0
        self.told = 0  # the epoch whose leader has taken its appointment
        self.told_learners: tuple[int, ...] | None = None
        self.status: Status | None = None
        self.refused: Mapping[PartitionId, int] = {}  # epochs whose leader's replica is damaged
        self.damaged: dict[int, Mapping[PartitionId, int]] = {}  # by broker: epochs in which it follows with a damaged replica
        self.row: dict[str, Any] = {}
        self.world.at(self.rng.uniform(0, TURN_SECONDS), self._loop, self.life)

    def crash(self) -> None:
        """Stop, and start again a while later."""
        if self.up:
            self.world.note(f"{self.name} stops")
            self.up, self.life = False, self.life + 1
            self.world.at(self.rng.uniform(0.02, 0.8), self.restart)

    def restart(self) -> None:
        if not self.up:
            self.world.note(f"{self.name} starts")
            self.start()

    # --- a turn ---

    def _loop(self, life: int) -> None:
        if life == self.life:
            self.turn()
            self.world.at(TURN_SECONDS * self.rng.uniform(0.7, 1.3), self._loop, life)

    def turn(self) -> None:
        """Look at the partition and do what is due: begin an election, tell the leader, change a voter or a learner."""
        if not self.row or self.rng.random() >= self.world.stale:
            self.look()
        replicas, outlook = self._replicas(), self._outlook()
        mine = self.ballot is not None and self.ballot.epoch == replicas.epoch and self.world.now - self.began_at < RETRY_SECONDS
        if election_due(replicas, outlook, begun_here=mine, refused=self.refused.get(PARTITION) == replicas.epoch):
            self.begin(replicas, replicas.voters)
        elif not replicas.electing and replicas.leader is not None:
            self._look_after(replicas, outlook)

    def look(self) -> Replicas:
        """Learn how the partition stands by the metadata now."""
        self.row = dict(self.world.row() or {})
        return self._replicas()

    def _replicas(self) -> Replicas:
        row = self.row
        return Replicas(PARTITION, row["epoch"], row["status"] == "ELECTING", row["leader"], _by_id(row["voters"]), tuple(row["learners"]),
                        row["replication_factor"], None if row["wanted"] is None else tuple(row["wanted"]))

    def _outlook(self) -> Outlook:
        """What it believes of the brokers, now and then wrongly."""
        brokers = {row["broker_id"]: Broker(row["broker_id"], row["disk_id"]) for row in self.world.metadata.find("broker")}
        lost = frozenset(one for one, broker in self.world.brokers.items() if broker.lost)
        dead = {one for one, broker in self.world.brokers.items() if not broker.up}
        if self.rng.random() < self.world.misled:
            dead ^= {self.rng.choice(sorted(brokers))}
        return Outlook(brokers, frozenset(dead), lost)

    def _look_after(self, replicas: Replicas, outlook: Outlook) -> None:
        leader, epoch = replicas.leader, replicas.epoch
        assert leader is not None
        if self.told != epoch or self.told_learners != replicas.learners:
            appointment = Appointment(epoch, replicas.voters, replicas.replication_factor, replicas.learners)
            self._call(leader, appointment, lambda: self.world.brokers[leader].appoint(appointment),
                       lambda answer: self._appointed(epoch, replicas.learners, answer))
            return
        status = self.status if self.status is not None and self.status.epoch == epoch else Status(epoch, False, frozenset())
        self.status = None  # what a leader said counts for one step
        step = next_step(replicas, outlook, settled=status.settled, caught_up=status.caught_up, held={}, following=status.following,
                         damaged=frozenset(one for one, seen in self.damaged.items() if seen.get(PARTITION) == epoch))
        if isinstance(step, ChangeVoters):
            self.world.checker.seen["voters changed"] += 1
            self.begin(replicas, step.voters)
        elif step is not None:
            item = commands.Learners(TOPIC_ID, 0, epoch, step.learners)
            self._propose(commands.SetLearners((item,)))
        elif self.rng.random() < self.world.restless:
            self.begin(replicas, replicas.voters)  # as to move a leadership
        self.ask(leader)
        if self.world.automatic:
            self.ask(self.rng.choice(sorted(replicas.voters)))

    def ask(self, broker_id: int) -> None:
        """What a broker says of its replica."""
        if broker_id in self.world.brokers:
            self._call(broker_id, "status?", lambda: self.world.brokers[broker_id].status(), lambda answer: self._learn_status(broker_id, answer))

    def _appointed(self, epoch: int, learners: tuple[int, ...], answer: Any) -> None:
        if not isinstance(answer, MyQueueError):
            self.told, self.told_learners = epoch, learners
        elif isinstance(answer, RefusedError):
            self.refused = {PARTITION: epoch}

    def _learn_status(self, broker_id: int, answer: Any) -> None:
        if isinstance(answer, MyQueueError):
            return
        known, status = {PARTITION: self._replicas()}, {"topic_id": TOPIC_ID, "partition": 0, "fault": answer.fault}
        self.damaged[broker_id] = damaged_voters(broker_id, [status], known)
        if broker_id == known[PARTITION].leader:
            self.status = answer
            if answer.learners != known[PARTITION].learners:
                self.told_learners = None  # an older word came later: it is told again
            self.refused = damaged_leaderships(broker_id, [status], known)

    # --- an election ---

    def begin(self, replicas: Replicas, voters: Mapping[int, str | None], command: type[Begin] = commands.BeginElections) -> None:
        """Begin a new epoch with these voters, and ask them to promise it."""
        item = commands.BeginElection(TOPIC_ID, 0, replicas.epoch, {str(one): disk for one, disk in voters.items()})
        answer = self._propose(command((item,)))
        if not answer["ok"]:
            return
        self.world.checker.seen["elections"] += 1
        self.ballot, self.deciding, self.began_at = Ballot(answer["epoch"], dict(voters)), False, self.world.now
        epoch = answer["epoch"]
        self.world.note(f"{self.name} begins epoch {epoch} with {dict(voters)}")
        for broker_id in voters:
            if broker_id in self.world.brokers:
                self._call(broker_id, f"promise epoch={epoch}", lambda one=broker_id: self.world.brokers[one].promise(epoch),
                           lambda answer, one=broker_id: self._promised(epoch, one, answer))

    def _promised(self, epoch: int, broker_id: int, answer: Any) -> None:
        if self.ballot is None or self.ballot.epoch != epoch or not isinstance(answer, Promised):
            return
        promise = Promise(answer.disk_id, answer.end_epoch, answer.end_lsn, answer.commit_lsn, answer.seeding)
        self.ballot = self.ballot.with_promise(broker_id, promise)
        if self.ballot.is_decided() and not self.deciding:
            self.deciding = True
            self.world.at(self.rng.uniform(0, GATHER_SECONDS), self._decide, self.life, epoch)

    def _decide(self, life: int, epoch: int) -> None:
        if life == self.life and self.ballot is not None and self.ballot.epoch == epoch:
            self.decide(preferred=self.rng.choice([None, *self.ballot.voters]))

    def decide(self, *, preferred: int | None) -> None:
        """Appoint the furthest of those that promised; nobody without a majority."""
        assert self.ballot is not None
        epoch, leader = self.ballot.epoch, choose_leader(self.ballot, {}, preferred=preferred)
        if leader is not None:
            self.world.note(f"{self.name} appoints {leader} for epoch {epoch}")
            self._propose(commands.AppointLeaders((commands.AppointLeader(TOPIC_ID, 0, epoch, leader),)))

    # --- ways out ---

    def _propose(self, command: commands.Command) -> dict[str, Any]:
        return self.world.propose(command).reply["result"]["items"][0]

    def _call(self, broker_id: int, question: Any, do: Any, told: Any) -> None:
        life = self.life
        self.world.call(self.name, broker_id, question, do, lambda answer: told(answer) if life == self.life else None)


def _by_id(voters: dict[str, str | None]) -> dict[int, str | None]:
    return {int(one): disk for one, disk in voters.items()}
