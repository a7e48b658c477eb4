"""Where each partition's log stands in its broker's database, and how large its segments are: look-ups, never a scan."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import psycopg2.extensions

from myqueue.errors import LogFaultError
from myqueue.protocol.types import OffsetRange, PartitionId

from ..databases import rows_of

POSITIONS = """
SELECT s.topic_id, s.partition, s.start_lsn, s.start_offset, s.start_epoch, s.start_chain, s.end_lsn, s.end_offset,
       c.commit_lsn, c.commit_offset, coalesce(c.trim_offset, 0) AS trim_offset
FROM partition_state s LEFT JOIN partition_commit c USING (topic_id, partition)
WHERE s.topic_id = ANY(%(topic_ids)s)
"""

SEGMENTS = """
SELECT s.topic_id, s.partition, s.segment_id, s.first_lsn, s.first_offset,
       pg_total_relation_size(to_regclass('log_segment_' || s.segment_id)) AS bytes
FROM segment_start s WHERE s.topic_id = ANY(%(topic_ids)s) ORDER BY s.topic_id, s.partition, s.segment_id
"""

ENTRY = """
SELECT append_time, base_offset FROM log_segment_{segment:d} WHERE topic_id = %(topic_id)s AND partition = %(partition)s AND lsn = %(lsn)s
"""

# Of the block that holds an offset.
BLOCK_TIME = """
SELECT append_time FROM log_segment_{segment:d}
WHERE topic_id = %(topic_id)s AND partition = %(partition)s AND kind = 1 AND base_offset <= %(offset)s ORDER BY base_offset DESC LIMIT 1
"""
DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Segment:
    """A partition's part of a segment; ends are exclusive. ``bytes_per_entry`` and ``bytes_per_record`` are the segment's averages."""

    segment_id: int
    first_lsn: int
    end_lsn: int
    first_offset: int
    end_offset: int
    bytes_per_entry: float
    bytes_per_record: float


@dataclass(frozen=True, slots=True)
class Position:
    """A partition's log on one broker. Commit positions are None where the broker has none on record."""

    id: PartitionId
    start_lsn: int
    start_offset: int
    start_epoch: int
    start_chain: bytes
    end_lsn: int
    end_offset: int
    commit_lsn: int | None
    commit_offset: int | None
    segments: tuple[Segment, ...]
    trim_offset: int = 0

    @property
    def stored(self) -> OffsetRange:
        """The committed offsets that are stored."""
        return OffsetRange(self.start_offset, max(self.start_offset, min(self.commit_offset or 0, self.end_offset)))

    @property
    def readable(self) -> OffsetRange:
        """The committed offsets that are served: nothing of them is trimmed."""
        start = max(self.start_offset, self.trim_offset)
        return OffsetRange(start, max(start, self.stored.end))


def read_positions(cursor: psycopg2.extensions.cursor, topic_ids: Iterable[int]) -> dict[PartitionId, Position]:
    """The positions of all partitions of these topics in this database, in one snapshot."""
    parameters = {"topic_ids": sorted(set(topic_ids))}
    heads = rows_of(cursor, POSITIONS, parameters)
    return positions_of(heads, rows_of(cursor, SEGMENTS, parameters))


def offset_at(cursor: psycopg2.extensions.cursor, position: Position, time_us: int) -> int | None:
    """The first committed offset appended at or after a time, None where there is none: some twenty look-ups by the index, since time never falls.

    Raises:
        LogFaultError: an entry that must be there is missing.
    """
    end_lsn = min(position.commit_lsn or position.start_lsn, position.end_lsn)
    lsns = range(position.start_lsn, end_lsn)
    at = bisect_left(lsns, time_us, key=lambda lsn: _entry(cursor, position, lsn)["append_time"])
    if at == len(lsns):
        return None
    offset = _entry(cursor, position, lsns[at])["base_offset"]  # of a marker too: it says where the next record goes
    offset = max(offset, position.readable.start)
    return offset if offset < position.readable.end else None


