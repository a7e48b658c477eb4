"""When a segment is rolled, and when its successor is made."""

from __future__ import annotations

import pytest

from db.segments import OpenSegment, RollPolicy, table_name
from myqueue.protocol.topic_config import Kept

POLICY = RollPolicy(bytes_max=1_000, age_seconds_max=60)


@pytest.mark.parametrize(("size", "age", "spare", "due", "wants"), [
    (0, 0, False, False, False),
    (499, 29, False, False, False),
    (500, 0, False, False, True),
    (500, 0, True, False, False),
    (1, 30, False, False, True),
    (0, 1_000, False, False, False),
    (1, 60, True, True, False),
    (1_000, 0, True, True, False),
    (5_000, 0, False, True, True),
])
def test_the_policy(size: int, age: float, spare: bool, due: bool, wants: bool):
    """By size or age; a spare from half of either on, once; an empty segment is never touched."""
    segment = OpenSegment(1, 1, size, age, spare)
    assert (POLICY.is_due(segment), POLICY.wants_spare(segment)) == (due, wants)


@pytest.mark.parametrize(("kept", "size", "age", "due"), [
    (Kept(size_bytes=400_000), 100_000, 0, True), (Kept(size_bytes=400_000), 99_999, 0, False),
    (Kept(size_bytes=1), 64 << 10, 0, True), (Kept(size_bytes=1), (64 << 10) - 1, 0, False),
    (Kept(milliseconds=40_000), 1, 10, True), (Kept(milliseconds=40_000), 1, 9, False), (Kept(milliseconds=40_000), 0, 99, False),
    (Kept(milliseconds=1), 1, 1, True), (Kept(milliseconds=1), 1, 0.9, False),
    (Kept(milliseconds=10**9, size_bytes=10**9), 999_999, 59, False), (Kept(milliseconds=10**9, size_bytes=10**9), 1_000_000, 0, True),
])
def test_where_a_topic_keeps_little_its_segments_are_small(kept: Kept, size: int, age: float, due: bool):
    """A quarter of what is kept, within bounds: never greater than without."""
    assert RollPolicy(bytes_max=1_000_000, age_seconds_max=60).is_due(OpenSegment(1, 1, size, age, True, kept)) is due


def test_a_segment_holds_a_quarter_of_what_each_of_its_partitions_keeps():
    policy, kept = RollPolicy(bytes_max=1_000_000, age_seconds_max=60), Kept(size_bytes=400_000)
    assert not policy.is_due(OpenSegment(1, 1, 299_999, 0, True, kept, partitions=3))
    assert policy.is_due(OpenSegment(1, 1, 300_000, 0, True, kept, partitions=3))
    assert policy.is_due(OpenSegment(1, 1, 1_000_000, 0, True, kept, partitions=99))


def test_a_table_is_named_by_a_number_only():
    assert table_name(12) == "log_segment_12"
    with pytest.raises(ValueError):
        table_name("1; DROP TABLE topic")  # type: ignore[arg-type]
