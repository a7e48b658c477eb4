"""What a query's conditions leave to be read."""

from __future__ import annotations

from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, IsNotNull, LessThan, LessThanOrEqual, Not, StringStartsWith

from myqueue.protocol.types import OffsetRange, TopicPartition
from pipeline.source.filters import pruning_of


def test_conditions_on_topic_and_partition_choose_partitions() -> None:
    """All of them together."""
    pruning = pruning_of([EqualTo(("topic",), "a"), In(("partition",), (1, 2)), LessThan(("partition",), 2)])
    assert [True, False, False] == [pruning.wants(TopicPartition(*name)) for name in (("a", 1), ("a", 2), ("b", 1))]


def test_conditions_on_offsets_narrow_the_range() -> None:
    """Inclusive and exclusive ends; contradicting ones leave nothing."""
    log = OffsetRange(0, 100)
    for filters, expected in (
            ([GreaterThan(("offset",), 10), LessThanOrEqual(("offset",), 20)], OffsetRange(11, 21)),
            ([GreaterThanOrEqual(("offset",), 10), LessThan(("offset",), 20)], OffsetRange(10, 20)),
            ([EqualTo(("offset",), 7)], OffsetRange(7, 8)), ([In(("offset",), (9, 3))], OffsetRange(3, 10)),
            ([In(("offset",), (9, None, 3))], OffsetRange(3, 10)),
            ([EqualTo(("offset",), None)], log), ([], log)):
        assert expected == pruning_of(filters).clip(log)
    assert 0 == len(pruning_of([EqualTo(("offset",), 7), EqualTo(("offset",), 9)]).clip(log))


def test_what_cannot_be_judged_beforehand_prunes_nothing() -> None:
    """Spark applies it to the rows."""
    pruning = pruning_of([IsNotNull(("key",)), Not(EqualTo(("topic",), "a")), StringStartsWith(("topic",), "z"), EqualTo(("value",), b"x")])
    assert pruning.wants(TopicPartition("a", 0)) and OffsetRange(0, 5) == pruning.clip(OffsetRange(0, 5))
