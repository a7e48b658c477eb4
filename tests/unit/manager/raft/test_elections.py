"""Elections as the driver's node runs them."""

from __future__ import annotations

from db.replication import AppendReply, Refusal
from manager.raft.log import NOOP
from manager.raft.messages import Envelope, VoteReply, VoteRequest
from manager.raft.node import Role
from manager.raft.state import NO_CHANGES, Changes, Contact, RaftState, TermVote
from tests.unit.manager.raft.desk import Desk, log_of, members


def test_nothing_happens_before_the_timeout() -> None:
    """The first tick begins to wait."""
    desk = Desk()
    desk.tick()
    ready = desk.tick(1.4)
    assert (desk.node.role, ready.send, ready.persist) == (Role.FOLLOWER, (), NO_CHANGES)


def test_after_the_timeout_the_others_are_asked_first_and_nothing_is_written() -> None:
    """Thesis 9.6: no term is used up by a manager that would not be elected."""
    ready = Desk().time_out()
    request = VoteRequest(2, 1, 1, 1, pre=True, disk_id="d1")
    assert (ready.send, ready.persist) == ((Envelope(1, 2, request), Envelope(1, 3, request)), NO_CHANGES)


def test_a_contact_puts_the_timeout_off() -> None:
    """A leader's append or a vote given, by whichever process."""
    desk = Desk()
    desk.tick()
    desk.contact = Contact(1.0, leader=2)
    assert desk.tick(2.0).send == ()
    assert desk.tick(0.6).send != ()


def test_with_a_majority_of_pre_votes_it_takes_the_next_term_and_votes_for_itself() -> None:
    """Raft 5.2: the requests are to leave after term and vote are on disk."""
    desk = Desk()
    desk.time_out()
    ready = desk.vote(3, pre=True)
    request = VoteRequest(2, 1, 1, 1, disk_id="d1")
    assert ready.persist == Changes(term_vote=TermVote(2, 1))
    assert ready.send == (Envelope(1, 2, request), Envelope(1, 3, request))


def test_with_a_majority_of_votes_it_leads_and_begins_with_a_marker() -> None:
    """Raft 8: the marker is written with the leadership, and nothing is sent before it is on disk."""
    desk = Desk()
    desk.time_out()
    desk.vote(3, pre=True)
    ready = desk.vote(3)
    assert desk.node.role is Role.LEADER
    assert (ready.persist.leader_term, [entry.command["type"] for entry in ready.persist.insert], ready.send) == (2, [NOOP], ())
    sent = desk.advance().send
    assert [(envelope.target, len(envelope.message.request.entries)) for envelope in sent] == [(2, 1), (3, 1)]


def test_the_only_voter_elects_itself() -> None:
    """Its own vote counts when it is on disk."""
    desk = Desk(membership=members(1))
    assert desk.time_out().persist == Changes(term_vote=TermVote(2, 1))
    assert desk.advance().persist.leader_term == 2


def test_a_vote_for_another_disk_than_the_registered_one_does_not_count() -> None:
    """R7."""
    desk = Desk()
    desk.time_out()
    desk.vote(2, pre=True, disk_id="new")
    assert desk.node.role is Role.PRE_CANDIDATE


def test_refusals_late_grants_and_repeats_do_not_count() -> None:
    """Three of five are needed: one voter counts once, and only for what is asked now."""
    desk = Desk(membership=members(5))
    desk.time_out()
    desk.vote(2, pre=True)
    desk.vote(2, pre=True)
    desk.vote(3, pre=True, granted=False)
    desk.vote(4, pre=True, asked=1)
    desk.vote(5)
    assert desk.node.role is Role.PRE_CANDIDATE


def test_a_learner_asks_nobody() -> None:
    """Nor does a manager whose registered disk is another one, or that knows nobody."""
    assert Desk(membership=members(3, learners=(1,))).time_out().send == ()
    assert Desk(state=RaftState(1, "new", current_term=1)).time_out().send == ()
    assert Desk(membership=members(0)).time_out().send == ()


