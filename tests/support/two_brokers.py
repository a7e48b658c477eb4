"""A leader and its followers in one process, on logs in memory: what goes between them is seen, and may be held back."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from broker.core import appends, seeds
from broker.core.replica import Appointment
from broker.follower import Follower
from broker.replicator import Replicator
from broker.service import BrokerService, Self
from db.log_store import LogStore
from db.memory_log import MemoryLogStore
from db.replication import AppendReply
from myqueue.client.transport import Response
from myqueue.clock import SystemClock
from myqueue.errors import UnreachableError
from myqueue.protocol import routes, wire
from myqueue.protocol.types import PartitionId
from myqueue.service.wakeups import Wakeups

VOTERS = {1: "disk-1", 2: "disk-2"}


@dataclass
class Wire:
    """The way from the leader to broker 2, in the place of ``Peers``."""

    follower: Follower
    is_open: bool = True
    sizes: list[int] = field(default_factory=list)  # of the bodies of appends that went through
    seeds: list[bytes] = field(default_factory=list)  # the starts that were offered

    def post(self, broker_id: int, path: str, body: bytes, content_type: str, *, read_timeout_seconds: float = 3.0) -> Response:
        assert broker_id == 2
        if not self.is_open:
            raise UnreachableError("the wire is cut")
        if path == routes.I_SEED:
            assert content_type == seeds.SEED_TYPE
            self.seeds.append(body)
            taken = [self.follower.take_seed(seeds.decode(body))]
        else:
            assert (path, content_type) == (routes.I_APPEND, appends.APPENDS_TYPE)
            self.sizes.append(len(body))
            taken = self.follower.take(appends.decode(body))
        replies = [appends.reply_to_json(reply) if isinstance(reply, AppendReply) else wire.error_to_json(reply) for reply in taken]
        return Response(200, {}, json.dumps({"replies": replies}).encode())


@dataclass
class TwoBrokers:
    """Broker 1 with its service, broker 2 as a follower."""

    store: MemoryLogStore
    other: MemoryLogStore
    wire: Wire
    service: BrokerService
    replicator: Replicator

    def lead(self, partition: PartitionId, epoch: int = 1) -> None:
        """Broker 1 leads the partition together with broker 2."""
        if epoch > 1:
            self.service.promise(partition, topic="t", config={}, epoch=epoch)
        self.service.appoint(partition, topic="t", config={}, appointment=Appointment(epoch, VOTERS, 2))


def ends(store: LogStore, partitions: Sequence[PartitionId]) -> list[int]:
    """Where these logs end; -1 for one that is not there."""
    held = {one.id: one.head.end.lsn for one in store.held()}
    return [held.get(partition, -1) for partition in partitions]


@contextmanager
def two_brokers(*, timeout_seconds: float = 10.0, kept_seconds: float = 60.0) -> Iterator[TwoBrokers]:
    """Running until the block ends."""
    clock, stopping = SystemClock(), threading.Event()
    store, other, wakeups = MemoryLogStore(), MemoryLogStore(), Wakeups()
    cable = Wire(Follower(other, Wakeups(), disk_id=lambda: "disk-2", stop_leading=lambda partition, epoch: None))
    replicator = Replicator(store, cable, wakeups, clock, identity=lambda: (1, "disk-1"),  # type: ignore[arg-type]
                            introduce=lambda topic_id: {"topic": "t", "config": {}}, kept_seconds=kept_seconds)
    service = BrokerService(store, wakeups, replicator, who=lambda: Self(1, "disk-1"), clock=clock, stopping=stopping, queue_bytes_max=64 << 20,
                            long_polls_max=4, timeout_seconds=timeout_seconds)
    threads = [threading.Thread(target=target, args=(stopping,)) for target in (service.writer.run, replicator.run, replicator.run)]
    for thread in threads:
        thread.start()
    try:
        yield TwoBrokers(store, other, cable, service, replicator)
    finally:
        stopping.set()
        for thread in threads:
            thread.join(15)
