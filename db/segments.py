"""Segments: the child tables that hold a topic's entries. Made ahead, rolled by size or age, dropped whole.

A topic has one open segment; entries go there. Rolling is a flip of two states in a short transaction: a writer sees it with
its next group and notes in ``segment_start`` where the partition begins in the new one. No writer ever makes a table.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import psycopg2

from myqueue.errors import UnavailableError
from myqueue.protocol.topic_config import Kept, kept_of

DROP_LOCK_TIMEOUT_MS = 50  # a DROP that waits makes others wait behind it: give up soon and come again
DROP_ATTEMPTS = 100
SEGMENTS_KEPT = 4  # of what a topic keeps by time or size, a segment is at most so great a part
SEGMENT_BYTES_MIN, SEGMENT_SECONDS_MIN = 64 << 10, 1.0
LOCK_TOPIC = "SELECT 1 FROM topic WHERE topic_id = %s FOR UPDATE"
FIND = "SELECT segment_id FROM segment WHERE topic_id = %s AND state = %s ORDER BY segment_id LIMIT 1"
SET_STATE = "UPDATE segment SET state = %s WHERE segment_id = %s"
MAKE = "SELECT create_segment(%s)"
# The size of a table that is being dropped is NULL.
OPEN_SEGMENTS = """SELECT s.segment_id, s.topic_id, coalesce(pg_relation_size(c.oid), 0) + coalesce(pg_relation_size(nullif(c.reltoastrelid, 0)), 0),
                          extract(epoch FROM clock_timestamp() - s.created_at),
                          EXISTS (SELECT 1 FROM segment n WHERE n.topic_id = s.topic_id AND n.state = 'spare'), t.config,
                          (SELECT count(*) FROM partition_state p WHERE p.topic_id = s.topic_id)
                   FROM segment s JOIN topic t USING (topic_id)
                        JOIN pg_class c ON c.oid = to_regclass('log_segment_' || s.segment_id) WHERE s.state = 'open'"""

SIZES = """SELECT t.name, sum(coalesce(pg_total_relation_size(c.oid), 0)) FROM segment s JOIN topic t USING (topic_id)
           JOIN pg_class c ON c.oid = to_regclass('log_segment_' || s.segment_id) GROUP BY t.name"""

# A log's part of a segment ends where its part of the next one begins.
BORDERS = """SELECT next_lsn, next_offset FROM (
                 SELECT segment_id, lead(first_lsn) OVER w AS next_lsn, lead(first_offset) OVER w AS next_offset
                 FROM segment_start WHERE topic_id = %s AND partition = %s WINDOW w AS (ORDER BY segment_id)) s
             JOIN segment g USING (segment_id) WHERE g.state = 'sealed' ORDER BY segment_id"""
MAY_BEGIN_LATER = """SELECT DISTINCT p.topic_id, p.partition FROM partition_commit c
                     JOIN partition_state p USING (topic_id, partition)
                     JOIN (SELECT topic_id, partition, segment_id, lead(first_lsn) OVER w AS next_lsn, lead(first_offset) OVER w AS next_offset
                           FROM segment_start WHERE (topic_id, partition) IN (SELECT topic_id, partition FROM partition_commit WHERE trim_offset > 0)
                           WINDOW w AS (PARTITION BY topic_id, partition ORDER BY segment_id)) s USING (topic_id, partition)
                     JOIN segment g ON g.segment_id = s.segment_id
                     WHERE c.trim_offset > 0 AND g.state = 'sealed' AND coalesce(s.next_offset, p.end_offset) <= c.trim_offset
                       AND coalesce(s.next_lsn, p.end_lsn) <= c.applied_lsn"""
# Of a log, per sealed segment: where its part begins and ends.
PARTS = """SELECT s.segment_id, s.first_lsn, s.next_lsn, s.next_offset
           FROM (SELECT b.segment_id, b.first_lsn, coalesce(lead(first_lsn) OVER w, p.end_lsn) AS next_lsn,
                        coalesce(lead(first_offset) OVER w, p.end_offset) AS next_offset
                 FROM segment_start b JOIN partition_state p USING (topic_id, partition)
                 WHERE topic_id = %(topic_id)s AND partition = %(partition)s WINDOW w AS (ORDER BY b.segment_id)) s
           JOIN segment g USING (segment_id) WHERE g.state = 'sealed' ORDER BY s.segment_id"""
# Of one part: when its last entry was appended, and how much it takes.
PART_TIME = "SELECT append_time FROM {table} WHERE topic_id = %s AND partition = %s AND lsn = %s"
PART_BYTES = "SELECT coalesce(sum({size}), 0) FROM {table} WHERE topic_id = %s AND partition = %s AND lsn >= %s AND lsn < %s"
FORGET_STARTS = "DELETE FROM segment_start WHERE topic_id = %s AND partition = %s AND first_lsn < %s"
ABANDONED = """SELECT g.segment_id FROM segment g WHERE g.state = 'sealed'
               AND NOT EXISTS (SELECT 1 FROM segment_start s WHERE s.segment_id = g.segment_id) ORDER BY g.segment_id"""

Transaction = Callable[[], AbstractContextManager[Any]]  # yields a cursor; commits where the block ends well


@dataclass(frozen=True, slots=True)
class OpenSegment:
    """What the decision to roll looks at."""

    segment_id: int
    topic_id: int
    size_bytes: int
    age_seconds: float
    has_spare: bool
    kept: Kept = field(default_factory=Kept)
    partitions: int = 1  # of the topic, that have their entries there


@dataclass(frozen=True, slots=True)
class RollPolicy:
    """A segment is rolled at this size or age; from half of either on, its successor is made ready."""

    bytes_max: int
    age_seconds_max: float

    def is_due(self, segment: OpenSegment) -> bool:
        return self._has_reached(segment, 1.0)

    def wants_spare(self, segment: OpenSegment) -> bool:
        return self._has_reached(segment, 0.5) and not segment.has_spare

    def _has_reached(self, segment: OpenSegment, share: float) -> bool:
        """Whether a segment has so great a share of its size or age. Where a topic keeps little, segments are small: only whole ones are dropped."""
        kept, bytes_max, age_seconds_max = segment.kept, self.bytes_max, self.age_seconds_max
        if kept.size_bytes is not None:
            bytes_max = min(bytes_max, max(SEGMENT_BYTES_MIN, kept.size_bytes * segment.partitions // SEGMENTS_KEPT))
        if kept.milliseconds is not None:
            age_seconds_max = min(age_seconds_max, max(SEGMENT_SECONDS_MIN, kept.milliseconds / 1_000 / SEGMENTS_KEPT))
        return segment.size_bytes >= bytes_max * share or (segment.age_seconds >= age_seconds_max * share and segment.size_bytes > 0)


def table_name(segment_id: int) -> str:
    """The child table of a segment: a number of ours, so it needs no quoting."""
    return f"log_segment_{int(segment_id)}"


def ensure_open(cursor: Any, topic_id: int) -> int:
    """The open segment of a topic, made where there is none. The topic's row is locked: one caller makes it."""
    cursor.execute(LOCK_TOPIC, (topic_id,))
    cursor.execute(FIND, (topic_id, "open"))
    found = cursor.fetchone()
    return found[0] if found else _open_next(cursor, topic_id)


