"""PURE: from what was measured to what is shown. Times are seconds until they become a column, whose name says the unit."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

CLIENT, CALLER, ELSE = "client", "caller", "else"  # kinds of CPU time beside those of the servers


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one piece of work did.

    Attributes:
        count: messages moved, or calls answered.
        latencies: seconds each, where they count.
        extra: further figures by name; the name ends with the unit.
    """

    count: int
    latencies: Sequence[float] = ()
    extra: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Round:
    """One measurement.

    Attributes:
        turn: its number among those of the same case and contender, from 0.
        seconds: from the first call to the last acknowledgement.
        cpu: CPU seconds by kind: "client", of it "caller" (the thread that calls), the kinds of its servers, and "else" for whatever else
            ran on the machine.
    """

    workload: str
    case: str
    who: str
    acknowledged: str
    turn: int
    count: int
    seconds: float
    cpu: Mapping[str, float]
    p50_ms: float | None = None
    p99_ms: float | None = None
    extra: Mapping[str, float] = field(default_factory=dict)

    @property
    def per_second(self) -> float:
        return self.count / self.seconds


@dataclass(frozen=True, slots=True)
class Row:
    """One contender in one case: medians over its rounds.

    Attributes:
        spread: (largest - smallest) / median of the rate; above 0.2 the machine was not quiet.
        ratios: its rate divided by that of the contender named.
        cpu_us: CPU microseconds by kind for each message; without "else".
        cores: cores in use: "client", "servers", "else".
    """

    workload: str
    case: str
    who: str
    acknowledged: str
    rounds: int
    per_second: float
    spread: float
    ratios: Mapping[str, float]
    p50_ms: float | None
    p99_ms: float | None
    cpu_us: Mapping[str, float]
    cores: Mapping[str, float]
    extra: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all does not exceed (nearest rank). Raises ValueError where there is none."""
    if not values:
        raise ValueError("a quantile needs a value")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def rows(rounds: Iterable[Round], bases: Mapping[tuple[str, str], Sequence[str]]) -> list[Row]:
    """A row for each case and contender, in the order in which they were first measured.

    Args:
        bases: by (workload, case), the contenders to which the others are compared.
    """
    groups: dict[tuple[str, str, str], list[Round]] = {}
    for one in rounds:
        groups.setdefault((one.workload, one.case, one.who), []).append(one)
    return [_row(group, {base: groups.get((workload, case, base), []) for base in bases.get((workload, case), ()) if base != who})
            for (workload, case, who), group in groups.items()]


def ratio(rounds: Sequence[Round], base: Sequence[Round]) -> float | None:
    """The median over the turns of rate by rate: what slowed a whole turn down counts for neither. None where no turn is in common."""
    rates = {one.turn: one.per_second for one in base}
    return _median(one.per_second / rates[one.turn] for one in rounds if one.turn in rates)


def _row(group: Sequence[Round], bases: Mapping[str, Sequence[Round]]) -> Row:
    first, rates = group[0], [one.per_second for one in group]
    rate = statistics.median(rates)
    return Row(first.workload, first.case, first.who, first.acknowledged, len(group), rate, (max(rates) - min(rates)) / rate,
               {base: found for base, rounds in bases.items() if (found := ratio(group, rounds)) is not None},
               _median(one.p50_ms for one in group), _median(one.p99_ms for one in group),
               {kind: statistics.median(one.cpu[kind] / one.count * 1e6 for one in group) for kind in first.cpu if kind != ELSE},
               _cores(group), {name: statistics.median(one.extra[name] for one in group) for name in first.extra})


def _cores(group: Sequence[Round]) -> dict[str, float]:
    def used(kinds: Iterable[str]) -> float:
        return statistics.median(sum(one.cpu.get(kind, 0.0) for kind in kinds) / one.seconds for one in group)

    servers = [kind for kind in group[0].cpu if kind not in (CLIENT, CALLER, ELSE)]
    return {"client": used([CLIENT]), "servers": used(servers), "else": used([ELSE])}


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
