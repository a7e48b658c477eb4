"""Contenders take turns."""

from __future__ import annotations

from contextlib import ExitStack

from tests.bench.figures import Outcome
from tests.bench.plan import Case, Entry, order


def entry(who: str) -> Entry:
    return Entry(who, "fsync", {}, lambda turn, stack: lambda: Outcome(1))


def test_everything_is_measured_once_a_turn_and_begins_elsewhere() -> None:
    cases = [Case("produce", "a", [entry("x"), entry("y"), entry("z")]), Case("produce", "b", [entry("x")])]
    found = [(turn, case.name, one.who) for turn, case, one in order(cases, 2)]
    assert [(0, "a", "x"), (0, "a", "y"), (0, "a", "z"), (0, "b", "x"), (1, "a", "y"), (1, "a", "z"), (1, "a", "x"), (1, "b", "x")] == found


def test_work_is_prepared_apart() -> None:
    with ExitStack() as stack:
        assert 1 == entry("x").prepare(0, stack)().count
