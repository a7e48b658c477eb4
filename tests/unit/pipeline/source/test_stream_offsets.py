"""A stream's offsets: what they say, what is refused, and how a rate limit shares them out."""

from __future__ import annotations

import json

import pytest

from myqueue.errors import BadRequestError, ConflictError, LogFaultError, OffsetOutOfRangeError
from myqueue.protocol.types import PartitionId, TopicPartition
from pipeline.source.positions import Position
from pipeline.source.ranges import Span, cut_to, split_to
from pipeline.source.stream_offsets import (
    Mark,
    check_marks,
    ends_of,
    limited,
    marks_from_json,
    marks_to_json,
    spans_between,
    starts_of,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a.b-c", 1), TopicPartition("b", 0)


def position(topic_id: int, start: int, committed: int, end: int | None = None) -> Position:
    return Position(PartitionId(topic_id, 0), 0, start, 0, bytes(32), 9, committed if end is None else end, 9, committed, ())


def test_offsets_survive_the_checkpoint_in_one_order() -> None:
    """Spark compares the text."""
    marks = {B0: Mark(2, 5), A1: Mark(1, 7)}
    text = json.dumps(marks_to_json(marks))
    assert '{"a.b-c/1": {"offset": 7, "topic_id": 1}, "b/0": {"offset": 5, "topic_id": 2}}' == text
    assert marks == marks_from_json(json.loads(text))
    with pytest.raises(BadRequestError, match="cannot be read"):
        marks_from_json({"a": 3})


@pytest.mark.parametrize(("positions", "error", "said"), [
    ({}, ConflictError, "a/0 is not there any more; the stream had read it to offset 20"),
    ({A0: position(8, 0, 50)}, ConflictError, "topic a was made anew since the stream read it: it had id 1, now 8"),
    ({A0: position(1, 21, 50)}, OffsetOutOfRangeError, "read to offset 20, the log begins at 21"),
    ({A0: position(1, 0, 10, 19)}, LogFaultError, "read to offset 20, the log ends at 19"),
])
def test_lost_messages_are_an_error_that_says_how(positions: dict, error: type, said: str) -> None:
    """And how to go on without them."""
    with pytest.raises(error, match=said):
        check_marks({A0: Mark(1, 20)}, positions, whole=True)


def test_a_log_whose_committed_end_is_not_known_yet_is_waited_for() -> None:
    """A new leader learns it late; a follower may be behind. The stream does not go back."""
    check_marks({A0: Mark(1, 20)}, {A0: position(1, 0, 10, 20)}, whole=True)
    check_marks({A0: Mark(1, 20)}, {A0: position(1, 0, 10, 19)}, whole=False)
    assert {A0: Mark(1, 20)} == ends_of({A0: Mark(1, 20)}, {A0: position(1, 0, 10, 20)})


def test_new_partitions_are_read_from_their_beginning() -> None:
    """So are topics that were made anew, and what retention took is passed over, where that is wanted."""
    positions = {A0: position(8, 3, 50), A1: position(1, 30, 50), B0: position(2, 0, 9)}
    assert {A0: Mark(8, 3), A1: Mark(1, 30), B0: Mark(2, 4)} == starts_of({A0: Mark(1, 20), A1: Mark(1, 20), B0: Mark(2, 4)}, positions)


def test_a_rate_limit_is_shared_in_proportion_and_used_up() -> None:
    """No partition starves, none gets more than it has."""
    starts = {A0: Mark(1, 0), A1: Mark(1, 100), B0: Mark(2, 5)}
    ends = {A0: Mark(1, 700), A1: Mark(1, 400), B0: Mark(2, 5)}
    assert {A0: Mark(1, 7), A1: Mark(1, 103), B0: Mark(2, 5)} == limited(starts, ends, 10)
    assert ends == limited(starts, ends, 1000)
    for most in (1, 2, 3, 11, 999):
        assert most == sum(mark.offset - starts[name].offset for name, mark in limited(starts, ends, most).items())


def test_a_micro_batchs_tasks_follow_from_its_offsets_alone() -> None:
    """Cut and halved like ranges."""
    spans = spans_between({A0: Mark(1, 0), B0: Mark(2, 5)}, {A0: Mark(1, 25), B0: Mark(2, 5)})
    assert [Span(A0, 1, 0, 25)] == spans
    assert [Span(A0, 8, 0, 9), Span(B0, 2, 0, 5)] == spans_between({A0: Mark(1, 4)}, {A0: Mark(8, 9), B0: Mark(2, 5)})
    assert [(0, 10), (10, 20), (20, 25)] == [(span.start, span.end) for span in cut_to(spans, 10)]
    assert [(0, 13), (13, 25)] == [(span.start, span.end) for span in split_to(spans, 2)]