def days_of(cursor: psycopg2.extensions.cursor, position: Position, offsets: OffsetRange) -> Iterator[tuple[int, OffsetRange]]:
    """Cut offsets at midnight UTC of the append time: each day (since 1970) that has messages, with its offsets. Some twenty look-ups a day.

    Raises:
        LogFaultError: an entry that must be there is missing.
    """
    start = offsets.start
    last_day = time_at(cursor, position, offsets.end - 1) // DAY_US if len(offsets) else 0
    while start < offsets.end:
        day = time_at(cursor, position, start) // DAY_US
        midnight = offset_at(cursor, position, (day + 1) * DAY_US) if day < last_day else None
        end = min(midnight, offsets.end) if midnight is not None and midnight > start else offsets.end
        yield day, OffsetRange(start, end)
        start = end


def time_at(cursor: psycopg2.extensions.cursor, position: Position, offset: int) -> int:
    """When the message with an offset was appended, in microseconds since 1970. Raises LogFaultError where it is not there."""
    segment = next((part for part in position.segments if part.first_offset <= offset < part.end_offset), None)
    return _row(cursor, position, segment, BLOCK_TIME, offset=offset)["append_time"]


def _entry(cursor: psycopg2.extensions.cursor, position: Position, lsn: int) -> dict:
    segment = next((part for part in position.segments if part.first_lsn <= lsn < part.end_lsn), None)
    return _row(cursor, position, segment, ENTRY, lsn=lsn)


def _row(cursor: psycopg2.extensions.cursor, position: Position, segment: Segment | None, statement: str, **at: int) -> dict:
    """One row of a segment of a partition. Raises LogFaultError where it is not there."""
    found = [] if segment is None else rows_of(cursor, statement.format(segment=segment.segment_id), {
        "topic_id": position.id.topic_id, "partition": position.id.partition, **at})
    if not found:
        [(what, number)] = at.items()
        raise LogFaultError(f"partition {position.id} has nothing at {what} {number}; run an audit")
    return found[0]


def positions_of(heads: Sequence[dict], segments: Sequence[dict]) -> dict[PartitionId, Position]:
    """Put heads and segments together: a partition's part of a segment ends where its part of the next one begins."""
    by_id = {PartitionId(head["topic_id"], head["partition"]): head for head in heads}
    parts: dict[PartitionId, list[dict]] = {id_: [] for id_ in by_id}
    for row in segments:
        if PartitionId(row["topic_id"], row["partition"]) in parts:
            parts[PartitionId(row["topic_id"], row["partition"])].append(row)
    spans = {id_: _spans(by_id[id_], rows) for id_, rows in parts.items()}
    totals: dict[int, tuple[int, int]] = {}
    for rows in spans.values():
        for row, end_lsn, end_offset in rows:
            entries, records = totals.get(row["segment_id"], (0, 0))
            totals[row["segment_id"]] = (entries + end_lsn - row["first_lsn"], records + end_offset - row["first_offset"])
    return {id_: _position(id_, by_id[id_], rows, totals) for id_, rows in spans.items()}


def _spans(head: dict, rows: list[dict]) -> list[tuple[dict, int, int]]:
    ends = [(row["first_lsn"], row["first_offset"]) for row in rows[1:]] + [(head["end_lsn"], head["end_offset"])]
    return [(row, end_lsn, end_offset) for row, (end_lsn, end_offset) in zip(rows, ends, strict=False)]  # no rows: no entry was written yet


def _position(id_: PartitionId, head: dict, spans: list[tuple[dict, int, int]], totals: dict[int, tuple[int, int]]) -> Position:
    segments = []
    for row, end_lsn, end_offset in spans:
        entries, records = totals[row["segment_id"]]
        size = row["bytes"] or 0
        segments.append(Segment(row["segment_id"], row["first_lsn"], end_lsn, row["first_offset"], end_offset,
                                size / max(1, entries), size / max(1, records)))
    return Position(id_, head["start_lsn"], head["start_offset"], head["start_epoch"], head["start_chain"], head["end_lsn"],
                    head["end_offset"], head["commit_lsn"], head["commit_offset"], tuple(segments), head["trim_offset"])
