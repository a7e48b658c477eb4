"""A cut as a value and as text."""

from __future__ import annotations

import pytest

from myqueue.errors import BadRequestError
from myqueue.protocol.types import OffsetRange, PartitionId, TopicPartition
from pipeline.source.cuts import CutPartition, cut_from_json, cut_of

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


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2}', '{"version": 1, "cluster_id": "c", "partitions": [{"topic": "a"}]}'])
def test_what_is_no_cut_is_refused(text: str) -> None:
    """A damaged or foreign text is a mistake of the caller."""
    with pytest.raises(BadRequestError, match="cut"):
        cut_from_json(text)
