"""One message a call, each caller waiting for its own acknowledgement: what does not batch by itself."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

from tests.bench.contenders.base import WORK_SECONDS, Contender
from tests.bench.figures import Outcome
from tests.bench.plan import POSTGRES, SKETCH, Case, Entry, Options
from tests.bench.stage import Stage
from tests.bench.threads import side_by_side

MANY = 32
SECONDS = 2.0
VALUE = b"x" * 100
# A log and a stack in, a caller for one thread out.
Open = Callable[[str, ExitStack], Callable[[bytes], None]]


def cases(stage: Stage, options: Options) -> Sequence[Case]:
    ours = stage.ours
    seconds = min(SECONDS, options.seconds)
    others = [(contender, contender.name, contender.caller) for contender in (stage.postgres, stage.sketch, *stage.peers)]
    one = [(ours, f"{ours.name}, a broker directly", ours.direct_caller), (ours, f"{ours.name}, queue face", ours.queue_caller), *others]
    many = [(ours, f"{ours.name}, one SDK producer", ours.shared_sdk_caller), (ours, f"{ours.name}, queue face", ours.queue_caller), *others]
    return [Case("single", f"{callers} caller{'s' if callers > 1 else ''}",
                 [Entry(who, contender.acknowledged, contender.roots, partial(_prepare, contender, opened, callers, seconds, f"{callers}-{number}"))
                  for number, (contender, who, opened) in enumerate(entries)], (POSTGRES, SKETCH))
            for callers, entries in ((1, one), (MANY, many))]


def _prepare(contender: Contender, opened: Open, callers: int, seconds: float, name: str, turn: int, stack: ExitStack) -> Callable[[], Outcome]:
    log = f"single-{name}-{turn}"
    contender.create(log)
    is_shared = opened.__name__.startswith("shared")
    first = opened(log, stack)
    calls = [first if number == 0 or is_shared else opened(log, stack) for number in range(callers)]
    for call in calls[:1] if is_shared else calls:
        call(VALUE)  # connected, and every path known
    return lambda: answered(calls, seconds)


def answered(calls: Sequence[Callable[[bytes], None]], seconds: float) -> Outcome:
    """Each caller's thread calls again and again until the time is over."""
    taken: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + seconds

    def repeat(call: Callable[[bytes], None], latencies: list[float]) -> None:
        began = time.perf_counter()
        while began < end:
            call(VALUE)
            now = time.perf_counter()
            latencies.append(now - began)
            began = now

    side_by_side([partial(repeat, call, latencies) for call, latencies in zip(calls, taken, strict=True)], WORK_SECONDS)
    latencies = list(itertools.chain.from_iterable(taken))
    return Outcome(len(latencies), latencies)
