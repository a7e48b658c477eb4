"""Ranges laid over ten minutes against a naive model, which has a value for each offset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myqueue.protocol.types import OffsetRange, PartitionId, TopicPartition
from pipeline.reconcile.coverage import Coverage, Stretch, Tally, clipped, mismatches, tally
from pipeline.reconcile.figures import Judged
from pipeline.reconcile.judge import Columns, Exported, StoredPeriod, judge
from pipeline.reconcile.receipts import Acknowledged, Ranges
from pipeline.source.cuts import Cut, CutPartition, cut_of

pytestmark = pytest.mark.timeout(120)
A = TopicPartition("a", 0)
START, END, PERIODS = 5, 25, 4
OFFSETS = st.integers(0, END + 6)
RANGES = st.lists(st.tuples(OFFSETS, st.integers(1, 12)).map(lambda one: (one[0], one[0] + one[1])), max_size=8)


def each(ranges: Iterable[tuple[int, int]]) -> Counter[int]:
    return Counter(offset for start, end in ranges for offset in range(start, end))


def stretches(ranges: Iterable[tuple[int, int]]) -> list[Stretch]:
    return Coverage(Stretch(*one) for one in ranges).stretches()


@settings(max_examples=300, deadline=None)
@given(RANGES, RANGES, OFFSETS, OFFSETS)
def test_stretches_say_of_each_offset_how_often_it_is_covered(one: list, other: list, start: int, end: int) -> None:
    """So do what is clipped, the tally, and the mismatches of two."""
    first, second = each(one), each(other)
    assert first == Counter({offset: part.times for part in stretches(one) for offset in range(part.start, part.end)})
    assert Tally(first.total(), sum(first.elements())) == tally(stretches(one))
    inside = Counter({offset: times for offset, times in first.items() if start <= offset < end})
    assert inside == Counter({offset: part.times for part in clipped(stretches(one), start, end) for offset in range(part.start, part.end)})
    found = mismatches(stretches(one), stretches(other))
    assert {(offset, first[offset], second[offset]) for offset in first | second if first[offset] != second[offset]} == {
        (offset, part.stored, part.covered) for part in found for offset in range(part.start, part.end)}
    assert all(left.end < right.start or (left.stored, left.covered) != (right.stored, right.covered) for left, right in pairwise(found))


@dataclass(frozen=True)
class Log:
    """A log from START to END: when each offset was appended (its period), and how often it can be read (0: it is missing)."""

    period: dict[int, int]
    times: dict[int, int]
    first_period: int  # the window's
    end_period: int

    def cut(self) -> Cut:
        return cut_of("c", [CutPartition(A, PartitionId(1, 0), OffsetRange(START, END))])

    def part(self) -> Cut:
        inside = [offset for offset, period in self.period.items() if self.first_period <= period < self.end_period]
        offsets = OffsetRange(inside[0], inside[-1] + 1) if inside else OffsetRange(START, START)
        return cut_of("c", [CutPartition(A, PartitionId(1, 0), offsets)])

    def stored(self) -> list[StoredPeriod]:
        by_period: dict[int, Coverage] = {}
        for offset, times in self.times.items():
            if times and self.first_period <= self.period[offset] < self.end_period:
                by_period.setdefault(self.period[offset], Coverage()).add(offset, offset + 1, times)
        return [StoredPeriod(period, tuple(coverage.stretches())) for period, coverage in sorted(by_period.items())]

    def told_period(self, offset: int) -> int | None:
        """The ten minutes under which an offset of the window is told: of one that is missing those before it, else the first ones."""
        there = [at for one in self.stored() for part in one.stretches for at in range(part.start, part.end)]
        before = [at for at in there if at <= offset]
        return self.period[before[-1]] if before else self.period[there[0]] if there else None


@st.composite
def logs(draw: st.DrawFn) -> Log:
    offsets = range(START, END)
    steps = draw(st.lists(st.sampled_from([0, 0, 0, 1]), min_size=len(offsets), max_size=len(offsets)))
    times = draw(st.lists(st.sampled_from([1, 1, 1, 1, 0, 2]), min_size=len(offsets), max_size=len(offsets)))
    first = draw(st.integers(0, PERIODS))
    return Log(dict(zip(offsets, accumulate(steps), strict=True)), dict(zip(offsets, times, strict=True)), first, draw(st.integers(first, 25)))


def ranges_of(log: Log, ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Each under the period of its first offset, as a receipt is; behind the end under the last one."""
    found: Ranges = {A: {}}
    for start, end in ranges:
        found[A].setdefault(log.period.get(start, max(log.period.values())), Coverage()).add(start, end)
    return found


