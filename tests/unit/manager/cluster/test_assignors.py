"""How members share partitions: by every strategy each partition goes to one member that reads its topic; fair, and sticky where that is promised."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manager.cluster.assignors import STRATEGIES, Shares, Subscriber
from myqueue.protocol.types import PartitionId

MEMBERS = st.dictionaries(st.integers(1, 9), st.sets(st.integers(1, 3)), max_size=6)
PARTITIONS = st.dictionaries(st.integers(1, 3), st.integers(0, 7))


def members_of(topics: dict[int, set[int]], had: Shares | None = None) -> list[Subscriber]:
    return [Subscriber(member_id, ids, (had or {}).get(member_id, ())) for member_id, ids in topics.items()]


def sizes(shares: Shares) -> dict[int, int]:
    return {member_id: len(share) for member_id, share in shares.items()}


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(STRATEGIES)), MEMBERS, PARTITIONS, MEMBERS)
def test_each_partition_goes_to_one_member_that_reads_its_topic(strategy, topics, partitions, before):
    had = STRATEGIES[strategy](members_of(before), partitions)
    shares = STRATEGIES[strategy](members_of(topics, had), partitions)
    given_away = [one for share in shares.values() for one in share]
    read = {topic_id for ids in topics.values() for topic_id in ids}
    assert sorted(given_away) == sorted(PartitionId(topic_id, number) for topic_id, count in partitions.items() if topic_id in read
                                        for number in range(count))
    assert set(shares) == set(topics)
    assert all(one.topic_id in topics[member_id] for member_id, share in shares.items() for one in share)


@settings(max_examples=200, deadline=None)
@given(MEMBERS, PARTITIONS, MEMBERS)
def test_sticky_is_fair_and_moves_nothing_when_nothing_changed(topics, partitions, before):
    sticky = STRATEGIES["sticky"]
    shares = sticky(members_of(topics, sticky(members_of(before), partitions)), partitions)
    for giver, share in shares.items():
        for taker, other in shares.items():
            assert len(share) - len(other) < 2 or not any(one.topic_id in topics[taker] for one in share), (giver, taker)
    assert sticky(members_of(topics, shares), partitions) == shares


def test_sticky_moves_as_few_as_it_must():
    """A third member takes a third; what the two others keep was theirs before."""
    sticky = STRATEGIES["sticky"]
    two = sticky(members_of({1: {7}, 2: {7}}), {7: 9})
    three = sticky(members_of({1: {7}, 2: {7}, 3: {7}}, two), {7: 9})
    assert sizes(three) == {1: 3, 2: 3, 3: 3}
    assert set(three[1]) <= set(two[1])
    assert set(three[2]) <= set(two[2])
    back = sticky(members_of({1: {7}, 2: {7}}, three), {7: 9})
    assert set(three[1]) <= set(back[1])
    assert set(three[2]) <= set(back[2])


@pytest.mark.parametrize(("strategy", "expected"), [
    ("range", {1: [(7, 0), (7, 1), (7, 2), (8, 0), (8, 1)], 2: [(7, 3), (7, 4), (8, 2)]}),
    ("round_robin", {1: [(7, 0), (7, 2), (7, 4), (8, 1)], 2: [(7, 1), (7, 3), (8, 0), (8, 2)]}),
    ("sticky", {1: [(7, 0), (7, 2), (7, 4), (8, 1)], 2: [(7, 1), (7, 3), (8, 0), (8, 2)]}),
])
def test_two_members_and_two_topics(strategy, expected):
    shares = STRATEGIES[strategy](members_of({1: {7, 8}, 2: {7, 8}}), {7: 5, 8: 3})
    assert {member_id: [tuple(one) for one in share] for member_id, share in shares.items()} == expected


def test_ten_thousand_partitions_are_shared_anew_in_no_time():
    """The pure part of a rebalance is no matter of seconds: half of them move here."""
    sticky = STRATEGIES["sticky"]
    shares = sticky(members_of({1: {7}, 2: {7}}, {1: [PartitionId(7, number) for number in range(10_000)]}), {7: 10_000})
    assert sizes(shares) == {1: 5_000, 2: 5_000}
