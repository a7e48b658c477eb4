"""A cut as a value and as text."""

from __future__ import annotations

import pytest

from myqueue.errors import BadRequestError
from myqueue.protocol.types import OffsetRange, PartitionId, TopicPartition
from pipeline.source.cuts import CutPartition, cut_from_json, cut_of, narrowed

CUT = cut_of("c1", [CutPartition(TopicPartition("b", 1), PartitionId(2, 1), OffsetRange(5, 9)),
                    CutPartition(TopicPartition("a", 0), PartitionId(1, 0), OffsetRange(0, 7)),
                    CutPartition(TopicPartition("a", 1), PartitionId(1, 1), OffsetRange(3, 3))])


def test_a_cut_survives_its_text() -> None:
    """What was written is what is read, and one cut has one text."""
    assert CUT == cut_from_json(CUT.to_json())
    assert CUT.to_json() == cut_of("c1", reversed(CUT.partitions.values())).to_json()


def test_messages_are_counted_by_topic() -> None:
    """Offsets are dense, so their number is the messages'."""
    assert {"a": 7, "b": 4} == CUT.messages_by_topic()
    assert 11 == CUT.messages()


def test_a_cut_is_narrowed_between_offsets() -> None:
    """Never beyond itself; what is not named stays; None is the end, and a start behind its end leaves nothing."""
    a, b = TopicPartition("a", 0), TopicPartition("b", 1)
    assert CUT == narrowed(CUT, {}, {}) == narrowed(CUT, {a: 0, b: 2}, {a: 99, b: None})
    assert OffsetRange(6, 8) == narrowed(CUT, {b: 6}, {b: 8}).partitions[b].offsets
    assert [0, 0, 1] == [narrowed(CUT, starts, ends).messages_by_topic()["b"]
                         for starts, ends in (({b: None}, {}), ({b: 8}, {b: 6}), ({}, {b: 6}))]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2}', '{"version": 1, "cluster_id": "c", "partitions": [{"topic": "a"}]}'])
def test_what_is_no_cut_is_refused(text: str) -> None:
    """A damaged or foreign text is a mistake of the caller."""
    with pytest.raises(BadRequestError, match="cut"):
        cut_from_json(text)
