"""PURE. From a history to a verdict: what each checker found, what was done, how long it took to go on after each fault."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice, pairwise
from typing import Any

from tests.campaign.checkers import CHECKERS
from tests.campaign.history import OK, History

SHOWN_MAX = 10  # findings of one checker that are told; all are counted up to COUNTED_MAX
COUNTED_MAX = 100_000
WAITS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """What one checker found: how many anomalies, and the first of them in words."""

    count: int = 0
    told: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds from a fault to the next acknowledgement, over the producers and faults concerned."""

    count: int
    median: float
    p95: float
    worst: float


@dataclass(frozen=True, slots=True)
class Wait:
    """A producer had nothing acknowledged for so long; ``said`` is what its calls were mostly answered meanwhile, where they are known."""

    worker: str
    began: float
    seconds: float
    said: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a campaign."""

    findings: dict[str, Finding]
    faults: dict[str, int]
    outcomes: dict[str, dict[str, int]]  # producer → outcome → messages
    reads: int
    commands: dict[str, int]  # outcome → operations on the metadata
    recovery: dict[str, Times]  # kind of fault → times
    overall: Times | None
    waits: tuple[Wait, ...] = ()
    remarks: tuple[str, ...] = field(default=())

    @property
    def is_clean(self) -> bool:
        return not any(finding.count for finding in self.findings.values())

    @property
    def acknowledged(self) -> int:
        return sum(counts.get(OK, 0) for counts in self.outcomes.values())

    def to_json(self) -> dict[str, Any]:
        return {"clean": self.is_clean, "acknowledged": self.acknowledged, **asdict(self)}


def judge(history: History) -> Verdict:
    """Let every checker see the history."""
    findings = {}
    for name, checker in CHECKERS.items():
        told = list(islice(checker(history), COUNTED_MAX))
        findings[name] = Finding(len(told), tuple(told[:SHOWN_MAX]))
    outcomes: dict[str, Counter[str]] = defaultdict(Counter)
    for sent in history.sent:
        outcomes[sent.worker][sent.outcome] += 1
    recovery = recovery_seconds(history)
    return Verdict(findings, dict(Counter(struck.kind for struck in history.struck)), {worker: dict(counts) for worker, counts in outcomes.items()},
                   len(history.read) + len(history.shared), dict(Counter(command.outcome for command in history.commands)),
                   {kind: times for kind in sorted(recovery) if (times := summarise(recovery[kind])) is not None},
                   summarise([seconds for one in recovery.values() for seconds in one]), longest_waits(history),
                   tuple(f"{struck.kind} {struck.victims}: {struck.remark}" for struck in history.struck if struck.remark))


def recovery_seconds(history: History) -> dict[str, list[float]]:
    """By kind of fault: for each fault and producer, the time to the first acknowledgement of something sent after the fault began."""
    begun: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for sent in history.sent:
        if sent.outcome == OK:
            begun[sent.worker].append((sent.began, sent.ended))
    lanes = [sorted(times) for times in begun.values()]
    found: dict[str, list[float]] = defaultdict(list)
    for struck in history.struck:
        for lane in lanes:
            place = bisect_left(lane, (struck.began, -math.inf))
            if place < len(lane):
                found[struck.kind].append(min(ended for _, ended in lane[place:place + 200]) - struck.began)
    return dict(found)


def longest_waits(history: History) -> tuple[Wait, ...]:
    """The longest times between two acknowledgements of a producer, whatever struck it meanwhile."""
    ended: dict[str, list[float]] = defaultdict(list)
    for sent in history.sent:
        if sent.outcome == OK:
            ended[sent.worker].append(sent.ended)
    gaps = sorted(((after - before, worker, before) for worker, times in ended.items() for before, after in pairwise(sorted(times))), reverse=True)
    waits = []
    for seconds, worker, before in gaps[:WAITS_SHOWN]:
        said = Counter(f"{refused.call}: {refused.status} {refused.said}" for refused in history.refused
                       if refused.who == worker and before <= refused.at <= before + seconds)
        waits.append(Wait(worker, before, seconds, "; ".join(f"{count} times {answer}" for answer, count in said.most_common(1))))
    return tuple(waits)


def summarise(seconds: Sequence[float]) -> Times | None:
    """Median, 95th percentile and worst (nearest rank); None of nothing."""
    if not seconds:
        return None
    ordered = sorted(seconds)

    def rank(share: float) -> float:
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

    return Times(len(ordered), rank(0.5), rank(0.95), ordered[-1])


def told(verdict: Verdict, *, replay: str) -> str:
    """The summary that people read."""
    rows = [("fault", "times", "next acknowledgement after: median", "p95", "worst")]
    for kind, count in sorted(verdict.faults.items()):
        rows.append((kind, str(count), *_seconds(verdict.recovery.get(kind))))
    rows.append(("all", str(sum(verdict.faults.values())), *_seconds(verdict.overall)))
    lines = [*_table(rows), "", *_table([("producer", "acknowledged", "failed", "unknown"), *(
        (worker, *(str(counts.get(outcome, 0)) for outcome in ("ok", "failed", "unknown"))) for worker, counts in sorted(verdict.outcomes.items()))])]
    lines += ["", "longest waits for an acknowledgement:"]
    lines += [f"  {wait.worker} {wait.seconds:.1f} s from {wait.began:.1f} s on{': ' if wait.said else ''}{wait.said}" for wait in verdict.waits]
    commands = ", ".join(f"{count} {outcome}" for outcome, count in sorted(verdict.commands.items()))
    lines += ["", f"{verdict.acknowledged} messages acknowledged, {verdict.reads} read; commands on the metadata: {commands or 'none'}", ""]
    lines += _table([("checker", "found"), *((name, str(finding.count) if finding.count else "none") for name, finding in verdict.findings.items())])
    lines += [f"remark: {remark}" for remark in verdict.remarks]
    for name, finding in verdict.findings.items():
        lines += [f"VIOLATION {name}: {sentence}" for sentence in finding.told]
    lines.append("faults: clean" if verdict.is_clean else f"faults: VIOLATIONS; replay: {replay}")
    return "\n".join(lines)


def _seconds(times: Times | None) -> tuple[str, str, str]:
    return ("-", "-", "-") if times is None else tuple(f"{value:.2f} s" for value in (times.median, times.p95, times.worst))  # type: ignore[return-value]


def _table(rows: Iterable[Sequence[str]]) -> list[str]:
    rows = list(rows)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.rjust(width) if column else cell.ljust(width)
                      for column, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip() for row in rows]
