"""PURE: what an hour or a day of minutes says. A soak has three phases: plain, held (somebody keeps a transaction open), after.

What must not happen: latency that creeps up, memory that grows without end, dead rows that outlast the transaction that held them, tables beside
the log that grow with time, a log that outgrows what its topic keeps.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

PLAIN, HELD, AFTER = "plain", "held", "after"
PHASE_SHARES = {PLAIN: 0.6, HELD: 0.2, AFTER: 0.2}
MINUTES_MIN = 4  # of a phase, to say anything of a trend
SLOWER, SLOWER_MS = 1.5, 2.0  # the median may grow by this factor and so much more
SLOWER_P99, SLOWER_P99_MS = 2.0, 10.0
SLOWER_HELD = 3.0
GROWTH_MIB, GROWTH_SHARE = 16.0, 0.15  # memory of a process over the second half of the plain phase
DEAD_FACTOR, DEAD_ROWS = 2.0, 5_000
TABLES_MIB_PER_HOUR = 16.0
LOG_FACTOR, LOG_MIB = 2.0, 16.0  # a topic keeps up to a quarter more than asked, and drops what is due with a delay


@dataclass(frozen=True, slots=True)
class Minute:
    """What was seen in one interval.

    Attributes:
        at_seconds: its end, since the soak began.
        memory_mib: by process.
        dead_rows: of all tables of the broker's database, as PostgreSQL counts them.
        autovacuums: finished since the server began.
        tables_mib: the tables beside the log, with indexes.
        log_mib: the log's tables, with indexes.
        dropped: log segments that were made and are gone.
    """

    at_seconds: float
    phase: str
    messages: int
    p50_ms: float
    p99_ms: float
    memory_mib: Mapping[str, float]
    dead_rows: int
    autovacuums: int
    tables_mib: float
    log_mib: float
    dropped: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """``findings`` are what is wrong; ``remarks`` what could not be judged, or should be known."""

    findings: Sequence[str]
    remarks: Sequence[str]
    minutes: Sequence[Minute] = field(repr=False)

    @property
    def is_good(self) -> bool:
        return not self.findings

    def to_json(self) -> dict[str, Any]:
        return {"good": self.is_good, "findings": list(self.findings), "remarks": list(self.remarks),
                "minutes": [asdict(one) for one in self.minutes]}


def phase_at(share: float) -> str:
    """The phase at a share of the whole time, from 0 to 1."""
    passed = 0.0
    for phase, part in PHASE_SHARES.items():
        passed += part
        if share < passed:
            return phase
    return AFTER


def judge(minutes: Sequence[Minute], *, retention_mib: float) -> Verdict:
    phases = {phase: [one for one in minutes if one.phase == phase] for phase in PHASE_SHARES}
    plain, held, after = phases.values()
    if len(plain) < MINUTES_MIN:
        return Verdict((), (f"{len(plain)} intervals before the held transaction are too few to judge: {MINUTES_MIN} are wanted",), minutes)
    findings = [*_latency(plain, held, after), *_memory(plain), *_rows(plain, after), *_tables(plain, minutes, retention_mib)]
    return Verdict(findings, _remarks(minutes, held), minutes)


def told(minute: Minute) -> str:
    """One interval as a line."""
    memory = " ".join(f"{name} {mib:.0f}" for name, mib in minute.memory_mib.items())
    return (f"{minute.at_seconds / 60:7.1f} min {minute.phase:5}  p50 {minute.p50_ms:7.2f} ms  p99 {minute.p99_ms:8.2f} ms  "
            f"dead {minute.dead_rows:7,}  vacuums {minute.autovacuums:4}  tables {minute.tables_mib:6.1f} MiB  log {minute.log_mib:6.1f} MiB  "
            f"dropped {minute.dropped:4}  MiB: {memory}")


def _latency(plain: Sequence[Minute], held: Sequence[Minute], after: Sequence[Minute]) -> Iterator[str]:
    first, last = _halves(plain)
    base50, base99 = _median50(first), _median99(first)
    if _median50(last) > base50 * SLOWER + SLOWER_MS:
        yield f"latency drifts: p50 was {base50:.2f} ms in the first half and {_median50(last):.2f} ms in the second"
    if _median99(last) > base99 * SLOWER_P99 + SLOWER_P99_MS:
        yield f"latency drifts: p99 was {base99:.2f} ms in the first half and {_median99(last):.2f} ms in the second"
    if held and _median50(held) > base50 * SLOWER_HELD + SLOWER_MS:
        yield f"an idle transaction slows everything: p50 {_median50(held):.2f} ms while it was open, {base50:.2f} ms before"
    if after and _median50(after[-2:]) > base50 * SLOWER + SLOWER_MS:
        yield f"what an idle transaction slowed down stays slow: p50 {_median50(after[-2:]):.2f} ms at the end, {base50:.2f} ms before"


def _memory(plain: Sequence[Minute]) -> Iterator[str]:
    """The first half is warming up: caches and pools fill. Then nothing may grow."""
    first, last = _halves(_halves(plain)[1])
    for name in plain[-1].memory_mib:
        before, now = (statistics.median(one.memory_mib.get(name, 0.0) for one in some) for some in (first, last))
        if now - before > max(GROWTH_MIB, before * GROWTH_SHARE):
            yield f"{name} grows: {before:.0f} MiB became {now:.0f}"


def _rows(plain: Sequence[Minute], after: Sequence[Minute]) -> Iterator[str]:
    usual = max(one.dead_rows for one in plain)
    if after and after[-1].dead_rows > max(DEAD_ROWS, usual * DEAD_FACTOR):
        yield f"dead rows outlast the transaction that held them: {after[-1].dead_rows:,} at the end, at most {usual:,} before"


def _tables(plain: Sequence[Minute], minutes: Sequence[Minute], retention_mib: float) -> Iterator[str]:
    first, last = _halves(plain)
    hours = max(1 / 60, (plain[-1].at_seconds - plain[0].at_seconds) / 2 / 3600)
    growth = (statistics.median(one.tables_mib for one in last) - statistics.median(one.tables_mib for one in first)) / hours
    if growth > TABLES_MIB_PER_HOUR:
        yield f"the tables beside the log grow by {growth:.1f} MiB an hour"
    most = max(one.log_mib for one in minutes)
    if most > retention_mib * LOG_FACTOR + LOG_MIB:
        yield f"the log takes {most:.0f} MiB though its topic keeps {retention_mib:.0f}"


def _remarks(minutes: Sequence[Minute], held: Sequence[Minute]) -> list[str]:
    last = minutes[-1]
    remarks = [f"{sum(one.messages for one in minutes):,} messages, {last.dropped} segments dropped, {last.autovacuums} autovacuums"]
    if not last.dropped:
        remarks.append("no segment was dropped: retention was not met")
    if not last.autovacuums:
        remarks.append("no autovacuum came by")
    if held:
        remarks.append(f"with an idle transaction open: p50 {_median50(held):.2f} ms, {max(one.dead_rows for one in held):,} dead rows at most")
    return remarks


def _halves(minutes: Sequence[Minute]) -> tuple[Sequence[Minute], Sequence[Minute]]:
    middle = len(minutes) // 2
    return minutes[:middle], minutes[middle:]


def _median50(minutes: Sequence[Minute]) -> float:
    return statistics.median(one.p50_ms for one in minutes)


def _median99(minutes: Sequence[Minute]) -> float:
    return statistics.median(one.p99_ms for one in minutes)
