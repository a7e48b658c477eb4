"""PURE: how often offsets are covered by ranges, without a value for each offset.

A **stretch** is a run of offsets that are covered equally often. A coverage keeps only its edges: where one range ends and the next begins nothing
is left, so receipts that tile a log cost no more than one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Stretch:
    """Offsets ``start`` (included) to ``end`` (excluded), each covered so many ``times``, at least once."""

    start: int
    end: int
    times: int = 1


@dataclass(frozen=True, slots=True)
class Tally:
    """How many messages, and the sum of their offsets: a missing one and a double one do not hide each other."""

    messages: int = 0
    offset_sum: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.messages + other.messages, self.offset_sum + other.offset_sum)


@dataclass(frozen=True, slots=True, order=True)
class Mismatch:
    """Offsets that are stored so often and covered so often, which is not the same."""

    start: int
    end: int
    stored: int
    covered: int


class Coverage:
    """Ranges of one partition, added one by one in any order."""

    __slots__ = ("_edges",)

    def __init__(self, stretches: Iterable[Stretch] = ()) -> None:
        self._edges: dict[int, int] = {}  # offset → by how much it is covered more often than the one before it; never 0
        for one in stretches:
            self.add(one.start, one.end, one.times)

    def add(self, start: int, end: int, times: int = 1) -> None:
        """Cover the offsets from ``start`` to before ``end``, which lies behind it."""
        for at, change in ((start, times), (end, -times)):
            left = self._edges.pop(at, 0) + change
            if left:
                self._edges[at] = left

    def stretches(self) -> list[Stretch]:
        """In the order of their offsets; neighbours differ in how often they are covered."""
        found, times, start = [], 0, 0
        for at, change in sorted(self._edges.items()):
            if times:
                found.append(Stretch(start, at, times))
            start, times = at, times + change
        return found


def clipped(stretches: Sequence[Stretch], start: int, end: int) -> list[Stretch]:
    """What of ordered stretches lies between two offsets."""
    if end <= start:
        return []
    first = bisect_right(stretches, start, key=lambda one: one.end)
    return [Stretch(max(one.start, start), min(one.end, end), one.times) for one in _until(stretches, first, end)]


def _until(stretches: Sequence[Stretch], first: int, end: int) -> Iterator[Stretch]:
    for at in range(first, len(stretches)):
        if stretches[at].start >= end:
            return
        yield stretches[at]


def tally(stretches: Iterable[Stretch]) -> Tally:
    """Each offset as often as it is covered."""
    messages = offset_sum = 0
    for one in stretches:
        messages += one.times * (one.end - one.start)
        offset_sum += one.times * (one.start + one.end - 1) * (one.end - one.start) // 2
    return Tally(messages, offset_sum)


def mismatches(stored: Iterable[Stretch], covered: Iterable[Stretch]) -> list[Mismatch]:
    """Where ordered stretches of two kinds are not the same, in order and as long as can be."""
    edges: dict[int, list[int]] = {}
    for which, stretches in enumerate((stored, covered)):
        for one in stretches:
            edges.setdefault(one.start, [0, 0])[which] += one.times
            edges.setdefault(one.end, [0, 0])[which] -= one.times
    found: list[Mismatch] = []
    start, times = 0, [0, 0]
    for at in sorted(edges):
        if times[0] != times[1]:
            if found and (found[-1].end, found[-1].stored, found[-1].covered) == (start, *times):
                start = found.pop().start
            found.append(Mismatch(start, at, *times))
        start, times = at, [times[0] + edges[at][0], times[1] + edges[at][1]]
    return found
