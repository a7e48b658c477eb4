"""The leader's side: what it learns from answers and what it sends."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from db.replication import (
    AppendReply,
    Hint,
    Holder,
    MemoryLog,
    OfferedStart,
    Progress,
    Refusal,
    ReplicaState,
    SendPlan,
    accepts_start,
    after_reply,
    after_snapshot,
    holders,
    plan_append,
    plan_send,
)
from tests.unit.db.replication.entries import TextEntry, carry_out, chained, log_of, request_from


def _matched(position: int, *, epoch: int = 3, disk: str = "d2", round: int = 1, counts: bool = True) -> AppendReply:
    return AppendReply(epoch, disk, 0, round, matched=position, counts=counts)


def _refused(position: int, end: int, next: int, *, round: int = 1, disk: str = "d2", epoch: int = 3) -> AppendReply:
    return AppendReply(epoch, disk, position, round, refusal=Refusal.NO_MATCH, hint=Hint(end, next))


LOG = log_of(1, 1, 2, 2, 3)


def test_an_acknowledgement_moves_matched_and_next() -> None:
    """From there on the follower gets what is new."""
    progress = after_reply(Progress(next=5), _matched(5), epoch=3, rounds=1, log=LOG)
    assert (progress.matched, progress.next, progress.holder) == (5, 5, Holder("d2", 5))


def test_a_late_lower_acknowledgement_changes_nothing() -> None:
    """Matched never falls: answers arrive in any order."""
    progress = after_reply(Progress(next=5), _matched(5), epoch=3, rounds=1, log=LOG)
    assert after_reply(progress, _matched(2), epoch=3, rounds=2, log=LOG) == progress


def test_an_acknowledgement_of_another_epoch_is_ignored() -> None:
    """What a follower held in an earlier epoch may have been truncated since."""
    progress = Progress(next=5)
    assert after_reply(progress, _matched(5, epoch=2), epoch=3, rounds=1, log=LOG) == progress


def test_another_disk_under_the_same_name_begins_anew() -> None:
    """R7: what the old disk held the new one has not shown."""
    progress = after_reply(Progress(next=5), _matched(5), epoch=3, rounds=1, log=LOG)
    assert after_reply(progress, _matched(1, disk="new"), epoch=3, rounds=2, log=LOG).holder == Holder("new", 1)


def test_a_seeding_follower_is_no_holder() -> None:
    """It counts for no majority until it says so."""
    assert after_reply(Progress(next=5), _matched(5, counts=False), epoch=3, rounds=1, log=LOG).holder is None


def test_a_hint_moves_next_back_and_always_by_one_at_least() -> None:
    """Whatever the follower says, the search ends."""
    assert after_reply(Progress(next=5), _refused(5, 3, 2), epoch=3, rounds=1, log=LOG).next == 2
    assert after_reply(Progress(next=5), _refused(5, 9, 9), epoch=3, rounds=1, log=LOG).next == 4


def test_a_hint_never_goes_below_what_was_acknowledged() -> None:
    """A refusal of a request sent before the acknowledgement is old news."""
    progress = replace(after_reply(Progress(next=3), _matched(3), epoch=3, rounds=7, log=LOG), next=5)
    assert after_reply(progress, _refused(5, 0, 0, round=7), epoch=3, rounds=7, log=LOG).next == 3


def test_the_answer_to_an_older_question_moves_nothing() -> None:
    """Otherwise a late refusal would throw a good guess away."""
    progress = Progress(next=2)
    assert after_reply(progress, _refused(5, 1, 1), epoch=3, rounds=1, log=LOG) == progress


def test_a_follower_that_refuses_what_it_acknowledged_has_lost_its_disk() -> None:
    """Asked after the acknowledgement; a late refusal of an earlier round proves nothing."""
    progress = after_reply(Progress(next=5), _matched(5), epoch=3, rounds=4, log=LOG)
    assert not after_reply(progress, _refused(5, 2, 2, round=4), epoch=3, rounds=9, log=LOG).disk_lost
    assert after_reply(progress, _refused(5, 2, 2, round=5), epoch=3, rounds=9, log=LOG).disk_lost


def test_a_hint_inside_a_request_of_ours_is_lowered_to_its_start() -> None:
    """Every append begins at a request's border."""
    log = MemoryLog(list(chained([TextEntry(1, "m"), TextEntry(1, "a", 0, 3), TextEntry(1, "b", 1, 3), TextEntry(1, "c", 2, 3)])))
    assert after_reply(Progress(next=4), _refused(4, 3, 3), epoch=3, rounds=1, log=log).next == 1


