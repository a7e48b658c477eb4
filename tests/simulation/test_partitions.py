"""Partitions: schedules of faults with two coordinators, each from one seed, and rules taken out one at a time."""

from __future__ import annotations

import re

import pytest

from tests.simulation.__main__ import main
from tests.simulation.checker import Violation
from tests.simulation.partitions.chaos import run_seed
from tests.simulation.partitions.mutants import MUTANTS
from tests.simulation.partitions.scenario import Scenario
from tests.support.long import LONG

BLOCK = 25
SEEDS_MAX = 60
TIMES = 20 if LONG else 1
GONE_THROUGH = ("elections", "leaderships", "requests acknowledged", "duplicates answered", "messages handed out", "found empty", "crashes between",
                "voters changed", "disks lost", "damaged replicas made anew", "trims acknowledged", "logs trimmed", "tails cut", "conditions met",
                "conditions refused", "moves done")

# What notices it: the rule that is broken, or the product's own assertion or fault, which no run without a mutant shows.
BY_SEEDS = {
    "promise_not_durable": "R4",
    "start_epoch_forgotten": "fault|assertion",
    "dropped_though_not_trimmed": "R5",
    "seeded_without_the_state": "R8|fault",
    "acknowledged_by_position": "R6",
    "no_up_to_date_check": "R3",
    "election_by_a_minority": "R3|R1|fault",
    "truncation_without_conflict": "R3|R5|fault|assertion|convergence",
    "stale_append_truncates": "R4|R8|fault",
}

BY_SCENARIO = {
    "damaged_voter_begins_afresh": ("damaged_voter_keeps_its_log", "R3: leader 2 of epoch 2"),
    "truncation_without_conflict": ("late_append_cuts_nothing", "R3: leader 2 of epoch 2"),
    "commit_past_the_match": ("follower_commits_what_matched", "R5: a commit of d1 at 3 differs"),
    "request_split_by_replication": ("request_is_replicated_whole", "whole requests: the log of d2"),
    "old_epoch_committed_by_counting": ("old_epoch_not_committed_by_counting", "R3: the log of a new leader of d5"),
    "acknowledgement_without_epoch": ("acknowledgement_of_an_older_epoch", "R7: lsn 2 is committed by 2"),
    "sent_before_the_local_commit": ("sent_after_the_local_commit", "R3: leader 1 of epoch 2"),
    "any_start_accepted": ("late_seed_changes_nothing", "fault at 3: a start at 2 of epoch 1 is offered"),
    "disk_identity_ignored": ("lost_disk_is_another_voter", "R3: leader 2 of epoch 2"),
    "voter_added_before_it_caught_up": ("learner_votes_once_it_caught_up", "R3: leader 2 of epoch"),
    "marker_left_out": ("marker_commits_older_entries", "convergence: leader 2 has committed nothing"),
    "acknowledged_by_position": ("old_leader_wakes_up", r"R6: sequence \(1, 0\)"),
    "answered_before_the_marker": ("leader_decides_nothing_before_its_marker", "R6: c is told empty"),
    "dequeue_on_folded_state": ("second_dequeue_sees_the_first", "R8: c is handed 0 after 1"),
    "deduplication_on_folded_state": ("retry_sees_the_first_attempt", r"R8: sequence \(1, 0\) is stored at 1 and 2"),
    "deduplication_not_undone": ("uncommitted_tail_is_cut", r"R6: sequence \(1, 0\) is acknowledged and not committed"),
}


@pytest.mark.parametrize("first", range(0, 100 * TIMES, BLOCK))
def test_no_schedule_breaks_a_rule_and_all_converge(first: int) -> None:
    """Factors 1, 2, 3 and 5; crashes of brokers with and without their database, cuts, lost disks, retention, wrong clocks."""
    results = [run_seed(seed) for seed in range(first, first + BLOCK)]
    found = [f"seed {result.seed}: {result.violation}; replay: scripts/simulate --partitions --seed {result.seed}"
             for result in results if result.violation]
    assert not found, "\n".join(found)
    missing = {name for name in GONE_THROUGH if not any(result.seen.get(name) for result in results)}
    assert not missing, "schedules that go through nothing prove nothing"


def test_every_mutant_has_somebody_who_notices() -> None:
    """None is only written down."""
    assert set(BY_SEEDS) | set(BY_SCENARIO) == set(MUTANTS)


@pytest.mark.parametrize("name", BY_SEEDS)
def test_a_rule_taken_out_is_noticed(name: str) -> None:
    """Within so many seeds an invariant fails, and it is one that the missing rule protects."""
    found = MUTANTS[name].first_violation(lambda seed, kinds: run_seed(seed, kinds=kinds), SEEDS_MAX)
    assert found is not None, f"{SEEDS_MAX} seeds without {MUTANTS[name].rule!r}, and nothing is noticed"
    assert re.search(BY_SEEDS[name], found), found


@pytest.mark.parametrize("name", BY_SCENARIO)
def test_its_directed_scenario_notices(name: str) -> None:
    """What random search finds rarely has a schedule of its own; without the mutant it passes (see test_scenarios)."""
    scenario, expected = BY_SCENARIO[name]
    with MUTANTS[name].planted() as kinds, pytest.raises(Violation, match=expected):
        Scenario.play(scenario, kinds)


def test_a_seed_is_a_schedule() -> None:
    """The same seed gives the same trace, so that what was found can be replayed."""
    once, again = run_seed(7, trace=True), run_seed(7, trace=True)
    assert once == again
    assert len(once.trace) > 20


def test_the_command_reports_a_violation_and_how_to_replay_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, the seed, the rule, the one command; and that command prints the whole trace and the same violation."""
    assert main(["--partitions", "--seeds", "2", "--mutant", "truncation_without_conflict"]) == 1
    out = capsys.readouterr().out
    found = re.search(r"seed (\d+): (.+)\n  replay: scripts/simulate (--partitions --seed \1 --mutant truncation_without_conflict)\n", out)
    assert found is not None, out
    assert out.splitlines()[-1].endswith("VIOLATIONS")
    assert main(found[3].split()) == 1
    trace = capsys.readouterr().out
    assert f"VIOLATION {found[2]}" in trace
    assert " -> " in trace


def test_the_command_takes_only_what_partitions_have(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 for a managers' mutant or their number."""
    for wrong in (["--mutant", "vote_not_durable"], ["--nodes", "5"]):
        with pytest.raises(SystemExit) as exit_:
            main(["--partitions", *wrong])
        assert exit_.value.code == 2
    assert "vote_not_durable" in capsys.readouterr().err
