"""A whole run from one seed: clients, coordinators, faults, an operator who repairs, then healing, after which everything must converge."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from broker.core.append import AppendRequest
from broker.core.offsets import TrimRequest
from broker.core.replica import is_leading
from broker.core.retention import plan_begin
from tests.simulation.partitions.broker import Waiting
from tests.simulation.partitions.clients import Client, Consumer, Producer, pick
from tests.simulation.partitions.coordinator import Coordinator
from tests.simulation.partitions.world import TOPIC_ID, Kinds, World
from tests.simulation.run import Result, Run
from tests.simulation.world import Rates

CHAOS_SECONDS = 4.0


@dataclass(frozen=True)
class Options:
    """What a run is made of, beside its seed. A factor of None is drawn from 1, 2, 3, 3, 3, 5."""

    replication_factor: int | None = None
    seconds: float = CHAOS_SECONDS


class PartitionsRun(Run):
    """One seed."""

    heal_seconds = 20.0

    def __init__(self, seed: int, options: Options, kinds: Kinds | None = None, *, trace: bool = False) -> None:
        super().__init__(seed, options.seconds)
        self.rng = random.Random(f"partitions/{seed}")
        factor = options.replication_factor or self.rng.choice((1, 2, 3, 3, 3, 5))
        level = self.rng.choice((0.0, 0.3, 1.0))
        rates = Rates(drop=level * self.rng.uniform(0, 0.2), duplicate=self.rng.uniform(0, 0.2), slow=self.rng.uniform(0, 0.06),
                      crash_between=self.rng.choice((0.0, 0.003, 0.012)))
        self.world = World(self.rng, factor + self.rng.randint(0, 2), factor, kinds or Kinds(), rates, [] if trace else None,
                           entries_max=self.rng.choice((1, 3, 20)))
        self.factor = factor
        self.world.stale = self.rng.choice((0.0, 0.3))
        self.world.misled, self.world.restless = self.rng.choice((0.0, 0.05)), self.rng.choice((0.0, 0.05))
        self.producers = [Producer(self.world, number, pause_seconds=pick(self.rng)) for number in range(1, 3)]
        self.consumers = [Consumer(self.world, f"#{number}", name, pause_seconds=pick(self.rng)) for number, name in ((1, "a"), (1, "b"), (2, "c"))]
        self.world.on_answers = self._answered
        self.operator = Client(self.world, pause_seconds=1.0)
        self.coordinators = [Coordinator(self.world, name) for name in ("m1", "m2")]
        self.pace = self.rng.uniform(0.1, 0.5)
        for loop in (self._nemesis, self._retention):
            self.world.at(self.rng.uniform(0.3, 0.8), loop)

    def _answered(self, wait: Waiting, outcome: object) -> None:
        request = wait.request
        if outcome is None or isinstance(request, TrimRequest):
            return  # unknown: the client's timer repeats it; a trim is as good as the next one
        clients = self.producers if isinstance(request, AppendRequest) else self.consumers
        for client in clients:
            if client.owns(request):
                client.answered(request, outcome)  # type: ignore[arg-type]

    # --- faults ---

    def _nemesis(self) -> None:
        if self.healing:
            return
        faults = (self._crash, self._crash_all, self._cut, self.mend, self._lose_disk, self._damage, self._stop_coordinator, self._jump, self._move)
        self.rng.choices(faults, (4, 1, 4, 3, 2, 2, 3, 1, 2))[0]()
        self.faults += 1
        self.world.at(self.rng.uniform(0.2, 1.8) * self.pace, self._nemesis)

    def _alive(self) -> list[int]:
        return [broker_id for broker_id, broker in self.world.brokers.items() if not broker.lost]

    def _crash(self) -> None:
        up = [broker_id for broker_id in self._alive() if self.world.brokers[broker_id].up]
        if up:
            broker_id = self.rng.choice(up)
            self.world.crash(broker_id, database=self.rng.random() < 0.5)
            self.world.at(self.rng.uniform(0.01, 0.8), self.world.start, broker_id)

    def _crash_all(self) -> None:
        for broker_id in self._alive():
            if self.world.brokers[broker_id].up:
                self.world.crash(broker_id, database=self.rng.random() < 0.5)
                self.world.at(self.rng.uniform(0.01, 0.3), self.world.start, broker_id)

    def _cut(self) -> None:
        side = self.split([*self._alive(), "m1", "m2"])
        self.world.note(f"cut {sorted(map(str, side))}")

    def _lose_disk(self) -> None:
        sound = self._spare()
        if sound:
            self.world.lose_disk(self.rng.choice(sound))

    def _damage(self) -> None:
        """What is stored turns out not to be what was stored."""
        sound = self._spare()
        if sound:
            self.world.damage(self.rng.choice(sound))

    def _spare(self) -> list[int]:
        """The voters with sound replicas, as long as a majority can spare one more: a slot that has no caught-up replica is lost already."""
        row = self.world.row()
        assert row is not None
        slots, goal = len(row["voters"]), row["replication_factor"]  # in a move there are more, and one may be taken away in the next moment
        sound = [int(broker) for broker, disk_id in row["voters"].items() if disk_id is not None and self._is_sound(int(broker))]
        may = row["status"] == "ACTIVE" and slots >= goal and slots - len(sound) < (goal - 1) // 2 and self._settled(row)
        return sound if may else []

    def _is_sound(self, broker_id: int) -> bool:
        broker = self.world.brokers[broker_id]
        return not broker.lost and broker.disk.head.fault is None

    def _settled(self, row: Mapping[str, object]) -> bool:
        """Whether every voter that is there is one by the leader's own belief too, so that no change is half done."""
        leader = self.world.brokers.get(row["leader"])  # type: ignore[call-overload]
        return leader is not None and is_leading(leader.disk.head) and leader.disk.head.leader_epoch == row["epoch"] and leader.marker_committed()

    def _stop_coordinator(self) -> None:
        self.rng.choice(self.coordinators).crash()

    def _jump(self) -> None:
        self.world.skew[self.rng.choice(self._alive())] = self.rng.randint(-60_000_000, 60_000_000)

    def _move(self) -> None:
        """An operator wants the replicas elsewhere, more of them or fewer; or thinks better of it."""
        alive = self._alive()
        wanted = self.rng.sample(alive, min(len(alive), self.rng.randint(1, self.factor + 1)))
        self.world.move(None if self.rng.random() < 0.2 else tuple(wanted))

    def _retention(self) -> None:
        """Now and then what everybody has consumed is trimmed; and logs begin later, each replica's for itself."""
        if self.healing:
            return
        self.operator.send(TrimRequest(self._handed_out()))
        broker_id = self.rng.choice(self._alive())
        disk = self.world.brokers[broker_id].disk
        border = plan_begin(disk.head, disk.borders(), kept_from=disk.log.end)
        if border is not None:
            self.world.note(f"{broker_id} drops what lies below {border.lsn}")
            disk.trim(border.lsn)
            self.world.checker.trimmed(disk)
        self.world.at(self.rng.uniform(0.1, 0.7), self._retention)

    def _handed_out(self) -> int:
        """What every consumer has consumed: only that is trimmed here, so that none is told that its messages are gone."""
        return min((len(self.world.checker.handed.get(name, ())) for name in ("#1", "#2")), default=0)

    # --- the end ---

    def heal(self) -> None:
        self.healing = True
        self.world.rates = Rates()
        self.world.stale = self.world.misled = self.world.restless = 0.0
        self.world.cut = set()
        self.world.note("healed")
        for broker_id in self._alive():
            self.world.start(broker_id)
        self.world.move(tuple(self.rng.sample(self._alive(), self.factor)))
        for client in self.producers:
            client.finishing = True
        for consumer in self.consumers:
            consumer.pause_seconds = 0.02
        for coordinator in self.coordinators:
            coordinator.restart()

    def has_converged(self) -> bool:
        """One leader, the voters that are wanted, all equal; every request answered, everything handed out."""
        row, world = self.world.row(), self.world
        assert row is not None
        if row["status"] != "ACTIVE" or not all(producer.done for producer in self.producers) or row["learners"] or row["wanted"]:
            return False
        voters = {int(broker): disk_id for broker, disk_id in row["voters"].items()}
        if len(voters) != self.factor or any(disk_id is None or world.brokers[broker].lost for broker, disk_id in voters.items()):
            return False
        length = len(world.checker.ledger)
        heads = [world.brokers[broker].disk.head for broker in voters]
        if any((head.end.lsn, head.commit_lsn, head.applied_lsn) != (length, length, length) for head in heads):
            return False
        records = world.checker.records()
        return all(len(world.checker.handed.get(name, ())) == records for name in ("#1", "#2")) or not records

    def status(self) -> str:
        """Where everybody stands."""
        brokers = {broker_id: (broker.up, broker.lost, broker.disk.head.promised_epoch, broker.disk.head.leader_epoch, broker.disk.log.start,
                               broker.disk.log.end, broker.disk.head.commit_lsn, broker.disk.head.applied_lsn, broker.disk.head.seeding_until)
                   for broker_id, broker in self.world.brokers.items()}
        return (f"{self.world.row()} ledger {len(self.world.checker.ledger)} open {[len(one.open) for one in self.producers]} "
                f"handed { {name: len(of) for name, of in self.world.checker.handed.items()} } brokers {brokers} topic {TOPIC_ID}")


def run_seed(seed: int, options: Options | None = None, kinds: Kinds | None = None, *, trace: bool = False) -> Result:
    """One schedule from its seed."""
    return PartitionsRun(seed, options or Options(), kinds, trace=trace).go()
