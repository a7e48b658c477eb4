"""How many messages a DataFrame of messages holds, and whether they are those of a cut."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from myqueue.protocol.types import TopicPartition

from ..source.cuts import Cut

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class PartitionCount:
    """What there is of a partition. With the sum, a duplicate and a gap cannot hide each other."""

    name: TopicPartition
    messages: int
    first_offset: int
    last_offset: int
    offset_sum: int


def counts_by_partition(messages: DataFrame) -> DataFrame:
    """One row per topic and partition: messages, first_offset, last_offset, offset_sum."""
    from pyspark.sql import functions as F

    return messages.groupBy("topic", "partition").agg(
        F.count("*").alias("messages"), F.min("offset").alias("first_offset"), F.max("offset").alias("last_offset"),
        F.sum(F.col("offset").cast("decimal(20,0)")).alias("offset_sum"))


def collect_counts(messages: DataFrame) -> list[PartitionCount]:
    """The counts of a DataFrame of messages."""
    return collected(counts_by_partition(messages))


def collected(counts: DataFrame) -> list[PartitionCount]:
    """The rows of ``counts_by_partition``, or of what has its columns."""
    return [PartitionCount(TopicPartition(row["topic"], row["partition"]), row["messages"], row["first_offset"], row["last_offset"],
                           int(row["offset_sum"])) for row in counts.collect()]


def differences(cut: Cut, counts: Iterable[PartitionCount]) -> list[str]:
    """A sentence for each partition whose messages are not exactly those of the cut."""
    found = {count.name: count for count in counts}
    sentences = []
    for name, expected in sorted(cut.partitions.items()):
        start, end = expected.offsets.start, expected.offsets.end
        count = found.pop(name, None)
        if len(expected.offsets) == 0 and count is None:
            continue
        if count is None:
            sentences.append(f"{name}: nothing is there of {len(expected.offsets)} messages")
        elif count != PartitionCount(name, end - start, start, end - 1, (start + end - 1) * (end - start) // 2):
            sentences.append(f"{name}: {count.messages} messages with offsets {count.first_offset} to {count.last_offset}, "
                             f"the cut has {len(expected.offsets)} with {start} to {end - 1}")
    return sentences + [f"{name}: {count.messages} messages of a partition that the cut does not hold" for name, count in sorted(found.items())]
