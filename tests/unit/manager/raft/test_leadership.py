"""A leader: what it sends, commits and confirms."""

from __future__ import annotations

import pytest

from db.replication import AppendReply, Hint, Refusal
from manager.raft.leader import ReadConfirmed, SnapshotOrder
from manager.raft.log import Proposal
from manager.raft.membership import INIT_CLUSTER, REMOVE_MEMBER, SET_MEMBER, after_command
from manager.raft.node import READS_MAX, Role
from manager.raft.proposal import plan_propose
from manager.raft.state import Changes, RaftState
from myqueue.errors import NotLeaderError, OverloadedError, RefusedError
from tests.unit.manager.raft.desk import Desk, log_of, members


def _leading(desk: Desk | None = None, *, committed: bool = True) -> Desk:
    """A leader of term 2 whose log is [1, marker of 2]; the marker is committed by manager 2."""
    desk = desk or Desk()
    desk.lead()
    if committed:
        desk.matched(2, desk.log.end, round=1)
    return desk


def _propose(desk: Desk) -> None:
    desk.write(plan_propose(desk.held(), [Proposal({"type": "x"})]))


def _sent(ready: object) -> list[tuple[int, int, int, int]]:
    """(target, previous index, entries, commit) of the appends."""
    return [(envelope.target, envelope.message.request.position, len(envelope.message.request.entries), envelope.message.request.commit)
            for envelope in ready.send]


def test_a_majority_commits_and_what_is_committed_is_applied_and_told() -> None:
    """Raft 5.3: the follower that is up to date learns the commit index at once, the other one gets its entries by and by."""
    desk = Desk()
    desk.lead()
    ready = desk.matched(2, 2, round=1)
    assert (ready.persist, list(ready.apply)) == (Changes(commit_index=2), [1, 2])
    assert _sent(ready) == [(2, 2, 0, 2)]


def test_an_acknowledgement_of_an_older_term_is_ignored() -> None:
    """R6: what a follower held then may have been replaced."""
    desk = Desk()
    desk.lead()
    assert desk.matched(2, 2, term=1).persist == Changes()


def test_only_the_registered_disk_helps_to_commit() -> None:
    """R7."""
    desk = Desk()
    desk.lead()
    assert desk.matched(2, 2, disk_id="new").persist == Changes()


def test_a_learner_gets_the_log_and_does_not_count() -> None:
    """Thesis 4.2.1: it is caught up first."""
    desk = Desk(membership=members(4, learners=(4,)))
    assert 4 in [envelope.target for envelope in desk.lead().send]
    assert desk.matched(4, 2).persist == Changes()


def test_one_append_is_under_way_per_follower() -> None:
    """What is proposed meanwhile goes with the next one."""
    desk = _leading()
    desk.matched(2, 2, round=1)
    _propose(desk)
    assert _sent(desk.advance()) == [(2, 2, 1, 2)]
    _propose(desk)
    assert _sent(desk.advance()) == []
    assert _sent(desk.matched(2, 3, round=1))[0] == (2, 3, 1, 3)


def test_a_leader_is_at_rest_when_nothing_waits_for_an_answer() -> None:
    """Every follower has everything, everything is committed, nobody wants to read."""
    desk = _leading()
    assert not desk.node.is_at_rest(desk.held())  # manager 3 has not answered
    desk.matched(3, 2, round=1)
    assert desk.node.is_at_rest(desk.held())
    _propose(desk)
    desk.advance()
    assert not desk.node.is_at_rest(desk.held())
    desk.matched(2, 3, round=1)
    assert 3 == desk.state.commit_index and not desk.node.is_at_rest(desk.held())
    desk.matched(3, 3, round=1)
    assert desk.node.is_at_rest(desk.held())
    desk.node.read(desk.held(), "who", now=desk.now)
    assert not desk.node.is_at_rest(desk.held())
    assert not Desk().node.is_at_rest(Desk().held())  # a follower's answers are votes


def test_a_round_reaches_everybody_and_repeats_what_got_no_answer() -> None:
    """While an answer is out: a sign of life; after three rounds: the same append again."""
    desk = _leading()
    desk.matched(2, 2, round=1)
    assert _sent(desk.tick(0.15)) == [(2, 2, 0, 2), (3, 0, 0, 2)]
    assert _sent(desk.tick(0.2))[1] == (3, 1, 1, 2)


