"""A soak that is well is called good; each thing that creeps is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.bench.verdict import AFTER, HELD, PLAIN, Minute, judge, phase_at, told

COUNT = 50


def minutes(change: Callable[[int, Minute], Minute] = lambda number, one: one) -> list[Minute]:
    """Fifty minutes in three phases in which nothing changes, except for what a test changes."""
    made = [Minute(60.0 * (number + 1), phase_at(number / COUNT), 60_000, 5.0, 20.0, {"broker-1": 80.0}, 300, number, 4.0, 18.0, number)
            for number in range(COUNT)]
    return [change(number, one) for number, one in enumerate(made)]


def findings(change: Callable[[int, Minute], Minute]) -> list[str]:
    return list(judge(minutes(change), retention_mib=16).findings)


def test_the_phases_follow_one_another() -> None:
    assert [PLAIN, PLAIN, HELD, HELD, AFTER, AFTER] == [phase_at(share) for share in (0.0, 0.59, 0.61, 0.79, 0.81, 1.0)]


def test_nothing_creeps() -> None:
    verdict = judge(minutes(), retention_mib=16)
    assert verdict.is_good
    assert "3,000,000 messages, 49 segments dropped, 49 autovacuums" == verdict.remarks[0]
    assert verdict.to_json()["good"] and COUNT == len(verdict.to_json()["minutes"])


@pytest.mark.parametrize(("sentence", "change"), [
    ("latency drifts: p50", lambda number, one: replace(one, p50_ms=5.0 + number * 0.5 if one.phase == PLAIN else 5.0)),
    ("latency drifts: p99", lambda number, one: replace(one, p99_ms=20.0 + number * 10)),
    ("an idle transaction slows everything", lambda number, one: replace(one, p50_ms=50.0 if one.phase == HELD else 5.0)),
    ("stays slow", lambda number, one: replace(one, p50_ms=5.0 if one.phase == PLAIN else 14.0)),
    ("broker-1 grows: ", lambda number, one: replace(one, memory_mib={"broker-1": 80.0 + 3 * number})),
    ("dead rows outlast", lambda number, one: replace(one, dead_rows=300 if one.phase == PLAIN else 90_000)),
    ("the tables beside the log grow", lambda number, one: replace(one, tables_mib=4.0 + number)),
    ("the log takes", lambda number, one: replace(one, log_mib=2.0 * number)),
])
def test_what_creeps_is_found(sentence: str, change: Callable[[int, Minute], Minute]) -> None:
    found = findings(change)
    assert 1 == len(found), found
    assert sentence in found[0]


@pytest.mark.parametrize("change", [
    lambda number, one: replace(one, p99_ms=2_000.0 if number == 7 else 20.0),
    lambda number, one: replace(one, dead_rows=90_000 if one.phase == HELD else 300, p50_ms=9.0 if one.phase == HELD else 5.0),
    lambda number, one: replace(one, memory_mib={"broker-1": 80.0 + 4 * min(number, 12)}),
])
def test_a_moment_is_no_trend(change: Callable[[int, Minute], Minute]) -> None:
    """One slow minute; what an open transaction costs while it is open; a process that warms up."""
    assert [] == findings(change)


def test_too_short_to_judge_is_said() -> None:
    verdict = judge(minutes()[:3], retention_mib=16)
    assert verdict.is_good and "too few to judge" in verdict.remarks[0]


def test_a_minute_is_a_line() -> None:
    assert "\n" not in told(minutes()[0])
    assert "p99    20.00 ms" in told(minutes()[0])