def _open_next(cursor: Any, topic_id: int) -> int:
    cursor.execute(FIND, (topic_id, "spare"))
    spare = cursor.fetchone()
    if spare is None:
        cursor.execute(MAKE, (topic_id,))
        spare = cursor.fetchone()
    cursor.execute(SET_STATE, ("open", spare[0]))
    return spare[0]


def maintain(transaction: Transaction, policy: RollPolicy) -> list[int]:
    """Make spares and roll what is due, each in a transaction of its own; which segments were opened. Any number may run at once."""
    with transaction() as cursor:
        cursor.execute(OPEN_SEGMENTS)
        segments = [OpenSegment(row[0], row[1], row[2], float(row[3]), row[4], kept_of(row[5]), row[6]) for row in cursor.fetchall()]
    opened = []
    for segment in segments:
        if policy.is_due(segment):
            with transaction() as cursor:
                opened += _roll(cursor, segment)
        elif policy.wants_spare(segment):
            with transaction() as cursor:
                _make_spare(cursor, segment.topic_id)
    return opened


def _roll(cursor: Any, segment: OpenSegment) -> list[int]:
    if not _lock_topic(cursor, segment.topic_id):
        return []
    cursor.execute(FIND, (segment.topic_id, "open"))
    found = cursor.fetchone()
    if found is None or found[0] != segment.segment_id:
        return []  # another process was quicker
    cursor.execute(SET_STATE, ("sealed", segment.segment_id))
    return [_open_next(cursor, segment.topic_id)]


