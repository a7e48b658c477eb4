"""Whether what was exported is what the cut holds."""

from __future__ import annotations

import pytest

from myqueue.protocol.types import OffsetRange, PartitionId, TopicPartition
from pipeline.source.cuts import CutPartition, cut_of
from pipeline.transforms.counts import PartitionCount, differences

A0, EMPTY = TopicPartition("a", 0), TopicPartition("a", 1)
CUT = cut_of("c", [CutPartition(A0, PartitionId(1, 0), OffsetRange(5, 9)), CutPartition(EMPTY, PartitionId(1, 1), OffsetRange(3, 3))])
SOUND = PartitionCount(A0, 4, 5, 8, 26)


def test_the_same_messages_give_no_difference() -> None:
    """An empty partition has no rows and needs none."""
    assert [] == differences(CUT, [SOUND])


@pytest.mark.parametrize("counts", [
    [], [PartitionCount(A0, 3, 5, 7, 18)], [PartitionCount(A0, 4, 5, 8, 25)], [PartitionCount(A0, 5, 5, 8, 33)],
    [SOUND, PartitionCount(EMPTY, 1, 3, 3, 3)], [SOUND, PartitionCount(TopicPartition("b", 0), 1, 0, 0, 0)]])
def test_a_loss_a_duplicate_and_both_at_once_are_differences(counts: list) -> None:
    """One sentence for the partition that differs."""
    assert 1 == len(differences(CUT, counts))
