from __future__ import annotations

from manager.cluster.placement import choose_leaders


def test_partitions_go_to_whoever_leads_the_fewest():
    assert choose_leaders({1: 3, 2: 0, 3: 1}, [1, 2, 3], partitions=4) == [2, 2, 3, 2]


def test_equal_brokers_take_turns_from_the_lowest_id():
    assert choose_leaders({}, [3, 1, 2], partitions=5) == [1, 2, 3, 1, 2]


def test_only_live_brokers_are_chosen_whatever_they_lead():
    assert set(choose_leaders({1: 0, 2: 100}, [2], partitions=3)) == {2}


def test_the_order_of_the_live_list_does_not_matter():
    assert choose_leaders({2: 1}, [1, 2, 3], partitions=7) == choose_leaders({2: 1}, [3, 2, 1, 1], partitions=7)
