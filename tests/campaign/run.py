"""One campaign from its start to its history: a cluster, clients of every face, the nemesis, healing, draining, a last look."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from myqueue.client.admin import AdminClient
from myqueue.errors import MyQueueError
from tests.campaign import observe
from tests.campaign.checkers.consumers import STUCK_SECONDS
from tests.campaign.history import OK, History, Struck
from tests.campaign.lab import Lab, Shape, open_lab
from tests.campaign.nemesis import Nemesis
from tests.campaign.schedule import Fault, make_schedule
from tests.campaign.workload.client import Client, HttpClient, Reader, Setting
from tests.campaign.workload.group import Group, GroupMember
from tests.campaign.workload.metadata import ManagerWatch, PartitionWatch, Registrar
from tests.campaign.workload.native import NativeProducer, NativeReader, Trimmer
from tests.campaign.workload.queue import QueueProducer, QueueReader
from tests.campaign.workload.sdk import SdkProducer, SdkReader, SdkRestarter

HEAL_SECONDS = 120.0
LOOK_SECONDS = 0.1
TOPICS = {"sdk": 3, "queue": 2, "native": 2, "trimmed": 2}  # topic → partitions
SDK, QUEUE, NATIVE, TRIMMED = TOPICS
TRIMMED_FILLER = "x" * 2_000  # so that its segments fill


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be done.

    Attributes:
        rate: messages a second that the SDK's producers send together.
        only: kinds of faults to draw from; all by default.
        faults: a schedule of one's own in place of the seed's.
        replication_factor: of the topics; None leaves it to the cluster.
        logs: a folder for the nodes' logs, which are gone with the cluster otherwise.
        patience_seconds: how long nobody may stand still after healing; less only where the verdict is about something else.
        enough: ends the faults before their time once it is true of the history.
    """

    seconds: float
    seed: int
    rate: float = 300.0
    pause_seconds: float = 5.0
    only: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    replication_factor: int | None = None
    shape: Shape = field(default_factory=Shape)
    patience_seconds: float = STUCK_SECONDS
    logs: Path | None = None
    enough: Callable[[History], bool] = lambda history: False


def run(plan: Plan, say: Callable[[str], None] = lambda line: None) -> History:
    """Carry a plan out. The history is complete: everything has ended, and the cluster is gone."""
    with open_lab(plan.shape) as lab:
        began = time.monotonic()
        history = History()
        campaign = _Campaign(plan, lab, Setting(lab.bootstrap, lab.url, history, lambda: time.monotonic() - began), say)
        try:
            campaign.go()
        finally:
            campaign.end()
            if plan.logs is not None:
                shutil.copytree(lab.cluster.folder.logs, plan.logs, dirs_exist_ok=True)
        return history


