"""Which offsets a task reads."""

from __future__ import annotations

import pytest

from myqueue.protocol.types import OffsetRange, PartitionId, TopicPartition
from pipeline.cluster import DatabaseAddress
from pipeline.source.positions import Position, Segment, positions_of
from pipeline.source.ranges import WINDOW_BYTES, WINDOW_RECORDS_FIRST, ReadRange, pack, plan_ranges, split_to, windows
from pipeline.source.statements import blocks

DATABASE = DatabaseAddress("h", 1, "d", "u")
NAME = TopicPartition("a", 0)
POSITION = Position(PartitionId(1, 0), 0, 0, 0, bytes(32), 30, 300, 30, 290,
                    (Segment(4, 0, 10, 0, 100, 1000.0, 100.0), Segment(7, 10, 30, 100, 300, 1000.0, 100.0)))

HEAD = {"topic_id": 1, "partition": 0, "start_lsn": 0, "start_offset": 0, "start_epoch": 0, "start_chain": b"", "end_lsn": 3, "end_offset": 9,
        "commit_lsn": 5, "commit_offset": 9, "trim_offset": 0}


def _spans(ranges: list) -> list[tuple[int, int, int]]:
    return [(one.segment_id, one.start, one.end) for one in ranges]


def test_ranges_end_at_segments_and_at_their_bytes() -> None:
    """Each range lies in one segment and holds about range_bytes."""
    assert [(4, 0, 60), (4, 60, 100), (7, 100, 160), (7, 160, 220), (7, 220, 280), (7, 280, 290)] == _spans(
        plan_ranges(DATABASE, NAME, POSITION, POSITION.readable, 6000))


def test_only_the_asked_offsets_are_in_the_ranges() -> None:
    """A start inside one segment and an end inside the next."""
    assert [(4, 95, 100), (7, 100, 105)] == _spans(plan_ranges(DATABASE, NAME, POSITION, OffsetRange(95, 105), 1 << 30))
    assert [] == plan_ranges(DATABASE, NAME, POSITION, OffsetRange(50, 50), 1 << 30)


def test_records_larger_than_a_range_get_one_each() -> None:
    """A range holds at least one record."""
    assert [(4, 0, 1), (4, 1, 2)] == _spans(plan_ranges(DATABASE, NAME, POSITION, OffsetRange(0, 2), 10))


def test_min_partitions_halves_the_largest() -> None:
    """As many as wanted, in order, none empty; fewer where there are too few records."""
    ranges = plan_ranges(DATABASE, NAME, POSITION, OffsetRange(90, 290), 1 << 30)
    assert [(4, 90, 100), (7, 100, 148), (7, 148, 195), (7, 195, 290)] == _spans(split_to(ranges, 4))
    assert [(4, 0, 1), (4, 1, 2)] == _spans(split_to(plan_ranges(DATABASE, NAME, POSITION, OffsetRange(0, 2), 1 << 30), 9))
    assert [] == split_to([], 3)


def _range(topic: str, partition: int, day: int, start: int, end: int) -> ReadRange:
    return ReadRange(DATABASE, TopicPartition(topic, partition), 1, 4, start, end, 10.0, day)


def _packed(ranges: list[ReadRange], bytes_max: int, least: int = 1) -> list[list[tuple[str, int, int, int]]]:
    return [[(of.name.topic, of.day, of.name.partition, of.start) for of in task] for task in pack(ranges, bytes_max, least=least)]


def test_small_ranges_of_one_topic_and_day_share_a_task() -> None:
    """Up to the bytes, never over a topic or a day, a partition in the order of its log; no more of them than leaves as many tasks as are wanted."""
    ranges = [_range("a", partition, day, 10 * day, 10 * day + 10) for partition in (1, 0) for day in (8, 7)] + [_range("b", 0, 7, 0, 1)]
    assert [[("a", 7, 0, 70), ("a", 7, 1, 70)], [("a", 8, 0, 80), ("a", 8, 1, 80)], [("b", 7, 0, 0)]] == _packed(ranges, 200)
    assert [1, 1, 1, 1, 1] == [len(task) for task in _packed(ranges, 199)] == [len(task) for task in _packed(ranges, 200, least=9)]
    assert [2, 1, 1, 1] == [len(task) for task in _packed(ranges, 200, least=4)]
    assert [[("a", 7, 0, 0)], [("a", 7, 0, 30), ("a", 7, 0, 40)]] == _packed(
        [_range("a", 0, 7, 0, 30), _range("a", 0, 7, 30, 40), _range("a", 0, 7, 40, 50)], 300)
    assert [] == _packed([], 1)


@pytest.mark.parametrize("record_bytes", [1, 100, 1 << 20])
def test_windows_cover_a_range_and_stay_bounded(record_bytes: int) -> None:
    """Every offset once, in order; no stretch holds much more than its bytes, whatever the records' size."""
    stretches, at = windows(5, 100_005), 5
    stretch = next(stretches)
    while True:
        assert at == stretch.start < stretch.end
        at, had = stretch.end, len(stretch) * record_bytes
        assert had <= max(WINDOW_BYTES, WINDOW_RECORDS_FIRST * record_bytes)
        try:
            stretch = stretches.send(had)
        except StopIteration:
            break
    assert 100_005 == at


def test_positions_share_a_segments_bytes_between_its_partitions() -> None:
    """Two partitions in one segment: averages are the segment's; a part ends where the next begins, the last at the head."""
    heads = [{**HEAD, "partition": partition, "end_lsn": end, "end_offset": 10 * end} for partition, end in ((0, 30), (1, 10))]
    segments = [{"topic_id": 1, "partition": 0, "segment_id": 1, "first_lsn": 0, "first_offset": 0, "bytes": 3000},
                {"topic_id": 1, "partition": 1, "segment_id": 1, "first_lsn": 0, "first_offset": 0, "bytes": 3000},
                {"topic_id": 1, "partition": 0, "segment_id": 2, "first_lsn": 20, "first_offset": 200, "bytes": None}]
    found = positions_of(heads, segments)
    assert (Segment(1, 0, 20, 0, 200, 100.0, 10.0), Segment(2, 20, 30, 200, 300, 0.0, 0.0)) == found[PartitionId(1, 0)].segments
    assert (Segment(1, 0, 10, 0, 100, 100.0, 10.0),) == found[PartitionId(1, 1)].segments


def test_the_readable_end_never_passes_the_head() -> None:
    """A committed end on record beyond the log, or none, promises nothing that is not there."""
    for commit_offset, end in ((12, 9), (None, 4), (6, 6)):
        head = {**HEAD, "start_offset": 4, "end_offset": 9, "commit_offset": commit_offset}
        assert OffsetRange(4, end) == positions_of([head], [])[PartitionId(1, 0)].readable


def test_what_is_trimmed_is_stored_and_not_readable() -> None:
    """A trim may lie in the middle of what is stored; the log itself begins where its head says."""
    for trim_offset, start in ((0, 4), (3, 4), (6, 6), (9, 9)):
        head = {**HEAD, "start_offset": 4, "trim_offset": trim_offset}
        position = positions_of([head], [])[PartitionId(1, 0)]
        assert (OffsetRange(4, 9), OffsetRange(start, 9)) == (position.stored, position.readable)


def test_only_numbers_reach_a_statement() -> None:
    """What is no whole number cannot get into the text."""
    with pytest.raises(ValueError, match="d"):
        blocks(segment="1; DROP TABLE topic", topic_id=1, partition=0, start=0, end=1, headers=False)  # type: ignore[arg-type]
