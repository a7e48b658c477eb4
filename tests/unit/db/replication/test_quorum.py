"""Who counts and what is committed, against a naive twin."""

from __future__ import annotations

import itertools
import random

import pytest

from db.replication import Holder, commit_position, counts, has_majority, majority, majority_position
from tests.unit.db.replication.entries import log_of

VOTERS = {1: "d1", 2: "d2", 3: "d3"}


def _held(**positions: int) -> dict[int, Holder]:
    return {int(name[1:]): Holder("d" + name[1:], position) for name, position in positions.items()}


@pytest.mark.parametrize(("slots", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_majority_counts_slots(slots: int, needed: int) -> None:
    """Half of the slots, rounded down, and one."""
    assert majority(slots) == needed


@pytest.mark.parametrize("slots", range(1, 7))
def test_any_two_majorities_meet_also_across_one_added_slot(slots: int) -> None:
    """Thesis 4.1: that is why one slot changes at a time."""
    old, new = range(slots), range(slots + 1)
    for left in itertools.combinations(old, majority(slots)):
        assert all(set(left) & set(right) for right in itertools.combinations(old, majority(slots)))
        assert all(set(left) & set(right) for right in itertools.combinations(new, majority(slots + 1)))


def test_only_the_registered_disk_counts() -> None:
    """R7: another disk under the same name is another identity, and an empty slot is nobody's."""
    assert counts(VOTERS, 2, "d2")
    assert not counts(VOTERS, 2, "d2-new")
    assert not counts(VOTERS, 9, "d9")
    assert not counts({**VOTERS, 2: None}, 2, None)


def test_an_empty_slot_is_counted_among_the_slots() -> None:
    """Two of three with one empty need both of the others."""
    voters = {1: "d1", 2: None, 3: "d3"}
    assert not has_majority(voters, {1: "d1", 2: "d2"})
    assert has_majority(voters, {1: "d1", 3: "d3"})


def test_nobody_named_is_no_majority() -> None:
    """A node that knows no voters elects nobody."""
    assert not has_majority({}, {})


def test_a_majority_of_the_named_voters_commits() -> None:
    """Raft 5.3: an entry on a majority is committed; a learner's acknowledgement adds nothing."""
    log = log_of(1, 1, 1, 1)
    assert commit_position(VOTERS, _held(n1=4, n2=3, n3=0), epoch=1, log=log, commit=0) == 3
    assert commit_position(VOTERS, _held(n1=4, n9=4), epoch=1, log=log, commit=0) == 0


def test_entries_of_an_older_epoch_are_not_committed_by_counting() -> None:
    """Raft 5.4.2, figure 8: they become committed behind an entry of the leader's own epoch."""
    log = log_of(1, 2, 4)
    assert commit_position(VOTERS, _held(n1=3, n2=2), epoch=4, log=log, commit=1) == 1
    assert commit_position(VOTERS, _held(n1=3, n2=3), epoch=4, log=log, commit=1) == 3


def test_commit_never_falls() -> None:
    """R5."""
    assert commit_position(VOTERS, _held(n1=2), epoch=1, log=log_of(1, 1), commit=2) == 2


@pytest.mark.parametrize("seed", range(200))
def test_majority_position_agrees_with_counting(seed: int) -> None:
    """The naive twin: the largest position that at least a majority of the voters hold."""
    rng = random.Random(seed)
    voters = {node: None if rng.random() < 0.1 else f"d{node}" for node in range(1, rng.randint(2, 7))}
    held = {node: Holder(f"d{node}" if rng.random() < 0.9 else "other", rng.randint(0, 9)) for node in range(1, 8) if rng.random() < 0.8}
    naive = max(position for position in range(10) if position == 0 or sum(
        1 for node, disk in voters.items() if disk and node in held and held[node].disk_id == disk and held[node].matched >= position
    ) >= majority(len(voters)))
    assert majority_position(voters, held) == naive
