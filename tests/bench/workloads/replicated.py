"""What two more replicas cost where three brokers have their databases on one disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

from tests.bench.contenders.myqueue import MyQueue
from tests.bench.figures import Outcome
from tests.bench.plan import Case, Entry, Options
from tests.bench.stage import Stage

SIZE, BATCH = 100, 1_000
FACTORS = {1: "fsync", 3: "fsync at 2 of 3 brokers at least"}


def cases(stage: Stage, options: Options) -> Sequence[Case]:
    ours = stage.three
    entries = [Entry(f"{ours.name}, {replicas(factor)}", meaning, ours.roots, partial(_prepare, ours, factor, options.messages // 2))
               for factor, meaning in FACTORS.items()]
    return [Case("replicated", "three brokers on one disk, batches of 1,000", entries, (entries[0].who,))]


def replicas(factor: int) -> str:
    return f"{factor} replica{'s' if factor > 1 else ''}"


def _prepare(ours: MyQueue, factor: int, count: int, turn: int, stack: ExitStack) -> Callable[[], Outcome]:
    log = f"replicated-{factor}-{turn}"
    ours.create(log, factor=factor)
    produce = ours.producing(log, b"x" * SIZE, count, BATCH, stack)

    def work() -> Outcome:
        produce()
        return Outcome(count)

    return work
