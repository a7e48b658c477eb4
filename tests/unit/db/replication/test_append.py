"""The follower's side: the rules of append, each with the section of the Raft paper it comes from, and a naive twin."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from db.replication import AppendRequest, Hint, MemoryLog, Refusal, plan_append
from myqueue.errors import LogFaultError
from tests.unit.db.replication.entries import TextEntry, carry_out, chained, log_of, replica, request_from


def test_an_epoch_below_the_promise_is_refused_and_the_promise_named() -> None:
    """Raft 5.1: a request with a stale term is rejected."""
    plan = plan_append(replica(promised=5), log_of(1), request_from(log_of(1, 2), 1, epoch=4))
    assert (plan.reply.refusal, plan.reply.epoch, plan.promise, plan.insert) == (Refusal.STALE_EPOCH, 5, None, ())


def test_a_higher_epoch_becomes_the_promise_even_where_the_append_is_refused() -> None:
    """Raft 5.1: whoever sees a higher term takes it over; the promise is in the plan, to be on disk before the reply."""
    plan = plan_append(replica(promised=1), log_of(1), request_from(log_of(1, 1, 2), 2, epoch=3))
    assert (plan.promise, plan.reply.refusal, plan.reply.epoch) == (3, Refusal.NO_MATCH, 3)


def test_an_append_in_the_promised_epoch_writes_no_promise() -> None:
    """The promise is written only when it rises."""
    assert plan_append(replica(promised=1), log_of(1), request_from(log_of(1, 1), 1, epoch=1)).promise is None


def test_a_second_leader_of_our_own_epoch_is_a_fault() -> None:
    """Raft 5.2, election safety: one leader per term."""
    with pytest.raises(LogFaultError, match="two leaders"):
        plan_append(replica(promised=2, leader_epoch=2), log_of(1), request_from(log_of(1, 2), 1, epoch=2))


def test_a_gap_is_refused_with_our_end_as_hint() -> None:
    """Raft 5.3: no entry before the request, no append."""
    plan = plan_append(replica(), log_of(1, 1), request_from(log_of(1, 1, 1, 1, 1), 4, epoch=1))
    assert (plan.reply.refusal, plan.reply.hint, plan.insert) == (Refusal.NO_MATCH, Hint(end=2, next=2), ())


def test_another_epoch_before_the_request_is_refused_with_the_first_position_of_that_epoch() -> None:
    """Raft 5.3, the optimisation: one step back per conflicting term."""
    plan = plan_append(replica(promised=4), log_of(1, 1, 2, 2, 2), request_from(log_of(1, 1, 3, 3, 3, 4), 5, epoch=4))
    assert plan.reply.hint == Hint(end=5, next=2)


def test_the_hint_never_goes_below_the_commit() -> None:
    """What is committed here every later leader holds."""
    plan = plan_append(replica(promised=4, commit=3), log_of(2, 2, 2, 2, 2), request_from(log_of(2, 2, 2, 3, 3, 4), 5, epoch=4))
    assert plan.reply.hint == Hint(end=5, next=3)


def test_a_mismatch_at_or_below_the_commit_is_a_fault() -> None:
    """Raft 5.4, leader completeness: such a leader cannot exist."""
    with pytest.raises(LogFaultError, match="committed"):
        plan_append(replica(promised=4, commit=2), log_of(1, 2), request_from(log_of(1, 3), 2, epoch=4))


def test_a_longer_log_alone_deletes_nothing() -> None:
    """Raft 5.3, figure 2 item 3: delete only from a conflicting entry on; a late short append must not cut what came after it."""
    plan = plan_append(replica(), log_of(1, 1, 1, 1), request_from(log_of(1, 1, 1, 1), 0, epoch=1, end=2))
    assert (plan.delete_from, plan.insert, plan.reply.matched) == (None, (), 2)


def test_deletes_from_the_first_conflicting_entry_and_inserts_what_is_missing() -> None:
    """Raft 5.3: the follower's log becomes the leader's from the fork on."""
    leader = log_of(1, 1, 3, 3)
    plan = plan_append(replica(promised=3, commit=1), log_of(1, 1, 2, 2, 2), request_from(leader, 1, epoch=3))
    assert (plan.delete_from, plan.insert_at, plan.insert) == (2, 2, leader.between(2, 4))


def test_never_deletes_below_the_commit() -> None:
    """R5: what is committed is never truncated; the contradiction stops the log instead."""
    with pytest.raises(LogFaultError, match="is committed"):
        plan_append(replica(promised=3, commit=3), log_of(1, 1, 2, 2), request_from(log_of(1, 1, 3, 3), 1, epoch=3))


def test_commit_does_not_pass_the_end_of_the_request() -> None:
    """Raft 5.3, figure 2 item 5: min(leader's commit, last entry of *this* request), though our log may be longer."""
    plan = plan_append(replica(), log_of(1, 1, 2, 2), request_from(log_of(1, 1, 3), 0, epoch=3, end=1, commit=3))
    assert (plan.commit, plan.reply.matched) == (1, 1)


def test_commit_never_falls() -> None:
    """R5: an older request with a lower commit leaves ours, and the same one writes nothing."""
    for commit in (1, 2):
        assert plan_append(replica(commit=2), log_of(1, 1), request_from(log_of(1, 1), 0, epoch=1, commit=commit)).commit is None


def test_a_heartbeat_matches_its_border_only() -> None:
    """The answer says how far the request matched, not how long our log is."""
    plan = plan_append(replica(promised=3), log_of(1, 1, 2), request_from(log_of(1, 1, 3), 2, epoch=3, end=2, round=9))
    assert (plan.reply.matched, plan.reply.round, plan.reply.disk_id) == (2, 9, "disk-a")


def test_repeating_an_append_changes_nothing() -> None:
    """Raft 5.5: requests are idempotent."""
    log, request = log_of(1, 1), request_from(log_of(1, 1, 1), 1, epoch=1)
    carry_out(log, plan_append(replica(), log, request))
    again = plan_append(replica(), log, request)
    assert (again.delete_from, again.insert, again.reply.matched) == (None, (), 3)


@pytest.mark.parametrize("end", [1, 2, 3, 5])
def test_what_lies_below_our_start_counts_as_matched_and_is_skipped(end: int) -> None:
    """Raft 7: it is committed, and only its last epoch is remembered."""
    leader, log = log_of(1, 1, 2, 2, 3), log_of(1, 1, 2, start=3)
    plan = plan_append(replica(promised=3, commit=3), log, request_from(leader, 0, epoch=3, end=end))
    assert (plan.reply.matched, plan.insert) == (end, leader.between(3, end))


def test_the_epoch_before_our_start_is_compared() -> None:
    """The start epoch takes part wherever the border is the start: forgetting it would accept another history."""
    with pytest.raises(LogFaultError):
        plan_append(replica(promised=4, commit=3), log_of(1, 1, 2, start=3), request_from(log_of(1, 1, 3, 4), 3, epoch=4))
    with pytest.raises(LogFaultError):
        plan_append(replica(promised=4, commit=3), log_of(1, 1, 2, start=3), request_from(log_of(1, 1, 3, 4), 2, epoch=4))


def test_a_request_that_ends_at_our_start_is_compared_too() -> None:
    """Its last entry is the one whose epoch we remember."""
    with pytest.raises(LogFaultError, match="before our start"):
        plan_append(replica(promised=4, commit=2), log_of(1, 2, start=2), request_from(log_of(1, 3), 0, epoch=4))


def test_nobody_leads_epoch_nought() -> None:
    """A fresh replica has promised 0 and leads nothing."""
    assert not replica(promised=0).leading
    assert replica(promised=2, leader_epoch=2).leading
    assert not replica(promised=3, leader_epoch=2).leading


def _two_block_request(epoch: int = 1) -> MemoryLog:
    return MemoryLog(list(chained([TextEntry(epoch, "marker"), TextEntry(epoch, "a", 0, 2), TextEntry(epoch, "b", 1, 2), TextEntry(epoch, "c")])))


@pytest.mark.parametrize(("position", "end"), [(1, 2), (2, 3), (2, 4), (0, 2)])
def test_an_append_that_begins_or_ends_inside_a_request_is_refused(position: int, end: int) -> None:
    """A request is stored all or nothing on every replica."""
    leader = _two_block_request()
    log = MemoryLog(list(leader.entries[:position]))
    plan = plan_append(replica(), log, request_from(leader, position, epoch=1, end=end))
    assert (plan.reply.refusal, plan.insert) == (Refusal.SPLIT_REQUEST, ())


def test_whole_requests_are_taken() -> None:
    """Entries of one request travel together."""
    leader = _two_block_request()
    plan = plan_append(replica(), MemoryLog([]), request_from(leader, 0, epoch=1))
    assert plan.insert == leader.between(0, 4)


@pytest.mark.parametrize("epochs", [(2, 1), (1, 4)])
def test_epochs_that_fall_or_pass_the_leaders_are_refused(epochs: tuple[int, int]) -> None:
    """No log looks like this."""
    request = AppendRequest(3, 0, 0, chained([TextEntry(epoch, "x") for epoch in epochs]), 0)
    assert plan_append(replica(promised=3), MemoryLog([]), request).reply.refusal is Refusal.SPLIT_REQUEST


def test_a_damaged_entry_is_refused() -> None:
    """The digest is computed anew before anything is stored."""
    leader = log_of(1, 1, 1)
    damaged = list(leader.entries)
    damaged[1] = replace(damaged[1], text="damaged")
    plan = plan_append(replica(), MemoryLog([]), replace(request_from(leader, 0, epoch=1), entries=damaged))
    assert (plan.reply.refusal, plan.insert) == (Refusal.BROKEN_CHAIN, ())


def test_the_same_position_and_epoch_with_another_digest_is_a_fault() -> None:
    """R2: log matching is violated, and somebody must look."""
    with pytest.raises(LogFaultError, match="two digests"):
        plan_append(replica(), log_of(1, 1, words="ab"), request_from(log_of(1, 1, 1, words="axc"), 0, epoch=1))


def test_a_repeated_long_append_looks_at_few_entries() -> None:
    """A view in SQL pays for each look with a query."""
    looks = []

    class Watched(MemoryLog):
        def chain_at(self, position: int) -> bytes:
            looks.append(position)
            return super().chain_at(position)

    leader = log_of(*[1] * 500)
    plan = plan_append(replica(), Watched(list(leader.entries)), request_from(leader, 0, epoch=1))
    assert (plan.reply.matched, plan.insert) == (500, ())
    assert len(looks) <= 10


def test_a_seeding_replica_says_that_it_does_not_count() -> None:
    """Until its log reaches the state it was given, it promises and stores and counts for no majority."""
    leader = log_of(1, 1, 1)
    assert not plan_append(replica(seeding_until=3), MemoryLog([]), request_from(leader, 0, epoch=1, end=2)).reply.counts
    assert plan_append(replica(seeding_until=3), MemoryLog([]), request_from(leader, 0, epoch=1, end=3)).reply.counts


def _naive(mine: list[tuple[int, str]], position: int, prev_epoch: int, theirs: list[tuple[int, str]]) -> list[tuple[int, str]] | None:
    """Figure 2 of the paper, literally, over (epoch, text) pairs with 1-based indexes."""
    if position > len(mine) or (position > 0 and mine[position - 1][0] != prev_epoch):
        return None
    log = list(mine)
    for index, entry in enumerate(theirs, start=position + 1):
        if len(log) >= index and log[index - 1][0] != entry[0]:
            log = log[:index - 1]
        if len(log) < index:
            log.append(entry)
    return log


@pytest.mark.parametrize("seed", range(300))
def test_agrees_with_the_papers_figure_for_random_logs(seed: int) -> None:
    """For logs that share a prefix and then fork, the plan does to the log what figure 2 does, and accepts exactly when it does."""
    rng = random.Random(seed)
    shared = sorted(rng.choices((1, 2), k=rng.randint(0, 4)))
    mine = log_of(*shared, *sorted(rng.choices((3, 5), k=rng.randint(0, 4))))
    leader = log_of(*shared, *sorted(rng.choices((4, 6), k=rng.randint(0, 4))))
    position = rng.randint(0, leader.end)
    request = request_from(leader, position, epoch=7, end=rng.randint(position, leader.end), commit=rng.randint(0, 8))
    expected = _naive([(e.epoch, e.text) for e in mine.entries], position, request.prev_epoch, [(e.epoch, e.text) for e in request.entries])
    plan = plan_append(replica(promised=6), mine, request)
    carry_out(mine, plan)
    assert (plan.reply.matched is not None) == (expected is not None)
    if expected is not None:
        assert [(e.epoch, e.text) for e in mine.entries] == expected
        assert (plan.commit or 0) == min(request.commit, request.end)
    else:
        assert plan.reply.hint.next < position
