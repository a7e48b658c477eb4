from __future__ import annotations

from collections import Counter

from manager.cluster.placement import choose_replicas


def leaders(led: dict[int, int], live: list[int], *, partitions: int) -> list[int]:
    return [replicas[0] for replicas in choose_replicas(led, {}, live, partitions=partitions, factor=1)]


def test_partitions_go_to_whoever_leads_the_fewest():
    assert leaders({1: 3, 2: 0, 3: 1}, [1, 2, 3], partitions=4) == [2, 2, 3, 2]


def test_equal_brokers_take_turns_from_the_lowest_id():
    assert leaders({}, [3, 1, 2], partitions=5) == [1, 2, 3, 1, 2]


def test_only_live_brokers_are_chosen_whatever_they_lead():
    assert set(leaders({1: 0, 2: 100}, [2], partitions=3)) == {2}


def test_the_order_of_the_live_list_does_not_matter():
    assert leaders({2: 1}, [1, 2, 3], partitions=7) == leaders({2: 1}, [3, 2, 1, 1], partitions=7)


def test_replicas_stand_on_different_brokers_and_are_spread_evenly():
    chosen = choose_replicas({}, {}, [1, 2, 3, 4, 5], partitions=20, factor=3)
    assert all(len(set(replicas)) == 3 for replicas in chosen)
    assert Counter(replicas[0] for replicas in chosen) == dict.fromkeys(range(1, 6), 4)
    held = Counter(broker_id for replicas in chosen for broker_id in replicas)
    assert max(held.values()) - min(held.values()) <= 1


def test_there_are_no_more_replicas_than_brokers():
    assert choose_replicas({}, {}, [7, 8], partitions=1, factor=3) == [(7, 8)]


def test_a_broker_that_holds_little_gets_the_followers():
    assert choose_replicas({}, {1: 9, 2: 9, 3: 0, 4: 1}, [1, 2, 3, 4], partitions=1, factor=3) == [(1, 3, 4)]


def test_who_is_absent_holds_replicas_and_leads_only_where_nobody_else_can():
    chosen = choose_replicas({1: 0, 2: 100, 3: 100}, {}, [1, 2, 3], partitions=4, factor=3, absent=[1])
    assert [2, 3, 2, 3] == [replicas[0] for replicas in chosen]
    assert all(1 in replicas for replicas in chosen)
    assert [(1, 2, 3)] == choose_replicas({}, {}, [1, 2, 3], partitions=1, factor=3, absent=[3, 2, 1, 9])