class _Campaign:
    def __init__(self, plan: Plan, lab: Lab, setting: Setting, say: Callable[[str], None]) -> None:
        self._plan, self._lab, self._setting, self._say = plan, lab, setting, say
        self._history, self._now = setting.history, setting.now
        self._producers: list[Client] = []
        self._readers: list[Reader] = []
        self._others: list[Client] = []

    def go(self) -> None:
        self._make_topics()
        self._make_clients()
        for client in (*self._producers, *self._readers, *self._others):
            client.start()
        if not self._wait(lambda: all(self._acknowledged_since(producer.name, 0.0) for producer in self._producers), HEAL_SECONDS):
            self._say(f"not every producer has a message acknowledged after {HEAL_SECONDS:.0f} s")
        first = self._now()  # the schedule's own zero: everybody is at work
        for name in self._lab.nodes.brokers:
            self._lab.broker_id(name)
        nemesis = Nemesis(self._lab, self._history, seed=self._plan.seed, now=lambda: self._now() - first, say=self._say)
        faults = self._plan.faults or make_schedule(self._plan.seed, self._lab.nodes, seconds=self._plan.seconds,
                                                    pause_seconds=self._plan.pause_seconds, only=self._plan.only)
        nemesis.run(faults, self._plan.enough)
        nemesis.heal()
        self._history.struck[:] = [Struck(one.kind, one.victims, one.began + first, one.ended + first, one.remark) for one in self._history.struck]
        if self._wait(lambda: not self._lab.unready(), HEAL_SECONDS):
            self._history.healed_at = self._now()
            self._say(f"{self._now() - first:6.1f} s  healed")
            nemesis.remove_added()
            self._drain()
            self.end()
            observe.look(self._lab, self._history, list(TOPICS))
        else:
            self._say(f"not ready {HEAL_SECONDS:.0f} s after the last fault: {', '.join(self._lab.unready())}")
        self._history.ended_at = self._now()

    def end(self) -> None:
        """Whatever happened: no thread is left behind. The last look comes after it, so that it sees all that was done."""
        clients = [*self._producers, *self._readers, *self._others]
        self._producers, self._readers, self._others = [], [], []
        _finish(clients)

    # --- before ---

    def _make_topics(self) -> None:
        maker = HttpClient("maker", self._setting)
        factor = {} if self._plan.replication_factor is None else {"replication_factor": self._plan.replication_factor}
        for topic, partitions in TOPICS.items():
            maker.insist("POST", "/v1/topics", json={"topic": topic, "partitions": partitions, **factor}, good=(201, 409))

    def _make_clients(self) -> None:
        setting, lab = self._setting, self._lab
        self._producers += [SdkProducer(f"sdk-{n}", setting, SDK, rate=self._plan.rate / 2) for n in (1, 2)]
        self._producers.append(SdkProducer("sdk-small", setting, SDK, rate=self._plan.rate / 20, small=True))
        self._producers.append(QueueProducer("queue-1", setting, QUEUE))
        self._producers += [NativeProducer(f"native-{n}", setting, NATIVE, n) for n in range(TOPICS[NATIVE])]
        self._producers += [NativeProducer(f"trimmed-{n}", setting, TRIMMED, n, filler=TRIMMED_FILLER) for n in range(TOPICS[TRIMMED])]
        trimmed_readers = [NativeReader(f"trimmed reader {n}", setting, TRIMMED, n) for n in range(TOPICS[TRIMMED])]
        self._readers += [*trimmed_readers, SdkReader("sdk reader", setting, [SDK, NATIVE]), SdkRestarter("sdk restarter", setting, [SDK]),
                          QueueReader("queue reader", setting, QUEUE, with_request_ids=False),
                          QueueReader("queue repeater", setting, QUEUE, with_request_ids=True)]
        self._readers += [NativeReader(f"native reader {n}", setting, NATIVE, n) for n in range(TOPICS[NATIVE])]
        group = Group("readers", [SDK, NATIVE])
        self._readers += [GroupMember(f"group member {n}", setting, group, comes_and_goes=n == 2) for n in (1, 2)]
        self._others.append(Trimmer("trimmer", setting, trimmed_readers, self._plan.seed))
        self._others += [Registrar(f"registrar {n}", setting, SDK, self._plan.seed) for n in (1, 2)]
        self._others += [ManagerWatch(name, setting, lab.cluster.folder.logs / f"{name}.log") for name in lab.nodes.managers]
        partitions = [(topic, partition) for topic, count in TOPICS.items() for partition in range(count)]
        self._others += [PartitionWatch(name, setting, lab.direct_url(name), partitions) for name in lab.nodes.brokers]
        self._history.readers = {reader.name for reader in self._readers}

    # --- after ---

    def _drain(self) -> None:
        healed = self._now()
        self._wait(lambda: all(self._acknowledged_since(producer.name, healed) for producer in self._producers), self._plan.patience_seconds)
        for producer in self._producers:
            producer.ask_to_end()
        _finish(self._producers)
        self._producers = []
        quiet = self._now()
        self._read_to_end(self._ends(), quiet)

    def _acknowledged_since(self, worker: str, at: float) -> bool:
        return any(sent.worker == worker and sent.outcome == OK and sent.ended >= at for sent in reversed(self._history.sent[-20_000:]))

    def _ends(self) -> dict[tuple[str, int], int]:
        """Each partition's end; what cannot be asked is asked again for a while."""
        with AdminClient(self._setting.bootstrap, max_block_seconds=STUCK_SECONDS) as admin:
            return {(at.topic, at.partition): ends.end for topic in TOPICS for at, ends in admin.offsets(topic).items()}

    def _read_to_end(self, ends: dict[tuple[str, int], int], since: float) -> None:
        """Note when each reader is at the end; one is waited for as long as it lives and makes progress."""
        waiting = {reader: (reader.progress, self._now()) for reader in self._readers}
        while waiting:
            for reader, (progress, at) in list(waiting.items()):
                if reader.is_at_end(ends, since):
                    self._history.finished[reader.name] = self._now()
                    del waiting[reader]
                elif reader.progress != progress:
                    waiting[reader] = (reader.progress, self._now())
                elif reader.has_ended() or self._now() - at > self._plan.patience_seconds:
                    del waiting[reader]
            time.sleep(LOOK_SECONDS)

    def _wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                if condition():
                    return True
            except MyQueueError:  # the supervisor is busy: asked again
                pass
            time.sleep(LOOK_SECONDS)
        return False


def _finish(clients: Sequence[Client]) -> None:
    """End all of them, side by side: each may have something under way."""
    for client in clients:
        client.ask_to_end()
    if clients:
        with ThreadPoolExecutor(len(clients)) as pool:
            list(pool.map(lambda client: client.finish(), clients))
