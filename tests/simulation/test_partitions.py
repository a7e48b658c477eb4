"""Partitions: schedules of faults with two coordinators, each from one seed, and rules taken out one at a time."""

from __future__ import annotations

import os
import re

import pytest

from tests.simulation.partitions.chaos import run_seed
from tests.simulation.partitions.mutants import MUTANTS

BLOCK = 25
SEEDS_MAX = 60
TIMES = 20 if os.environ.get("MYQUEUE_TEST_LONG") else 1  # scripts/test long
GONE_THROUGH = ("elections", "leaderships", "requests acknowledged", "duplicates answered", "messages handed out", "found empty", "crashes between",
                "voters changed", "disks lost", "logs trimmed", "tails cut")

# What notices it: the rule that is broken, or the product's own assertion or fault, which no run without a mutant shows.
BY_SEEDS = {
    "promise_not_durable": "R4",
    "folded_state_only": "R8",
    "start_epoch_forgotten": "fault|assertion",
    "acknowledged_by_position": "R6",
    "no_up_to_date_check": "R3",
    "election_by_a_minority": "R3|R1|fault",
    "truncation_without_conflict": "R3|R5|fault|assertion|convergence",
    "stale_append_truncates": "R4|R8",
}


@pytest.mark.parametrize("first", range(0, 100 * TIMES, BLOCK))
def test_no_schedule_breaks_a_rule_and_all_converge(first: int) -> None:
    """Factors 1, 2, 3 and 5; crashes of brokers with and without their database, cuts, lost disks, retention, wrong clocks."""
    results = [run_seed(seed) for seed in range(first, first + BLOCK)]
    found = [f"seed {result.seed}: {result.violation}" for result in results if result.violation]
    assert not found, "replay: tests.simulation.partitions.chaos.run_seed(SEED, trace=True)\n" + "\n".join(found)
    missing = {name for name in GONE_THROUGH if not any(result.seen.get(name) for result in results)}
    assert not missing, "schedules that go through nothing prove nothing"


@pytest.mark.parametrize("name", BY_SEEDS)
def test_a_rule_taken_out_is_noticed(name: str) -> None:
    """Within so many seeds an invariant fails, and it is one that the missing rule protects."""
    with MUTANTS[name].planted() as kinds:
        found = next((result.violation for seed in range(SEEDS_MAX) if (result := run_seed(seed, kinds=kinds)).violation), None)
    assert found is not None, f"{SEEDS_MAX} seeds without {MUTANTS[name].rule!r}, and nothing is noticed"
    assert re.search(BY_SEEDS[name], found), found


def test_a_seed_is_a_schedule() -> None:
    """The same seed gives the same trace, so that what was found can be replayed."""
    once, again = run_seed(7, trace=True), run_seed(7, trace=True)
    assert once == again
    assert len(once.trace) > 20
