"""Life numbers: an older copy of a disk is told from the disk, and speaks for nothing that counts."""

from __future__ import annotations

import pytest

from db.replication import AppendReply, Hint, Refusal
from manager.raft.follower import handle
from manager.raft.life import LifeSign, highest, is_copy, is_registered_lost, loses_disk, plan_life, shown_by, sign_of
from manager.raft.membership import DISK_LOST, after_command
from manager.raft.messages import Append, VoteReply, VoteRequest
from manager.raft.node import Role
from manager.raft.state import RaftState
from myqueue.errors import DiskLostError
from tests.unit.manager.raft.desk import Desk, log_of, members, request_of

SEEN = {"d2": 5, "d3": 7}
DISKS = ("d1", "d2", "d3")


def _leading() -> Desk:
    desk = Desk()
    desk.lead()
    return desk


def _desk(**more: int) -> Desk:
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
    assert plan_life(state, {"d1": 9}, disks=DISKS)[0] == 3, "others have seen more: this is a copy"
    assert plan_life(RaftState(1, "d1"), {}, disks=DISKS)[0] == 0
    assert plan_life(RaftState(1, "d1"), {"d1": 0}, disks=DISKS)[0] == 1


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


def test_every_question_says_what_was_seen() -> None:
    """So who is asked can tell whether its own disk is an older copy, before it promises anything: an answer that was late accuses nobody."""
    desk = _desk(life=3)
    request = desk.time_out().send[0].message
    assert (request.disk_id, request.life, request.lives) == ("d1", 3, SEEN)
    for pre in (True, False):
        desk.hear(2, VoteReply(desk.state.current_term, 2, pre, True, "d2", life=5))
    assert [envelope.message.lives for envelope in desk.advance().send] == [SEEN, SEEN]


@pytest.mark.parametrize("request_", [VoteRequest(2, 2, 9, 9, disk_id="d2", life=5, lives={"d1": 4}),
                                      VoteRequest(2, 2, 9, 9, pre=True, disk_id="d2", life=5, lives={"d1": 4}),
                                      Append(2, request_of(log_of(1, 1), 0, term=2), {"d1": 4})])
def test_a_copy_promises_and_stores_nothing_in_the_disks_name(request_: VoteRequest | Append) -> None:
    """It takes another identity instead."""
    with pytest.raises(DiskLostError) as raised:
        handle(_desk(life=3).held(), request_, now=9.0, election_timeout_seconds=1.0)
    assert raised.value.disk_id == "d1"
    handle(_desk(life=4).held(), request_, now=9.0, election_timeout_seconds=1.0)


def test_an_answer_below_what_was_seen_counts_for_nothing_and_accuses_nobody() -> None:
    """It may be late, or a copy's that was asked by somebody who could not tell yet."""
    desk = _desk()
    desk.time_out()
    assert desk.hear(2, VoteReply(1, 2, True, True, "d2", life=4)).events == ()
    assert desk.node.role is Role.PRE_CANDIDATE
    for pre in (True, False):
        desk.hear(2, VoteReply(desk.state.current_term, 2, pre, True, "d2", life=5))
    desk.advance()
    assert desk.hear(3, AppendReply(2, "d3", 1, 1, matched=2, life=6)).persist.commit_index is None
    assert desk.hear(3, AppendReply(2, "d3", 1, 1, matched=2, life=7)).persist.commit_index == 2


# --- disks that lost what they held ---


def test_a_voter_that_holds_less_than_it_acknowledged_loses_its_slot() -> None:
    """Told without a number: its end is below what it acknowledged in this term. It gets the log, and counts for nothing."""
    desk = _leading()
    desk.matched(2, 2, round=1)
    desk.matched(3, 2, round=1)
    [asked] = [envelope.message.request.round for envelope in desk.tick(0.4).send if envelope.target == 3]
    ready = desk.hear(3, AppendReply(2, "d3", 2, asked, refusal=Refusal.NO_MATCH, hint=Hint(1, 1)))
    assert [event.name for event in ready.events] == ["disk_lost"]
    assert [(envelope.target, envelope.message.request.position) for envelope in ready.send] == [(3, 1)], "it gets the log again"
    assert desk.hear(3, AppendReply(2, "d3", 1, asked, matched=2)).events == ()
    desk.node.repair(desk.held(), now=desk.now)
    assert desk.node.ready().persist.insert[0].command == {"type": DISK_LOST, "node_id": 3, "disk_id": "d3"}


def test_who_reads_that_its_own_disk_is_lost_takes_another_identity() -> None:
    """From the entries, or from a state that stands for them; what is said of another disk is nothing to it."""
    state, lost = RaftState(3, "d3"), {"type": DISK_LOST, "node_id": 3, "disk_id": "d3"}
    assert loses_disk(lost, state)
    assert not loses_disk({**lost, "disk_id": "older"}, state)
    assert not loses_disk({**lost, "node_id": 2}, state)
    assert not is_registered_lost(members(3), 3)
    assert is_registered_lost(after_command(members(3), lost, 9), 3)