def naive_differences(log: Log, told: list, group_offset: int, copied: list) -> Counter[tuple]:
    found: Counter[tuple] = Counter()
    part = log.part().partitions[A].offsets
    acknowledged, exported = each(told), each(copied)
    for offset in range(part.start, part.end):
        stored, period = log.times[offset], log.told_period(offset)
        for covered, extra, lacking, twice in ((acknowledged[offset], "lost", "unacknowledged", "acknowledged_twice"),
                                               (exported[offset], "exported_only", "not_exported", "exported_twice")):
            if bool(stored) != bool(covered):
                found[lacking if stored else extra, offset, period, None] += 1
            elif covered > 1:
                found[twice if stored else extra, offset, period, covered if stored else None] += 1
        if stored and offset >= group_offset:
            found["not_consumed", offset, period, None] += 1
        if stored > 1:
            found["stored_twice", offset, period, stored] += 1
        if not (stored or acknowledged[offset] or exported[offset]):
            found["missing", offset, period, None] += 1
    for kind, ranges in (("lost", told), ("exported_only", copied)):
        found.update({(kind, offset, period, None) for period, coverage in ranges_of(log, ranges)[A].items()
                      for one in coverage.stretches() for offset in range(max(one.start, END), one.end)})
    return found


def each_difference(made: Judged) -> Counter[tuple]:
    return Counter((one.kind, offset, one.period_us, one.times) for one in made.differences
                   for offset in range(one.start_offset or 0, one.end_offset or 0))


def naive_rows(log: Log, told: list, group_offset: int) -> dict[int, tuple[Tally, Tally, int]]:
    part = log.part().partitions[A].offsets
    rows: dict[int, list[Counter]] = {}
    for offset in range(part.start, part.end):
        period = log.told_period(offset)
        if period is not None:
            row = rows.setdefault(period, [Counter(), Counter(), Counter()])
            row[0][offset] += log.times[offset]
            row[1][offset] += each(told)[offset]
            row[2][offset] += bool(log.times[offset]) and offset < group_offset
    for period, coverage in ranges_of(log, told)[A].items():
        behind = Counter(offset for one in coverage.stretches() for offset in range(max(one.start, END), one.end) for _ in range(one.times))
        if behind:
            rows.setdefault(period, [Counter(), Counter(), Counter()])[1].update(behind)
    return {period: (Tally(one.total(), sum(one.elements())), Tally(two.total(), sum(two.elements())), three.total())
            for period, (one, two, three) in rows.items()}


@settings(max_examples=500, deadline=None)
@given(logs(), RANGES, OFFSETS, RANGES)
def test_every_offset_is_judged_as_by_a_value_for_each(log: Log, told: list, group_offset: int, copied: list) -> None:
    """Whatever is missing or double, wherever the window lies: the same differences and the same numbers."""
    columns = Columns(Acknowledged(ranges_of(log, told)), {"g": {A: group_offset}}, Exported(ranges_of(log, copied)))
    made = judge(log.cut(), log.part(), {A: log.stored()}, columns)
    assert naive_differences(log, told, group_offset, copied) == each_difference(made)
    rows = {row.period_us: (row.stored, row.acknowledged, row.consumed["g"]) for row in made.rows
            if row.stored != Tally() or row.acknowledged != Tally()}
    assert naive_rows(log, told, group_offset) == rows
    below = sum(times for offset, times in each(told).items() if offset < START)
    assert ([] if below == 0 else [f"a/0: {below} messages acknowledged"]) == [one.what for one in made.not_judged]