def test_one_whose_removal_is_not_committed_yet_may_still_lead() -> None:
    """Thesis 4.2.2: it may be the only one that can bring the removal about; its own vote does not count."""
    desk = Desk(membership=members(3, learners=(1,), index=1))
    assert [envelope.target for envelope in desk.time_out().send] == [2, 3]
    desk.vote(2, pre=True)
    assert desk.node.role is Role.PRE_CANDIDATE
    desk.vote(3, pre=True)
    assert desk.node.role is Role.CANDIDATE


def test_a_higher_term_in_an_answer_is_taken_over_without_a_vote() -> None:
    """Raft 5.1."""
    desk = Desk()
    desk.time_out()
    ready = desk.hear(2, VoteReply(7, 2, True, False, "d2"))
    assert (ready.persist, desk.node.role) == (Changes(term_vote=TermVote(7, None)), Role.FOLLOWER)


def test_an_election_ends_when_a_leader_shows_itself() -> None:
    """Raft 5.2: its append was taken by a worker; the driver sees the contact."""
    desk = Desk()
    desk.time_out()
    desk.contact = Contact(desk.now + 0.1, leader=2)
    desk.tick(0.2)
    assert desk.node.role is Role.FOLLOWER


def test_a_vote_given_meanwhile_does_not_end_a_pre_vote_of_the_same_term() -> None:
    """Only a leader or another term does."""
    desk = Desk()
    desk.time_out()
    desk.contact = Contact(desk.now + 0.1)
    desk.tick(0.2)
    assert desk.node.role is Role.PRE_CANDIDATE


def test_an_election_without_a_result_is_tried_again_later() -> None:
    """Split votes: with a fresh random timeout."""
    desk = Desk()
    desk.time_out()
    assert desk.tick(1.4).send == ()
    assert [envelope.message.pre for envelope in desk.tick(0.2).send] == [True, True]


def test_a_leader_steps_down_when_a_worker_took_a_higher_term() -> None:
    """The row is shared: the next look at it ends the leadership."""
    desk = Desk()
    desk.lead()
    desk.state = RaftState(1, "d1", current_term=9, leader_term=2)
    ready = desk.tick()
    assert (desk.node.role, ready.events[0].name, ready.send) == (Role.FOLLOWER, "step_down", ())


def test_a_leader_steps_down_when_an_answer_shows_a_higher_term() -> None:
    """Raft 5.1."""
    desk = Desk()
    desk.lead()
    ready = desk.hear(2, AppendReply(5, "d2", 1, 1, refusal=Refusal.STALE_EPOCH))
    assert (desk.node.role, ready.persist) == (Role.FOLLOWER, Changes(term_vote=TermVote(5, None)))


def test_a_leader_without_a_majority_for_one_election_timeout_steps_down() -> None:
    """Thesis 6.2: clients are told to look elsewhere; the term stays."""
    desk = Desk()
    desk.lead()
    desk.tick(0.9)
    assert desk.node.role is Role.LEADER
    ready = desk.tick(0.2)
    assert (desk.node.role, ready.persist) == (Role.FOLLOWER, Changes(leader_term=0))


def test_answers_of_a_majority_keep_a_leader() -> None:
    """Itself and one of two others; a learner's or a foreign disk's answers do not."""
    desk = Desk()
    desk.lead()
    for _ in range(5):
        desk.tick(0.5)
        desk.matched(2, 1)
    assert desk.node.role is Role.LEADER
    for _ in range(3):
        desk.tick(0.5)
        desk.matched(2, 1, disk_id="new")
    assert desk.node.role is Role.FOLLOWER


def test_a_leadership_found_on_disk_is_given_up_by_a_new_driver() -> None:
    """What the driver before knew of the followers is gone with it."""
    desk = Desk(state=RaftState(1, "d1", current_term=4, voted_for=1, leader_term=4), log=log_of(1, 4))
    assert desk.tick().persist == Changes(leader_term=0)


def test_what_was_not_written_is_forgotten() -> None:
    """After a failed transaction the node begins as a follower; the row says what holds."""
    desk = Desk()
    desk.time_out()
    desk.node.step(desk.held(), 2, VoteReply(1, 2, True, True, "d2"), now=desk.now)
    desk.node.abandon()
    assert (desk.node.role, desk.tick().persist) == (Role.FOLLOWER, NO_CHANGES)
