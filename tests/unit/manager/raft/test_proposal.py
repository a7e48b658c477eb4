"""A command's way into the WAL and what is known of it afterwards."""

from __future__ import annotations

import pytest

from manager.raft.log import Proposal
from manager.raft.membership import REMOVE_MEMBER
from manager.raft.proposal import Admission, Outcome, admit, plan_propose, proposal_outcome
from manager.raft.state import Contact, Held, RaftState
from myqueue.errors import NotLeaderError, OverloadedError, RefusedError
from myqueue.protocol.chain import wal_chain
from tests.unit.manager.raft.desk import log_of, members

COMMAND = {"type": "x"}


def _held(*terms: int, term: int = 2, leader_term: int = 2, commit: int = 0, start: int = 0) -> Held:
    state = RaftState(1, "d1", current_term=term, leader_term=leader_term, commit_index=commit, applied_index=start)
    return Held(state, log_of(*terms, start=start), members(3), Contact(0.0, leader=2))


def test_commands_are_chained_behind_the_log_in_the_leaders_term() -> None:
    """With their sessions, so that each is applied once."""
    held = _held(1, 2)
    first, second = plan_propose(held, [Proposal(COMMAND, "c", 1), Proposal(COMMAND)]).insert
    assert (first.index, first.term, first.client_id, first.client_seq) == (3, 2, "c", 1)
    assert first.chain == wal_chain(held.log.chain_at(1), index=3, term=2, command=COMMAND, client_id="c", client_seq=1)
    assert second.chain == second.chain_after(first.chain)


@pytest.mark.parametrize(("term", "leader_term"), [(2, 0), (3, 2)])
def test_only_a_leader_of_the_present_term_takes_commands(term: int, leader_term: int) -> None:
    """The refusal names who leads."""
    with pytest.raises(NotLeaderError) as refused:
        plan_propose(_held(1, term=term, leader_term=leader_term), [Proposal(COMMAND)])
    assert refused.value.leader == 2


def test_what_waits_for_a_majority_is_bounded() -> None:
    """A leader that is cut off does not pile up: two wait here, and the third is one too many."""
    held = _held(1, 2, 2, commit=1)
    assert len(plan_propose(held, [Proposal(COMMAND)], uncommitted_max=3).insert) == 1
    with pytest.raises(OverloadedError, match="2 commands"):
        plan_propose(held, [Proposal(COMMAND)], uncommitted_max=2)
    with pytest.raises(OverloadedError):
        plan_propose(held, [Proposal(COMMAND)] * 2, uncommitted_max=3)


def test_a_member_command_goes_another_way() -> None:
    """It is checked against the followers' progress."""
    with pytest.raises(RefusedError):
        plan_propose(_held(1), [Proposal({"type": REMOVE_MEMBER, "node_id": 2})])


@pytest.mark.parametrize(("held", "index", "outcome"), [
    (_held(1, 2, 2, commit=1), 3, Outcome.WAITING),
    (_held(1, 2, 2, commit=3), 3, Outcome.COMMITTED),
    (_held(1, 2, 3, term=3, leader_term=0, commit=3), 3, Outcome.UNKNOWN),
    (_held(1, 2, term=3, leader_term=0, commit=1), 3, Outcome.UNKNOWN),
    (_held(1, 2, 2, term=3, leader_term=0, commit=3), 3, Outcome.COMMITTED),
    (_held(1, 2, 2, commit=3, start=3), 3, Outcome.COMMITTED),
    (_held(1, 2, 2, term=3, leader_term=0, commit=3, start=3), 3, Outcome.UNKNOWN),
], ids=["waits", "committed", "replaced", "truncated", "committed though no longer leader", "compacted while leading", "compacted, no longer leader"])
def test_done_is_only_what_is_committed_and_still_ours(held: Held, index: int, outcome: Outcome) -> None:
    """R6: by its term, never by its position alone. The entry was written at index 3 in term 2."""
    assert proposal_outcome(held.state, held.log, index=index, term=2) is outcome


@pytest.mark.parametrize(("last", "seq", "admission"), [(None, 5, Admission.APPLY), (4, 5, Admission.APPLY), (5, 5, Admission.REPEAT),
                                                        (6, 5, Admission.STALE)])
def test_a_sessions_command_is_applied_once_in_rising_order(last: int | None, seq: int, admission: Admission) -> None:
    """Thesis 6.3."""
    assert admit(last, seq) is admission