def _make_spare(cursor: Any, topic_id: int) -> None:
    if not _lock_topic(cursor, topic_id):
        return
    cursor.execute(FIND, (topic_id, "spare"))
    if cursor.fetchone() is None:
        cursor.execute(MAKE, (topic_id,))


def _lock_topic(cursor: Any, topic_id: int) -> bool:
    """False where the topic was dropped: a table made for it now would stay for ever."""
    cursor.execute(LOCK_TOPIC, (topic_id,))
    return cursor.fetchone() is not None


def drop_all(transaction: Transaction, topic_id: int) -> None:
    """Drop every segment of a topic that nothing writes to any more.

    Raises:
        UnavailableError: a reader kept one of them busy all the time; come again.
    """
    with transaction() as cursor:
        cursor.execute("SELECT segment_id FROM segment WHERE topic_id = %s ORDER BY segment_id", (topic_id,))
        segments = [row[0] for row in cursor.fetchall()]
    for segment_id in segments:
        _drop(transaction, segment_id)


def drop_abandoned(transaction: Transaction) -> list[int]:
    """Drop the sealed segments that no log begins in; which. One that is being read or written is left for the next time."""
    with transaction() as cursor:
        cursor.execute(ABANDONED)
        segments = [row[0] for row in cursor.fetchall()]
    return [segment_id for segment_id in segments if _drop_abandoned(transaction, segment_id)]


def _drop_abandoned(transaction: Transaction, segment_id: int) -> bool:
    try:
        with transaction() as cursor:
            cursor.execute(f"SET LOCAL lock_timeout = {DROP_LOCK_TIMEOUT_MS}; LOCK TABLE {table_name(segment_id)} IN ACCESS EXCLUSIVE MODE")
            # Whoever was writing to it, because it was open a moment ago, has committed now, and is seen.
            cursor.execute("SELECT 1 FROM segment_start WHERE segment_id = %s LIMIT 1", (segment_id,))
            if cursor.fetchone() is not None:
                return False
            cursor.execute(f"DROP TABLE {table_name(segment_id)}")
            cursor.execute("DELETE FROM segment WHERE segment_id = %s", (segment_id,))
    except psycopg2.errors.LockNotAvailable:
        return False
    except psycopg2.errors.UndefinedTable:
        return False  # another process was quicker
    return True


def _drop(transaction: Transaction, segment_id: int) -> None:
    for _ in range(DROP_ATTEMPTS):
        try:
            with transaction() as cursor:
                cursor.execute(f"SET LOCAL lock_timeout = {DROP_LOCK_TIMEOUT_MS}")
                cursor.execute(f"DROP TABLE IF EXISTS {table_name(segment_id)}")
                cursor.execute("DELETE FROM segment WHERE segment_id = %s", (segment_id,))
            return
        except psycopg2.errors.LockNotAvailable:
            continue
    raise UnavailableError(f"segment {segment_id} is in use; it will be dropped later")