def test_a_sign_of_life_is_sent_at_a_border_that_is_held() -> None:
    """What lies below our start can no longer be named."""
    desk = Desk(log=log_of(1, 1, 1, start=3), state=RaftState(1, "d1", current_term=1, commit_index=3, applied_index=3))
    desk.lead()
    assert _sent(desk.tick(0.15)) == [(2, 3, 0, 3), (3, 3, 0, 3)]


def test_a_refused_append_is_tried_further_back() -> None:
    """Raft 5.3: from where the hint says."""
    desk = _leading()
    ready = desk.hear(3, AppendReply(2, "d3", 1, 1, refusal=Refusal.NO_MATCH, hint=Hint(0, 0)))
    assert _sent(ready) == [(3, 0, 2, 2)]


def test_a_damaged_append_is_not_repeated_at_once() -> None:
    """The same again would be refused again; the next round is soon enough."""
    desk = _leading()
    assert _sent(desk.hear(3, AppendReply(2, "d3", 1, 1, refusal=Refusal.BROKEN_CHAIN))) == []


def test_a_follower_behind_the_start_gets_the_state() -> None:
    """Only after it refused the border at the start."""
    desk = Desk(log=log_of(1, 1, 1, start=3), state=RaftState(1, "d1", current_term=1, commit_index=3, applied_index=3))
    desk.lead()
    ready = desk.hear(3, AppendReply(2, "d3", 3, 1, refusal=Refusal.NO_MATCH, hint=Hint(1, 1)))
    assert ready.snapshots == (SnapshotOrder(3, 1),)
    assert _sent(desk.hear(3, AppendReply(2, "d3", 3, 1, matched=3))) == [(3, 3, 1, 3)]


def test_a_follower_that_lost_what_it_acknowledged_is_reported_once_and_counts_no_more() -> None:
    """R7: its disk was replaced without a new identity."""
    desk = _leading()
    desk.tick(0.15)
    lost = AppendReply(2, "d2", 2, 2, refusal=Refusal.NO_MATCH, hint=Hint(0, 0))
    assert [event.name for event in desk.hear(2, lost).events] == ["disk_lost"]
    assert desk.hear(2, lost).events == ()
    _propose(desk)
    assert desk.matched(2, 3).persist == Changes()


# --- fresh reads ---


def test_a_read_is_confirmed_by_a_round_that_began_after_it() -> None:
    """Thesis 6.4: an answer to an earlier round proves nothing about now."""
    desk = _leading()
    desk.node.read(desk.held(), "r", now=desk.now)
    rounds = {envelope.message.request.round for envelope in desk.node.ready().send}
    assert rounds == {2}
    assert desk.matched(3, 1, round=1).reads == ()
    assert desk.matched(3, 1, round=2).reads == (ReadConfirmed("r", 2),)


def test_no_read_before_the_marker_is_committed() -> None:
    """Until then a leader may not know everything that was committed before it."""
    desk = _leading(committed=False)
    with pytest.raises(NotLeaderError):
        desk.node.read(desk.held(), "r", now=desk.now)
    desk.node.ready()


def test_a_late_answer_to_an_earlier_round_takes_nothing_back() -> None:
    """Of five managers two others must have answered the read's round, at any time."""
    desk = Desk(membership=members(5))
    desk.lead_with(2, 3)
    for node in (2, 3):
        desk.matched(node, 2, round=1)
    desk.node.read(desk.held(), "r", now=desk.now)
    desk.node.ready()
    desk.matched(2, 2, round=2)
    desk.matched(2, 2, round=1)
    assert desk.matched(3, 2, round=2).reads == (ReadConfirmed("r", 2),)


def test_the_reads_that_wait_are_bounded() -> None:
    """A leader that is cut off does not pile them up."""
    desk = _leading()
    with pytest.raises(OverloadedError):
        for read_id in range(READS_MAX + 1):
            desk.node.read(desk.held(), read_id, now=desk.now)
            desk.node.ready()
    assert len(desk.node.ready().reads) == 0


def test_no_read_at_a_follower() -> None:
    """Its state may be old."""
    desk = Desk()
    with pytest.raises(NotLeaderError):
        desk.node.read(desk.held(), "r", now=desk.now)


# --- membership ---


def _change(desk: Desk, **command: object) -> object:
    try:
        desk.node.change_member(desk.held(), command, now=desk.now)
    finally:
        ready = desk.node.ready()
    desk.write(ready.persist)
    return ready


