"""Each kind of difference alone: found, and nothing else said."""

from __future__ import annotations

import pytest

from myqueue.protocol.types import OffsetRange, PartitionId, TopicPartition
from pipeline.reconcile.coverage import Coverage, Stretch, Tally, tally
from pipeline.reconcile.figures import Difference, Judged, Row
from pipeline.reconcile.judge import Columns, Exported, StoredPeriod, judge
from pipeline.reconcile.receipts import Acknowledged, Ranges
from pipeline.source.cuts import Cut, CutPartition, cut_of
from pipeline.transforms.reconcile import PERIOD_US

pytestmark = pytest.mark.timeout(30)
A = TopicPartition("a", 0)
FIRST, SECOND = 100 * PERIOD_US, 103 * PERIOD_US
STORED = (StoredPeriod(FIRST, (Stretch(10, 30),)), StoredPeriod(SECOND, (Stretch(30, 50),)))  # the log begins at 10 and ends at 50


def cut(start: int = 10, end: int = 50) -> Cut:
    return cut_of("c", [CutPartition(A, PartitionId(1, 0), OffsetRange(start, end))])


def ranges(*first: tuple[int, int], second: tuple[tuple[int, int], ...] = ()) -> Ranges:
    return {A: {FIRST: Coverage(Stretch(*one) for one in first), SECOND: Coverage(Stretch(*one) for one in second)}}


def judged(*, told: Ranges | None = None, offset: int | None = None, copied: Ranges | None = None, stored: tuple = STORED,
           part: Cut | None = None) -> Judged:
    columns = Columns(None if told is None else Acknowledged(told), {} if offset is None else {"g": {A: offset}},
                      None if copied is None else Exported(copied))
    return judge(cut(), part or cut(), {A: stored}, columns)


def found(made: Judged) -> list[tuple]:
    return [(one.kind, one.start_offset, one.end_offset, one.period_us) for one in made.differences]


def test_what_is_the_same_everywhere_gives_rows_and_nothing_else() -> None:
    """However receipts lie over the periods."""
    made = judged(told=ranges((10, 25), (25, 35), second=((35, 50),)), offset=50, copied=ranges((10, 30), second=((30, 50),)))
    first, second = Tally(20, sum(range(10, 30))), Tally(20, sum(range(30, 50)))
    assert Judged((Row(A, FIRST, first, 10, 29, first, {"g": 20}, first), Row(A, SECOND, second, 30, 49, second, {"g": 20}, second))) == made


def test_what_was_not_asked_for_is_not_compared() -> None:
    assert [(None, {}, None)] * 2 == [(row.acknowledged, row.consumed, row.exported) for row in judged().rows]
    assert [] == found(judged())


@pytest.mark.parametrize(("told", "said"), [
    (ranges((10, 50), second=((50, 53),)), [("lost", 50, 53, SECOND)]),
    (ranges((10, 20), (21, 50)), [("unacknowledged", 20, 21, FIRST)]),
    (ranges((10, 50), (28, 32)), [("acknowledged_twice", 28, 30, FIRST), ("acknowledged_twice", 30, 32, SECOND)]),
    (ranges((10, 20), (21, 50), (40, 41)), [("unacknowledged", 20, 21, FIRST), ("acknowledged_twice", 40, 41, SECOND)]),
    ({}, [("unacknowledged", 10, 30, FIRST), ("unacknowledged", 30, 50, SECOND)])])
def test_receipts_that_do_not_cover_what_is_stored(told: Ranges, said: list[tuple]) -> None:
    """Behind the end, not at all, twice; one that lacks and one that is double do not hide each other."""
    assert said == found(judged(told=told))
    assert not judged(told=told).not_judged


@pytest.mark.parametrize(("copied", "said"), [
    (ranges((10, 50), second=((50, 53),)), [("exported_only", 50, 53, SECOND)]), (ranges((10, 20), (21, 50)), [("not_exported", 20, 21, FIRST)]),
    (ranges((10, 50), (28, 29)), [("exported_twice", 28, 29, FIRST)]), (ranges((0, 50)), [])])
def test_an_export_that_does_not_cover_what_is_stored(copied: Ranges, said: list[tuple]) -> None:
    """What retention has taken since it was exported is no difference."""
    assert said == found(judged(copied=copied))


