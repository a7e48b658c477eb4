"""The statements that read messages. Only whole numbers are put into them, each through ``%d``; names never are."""

from __future__ import annotations

# The blocks that hold offsets start … end - 1 of a partition in one segment: from the last that begins at or before start.
_BLOCKS = """
SELECT base_offset, append_time, keys, "values", {headers}, timestamps
FROM log_segment_{segment:d}
WHERE topic_id = {topic_id:d} AND partition = {partition:d} AND kind = 1 AND base_offset < {end:d}
  AND base_offset >= coalesce((SELECT max(base_offset) FROM log_segment_{segment:d}
      WHERE topic_id = {topic_id:d} AND partition = {partition:d} AND kind = 1 AND base_offset <= {start:d}), {start:d})
"""


def blocks(*, segment: int, topic_id: int, partition: int, start: int, end: int, headers: bool) -> str:
    """The statement for one stretch of offsets. Raises ValueError where something is not a whole number."""
    return _BLOCKS.format(segment=segment, topic_id=topic_id, partition=partition, start=start, end=end,
                          headers="headers" if headers else "NULL::bytea[] AS headers")
