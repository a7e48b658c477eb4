"""The order of tests where several processes run side by side."""

from __future__ import annotations

import itertools

from tests.support.order import places, scope_of

FILES = [*(f"tests/{tier}/test_{number}.py" for tier, count in (("integration", 30), ("cluster", 10)) for number in range(count)),
         "tests/cluster/test_campaign.py"]
TESTS = [*(f"{file}::test_{name}" for name in ("a", "b") for file in FILES), "tests/conformance/test_x.py::test_a",
         "tests/conformance/test_y.py::test_a"]


def test_what_shares_nodes_stays_together_and_is_named_once():
    place = places(TESTS)
    assert place.keys() == {*FILES, "conformance"}
    assert len(set(place.values())) == len(place)
    assert {"conformance"} == {scope_of(test) for test in TESTS if test.startswith("tests/conformance")}


def test_whole_clusters_are_spread_among_the_others_and_the_last_one_does_not_begin_at_the_end():
    place = places(TESTS)
    order = sorted(place, key=lambda scope: place[scope])
    whole = [number for number, scope in enumerate(order) if not scope.startswith("tests/integration")]
    assert ["tests/cluster/test_campaign.py", "conformance"] == [order[number] for number in whole[:2]]
    assert whole[0] == 0
    assert {2, 3, 4} >= {after - before for before, after in itertools.pairwise(whole)}
    assert 0.7 < whole[-1] / len(order) < 0.85


def test_what_computes_longest_comes_first_and_else_the_given_order_stays():
    given = ["tests/repo/test_a.py::b", "tests/simulation/test_s.py::z", "tests/pipeline/test_p.py::a", "tests/simulation/test_s.py::a",
             "tests/pipeline/test_q.py::a"]
    place = places(given)
    assert sorted(place, key=lambda scope: place[scope]) == ["pipeline", "tests/simulation/test_s.py::z", "tests/simulation/test_s.py::a",
                                                             "tests/repo/test_a.py::b"]
    quick = ["tests/unit/test_b.py::b", "tests/contract/test_a.py::a", "tests/unit/test_a.py::a"]
    assert quick == sorted(quick, key=lambda test: places(quick)[test])
