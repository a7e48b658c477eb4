"""How a manager answers another one: pure functions over what is on disk."""

from __future__ import annotations

import pytest

from db.replication import AppendReply, OfferedStart, Refusal, epoch_before
from manager.raft.follower import handle
from manager.raft.messages import Append, InstallSnapshot, Request, VoteReply, VoteRequest
from manager.raft.state import Changes, Contact, Handled, Held, Install, RaftState, TermVote
from myqueue.errors import LogFaultError
from tests.unit.manager.raft.desk import log_of, members, request_of

NOW = 100.0


def _held(*terms: int, term: int = 2, voted_for: int | None = None, leader_term: int = 0, commit: int = 0, start: int = 0,
          contact: Contact | None = None) -> Held:
    state = RaftState(1, "d1", current_term=term, voted_for=voted_for, leader_term=leader_term, commit_index=commit, applied_index=start)
    return Held(state, log_of(*terms, start=start), members(3), contact or Contact(0.0))


def _handle(held: Held, request: Request) -> Handled:
    return handle(held, request, now=NOW, election_timeout_seconds=1.0)


# --- votes ---


def test_the_first_candidate_of_a_term_gets_the_vote_and_it_is_written() -> None:
    """Raft 5.2: term and vote are in the changes, to be on disk before the reply; the election timer begins anew."""
    handled = _handle(_held(1), VoteRequest(3, 2, 1, 1))
    assert handled == Handled(Changes(term_vote=TermVote(3, 2)), VoteReply(3, 3, False, True, "d1"), Contact(NOW))


def test_another_candidate_of_that_term_does_not() -> None:
    """Raft 5.2: one vote per term, first come, first served."""
    handled = _handle(_held(1, term=3, voted_for=2), VoteRequest(3, 3, 1, 1))
    assert (handled.reply.granted, handled.changes, handled.contact) == (False, Changes(), None)


def test_the_same_candidate_gets_the_same_answer_again() -> None:
    """A lost reply may be asked for once more; nothing is written twice."""
    handled = _handle(_held(1, term=3, voted_for=2), VoteRequest(3, 2, 1, 1))
    assert (handled.reply.granted, handled.changes) == (True, Changes())


def test_a_candidate_of_an_older_term_is_told_ours() -> None:
    """Raft 5.1."""
    handled = _handle(_held(1, term=5), VoteRequest(4, 2, 9, 9))
    assert (handled.reply, handled.changes) == (VoteReply(5, 4, False, False, "d1"), Changes())


@pytest.mark.parametrize(("last_term", "last_index", "granted"), [(2, 3, True), (2, 4, True), (3, 1, True), (2, 2, False), (1, 9, False)])
def test_only_a_log_at_least_as_up_to_date_gets_the_vote(last_term: int, last_index: int, granted: bool) -> None:
    """Raft 5.4.1: the later last term, or the same and at least as long."""
    handled = _handle(_held(1, 1, 2), VoteRequest(3, 2, last_term, last_index))
    assert handled.reply.granted is granted


def test_a_refused_candidate_of_a_higher_term_still_raises_the_term_without_a_vote() -> None:
    """The vote of the new term stays free for somebody else."""
    assert _handle(_held(1, 2, voted_for=2), VoteRequest(3, 2, 1, 1)).changes == Changes(term_vote=TermVote(3, None))


def test_the_start_of_a_compacted_log_takes_part_in_the_comparison() -> None:
    """The last term of an empty log is the remembered one."""
    assert not _handle(_held(1, 2, start=2, commit=2), VoteRequest(3, 2, 1, 9)).reply.granted


# --- pre-votes ---


def test_a_pre_vote_changes_nothing() -> None:
    """Thesis 9.6: it only says what would be."""
    handled = _handle(_held(1), VoteRequest(3, 2, 1, 1, pre=True))
    assert handled == Handled(Changes(), VoteReply(2, 3, True, True, "d1"), None)


@pytest.mark.parametrize(("contact", "granted"), [(Contact(NOW - 0.5, leader=3), False), (Contact(NOW - 1.0, leader=3), True),
                                                  (Contact(NOW - 0.5), True)])
def test_no_pre_vote_while_a_leader_is_heard(contact: Contact, granted: bool) -> None:
    """Whoever was cut off does not end a leadership that works."""
    assert _handle(_held(1, contact=contact), VoteRequest(3, 2, 1, 1, pre=True)).reply.granted is granted


def test_a_leader_gives_no_pre_vote() -> None:
    """It hears itself."""
    assert not _handle(_held(1, leader_term=2), VoteRequest(3, 2, 1, 1, pre=True)).reply.granted