def test_a_learner_that_holds_everything_becomes_a_voter() -> None:
    """Thesis 4.2.1."""
    desk = _leading(Desk(membership=members(4, learners=(4,))))
    desk.matched(3, 2)
    desk.matched(4, 2)
    ready = _change(desk, type=SET_MEMBER, node_id=4, url="m4", disk_id="d4", voter=True)
    assert ready.persist.insert[0].command["node_id"] == 4


@pytest.mark.parametrize(("index", "disk_id"), [(1, "d4"), (2, "other"), (None, "d4")])
def test_one_that_does_not_may_not(index: int | None, disk_id: str) -> None:
    """Behind the commit, on another disk, or never heard of."""
    desk = _leading(Desk(membership=members(4, learners=(4,))))
    desk.matched(3, 2)
    if index is not None:
        desk.matched(4, index, disk_id=disk_id)
    with pytest.raises(RefusedError, match="does not hold"):
        _change(desk, type=SET_MEMBER, node_id=4, url="m4", disk_id="d4", voter=True)


def test_the_next_change_waits_for_the_last_one() -> None:
    """Thesis 4.1: majorities of two changes need not meet."""
    desk = _leading()
    desk.membership = members(3, index=3)
    with pytest.raises(RefusedError, match="under way"):
        _change(desk, type=REMOVE_MEMBER, node_id=3)


def test_the_next_change_begins_once_the_last_one_is_committed() -> None:
    """Committed, not applied."""
    desk = _leading()
    desk.membership = members(3, index=2)
    assert _change(desk, type=REMOVE_MEMBER, node_id=3).persist.insert[0].command["node_id"] == 3


def test_no_change_before_the_marker_is_committed() -> None:
    """Ongaro, 2015: otherwise changes of two leaders could each find a majority."""
    desk = _leading(committed=False)
    with pytest.raises(RefusedError, match="term"):
        _change(desk, type=REMOVE_MEMBER, node_id=3)


def test_a_follower_changes_nothing() -> None:
    """Only a leader does."""
    with pytest.raises(NotLeaderError):
        _change(Desk(), type=REMOVE_MEMBER, node_id=3)


def test_other_commands_are_no_change_of_one_member() -> None:
    """The first entry least of all."""
    desk = _leading()
    with pytest.raises(RefusedError):
        _change(desk, type=INIT_CLUSTER, members=[])


def test_a_leader_that_removes_itself_leads_until_that_is_committed() -> None:
    """Thesis 4.2.2: and counts only the others for it."""
    desk = _leading()
    desk.matched(3, 1)
    _change(desk, type=REMOVE_MEMBER, node_id=1)
    desk.membership = members(3, learners=(1,), index=3)
    assert desk.matched(2, 3).persist == Changes()
    assert desk.node.role is Role.LEADER
    ready = desk.matched(3, 3)
    assert (ready.persist, desk.node.role) == (Changes(commit_index=3, leader_term=0), Role.FOLLOWER)


def _repaired(desk: Desk) -> dict | None:
    desk.node.repair(desk.held(), now=desk.now)
    ready = desk.node.ready()
    desk.write(ready.persist)
    return ready.persist.insert[0].command if ready.persist.insert else None


def test_a_leader_repairs_one_slot_at_a_time_and_only_what_may_be_changed_now() -> None:
    """A new disk is registered without a vote; it gets that when it has caught up and the change before is committed."""
    desk = _leading()
    assert _repaired(desk) is None, "all is as it should be"
    desk.hear(3, AppendReply(2, "new", 1, 1, refusal=Refusal.NO_MATCH, hint=Hint(0, 0)))
    registered = {"type": SET_MEMBER, "node_id": 3, "url": "m3", "disk_id": "new", "voter": False}
    assert _repaired(desk) == registered
    desk.membership = after_command(desk.membership, registered, 3)
    assert _repaired(desk) is None, "the change is not committed yet"
    desk.matched(2, 3)
    desk.matched(3, 2, disk_id="new")
    assert _repaired(desk) is None, "it does not hold what is committed yet"
    desk.matched(3, 3, disk_id="new")
    assert _repaired(desk) == {**registered, "voter": True}


def test_a_follower_repairs_nothing() -> None:
    """It knows nobody's progress."""
    assert _repaired(Desk()) is None


def test_no_change_that_leaves_too_few_who_answer() -> None:
    """With one of three away, the removal of another one that is there would stop all writes."""
    desk = _leading()
    with pytest.raises(RefusedError, match="would stop all writes"):
        _change(desk, type=REMOVE_MEMBER, node_id=2)
    assert _change(desk, type=REMOVE_MEMBER, node_id=3).persist.insert
