"""A leadership: who holds what, who was heard, what is committed."""

from __future__ import annotations

from dataclasses import dataclass

from broker.core.leading import KEPT_ENTRIES_MAX, LEASE_SECONDS, Leading
from db.replication import AppendReply, Hint, MemoryLog, Refusal

VOTERS = {1: "d1", 2: "d2", 3: "d3"}


@dataclass(frozen=True)
class Entry:
    epoch: int
    request_index: int = 0
    request_count: int = 1
    chain: bytes = b""

    def chain_after(self, previous: bytes) -> bytes:
        return b""


def log(*epochs: int) -> MemoryLog:
    return MemoryLog([Entry(epoch) for epoch in epochs])


def leading(of: MemoryLog, *, voters: dict[int, str | None] | None = None, learners: tuple[int, ...] = ()) -> Leading:
    return Leading(2, VOTERS if voters is None else voters, learners, broker_id=1, disk_id="d1", end=of.end, commit=0)


def matched(at: int, *, by: str = "d2", epoch: int = 2, round: int = 1, counts: bool = True) -> AppendReply:
    return AppendReply(epoch, by, at, round, matched=at, counts=counts)


def test_a_majority_commits_and_only_behind_an_entry_of_the_epoch():
    of = log(1, 1, 2)
    one = leading(of)
    assert not one.learn(2, matched(2), of, asked_at=0.0)
    assert one.commit == 0
    assert one.learn(2, matched(3, round=2), of, asked_at=0.0)
    assert (one.commit, one.began) == (3, True)


def test_it_has_begun_once_all_that_it_began_with_is_committed():
    """A database that crashed may remember an older commit position of the same epoch: something committed since is not enough."""
    of = log(2, 2, 2)
    one = leading(of)
    assert one.learn(2, matched(2), of, asked_at=0.0)
    assert (one.commit, one.began) == (2, False)
    assert one.learn(2, matched(3, round=2), of, asked_at=0.0)
    assert (one.commit, one.began) == (3, True)


def test_what_does_not_count():
    """Another epoch, another disk, a replica that is seeded, a learner, somebody nobody knows."""
    of = log(2)
    for source, reply in ((2, matched(1, epoch=1)), (2, matched(1, by="d9")), (2, matched(1, counts=False)), (4, matched(1, by="d4")),
                          (9, matched(1))):
        one = leading(of, learners=(4,))
        assert not one.learn(source, reply, of, asked_at=0.0)
        assert (one.commit, one.confirmed(0), one.has_lease(0.0)) == (0, False, False)


def test_learners_get_the_log_and_are_followed_until_they_are_no_more():
    of = log(2)
    one = leading(of, learners=(4,))
    assert one.followers == (2, 3, 4)
    assert one.plan(4, of, entries_max=10).position == 1  # type: ignore[union-attr]
    one.set_learners(())
    assert one.followers == (2, 3)
    assert not one.learn(4, matched(1, by="d4"), of, asked_at=0.0)


def test_an_empty_slot_is_no_follower_and_counts_in_the_majority():
    of = log(2)
    one = leading(of, voters={1: "d1", 2: "d2", 3: None})
    assert one.followers == (2,)
    assert one.learn(2, matched(1), of, asked_at=0.0)
    alone = leading(of, voters={1: "d1", 2: None})
    assert not alone.advance(of)


def test_one_voter_commits_by_its_own_disk():
    of = log(2, 2)
    one = leading(of, voters={1: "d1"}, learners=(2,))
    assert one.advance(of)
    assert one.commit == 2
    assert one.has_lease(1e9)


def test_the_lease_counts_from_when_the_question_was_asked():
    of = log(2)
    one = leading(of)
    assert not one.has_lease(0.0)
    one.learn(3, matched(1, by="d3"), of, asked_at=10.0)
    assert one.has_lease(10.0 + LEASE_SECONDS - 0.1)
    assert not one.has_lease(10.0 + LEASE_SECONDS)


def test_a_round_is_confirmed_by_answers_to_later_rounds_only():
    of = log(2)
    one = leading(of)
    begun = one.begin_round()
    one.learn(2, matched(1, round=begun), of, asked_at=0.0)
    assert not one.confirmed(begun)
    one.learn(2, matched(1, round=one.begin_round()), of, asked_at=0.0)
    assert one.confirmed(begun)


def test_who_lacks_something():
    """A follower that has not answered yet may lack anything."""
    of = log(2)
    one = leading(of)
    assert one.lacks(2, of.end)
    one.learn(2, matched(1), of, asked_at=0.0)
    assert not one.lacks(2, of.end)
    assert one.lacks(2, of.end + 1)
    assert not one.lacks(9, of.end)


def test_what_a_follower_lacks_is_kept_while_it_is_heard_and_not_too_far_behind():
    """One that is silent for long, or lacks very much, holds nothing up; nor does one that holds everything."""
    of = log(1, 1, 2)
    one = leading(of)
    kept = {"since": 100.0, "end": of.end}
    assert one.kept_from(heard_after=90.0, **kept) == 0, "nobody was heard yet"
    assert one.kept_from(heard_after=101.0, **kept) == 3, "for too long"
    one.learn(2, matched(2), of, asked_at=110.0)
    one.learn(3, AppendReply(2, "d3", 3, 1, refusal=Refusal.NO_MATCH, hint=Hint(0, 0)), of, asked_at=120.0)
    assert one.kept_from(heard_after=105.0, **kept) == 0
    assert one.kept_from(heard_after=115.0, since=100.0, end=KEPT_ENTRIES_MAX + 1) == KEPT_ENTRIES_MAX + 1
    one.learn(3, matched(3, by="d3", round=2), of, asked_at=121.0)
    assert one.kept_from(heard_after=105.0, **kept) == 2
    assert one.kept_from(heard_after=115.0, **kept) == 3


def test_what_others_found_committed_is_known():
    """Another process of this broker counted it: the commit position follows, and never falls."""
    of = log(1, 1, 2)
    one = leading(of)
    one.is_committed(2)
    assert (one.commit, one.began) == (2, False)
    one.is_committed(3)
    one.is_committed(1)
    assert (one.commit, one.began) == (3, True)
