"""Handing the leadership over at a clean end (thesis 3.10): what the leader asks for, and what the follower does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from manager.raft.follower import handle
from manager.raft.log import Proposal
from manager.raft.messages import Append, Envelope, TimeoutNow, TimeoutNowReply, VoteRequest
from manager.raft.node import Role
from manager.raft.proposal import plan_propose
from manager.raft.state import NO_CHANGES, Changes, Contact, TermVote
from myqueue.errors import NotLeaderError, RefusedError
from tests.unit.manager.raft.desk import Desk, members, request_of


def words(ready) -> list[Envelope]:
    return [envelope for envelope in ready.send if isinstance(envelope.message, TimeoutNow)]


def leader(**fields) -> Desk:
    """Manager 1 leads term 2; its log ends with the marker at 2."""
    desk = Desk(**fields)
    desk.lead()
    return desk


def hand_over(desk: Desk):
    """Asked for; then it is known to all processes, and the node looks again."""
    asked = desk._take(lambda: desk.node.hand_over(desk.held(), now=desk.now))
    assert words(asked) == []
    desk.contact = replace(desk.contact, handing_over=desk.node.handing_over)
    return desk.advance()


def test_the_word_leaves_when_the_follower_holds_all_and_all_is_committed() -> None:
    """Not before: what is missing is sent first."""
    desk = leader()
    desk.matched(3, 1)
    assert words(hand_over(desk)) == []
    assert words(desk.matched(2, 1)) == []
    assert words(desk.matched(3, 2)) == [Envelope(1, 3, TimeoutNow(2, 1))]


def test_the_word_waits_for_a_command_that_was_taken_before_all_knew() -> None:
    """Another process took it between the request and the moment in which that was known: nobody votes for a follower without it."""
    desk = leader()
    desk.matched(3, 2)
    assert words(desk._take(lambda: desk.node.hand_over(desk.held(), now=desk.now))) == []
    desk.write(plan_propose(desk.held(), (Proposal({"type": "x"}),)))
    desk.contact = replace(desk.contact, handing_over=desk.node.handing_over)
    assert words(desk.advance()) == []
    assert words(desk.matched(3, 3)) == [Envelope(1, 3, TimeoutNow(2, 1))]


def test_the_furthest_follower_is_chosen_and_told_again_only_after_a_while() -> None:
    desk = leader()
    desk.matched(3, 2)
    desk.matched(2, 1)
    assert words(hand_over(desk)) == [Envelope(1, 3, TimeoutNow(2, 1))]
    assert words(desk.matched(2, 2)) == []
    assert words(desk.tick(0.35)) == [Envelope(1, 3, TimeoutNow(2, 1))]


def test_meanwhile_no_command_is_taken_and_no_member_changed() -> None:
    desk = leader()
    desk.matched(3, 1)
    hand_over(desk)
    with pytest.raises(NotLeaderError):
        plan_propose(desk.held(), (Proposal({"type": "x"}),))
    with pytest.raises(RefusedError):
        desk.node.change_member(desk.held(), {"type": "remove_member", "node_id": 3}, now=desk.now)


def test_after_an_election_timeout_it_is_given_up_and_commands_are_taken_again() -> None:
    desk = leader()
    desk.matched(3, 1)
    desk.matched(2, 1)
    hand_over(desk)
    desk.now += 0.9
    desk.matched(3, 1, round=1)
    assert (desk.node.role, desk.node.handing_over) == (Role.LEADER, 2)
    ready = desk.tick(0.15)
    assert [event.name for event in ready.events] == ["hand_over_given_up"]
    assert (desk.node.role, desk.node.handing_over) == (Role.LEADER, 0)
    desk.contact = replace(desk.contact, handing_over=desk.node.handing_over)
    assert plan_propose(desk.held(), (Proposal({"type": "x"}),)).insert


def test_one_that_refuses_is_passed_over_and_with_none_left_it_is_given_up_at_once() -> None:
    """It is about to end too, or cannot be reached."""
    desk = leader()
    desk.matched(2, 2)
    desk.matched(3, 2)
    assert words(hand_over(desk)) == [Envelope(1, 2, TimeoutNow(2, 1))]
    assert words(desk.hear(2, TimeoutNowReply(2, False))) == [Envelope(1, 3, TimeoutNow(2, 1))]
    assert [event.name for event in desk.hear(3, TimeoutNowReply(2, False)).events] == ["hand_over_given_up"]
    assert (desk.node.role, desk.node.handing_over) == (Role.LEADER, 0)


@pytest.mark.parametrize("fields", [{"membership": members(3, learners=(2, 3))}, {"membership": members(1)}])
def test_only_a_voter_that_was_heard_can_follow(fields: dict) -> None:
    desk = Desk(**fields)
    desk.time_out()
    desk.advance()
    desk.advance()
    assert desk.node.role is Role.LEADER
    if 2 in desk.membership.members:
        desk.matched(2, 1)
    with pytest.raises(RefusedError, match="no other voter"):
        desk.node.hand_over(desk.held(), now=desk.now)
    desk.node.ready()


def test_a_follower_hands_nothing_over() -> None:
    desk = Desk()
    with pytest.raises(NotLeaderError):
        desk.node.hand_over(desk.held(), now=0.0)


def told(desk: Desk, term: int = 1) -> TimeoutNowReply:
    handled = handle(desk.held(), TimeoutNow(term, 2), now=desk.now, election_timeout_seconds=1.0)
    assert handled.changes == NO_CHANGES
    desk.contact = handled.contact or desk.contact
    return handled.reply


def test_who_is_told_asks_for_votes_at_once_without_asking_before() -> None:
    """A pre-vote would be refused: everybody hears the old leader."""
    desk = Desk()
    desk.tick()
    assert told(desk) == TimeoutNowReply(1, True)
    ready = desk.tick()
    assert ready.persist == Changes(term_vote=TermVote(2, 1))
    assert {envelope.message for envelope in ready.send} == {VoteRequest(2, 1, 1, 1, disk_id="d1")}
    assert desk.tick().persist == NO_CHANGES  # once


def test_a_leaders_next_round_does_not_make_it_forget() -> None:
    """The word came by one worker, an append by another, before the driver looked."""
    desk = Desk()
    told(desk)
    append = Append(2, request_of(desk.log, 1, term=1))
    desk.contact = handle(desk.held(), append, now=desk.now, election_timeout_seconds=1.0).contact
    desk.tick()
    assert desk.node.role is Role.CANDIDATE


@pytest.mark.parametrize("term", [0, 2])
def test_a_word_of_another_term_is_not_taken(term: int) -> None:
    desk = Desk()
    assert told(desk, term) == TimeoutNowReply(1, False)
    assert desk.tick().send == ()


def test_who_is_about_to_end_does_not_take_it_and_asks_for_no_votes() -> None:
    desk = Desk(contact=Contact(0.0, leaving=True))
    assert told(desk) == TimeoutNowReply(1, False)
    assert desk.time_out().send == ()


def test_one_without_a_vote_does_not_take_it() -> None:
    desk = Desk(membership=members(3, learners=(1,)))
    assert told(desk) == TimeoutNowReply(1, False)
