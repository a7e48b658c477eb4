"""The partitions' scenario files. ``script.py`` says how they read; these are their commands.

    brokers N [factor=F] [entries-max=K]   N brokers, coordinators m1 and m2, a partition with F replicas (all); the first command
    appoint M                  M's turn, and what it and the leader say to each other: M tells a leader of its appointment
    turn M                     half a second passes and M does what is due
    begin M                    M begins an election among the present voters
    force M B …                an operator has M begin one among these voters alone, and gives the others up
    decide M [A]               M appoints the furthest of who promised (A where several are)
    elect M A by B C …         M begins an election, is promised the epoch by these only, decides for A and appoints it
    produce B P SEQ TEXT …     broker B takes a request of producer P, a block for each text
    dequeue B CONSUMER ID      broker B is asked for the consumer's next message
    keep B                     the keeper's turn at B: it sends to every follower, folds, answers
    send B C [COUNT]           B's next append to its follower C, and the answer to it, so many times; nothing else comes of it
    crash B [database], start B, lose-disk B, trim B, flip B LSN, damage B
    replace-disk B             B comes back with an empty disk under another identity, and registers it
    cut A [B …], mend          nothing passes between A and these (all); everything does again
    rounds B                   ten turns of B's keeper, everything delivered, no trace
    ask M B                    M asks what B says of its replica, and is answered
    settle B                   the same; then all voters that are up must hold, and have committed and folded, the same, and B something of its own
    status                     a line for the partition and one per broker
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from broker.core.append import AppendRequest
from broker.core.group import Handed, Request
from broker.core.offsets import DequeueRequest
from broker.core.replica import is_leading
from manager.cluster import commands
from myqueue.errors import MyQueueError
from myqueue.protocol.batch import blocks_of, pack_values
from myqueue.protocol.types import ProducerSequence
from tests.simulation.checker import require
from tests.simulation.partitions.broker import Broker, Waiting
from tests.simulation.partitions.coordinator import Coordinator
from tests.simulation.partitions.describe import describe, log_of, voters
from tests.simulation.partitions.world import Kinds, World
from tests.simulation.script import Script

TURN_SECONDS = 0.5  # so long that an election under way is begun anew
ROUNDS = 10


class Scenario(Script):
    """Runs the commands of one file on a partition."""

    folder = Path(__file__).parent / "scenarios"

    def __init__(self, kinds: Kinds | None = None) -> None:
        self.kinds = kinds or Kinds()
        self.asked: dict[DequeueRequest, int] = {}  # what had been acknowledged when it was asked

    def commands(self) -> Mapping[str, Callable[..., None]]:
        return {
            "brokers": self._brokers, "appoint": self._appoint, "turn": self._turn, "begin": self._begin, "force": self._force,
            "decide": self._decide, "elect": self._elect, "produce": self._produce, "dequeue": self._dequeue,
            "ask": self._ask_status, "keep": lambda broker: self.world.keep(int(broker)), "send": self._send, "crash": self._crash,
            "start": lambda broker: self.world.start(int(broker)),
            "damage": lambda broker: self.world.damage(int(broker)),
            "lose-disk": lambda broker: self.world.lose_disk(int(broker)), "replace-disk": self._replace_disk, "trim": self._trim,
            "flip": lambda broker, lsn: self._disk(broker).flip(int(lsn)), "cut": self._cut, "mend": self._mend, "rounds": self._rounds,
            "settle": self._settle, "status": self._status}

    def _brokers(self, count: str, *options: str) -> None:
        named = dict(option.split("=") for option in options)
        self.world = World(random.Random(0), int(count), int(named.get("factor", count)), self.kinds, trace=[], automatic=False,
                           entries_max=int(named.get("entries-max", "100")))
        self.world.on_answers = self._answered
        self.coordinators = {name: Coordinator(self.world, name) for name in ("m1", "m2")}

    # --- coordinators ---

    def _turn(self, name: str) -> None:
        self.world.now += TURN_SECONDS
        self.coordinators[name].turn()

    def _appoint(self, name: str) -> None:
        self._turn(name)
        self._exchange(name, str(self._row()["leader"]))

    def _ask_status(self, name: str, broker: str) -> None:
        self.coordinators[name].ask(int(broker))
        self._exchange(name, broker)

    def _begin(self, name: str) -> None:
        replicas = self.coordinators[name].look()
        self.coordinators[name].begin(replicas, replicas.voters)

    def _force(self, name: str, *left: str) -> None:
        replicas = self.coordinators[name].look()
        self.coordinators[name].begin(replicas, {int(one): replicas.voters[int(one)] for one in left}, commands.ForceElections)

    def _decide(self, name: str, preferred: str | None = None) -> None:
        coordinator, row = self.coordinators[name], self._row()
        if row["status"] == "ELECTING" and coordinator.ballot is not None and coordinator.ballot.epoch == row["epoch"]:
            coordinator.decide(preferred=None if preferred is None else int(preferred))

    def _elect(self, name: str, leader: str, _by: str, *among: str) -> None:
        self._begin(name)
        for broker in map(str, self.world.brokers):
            if broker in among:
                self._exchange(name, broker)
            else:
                self._drop(name, broker)
        self._decide(name, leader)
        self._appoint(name)

    # --- clients ---

    def _produce(self, broker: str, producer: str, seq: str, *texts: str) -> None:
        blocks = [block for text in texts for block in blocks_of(pack_values([text.encode()]))]
        self._ask(broker, AppendRequest(blocks, ProducerSequence(int(producer), 0, int(seq))))

    def _dequeue(self, broker: str, consumer: str, request_id: str) -> None:
        request = DequeueRequest(consumer, request_id)
        self.asked[request] = self.world.checker.records_acknowledged
        self._ask(broker, request)

    def _ask(self, broker: str, request: Request) -> None:
        try:
            self.world.take(int(broker), request)
        except MyQueueError as error:
            self.world.note(describe(error))

    def _answered(self, wait: Waiting, outcome: Any) -> None:
        if isinstance(outcome, Handed) and outcome.offset is None:
            self.world.checker.found_empty(wait.request, self.asked[wait.request])

    # --- machines and network ---

    def _send(self, leader: str, follower: str, count: str = "1") -> None:
        for _ in range(int(count)):
            before = list(self.world.network)
            self.world.send(int(leader), int(follower))
            self._deliver(leader, follower, "last")
            self._deliver(follower, leader, "last")
            self.world.network = [message for message in self.world.network if message in before]

    def _disk(self, broker: str) -> Any:
        return self.world.brokers[int(broker)].disk

    def _crash(self, broker: str, what: str = "") -> None:
        self.world.crash(int(broker), database=what == "database")

    def _replace_disk(self, broker: str) -> None:
        self.world.replace_disk(int(broker))
        self.world.start(int(broker))

    def _trim(self, broker: str) -> None:
        self._disk(broker).trim(self._disk(broker).head.applied_lsn)

    def _cut(self, one: str, *others: str) -> None:
        names: list[Any] = [*self.world.brokers, *self.coordinators]
        ends = [name for name in names if str(name) in (others or tuple(str(other) for other in names if str(other) != one))]
        cut = next(name for name in names if str(name) == one)
        self.world.cut |= {(cut, other) for other in ends} | {(other, cut) for other in ends}

    def _mend(self) -> None:
        self.world.cut = set()

    # --- looking ---

    def _row(self) -> dict[str, Any]:
        row = self.world.row()
        assert row is not None
        return row

    def _rounds(self, broker: str) -> None:
        traced, self.world.trace = self.world.trace, None
        for _ in range(ROUNDS):
            self.world.keep(int(broker))
            self._deliver()
        self.world.trace = traced

    def _settle(self, broker: str) -> None:
        self._rounds(broker)
        replicas = {int(slot): self.world.brokers[int(slot)] for slot in self._row()["voters"]}
        ends = {slot: (one.disk.head.end.lsn, one.disk.head.commit_lsn, one.disk.head.applied_lsn) for slot, one in replicas.items() if one.up}
        require(len({position for end in ends.values() for position in end}) == 1, "convergence", f"(end, commit, applied) are {ends}")
        epoch = self._row()["epoch"]
        require(self.world.brokers[int(broker)].marker_committed(), "convergence", f"leader {broker} has committed nothing in epoch {epoch}")
        self._status()

    def _status(self) -> None:
        row = self._row()
        self.world.note(f"partition epoch={row['epoch']} {row['status']} leader={row['leader']} voters=[{voters(row['voters'])}] "
                        f"learners={row['learners']}")
        for broker_id, broker in self.world.brokers.items():
            head = broker.disk.head
            self.world.note(f"{broker_id} {_role(broker)} promised={head.promised_epoch} commit={head.commit_lsn} applied={head.applied_lsn} "
                            f"log={log_of(broker.disk)}")


def _role(broker: Broker) -> str:
    head = broker.disk.head
    if not broker.up:
        return "lost" if broker.lost else "down"
    if head.fault is not None:
        return "damaged"
    return "seeding" if head.seeding_until is not None else "leads" if is_leading(head) else "follows"