@pytest.mark.parametrize(("offset", "said", "consumed"), [
    (50, [], [20, 20]), (99, [], [20, 20]), (33, [("not_consumed", 33, 50, SECOND)], [20, 3]),
    (0, [("not_consumed", 10, 30, FIRST), ("not_consumed", 30, 50, SECOND)], [0, 0])])
def test_a_group_has_consumed_what_lies_below_its_offset(offset: int, said: list[tuple], consumed: list[int]) -> None:
    made = judged(offset=offset)
    assert (said, consumed) == (found(made), [row.consumed["g"] for row in made.rows])
    assert {"g"} >= {one.group for one in made.differences}


def test_receipts_below_the_log_s_start_are_not_judged() -> None:
    """And no difference, and in no row."""
    made = judged(told=ranges((3, 50)))
    assert ([], ["a/0: 7 messages acknowledged"]) == (found(made), [one.what for one in made.not_judged])
    assert Tally(20, sum(range(10, 30))) == made.rows[0].acknowledged


def test_what_is_missing_in_the_log_is_told_by_what_it_is_known_from() -> None:
    """Lost where it was acknowledged, exported only where it was exported, missing where nothing else says that it was there."""
    stored = (StoredPeriod(FIRST, (Stretch(10, 20), Stretch(22, 28))), STORED[1])
    assert [("missing", 20, 22, FIRST), ("missing", 28, 30, FIRST)] == found(judged(stored=stored))
    assert [("lost", 20, 22, FIRST), ("lost", 28, 30, FIRST)] == found(judged(stored=stored, told=ranges((10, 50))))
    assert [("missing", 28, 30, FIRST), ("exported_only", 20, 22, FIRST)] == found(judged(stored=stored, copied=ranges((10, 28), (30, 50))))
    assert [("missing", 10, 50, None)] == found(judged(stored=()))
    assert [("stored_twice", 12, 14, FIRST)] == found(judged(stored=(StoredPeriod(FIRST, (Stretch(10, 12), Stretch(12, 14, 2), Stretch(14, 30))),
                                                                     STORED[1])))


def test_nothing_is_said_of_what_lies_outside_the_window() -> None:
    """The log has it, in other ten minutes."""
    made = judged(told=ranges((30, 50), (0, 0)), offset=50, copied=ranges((30, 50)), stored=STORED[1:], part=cut(30, 50))
    assert ([], [SECOND]) == (found(made), [row.period_us for row in made.rows])
    early = judged(told=ranges((10, 30)), offset=30, copied=ranges((10, 30)), stored=STORED[:1], part=cut(10, 30))
    assert ([], [FIRST]) == (found(early), [row.period_us for row in early.rows])


def test_what_lies_behind_the_end_has_a_row_of_its_own_ten_minutes() -> None:
    """With nothing stored."""
    later = SECOND + PERIOD_US
    told: Ranges = {A: {FIRST: Coverage([Stretch(10, 50)]), later: Coverage([Stretch(50, 52, 2)])}}
    made = judged(told=told, copied=ranges((10, 50)))
    assert Row(A, later, Tally(), None, None, Tally(4, 202), {}, Tally()) == made.rows[-1]
    assert [("lost", 50, 52, later)] == found(made)


def test_partitions_and_topics_that_are_not_there() -> None:
    """Acknowledged in a partition that no log has, in a topic's earlier identity, stored before in an unknown place; exported of another identity."""
    other = TopicPartition("a", 7)
    told = Acknowledged({**ranges((10, 50)), other: {FIRST: Coverage([Stretch(0, 3)])}}, {("a", 9): 4, ("gone", None): 2}, {A: 5})
    made = judge(cut(), cut(), {A: STORED}, Columns(told, {}, Exported(ranges((10, 50)), {"b": 3})))
    assert (Difference("lost", "a", 3, 7, 0, 3, FIRST), Difference("acknowledged_elsewhere", "a", 4, topic_id=9),
            Difference("acknowledged_elsewhere", "gone", 2), Difference("exported_elsewhere", "b", 0, topic_id=3)) == made.differences
    assert ["a/0: 5 messages acknowledged"] == [one.what for one in made.not_judged]
    assert tally([Stretch(0, 3)]) == made.rows[-1].acknowledged
