"""Carries a plan out: prepare, look at the clocks, work, look again."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from .contenders.base import Contender
from .figures import CALLER, Round, quantile
from .machine import CpuWatch
from .plan import Case, Entry, order
from .stage import Stage, say

COUNT_SECONDS = 15.0
REPORT_SECONDS = 1.1  # a backend reports what it counted at the end of a transaction, at most once a second


def run(stage: Stage, cases: Sequence[Case], rounds: int) -> Iterator[Round]:
    """Every case, all contenders in turn. Raises whatever a contender raises: a figure of half the work is none."""
    for turn, case, entry in order(cases, rounds):
        one = measured(stage, case, entry, turn)
        told = f"{one.per_second:,.0f} a second" + (f", p50 {one.p50_ms:.2f} ms, p99 {one.p99_ms:.2f} ms" if one.p99_ms is not None else "")
        say(f"{turn + 1} of {rounds}, {case.workload}, {case.name}, {entry.who}: {told}")
        yield one


def measured(stage: Stage, case: Case, entry: Entry, turn: int) -> Round:
    with ExitStack() as stack:
        work = entry.prepare(turn, stack)
        stage.settle()
        watch, began, caller = CpuWatch(entry.roots, stage.all_roots()), time.perf_counter(), time.thread_time()
        outcome = work()
        seconds, cpu = time.perf_counter() - began, {CALLER: time.thread_time() - caller, **watch.used()}
    p50, p99 = (quantile(outcome.latencies, share) * 1e3 if outcome.latencies else None for share in (0.5, 0.99))
    return Round(case.workload, case.name, entry.who, entry.acknowledged, turn, outcome.count, seconds, cpu, p50, p99, outcome.extra)


def flushes(contenders: Sequence[Contender], groups: int) -> dict[str, dict[str, float]]:
    """Of each that counts them: syncs of the write-ahead log while so many groups of one message are acknowledged one after the other."""
    return {contender.name: _flushes_of(contender, contender.fsyncs() or 0, groups) for contender in contenders if contender.fsyncs() is not None}


def _flushes_of(contender: Contender, before: int, groups: int) -> dict[str, float]:
    """What a backend counted shows with a later commit of its own: more groups follow, a second apart, until enough are seen or time is over."""
    log, value = "fsyncs", b"x" * 100
    with ExitStack() as stack:
        contender.create(log)
        call = contender.caller(log, stack)
        for _ in range(groups):
            call(value)
        deadline = time.monotonic() + COUNT_SECONDS
        while (counted := (contender.fsyncs() or 0) - before) < groups - 1 and time.monotonic() < deadline:
            time.sleep(REPORT_SECONDS)
            call(value)
            groups += 1
    return {"groups": groups, "fsyncs": counted}
