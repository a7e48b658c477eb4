"""Whether anything becomes slower with more messages in a log, more partitions, more producers. Slices of both sides in turn."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

from tests.bench.contenders.myqueue import MyQueue
from tests.bench.figures import Outcome
from tests.bench.plan import Case, Entry, Options
from tests.bench.sdk_process import SdkProcess
from tests.bench.stage import Stage, say

SIZE, BATCH = 100, 1_000
SMALL = 100_000  # messages in the log that is not large
SLICE_SHARE = 5  # a slice is a fifth of a round's messages
READS = 300
PARTITIONS = (1, 10, 100)
PRODUCERS = (1, 4, 16)


def cases(stage: Stage, options: Options) -> Sequence[Case]:
    ours, filled = stage.ours, _Filled(stage.ours)
    large, count = max(SMALL, int(options.millions * 1e6)), max(1, options.messages // SLICE_SHARE)

    def case(name: str, entries: Sequence[tuple[str, Callable[[int, ExitStack], Callable[[], Outcome]]]]) -> Case:
        made = [Entry(f"{ours.name}, {who}", ours.acknowledged, ours.roots, prepare) for who, prepare in entries]
        return Case("growth", name, made, (made[0].who,))

    logs = {f"{SMALL:,} messages in the log": SMALL, f"{large:,} messages in the log": large}
    return [case("produce at the end of a log", [(who, partial(_produce, ours, filled, size, count)) for who, size in logs.items()]),
            case("one message at any offset", [(who, partial(_read, ours, filled, size)) for who, size in logs.items()]),
            case("produce to partitions", [(f"{n} partition{'s' if n > 1 else ''}", partial(_spread, ours, n, count * 2)) for n in PARTITIONS]),
            case("producers, a process each", [(f"{n} producer{'s' if n > 1 else ''}", partial(_crowd, ours, n, count * 2)) for n in PRODUCERS])]


class _Filled:
    """Logs with at least so many messages: the large one is made once, the small one anew for each slice."""

    def __init__(self, ours: MyQueue) -> None:
        self._ours, self._made = ours, set[str]()

    def log(self, size: int, name: str) -> str:
        log = f"growth-{size}" if size > SMALL else f"growth-{size}-{name}"
        if log not in self._made:
            if size > SMALL:
                say(f"filling a log with {size:,} messages")
            self._ours.create(log)
            with ExitStack() as stack:
                self._ours.producing(log, b"x" * SIZE, size, 10 * BATCH, stack)()
            self._made.add(log)
        return log


def _produce(ours: MyQueue, filled: _Filled, size: int, count: int, turn: int, stack: ExitStack) -> Callable[[], Outcome]:
    return _counted(ours.producing(filled.log(size, f"slice-{turn}"), b"x" * SIZE, count, BATCH, stack), count)


def _read(ours: MyQueue, filled: _Filled, size: int, turn: int, stack: ExitStack) -> Callable[[], Outcome]:
    read, rng = ours.reader(filled.log(size, "read"), stack), random.Random(turn)
    offsets = [rng.randrange(size) for _ in range(READS)]
    read(offsets[0])

    def work() -> Outcome:
        latencies = []
        for offset in offsets:
            began = time.perf_counter()
            read(offset)
            latencies.append(time.perf_counter() - began)
        return Outcome(READS, latencies)

    return work


def _spread(ours: MyQueue, partitions: int, count: int, turn: int, stack: ExitStack) -> Callable[[], Outcome]:
    log = f"growth-partitions-{partitions}-{turn}"
    ours.create(log, partitions=partitions)
    return _counted(ours.producing(log, b"x" * SIZE, count, BATCH, stack), count)


def _crowd(ours: MyQueue, producers: int, count: int, turn: int, stack: ExitStack) -> Callable[[], Outcome]:
    log = f"growth-producers-{producers}-{turn}"
    ours.create(log)
    share = max(1, count // producers)
    crowd = [SdkProcess("produce", ours.bootstrap, log, share, SIZE, stack) for _ in range(producers)]
    for one in crowd:
        one.await_ready()

    def work() -> Outcome:
        for one in crowd:
            one.go()
        for one in crowd:
            one.result()
        return Outcome(share * producers)

    return work


def _counted(work: Callable[[], None], count: int) -> Callable[[], Outcome]:
    def counted() -> Outcome:
        work()
        return Outcome(count)

    return counted