def test_no_pre_vote_for_a_term_that_has_begun_or_a_shorter_log() -> None:
    """It would not get the vote either."""
    assert not _handle(_held(1, term=3), VoteRequest(3, 2, 1, 1, pre=True)).reply.granted
    assert not _handle(_held(1, 1), VoteRequest(3, 2, 1, 1, pre=True)).reply.granted


# --- appends ---


def test_an_append_is_the_replication_cores_plan_with_the_term_as_promise() -> None:
    """The new term comes without a vote, and the leader is noted."""
    leader = log_of(1, 3, 3)
    handled = _handle(_held(1, 2, voted_for=1), Append(2, request_of(leader, 1, term=3, commit=2)))
    assert handled.changes == Changes(term_vote=TermVote(3, None), delete_from=1, insert=leader.between(1, 3), commit_index=2)
    assert handled.contact == Contact(NOW, leader=2)
    assert (handled.reply.matched, handled.reply.epoch, handled.reply.disk_id) == (3, 3, "d1")


def test_a_stale_leader_is_refused_and_is_no_contact() -> None:
    """Otherwise it would keep us from electing a real one."""
    handled = _handle(_held(1, term=5), Append(2, request_of(log_of(1, 3), 1, term=3)))
    assert (handled.reply.refusal, handled.contact, handled.changes) == (Refusal.STALE_EPOCH, None, Changes())


def test_a_refused_append_of_the_present_leader_is_a_contact() -> None:
    """It leads, though our log does not match yet."""
    handled = _handle(_held(1, term=3), Append(2, request_of(log_of(1, 2, 3, 3), 3, term=3)))
    assert (handled.reply.refusal, handled.contact) == (Refusal.NO_MATCH, Contact(NOW, leader=2))


def test_an_append_of_our_own_term_while_we_lead_is_a_fault() -> None:
    """R1."""
    with pytest.raises(LogFaultError, match="two leaders"):
        _handle(_held(1, 2, leader_term=2), Append(2, request_of(log_of(1, 2), 2, term=2)))


# --- snapshots ---


def _offer(position: int, epoch: int, *, term: int = 3) -> InstallSnapshot:
    return InstallSnapshot(term, 2, OfferedStart(position, epoch, bytes(32)), {"state": 1}, round=7)


def test_a_state_above_our_log_is_installed() -> None:
    """Raft 7: it replaces the log; the answer says that everything up to there matches."""
    handled = _handle(_held(1, 2), _offer(5, 3))
    assert handled.changes == Changes(term_vote=TermVote(3, None), install=Install(OfferedStart(5, 3, bytes(32)), {"state": 1}))
    assert handled.reply == AppendReply(3, "d1", 5, 7, matched=5)
    assert handled.contact == Contact(NOW, leader=2)


def test_a_state_whose_border_we_hold_is_not() -> None:
    """Our log may hold acknowledged entries behind it."""
    held = _held(1, 2, 2)
    handled = _handle(held, _offer(2, epoch_before(held.log, 2)))
    assert (handled.changes.install, handled.reply.matched) == (None, 2)


def test_a_state_at_or_below_our_start_is_not() -> None:
    """It is older than what we have."""
    handled = _handle(_held(1, 2, 2, start=2, commit=2), _offer(1, 1))
    assert (handled.changes.install, handled.reply.matched) == (None, 1)


def test_a_state_of_a_stale_leader_is_refused() -> None:
    """Raft 5.1 holds for snapshots as well."""
    handled = _handle(_held(1, term=5), _offer(9, 3))
    assert (handled.reply.refusal, handled.reply.epoch, handled.changes, handled.contact) == (Refusal.STALE_EPOCH, 5, Changes(), None)


@pytest.mark.parametrize(("position", "start"), [(2, 0), (3, 0), (2, 2)])
def test_a_state_that_contradicts_what_is_committed_is_a_fault(position: int, start: int) -> None:
    """R5: committed entries are never replaced, from our start to our commit, both included."""
    with pytest.raises(LogFaultError, match="contradicts"):
        _handle(_held(1, 2, 2, commit=3, start=start), _offer(position, 3))


def test_a_state_of_the_present_term_writes_no_term() -> None:
    """And so keeps the vote that was given in it."""
    assert _handle(_held(1, term=3, voted_for=2), _offer(5, 3)).changes.term_vote is None


def test_a_leader_takes_the_state_of_a_later_one() -> None:
    """Its own term is over with that."""
    assert _handle(_held(1, 2, leader_term=2), _offer(5, 3)).changes.term_vote == TermVote(3, None)


def test_a_state_from_a_second_leader_of_our_term_is_a_fault() -> None:
    """R1."""
    with pytest.raises(LogFaultError, match="two leaders"):
        _handle(_held(1, 2, leader_term=2), _offer(9, 2, term=2))
