"""Check of the consumers' offsets: each lies in the log. One look-up for all partitions of a broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .log_checks import Damage

OFFSETS = """
SELECT o.topic_id, o.partition, o.consumer, o.next_offset, o.lsn, s.end_offset
FROM consumer_offset o JOIN partition_state s USING (topic_id, partition)
WHERE o.topic_id = ANY(%(topic_ids)s) AND (o.next_offset > s.end_offset OR o.next_offset < 0)
      AND s.seeding_until IS NULL  -- else the offsets are those of a later position, and the log follows
ORDER BY o.topic_id, o.partition, o.consumer
"""


def judge_consumers(rows: Iterable[dict[str, Any]]) -> dict[tuple[int, int], list[Damage]]:
    """What is wrong with the offsets that lie outside their logs (rows of OFFSETS), by topic id and partition.

    An offset below the log's start is none: retention took what the consumer had not read, and it goes on at the start.
    """
    found: dict[tuple[int, int], list[Damage]] = {}
    for row in rows:
        found.setdefault((row["topic_id"], row["partition"]), []).append(Damage(
            "consumer_offset", row["lsn"], row["next_offset"], row["next_offset"],
            f"consumer {row['consumer']} is at offset {row['next_offset']}, the log ends at {row['end_offset']}"))
    return found
