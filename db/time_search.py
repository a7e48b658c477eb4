"""Where in a log a moment lies. Append times never fall and entries are numbered without gaps, so that halving finds it: no index is kept for it.

Of a log with S segments and E entries in one of them that is log2(S) probes of an index, a statement each, and then log2(E) in one statement.
"""

from __future__ import annotations

import bisect
from typing import Any

from myqueue.errors import LogFaultError, UnknownPartitionError
from myqueue.protocol.types import PartitionId

from . import segments
from .folding import OF_PARTITION

# Bounds and segments as of one moment, a row per segment in which something is committed.
PARTS = f"""SELECT greatest(p.start_offset, c.trim_offset), c.commit_lsn, c.commit_offset, s.segment_id, s.first_lsn, s.first_offset
            {OF_PARTITION} LEFT JOIN segment_start s ON s.topic_id = p.topic_id AND s.partition = p.partition AND s.first_lsn < c.commit_lsn
            ORDER BY s.segment_id"""
# LIMIT keeps the planner, which knows nothing of a fresh table, from joining it as a whole.
FIRST_SINCE = """WITH RECURSIVE half (low, high) AS (
        SELECT %(low)s::bigint, %(high)s::bigint
        UNION ALL
        SELECT CASE WHEN e.append_time < %(append_time)s THEN e.lsn + 1 ELSE h.low END,
               CASE WHEN e.append_time < %(append_time)s THEN h.high ELSE e.lsn END
        FROM half h, LATERAL (SELECT lsn, append_time FROM {table} WHERE topic_id = %(topic_id)s AND partition = %(partition)s
                              AND lsn = (h.low + h.high) / 2 LIMIT 1) e WHERE h.low < h.high)
    SELECT h.low, (SELECT base_offset FROM {table} WHERE topic_id = %(topic_id)s AND partition = %(partition)s AND lsn = h.low)
    FROM half h WHERE h.low = h.high"""


def first_offset_since(cursor: Any, partition: PartitionId, append_time: int) -> int | None:
    """The offset of the first committed record that was appended at or after a time and is served; None where there is none yet.

    Raises:
        UnknownPartitionError: there is no such log here.
        LogFaultError: an entry is missing.
    """
    place = {"topic_id": partition.topic_id, "partition": partition.partition}
    cursor.execute(PARTS, place)
    rows = cursor.fetchall()
    if not rows:
        raise UnknownPartitionError(f"partition {partition} is not held here")
    earliest, end_lsn, end_offset = rows[0][:3]
    parts = [row[3:] for row in rows if row[3] is not None]

    def begins_at(part: tuple[int, int, int]) -> int:
        return _one(cursor, segments.PART_TIME.format(table=segments.table_name(part[0])), (*partition, part[1]), partition)[0]

    after = bisect.bisect_left(parts, append_time, key=begins_at)  # from this part on everything is late enough
    high, found = parts[after][1:] if after < len(parts) else (end_lsn, end_offset)
    if after:
        table, first_lsn, _ = parts[after - 1]
        statement = FIRST_SINCE.format(table=segments.table_name(table))
        lsn, offset = _one(cursor, statement, place | {"append_time": append_time, "low": first_lsn + 1, "high": high}, partition)
        found = offset if lsn < high else found
    found = max(found, earliest)
    return found if found < end_offset else None


def _one(cursor: Any, statement: str, parameters: Any, partition: PartitionId) -> tuple[Any, ...]:
    cursor.execute(statement, parameters)
    row = cursor.fetchone()
    if row is None:
        raise LogFaultError(f"an entry of partition {partition} is committed and cannot be found")
    return row  # type: ignore[no-any-return]