def test_a_hint_below_the_start_means_the_start_first_and_a_snapshot_only_after_its_refusal() -> None:
    """The follower may hold the border at the start, though its own log begins elsewhere."""
    log = log_of(1, 1, 2, 2, 3, start=3)
    progress = after_reply(Progress(next=5), _refused(5, 1, 1), epoch=3, rounds=1, log=log)
    assert plan_send(progress, log, entries_max=9) == SendPlan(position=3, prev_epoch=2, end=5)
    progress = after_reply(progress, _refused(3, 1, 1), epoch=3, rounds=2, log=log)
    assert progress.needs_snapshot
    assert plan_send(progress, log, entries_max=9) is None
    assert plan_send(after_snapshot(progress, 4), log, entries_max=9) == SendPlan(position=4, prev_epoch=2, end=5)


def test_a_send_is_bounded_and_never_splits_a_request() -> None:
    """Two entries at most, but a request of three goes whole."""
    log = MemoryLog(list(chained([TextEntry(1, "m"), TextEntry(1, "a", 0, 3), TextEntry(1, "b", 1, 3), TextEntry(1, "c", 2, 3)])))
    assert plan_send(Progress(next=0), log, entries_max=2) == SendPlan(0, 0, 1)
    assert plan_send(Progress(next=1), log, entries_max=2) == SendPlan(1, 1, 4)
    assert plan_send(Progress(next=4), log, entries_max=2) == SendPlan(4, 1, 4)


def test_the_end_of_a_long_request_is_found_with_few_looks() -> None:
    """Each look may be one at the database."""
    count, looks = 16_384, []

    class Counted(MemoryLog):
        def request_start(self, position: int) -> int:
            looks.append(position)
            return super().request_start(position)

    log = Counted(list(chained([TextEntry(1, "m"), *(TextEntry(1, "x", place, count) for place in range(count)), TextEntry(1, "after")])))
    for end in (2, 257, count, count + 1):
        assert plan_send(Progress(next=1), log, entries_max=count, end=end) == SendPlan(1, 1, count + 1)
    assert len(looks) < 60


def test_a_shell_may_bound_a_send_by_an_end_of_its_own() -> None:
    """It counts bytes; nothing beyond that border is sent, and nothing at all where it is the present one."""
    assert plan_send(Progress(next=1), LOG, entries_max=9, end=3) == SendPlan(1, 1, 3)
    assert plan_send(Progress(next=1), LOG, entries_max=9, end=99) == SendPlan(1, 1, 5)
    assert plan_send(Progress(next=3), LOG, entries_max=9, end=3) == SendPlan(3, 2, 3)
    assert plan_send(Progress(next=3), LOG, entries_max=9, end=1) == SendPlan(3, 2, 3)


def test_holders_are_the_leader_and_those_who_acknowledged() -> None:
    """The leader counts its own entries like any other voter's, by disk."""
    shown = [(2, Progress(next=3, matched=3, disk_id="d2")), (3, Progress(next=3))]
    assert holders((1, Holder("d1", 5)), shown) == {1: Holder("d1", 5), 2: Holder("d2", 3)}


@pytest.mark.parametrize(("position", "epoch", "accepted"), [(4, 9, True), (4, 2, False), (2, 1, False), (2, 9, False),
                                                            (1, 9, False), (9, 3, True)])
def test_an_offered_start_is_taken_only_above_ours_and_only_where_its_border_is_not_held(position: int, epoch: int, accepted: bool) -> None:
    """A late snapshot must not throw away entries that were acknowledged behind it."""
    assert accepts_start(log_of(1, 1, 2, 2, 3, start=2), OfferedStart(position, epoch, b"")) is accepted


@pytest.mark.parametrize("seed", range(200))
def test_leader_and_follower_converge_from_any_fork(seed: int) -> None:
    """Whatever the follower's tail, the exchange ends with equal logs, within two round trips per differing epoch and the sends."""
    rng = random.Random(seed)
    shared = sorted(rng.choices((1, 2), k=rng.randint(0, 6)))
    mine = log_of(*shared, *sorted(rng.choices((3, 5, 7), k=rng.randint(0, 9))))
    leader = log_of(*shared, *sorted(rng.choices((4, 6, 8), k=rng.randint(0, 9))), 9)
    start = rng.randint(0, min(len(shared), mine.end))
    leader.compact(start)
    state = ReplicaState(promised_epoch=9, commit=0, disk_id="d2")
    progress = Progress(next=leader.end)
    for round in range(1, 30):
        send = plan_send(progress, leader, entries_max=3)
        plan = plan_append(state, mine, request_from(leader, send.position, epoch=9, end=send.end, round=round))
        carry_out(mine, plan)
        progress = after_reply(progress, plan.reply, epoch=9, rounds=round, log=leader)
        if progress.matched == leader.end:
            break
    assert mine.between(start, mine.end) == leader.between(start, leader.end)
    assert not progress.disk_lost
