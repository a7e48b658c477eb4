"""What a transaction does to the row, and what it may never do."""

from __future__ import annotations

import pytest

from db.replication import OfferedStart
from manager.raft.state import NO_CHANGES, Changes, Install, RaftState, TermVote, state_after

STATE = RaftState(1, "d1", current_term=4, voted_for=2, commit_index=5, applied_index=5)


def test_a_new_term_ends_a_leadership_by_itself() -> None:
    """Leading is the equality of two columns."""
    leading = RaftState(1, "d1", current_term=4, voted_for=1, leader_term=4)
    assert leading.leading
    assert not state_after(leading, Changes(term_vote=TermVote(5, None))).leading


def test_nobody_leads_term_nought() -> None:
    """A fresh manager is in term 0 and leads nothing."""
    assert not RaftState(1, "d1").leading


def test_an_installed_state_moves_applied_and_commit() -> None:
    """Everything below the start is committed and applied."""
    after = state_after(STATE, Changes(install=Install(OfferedStart(9, 3, b""), None)))
    assert (after.commit_index, after.applied_index) == (9, 9)


@pytest.mark.parametrize("changes", [
    Changes(term_vote=TermVote(3, None)), Changes(term_vote=TermVote(4, 3)), Changes(term_vote=TermVote(4, None)),
    Changes(commit_index=4), Changes(delete_from=4), Changes(install=Install(OfferedStart(5, 3, b""), None)),
], ids=["term falls", "second vote", "vote taken back", "commit falls", "committed entries deleted", "older state"])
def test_what_may_never_happen_stops_the_worker(changes: Changes) -> None:
    """R4 and R5, once more where it is written."""
    with pytest.raises(AssertionError):
        state_after(STATE, changes)


def test_no_changes_are_false() -> None:
    """So that a driver skips the transaction."""
    assert not NO_CHANGES
    assert Changes(commit_index=0)
