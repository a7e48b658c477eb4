"""Life numbers: an older copy of a disk is told from the disk, and speaks for nothing that counts."""

from __future__ import annotations

import pytest

from db.replication import AppendReply, Hint, Refusal
from manager.raft.follower import handle
from manager.raft.life import LifeSign, highest, is_copy, plan_life, shown_by, sign_of
from manager.raft.membership import DISK_LOST
from manager.raft.messages import VoteReply, VoteRequest
from manager.raft.node import Role
from manager.raft.state import RaftState
from tests.unit.manager.raft.desk import Desk

SEEN = {"d2": 5, "d3": 7}
DISKS = ("d1", "d2", "d3")


def _desk(**more: object) -> Desk:
    return Desk(state=RaftState(1, "d1", current_term=1, lives=SEEN, **more))


# --- the numbers ---


@pytest.mark.parametrize(("disk_id", "life", "copy"), [("d2", 4, True), ("d2", 5, False), ("d2", 6, False), ("new", 0, False)])
def test_a_lower_number_than_was_seen_is_a_copy(disk_id: str, life: int, copy: bool) -> None:
    """The same one is shown twice by an honest manager whose answer was lost; a disk that nobody knows has shown nothing."""
    assert is_copy(SEEN, disk_id, life) is copy


def test_the_number_rises_only_when_another_manager_has_it_on_disk() -> None:
    """So who runs on a copy cannot come up in silence to what others have seen."""
    state = RaftState(1, "d1", life=3)
    assert plan_life(state, {}, disks=DISKS)[0] == 3
    assert plan_life(state, {"d1": 2}, disks=DISKS)[0] == 3
    assert plan_life(state, {"d1": 3}, disks=DISKS)[0] == 4
    assert plan_life(RaftState(1, "d1"), {}, disks=DISKS)[0] == 1


def test_what_was_seen_never_falls_and_only_members_disks_are_kept() -> None:
    """A sign that was late changes nothing; a disk that left is forgotten."""
    state = RaftState(1, "d1", lives={"d2": 5, "gone": 9})
    assert plan_life(state, {"d2": 4, "d3": 1, "stranger": 8}, disks=DISKS)[1] == {"d2": 5, "d3": 1}
    assert highest({"a": 1, "b": 5}, {"a": 3}) == {"a": 3, "b": 5}


def test_a_sign_proves_its_senders_number_and_what_that_has_seen() -> None:
    """So managers that do not speak with each other learn of each other through the leader."""
    assert sign_of(RaftState(2, "d2", life=6, lives={"d3": 7})) == LifeSign(2, "d2", 6, {"d3": 7})
    assert shown_by(LifeSign(2, "d2", 6, {"d3": 7})) == {"d2": 6, "d3": 7}


# --- votes ---


@pytest.mark.parametrize("pre", [True, False])
def test_a_copy_is_not_voted_for(pre: bool) -> None:
    """It would count its own vote, and may have given that to somebody else."""
    held = _desk().held()
    for life, granted in ((4, False), (5, True)):
        request = VoteRequest(2, 2, last_term=9, last_index=9, pre=pre, disk_id="d2", life=life)
        assert handle(held, request, now=9.0, election_timeout_seconds=1.0).reply.granted is granted


def test_a_manager_shows_its_number_with_every_answer_and_question() -> None:
    """Whoever receives one can compare."""
    desk = _desk(life=3)
    assert handle(desk.held(), VoteRequest(2, 2, 1, 1, disk_id="d2", life=5), now=9.0, election_timeout_seconds=1.0).reply.life == 3
    request = desk.time_out().send[0].message
    assert (request.disk_id, request.life) == ("d1", 3)


def test_the_vote_of_a_copy_does_not_count() -> None:
    """And it is said once."""
    desk = _desk()
    desk.time_out()
    for _ in range(2):
        ready = desk.hear(2, VoteReply(1, 2, True, True, "d2", life=4))
        assert desk.node.role is Role.PRE_CANDIDATE
        desk.write(ready.persist)
    assert [event.name for event in desk.hear(3, VoteReply(1, 2, True, True, "d3", life=6)).events] == ["disk_lost"]
    desk.hear(2, VoteReply(1, 2, True, True, "d2", life=5))
    assert desk.node.role is Role.CANDIDATE


# --- the log ---


def _lead(desk: Desk) -> Desk:
    desk.time_out()
    for pre in (True, False):
        desk.hear(2, VoteReply(desk.state.current_term, 2, pre, True, "d2", life=5))
    desk.advance()
    return desk


def test_what_a_copy_acknowledges_does_not_count_and_it_loses_its_slot() -> None:
    """It gets the log all the same: in it, it reads that it needs a new identity."""
    desk = _lead(_desk())
    ready = desk.hear(3, AppendReply(2, "d3", 1, 0, matched=2, life=6))
    assert (ready.persist.commit_index, [event.name for event in ready.events]) == (None, ["disk_lost"])
    assert desk.hear(2, AppendReply(2, "d2", 1, 0, matched=2, life=5)).persist.commit_index == 2
    assert _repaired(desk) == {"type": DISK_LOST, "node_id": 3, "disk_id": "d3"}


def test_a_voter_that_holds_less_than_it_acknowledged_loses_its_slot() -> None:
    """Told without a number: its end is below what it acknowledged in this term."""
    desk = _lead(_desk())
    desk.hear(2, AppendReply(2, "d2", 1, 0, matched=2, life=5))
    desk.hear(3, AppendReply(2, "d3", 1, 1, matched=2, life=7))
    [asked] = [envelope.message.request.round for envelope in desk.tick(0.4).send if envelope.target == 3]
    ready = desk.hear(3, AppendReply(2, "d3", 2, asked, refusal=Refusal.NO_MATCH, hint=Hint(1, 1), life=7))
    assert [event.name for event in ready.events] == ["disk_lost"]
    assert [(envelope.target, envelope.message.request.position) for envelope in ready.send] == [(3, 1)], "it gets the log again"
    assert desk.hear(3, AppendReply(2, "d3", 1, asked, matched=2, life=7)).events == ()
    assert _repaired(desk) == {"type": DISK_LOST, "node_id": 3, "disk_id": "d3"}


def _repaired(desk: Desk) -> dict | None:
    desk.node.repair(desk.held(), now=desk.now)
    ready = desk.node.ready()
    return ready.persist.insert[0].command if ready.persist.insert else None
