"""Each rule, taken out, is noticed by name: by random schedules where they find it soon, by a directed scenario where they do not."""

from __future__ import annotations

import pytest

from tests.simulation.chaos import Options, run_seed
from tests.simulation.checker import Violation
from tests.simulation.mutants import MUTANTS
from tests.simulation.scenario import Scenario

SEEDS_MAX = 150

# What notices it: the rule that is broken, or the product's own assertion or fault, which no run without a mutant shows.
BY_SEEDS = {
    "truncation_without_conflict": "R3|R5|assertion|convergence",
    "stale_append_truncates": "R4",
    "commit_past_the_match": "R5",
    "sent_before_the_local_commit": "R2|R3|fault|held",
    "any_snapshot_accepted": "assertion|R3|R5",
    "start_epoch_forgotten": "fault",
    "term_not_durable": "R4",
    "no_up_to_date_check": "R3",
    "election_by_a_minority": "R7|R1",
    "disk_identity_ignored": "R7",
    "voter_added_before_it_caught_up": "R7",
    "acknowledged_by_position": "R6",
    "session_ignored": "R8",
}

BY_SCENARIO = {
    "vote_not_durable": ("vote_survives_a_crash", "R4: d2 votes for 1 and 3 in term 2"),
    "acknowledgement_without_epoch": ("acknowledgement_of_an_older_epoch", r"R7: index \d+ is committed by 2"),
    "old_epoch_committed_by_counting": ("old_epoch_not_committed_by_counting", "R3"),
    "marker_left_out": ("marker_commits_older_entries", "convergence"),
    "life_number_ignored": ("older_copy_counts_for_nothing", "R7|R1"),
    "disk_identity_ignored": ("lost_disk_is_another_voter", "R7"),
    "start_epoch_forgotten": ("snapshot_for_a_follower_far_behind", "fault"),
    "any_snapshot_accepted": ("late_snapshot_changes_nothing", "assertion"),
}


def test_every_mutant_has_somebody_who_notices() -> None:
    """None is only written down."""
    assert set(BY_SEEDS) | set(BY_SCENARIO) == set(MUTANTS)


@pytest.mark.parametrize("name", BY_SEEDS)
def test_random_schedules_notice(name: str) -> None:
    """Within so many seeds an invariant fails, and it is the one that the missing rule protects."""
    found = MUTANTS[name].first_violation(lambda seed, kinds: run_seed(seed, Options(), kinds), SEEDS_MAX)
    assert found is not None, f"{SEEDS_MAX} seeds without {MUTANTS[name].rule!r}, and nothing is noticed"
    assert any(part in found for part in BY_SEEDS[name].split("|")), found


@pytest.mark.parametrize("name", BY_SCENARIO)
def test_its_directed_scenario_notices(name: str) -> None:
    """What random search finds rarely has a schedule of its own; without the mutant it passes (see test_scenarios)."""
    scenario, expected = BY_SCENARIO[name]
    with MUTANTS[name].planted() as kinds, pytest.raises(Violation, match=expected):
        Scenario.play(scenario, kinds)
