"""Brokers that hold one partition together, with a coordinator's part played by the test through the calls between nodes."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg2

from broker.core.leading import LEASE_SECONDS
from myqueue.protocol import routes
from tests.support.broker_process import BrokerProcess
from tests.support.manager_stub import ManagerStub, manager_stub
from tests.support.waiting import wait_until


@dataclass
class Replicas:
    """A partition on several brokers."""

    managers: ManagerStub
    urls: list[str]
    arguments: tuple[str, ...] = ()
    brokers: dict[int, BrokerProcess] = field(default_factory=dict)
    disks: dict[int, str] = field(default_factory=dict)
    epoch: int = 0
    leader: int = 0
    topic_id: int = 0

    @property
    def topic(self) -> str:
        return f"t{self.topic_id}"

    @property
    def records(self) -> str:
        return f"/v1/topics/{self.topic}/partitions/0/records"

    @property
    def dequeue(self) -> str:
        return f"/internal/partitions/{self.topic_id}/0/dequeue"

    def begin(self, leader: int = 1, *, voters: tuple[int, ...] = (1, 2, 3)) -> None:
        """Another topic; brokers that died are back."""
        for broker_id, broker in list(self.brokers.items()):
            if broker.process.poll() is not None:
                self.start(broker_id)
        self.topic_id += 1
        self.disks = {broker_id: broker.call("GET", routes.I_IDENTITY)["disk_id"] for broker_id, broker in self.brokers.items()}
        self.found(leader, voters=voters)

    def start(self, broker_id: int) -> BrokerProcess:
        """Start a broker on its database; ids follow the order of the first starts."""
        if broker_id in self.brokers:
            self.brokers[broker_id].stop()
        broker = self.brokers[broker_id] = BrokerProcess(self.urls[broker_id - 1], self.managers.url, arguments=self.arguments).wait_ready()
        self.disks[broker_id] = broker.call("GET", routes.I_IDENTITY)["disk_id"]
        return broker

    def item(self, **more: Any) -> dict[str, Any]:
        return {"topic_id": self.topic_id, "topic": self.topic, "config": {}, "partition": 0, "epoch": self.epoch,
                "replication_factor": len(self.urls), **more}

    def found(self, leader: int = 1, *, voters: tuple[int, ...] = (1, 2, 3), learners: tuple[int, ...] = ()) -> None:
        """The partition's first leadership."""
        self.epoch = 1
        self.voters = voters
        self.appoint(leader, learners=learners)

    def appoint(self, leader: int, *, learners: tuple[int, ...] = ()) -> None:
        body = self.item(voters={str(broker): self.disks[broker] for broker in self.voters}, learners=list(learners))
        result = self.brokers[leader].call("POST", routes.I_APPOINT, {"appointments": [body]})["results"][0]
        assert result["ok"], result
        self.leader = leader

    def promises(self, brokers: list[int]) -> dict[int, dict[str, Any]]:
        """A new epoch, promised by these brokers."""
        self.epoch += 1
        return {broker: self.brokers[broker].call("POST", routes.I_PROMISE, {"promises": [self.item()]})["results"][0] for broker in brokers}

    def elect(self, *brokers: int) -> int:
        """A new leader from the promises of these brokers, a majority: the one whose log goes furthest. When this returns, it takes writes."""
        answers = self.promises(list(brokers))
        assert all(answer["ok"] for answer in answers.values()), answers
        self.appoint(max(answers, key=lambda broker: (answers[broker]["end_epoch"], answers[broker]["end_lsn"])))
        wait_until(lambda: self.status(self.leader)["committed_in_epoch"], timeout_seconds=10, what="the leader's first entry to be committed")
        return self.leader

    def status(self, broker_id: int) -> dict[str, Any]:
        """How the partition is on a broker; empty where that does not hold it yet."""
        held = self.brokers[broker_id].call("POST", routes.I_STATUS, {"partitions": [[self.topic_id, 0]]})["partitions"]
        return held[0] if held else {}

    def send(self, value: str, *, seq: int | None = None, to: int | None = None, status: int = 200, timeout_seconds: float = 15.0) -> dict[str, Any]:
        """One message to the leader, or to a broker that may be none."""
        headers = {} if seq is None else {"Producer-Id": "5", "Producer-Epoch": "0", "Producer-Seq": str(seq)}
        broker = self.brokers[to or self.leader]
        return broker.call("POST", self.records, {"value": value}, headers=headers, status=status, timeout_seconds=timeout_seconds)

    def values(self, broker_id: int, first: int = 0) -> list[str]:
        """What a replica holds as committed, from an offset on."""
        out: list[str] = []
        while True:
            found = self.brokers[broker_id].call("GET", self.records, offset=first + len(out), max_records=1_000)["records"]
            if not found:
                return out
            out += [one["value"] if "value" in one else base64.b64decode(one["value_base64"]).decode() for one in found]

    def wait_equal(self, brokers: tuple[int, ...] = (1, 2, 3), *, timeout_seconds: float = 10.0) -> dict[str, Any]:
        """Until these replicas hold the leader's whole log as committed and folded; the leader's status."""
        names = ("end_lsn", "end_offset", "commit_lsn", "commit_offset", "applied_lsn")

        def equal() -> bool:
            found = [[status.get(name) for name in names] for status in map(self.status, brokers)]
            return found[0][0] == found[0][2] == found[0][4] and all(one == found[0] for one in found)

        try:
            wait_until(equal, timeout_seconds=timeout_seconds, what="replicas to be equal")
        except AssertionError as error:
            for broker_id in brokers:
                with suppress(ProcessLookupError, AssertionError):  # of one that is dead or stopped: the rest is to be said all the same
                    self.brokers[broker_id].tell_stacks()
            said = "\n".join(f"broker {broker_id}: {self.status(broker_id)}\n{self.brokers[broker_id].log[-20_000:]}" for broker_id in brokers)
            raise AssertionError(f"{error}\n{said}") from None
        return self.status(self.leader)

    def wait_for_silence(self, *followers: int) -> None:
        """Until the leader has not heard of these for longer than its lease, or has never heard of them."""
        def silent() -> bool:
            replicas = self.status(self.leader)["replicas"]
            ages = [replicas[str(follower)]["age_seconds"] for follower in followers]
            return all(age is None or age > LEASE_SECONDS + 0.5 for age in ages)

        wait_until(silent, timeout_seconds=10, what="the lease to end")

    def stop(self) -> None:
        for broker in self.brokers.values():
            broker.stop()



def _give_identity(url: str) -> None:
    """The databases of a test are copies of one: each becomes a disk of its own."""
    with closing(psycopg2.connect(url)) as connection, connection, connection.cursor() as cursor:
        cursor.execute("UPDATE broker_identity SET disk_id = gen_random_uuid()")


@contextmanager
def replicas(postgres: Any, *, count: int = 3, started: int | None = None, arguments: tuple[str, ...] = ()) -> Iterator[Replicas]:
    """Brokers with a database each and these arguments; the first ``started`` of them run."""
    with ExitStack() as stack:
        managers = stack.enter_context(manager_stub(many=True))
        group = Replicas(managers, [stack.enter_context(postgres.database("broker")) for _ in range(count)], arguments)
        for url in group.urls:
            _give_identity(url)
        stack.callback(group.stop)
        for broker_id in range(1, (count if started is None else started) + 1):
            group.start(broker_id)
        yield group
