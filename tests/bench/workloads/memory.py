"""How much memory a backlog takes: in the broker while it is written and read, in the SDK on both sides."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

from tests.bench.contenders.myqueue import MyQueue
from tests.bench.figures import Outcome
from tests.bench.machine import memory_bytes, tree
from tests.bench.plan import Case, Entry, Options
from tests.bench.sdk_process import SdkProcess
from tests.bench.stage import Stage

SIZE = 1024
LOOK_SECONDS = 0.1
MIB = 1 << 20


def cases(stage: Stage, options: Options) -> Sequence[Case]:
    ours = stage.ours
    return [Case("memory", f"{options.backlog_mib} MiB written, then read",
                 [Entry(ours.name, ours.acknowledged, ours.roots, partial(_prepare, ours, options.backlog_mib * MIB // SIZE))])]


def _prepare(ours: MyQueue, count: int, turn: int, stack: ExitStack) -> Callable[[], Outcome]:
    log = f"memory-{turn}"
    ours.create(log)
    producer = SdkProcess("produce", ours.bootstrap, log, count, SIZE, stack)
    producer.await_ready()

    def work() -> Outcome:
        broker = tree(ours.roots["server"])
        with Highest(broker) as written:
            producer.go()
            sent = producer.result()
        consumer = SdkProcess("consume", ours.bootstrap, log, count, SIZE, stack)
        consumer.await_ready()
        with Highest(broker) as read:
            consumer.go()
            seen = consumer.result()
        return Outcome(count, (), {"broker_while_written_MiB": written.growth / MIB, "broker_while_read_MiB": read.growth / MIB,
                                   "producer_MiB": sent["growth_bytes"] / MIB, "consumer_MiB": seen["growth_bytes"] / MIB})

    return work


class Highest:
    """While it is a context, looks at the memory of processes; ``growth`` is the highest value above the first, in bytes."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids, self._over = pids, threading.Event()
        self._first = self._most = memory_bytes(pids)
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def growth(self) -> int:
        return self._most - self._first

    def __enter__(self) -> Highest:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self._most = max(self._most, memory_bytes(self._pids))
