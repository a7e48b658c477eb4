"""How often offsets are covered, without a value for each."""

from __future__ import annotations

import pytest

from pipeline.reconcile.coverage import Coverage, Mismatch, Stretch, Tally, clipped, mismatches, tally

pytestmark = pytest.mark.timeout(30)


def test_ranges_that_touch_are_one_and_cost_one() -> None:
    """In whatever order they come; where they overlap they count."""
    coverage = Coverage()
    for start in (20, 0, 10, 30):
        coverage.add(start, start + 10)
    assert ([Stretch(0, 40)], 2) == (coverage.stretches(), len(coverage._edges))
    coverage.add(35, 50, 2)
    assert [Stretch(0, 35), Stretch(35, 40, 3), Stretch(40, 50, 2)] == coverage.stretches()
    assert [] == Coverage().stretches()


@pytest.mark.parametrize(("start", "end", "left"), [
    (0, 100, [Stretch(5, 10), Stretch(10, 12, 2), Stretch(20, 30)]), (10, 12, [Stretch(10, 12, 2)]), (9, 21, [Stretch(9, 10), Stretch(10, 12, 2),
                                                                                                               Stretch(20, 21)]),
    (12, 20, []), (0, 5, []), (30, 40, []), (25, 25, [])])
def test_what_lies_between_two_offsets(start: int, end: int, left: list[Stretch]) -> None:
    assert left == clipped([Stretch(5, 10), Stretch(10, 12, 2), Stretch(20, 30)], start, end)


def test_a_tally_counts_each_offset_as_often_as_it_is_covered() -> None:
    """So that a missing one and a double one do not hide each other."""
    assert Tally(7, 5 + 6 + 7 + 2 * (9 + 10)) == tally([Stretch(5, 8), Stretch(9, 11, 2)])
    assert tally([Stretch(0, 4)]) != tally([Stretch(0, 2), Stretch(3, 4, 2)])


def test_mismatches_are_named_once_and_whole() -> None:
    """Also where one side has more edges than the other."""
    stored = [Stretch(0, 10), Stretch(15, 30)]
    assert [] == mismatches(stored, [Stretch(0, 4), Stretch(4, 10), Stretch(15, 30)])
    assert [Mismatch(3, 10, 1, 0), Mismatch(10, 12, 0, 1), Mismatch(15, 20, 1, 2)] == mismatches(
        stored, [Stretch(0, 3), Stretch(10, 12), Stretch(15, 17, 2), Stretch(17, 20, 2), Stretch(20, 30)])
