"""The LogStore over PostgreSQL: raw psycopg2 cursors on the hot path, three round trips a group of appends.

    1. BEGIN, lock the head row, then read head and state as of the lock         (one string of statements)
    2. COPY the group's rows straight into the open segment's table              (binary)
    3. UPDATE ends, commit position and folded state, COMMIT                     (one string of statements)

A small group on a log that is as this process left it needs one: lock, check, COPY, UPDATE and COMMIT in one string (``append_at_once``).

Connections are in autocommit mode: transactions begin and end where the statements say so. What was sent before COMMIT
and failed was surely not done; a connection that breaks in step 3, or in that one string, leaves an unknown outcome.
"""

# Statements are put together from the constants here and from table numbers; values are always parameters.
# ruff: noqa: S608

from __future__ import annotations

import io
import json
import logging
import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import psycopg2
import sqlalchemy
from psycopg2 import errors as pg

from myqueue.errors import (
    CorruptBatchError,
    InternalError,
    LogFaultError,
    MyQueueError,
    OutcomeUnknownError,
    OverloadedError,
    UnavailableError,
    UnknownPartitionError,
)
from myqueue.protocol.batch import BLOCK_BYTES_MAX, ENTRIES_MAGIC, decode_headers
from myqueue.protocol.entry import Border, LogEnd, LogEntry, Planned, chained, end_chained
from myqueue.protocol.fold import LogState
from myqueue.protocol.types import PartitionId, Record

from . import consumers, folding, producers, segments, time_search
from .copy_format import ENTRY_COLUMNS, READ_COLUMNS, decode_rows, encode_rows, entries_body
from .folding import FROM_HEAD, NEWEST, OF_PARTITION
from .log_store import (
    NOTHING,
    EntryMark,
    Found,
    Head,
    HeadMovedError,
    HeldPartition,
    LogBusyError,
    Part,
    Remembered,
    Slice,
    Snapshot,
    StoredRecord,
    Wanted,
)
from .replication.log import chain_before, epoch_before
from .sql_log import SqlLogView, find_mark

_log = logging.getLogger(__name__)
COPY_CHUNK_BYTES = 1 << 20
BLOCK_RECORDS_MAX = BLOCK_BYTES_MAX // 4  # each needs its length at least
READ_RECORDS_MAX = 65_536
# What is written in one exchange on a log that is remembered; more than that is digested while the database stores what comes before.
AT_ONCE_ENTRIES_MAX, AT_ONCE_BYTES_MAX = 64, 65_536
FOLLOWED_BYTES_MIN = 1 << 20  # of less, the next group is better gathered until the commit is done
REMEMBERED_MAX = 1_024  # logs as they were left last
REMEMBERED_PRODUCERS_MAX = 16  # of each, 2.3 KB with what is known of their last requests: 38 MB at most
UNFIT = "the batch cannot be stored: its elements do not fit their columns"
Statement = tuple[str, tuple[Any, ...]]
_NAMES = ", ".join(f'"{name}"' for name in ENTRY_COLUMNS)
_READ_NAMES = ", ".join(f'"{name}"' for name in READ_COLUMNS)
_SIZE = " + ".join(f'coalesce(pg_column_size("{name}"), 0)' for name in ("keys", "values", "headers", "timestamps"))

HEAD = """p.promised_epoch, p.leader_epoch, p.voters, p.replication_factor, p.learners, p.start_lsn, p.start_offset, p.start_epoch, p.start_chain,
          p.end_lsn, p.end_offset, p.end_epoch, p.end_chain, p.last_append_time,
          c.commit_lsn, c.commit_offset, c.applied_lsn, p.seeding_until, p.fault, c.trim_offset"""
HEAD_COLUMNS = 20
# The second SELECT has a snapshot taken after the lock was gained: it sees what the previous holder committed.
BEGIN = "BEGIN; SET LOCAL lock_timeout = %(lock_timeout_ms)s; "
LOCK_ROW = f"SELECT 1 FROM partition_state {NEWEST} FOR UPDATE"
LOCKED = f"SELECT {HEAD}, p.segment_id, (SELECT max(segment_id) FROM segment s WHERE s.topic_id = p.topic_id AND s.state = 'open'), "
# What an append needs is planned once a connection: planning costs as much as the work itself.
_PLANNED = {"topic_id": "$1", "partition": "$2", "producers": "$3"}
LOCK_HEAD = "EXECUTE lock_row (%(topic_id)s, %(partition)s); EXECUTE head (%(topic_id)s, %(partition)s)"
LOCK_HEAD_AND_PRODUCERS = """EXECUTE lock_row (%(topic_id)s, %(partition)s);
EXECUTE head_and_producers (%(topic_id)s, %(partition)s, %(producers)s)"""
PREPARE = f"""DEALLOCATE ALL; SET plan_cache_mode = force_generic_plan; PREPARE lock_row (bigint, int) AS {LOCK_ROW % _PLANNED};
PREPARE head (bigint, int) AS {LOCKED}{folding.wanted_sql(NOTHING) % _PLANNED};
PREPARE head_and_producers (bigint, int, bigint[]) AS {LOCKED}{folding.wanted_sql(Wanted(producers=frozenset((0,)))) % _PLANNED};
PREPARE expect (bigint, int, bigint, bigint, bigint, bytea, bigint[], bigint) AS SELECT 1 / coalesce((
    SELECT promised_epoch = $3 AND leader_epoch = $4 AND end_lsn = $5 AND end_chain = $6 AND learners = $7 AND fault IS NULL AND seeding_until IS NULL
        AND $8 = (SELECT max(segment_id) FROM segment WHERE topic_id = $1 AND state = 'open')
    FROM (SELECT * FROM partition_state {NEWEST % _PLANNED}) p), false)::int;
PREPARE set_end (bigint, int, bigint, bigint, bigint, bytea, bigint, bigint) AS
    UPDATE partition_state SET end_lsn = $3, end_offset = $4, end_epoch = $5, end_chain = $6, last_append_time = $7, segment_id = $8
    WHERE ctid = (SELECT ctid FROM partition_state {NEWEST % _PLANNED});
PREPARE set_commit (bigint, int, bigint, bigint, bigint, bigint) AS
    UPDATE partition_commit SET commit_lsn = $3, commit_offset = $4, applied_lsn = $5, trim_offset = greatest(trim_offset, $6)
    WHERE topic_id = $1 AND partition = $2;
PREPARE put_producer (int, bigint, jsonb, bigint, bigint, int, bigint, bigint) AS {producers.UPDATE % tuple(f"${n}" for n in range(1, 9))}"""
# Fails (a division by zero) where the log is not as it was remembered: nothing behind it is carried out. The chain stands for all that it says.
EXPECT = """EXECUTE lock_row (%(topic_id)s, %(partition)s); EXECUTE expect (%(topic_id)s, %(partition)s, %(promised_epoch)s, %(leader_epoch)s,
%(end_lsn)s, %(end_chain)s, %(learners)s, %(segment_id)s); """
SET_END = "EXECUTE set_end (%s, %s, %s, %s, %s, %s, %s, %s)"
SET_COMMIT = "EXECUTE set_commit (%s, %s, %s, %s, %s, %s)"
PUT_PRODUCER = "EXECUTE put_producer (%s, %s, %s, %s, %s, %s, %s, %s)"
HAS_ENTRY = "SELECT 1 FROM log_entry WHERE topic_id = %s AND partition = %s AND lsn = %s AND chain = %s"
OPEN_SEGMENT = "INSERT INTO segment_start (topic_id, partition, segment_id, first_lsn, first_offset) VALUES (%s, %s, %s, %s, %s)"
TRUNCATE = "DELETE FROM log_entry WHERE topic_id = %s AND partition = %s AND lsn >= %s"
TRUNCATE_STARTS = "DELETE FROM segment_start WHERE topic_id = %s AND partition = %s AND first_lsn >= %s"
SEGMENT_LEFT = "SELECT max(segment_id) FROM segment_start WHERE topic_id = %s AND partition = %s"
RAISE_COMMIT = """UPDATE partition_commit SET commit_lsn = greatest(commit_lsn, %s), commit_offset = greatest(commit_offset, %s)
                  WHERE topic_id = %s AND partition = %s"""
# A lower bound, learnt again after a crash: no wait for the disk, and no lock on the head.
ADVANCE = f"BEGIN; SET LOCAL synchronous_commit = off; {RAISE_COMMIT}; COMMIT"
FOLD = f"""BEGIN; SET LOCAL synchronous_commit = off;
SELECT 1 FROM partition_commit {NEWEST} FOR UPDATE;
SELECT c.applied_lsn, c.commit_lsn, p.seeding_until {OF_PARTITION}"""
SET_LEARNERS = "UPDATE partition_state SET learners = %s WHERE topic_id = %s AND partition = %s"
SET_FAULT = "UPDATE partition_state SET fault = %s WHERE topic_id = %s AND partition = %s"
ENTRIES = f"""COPY (SELECT {_NAMES} FROM (SELECT *, sum({_SIZE} + 200) OVER (ORDER BY lsn) AS total FROM log_entry
    WHERE topic_id = %s AND partition = %s AND lsn >= %s AND lsn < %s) e
    WHERE total <= %s OR lsn = %s ORDER BY lsn) TO STDOUT (FORMAT binary)"""
SET_START = """UPDATE partition_state SET start_lsn = %s, start_offset = %s, start_epoch = %s, start_chain = %s
               WHERE topic_id = %s AND partition = %s"""
# A fold that is under way has ended, and the next one sees that this replica is being seeded.
LOCK_COMMIT = "SELECT 1 FROM partition_commit WHERE topic_id = %s AND partition = %s FOR UPDATE"
BEGIN_ANEW = """UPDATE partition_state SET start_lsn = %s, start_offset = %s, start_epoch = %s, start_chain = %s, end_lsn = %s, end_offset = %s,
                end_epoch = %s, end_chain = %s, last_append_time = %s, seeding_until = %s, segment_id = NULL, fault = NULL
                WHERE topic_id = %s AND partition = %s"""
BEGIN_COMMIT = """UPDATE partition_commit SET commit_lsn = %s, commit_offset = %s, applied_lsn = %s, trim_offset = %s
                  WHERE topic_id = %s AND partition = %s"""
END_SEEDING = "UPDATE partition_state SET seeding_until = NULL WHERE topic_id = %s AND partition = %s"
SET_APPLIED = "UPDATE partition_commit SET applied_lsn = %s WHERE topic_id = %s AND partition = %s"
SET_PROMISE = "UPDATE partition_state SET promised_epoch = %s WHERE topic_id = %s AND partition = %s"
SET_LEADER = """UPDATE partition_state SET promised_epoch = %s, leader_epoch = %s, voters = %s, replication_factor = %s, learners = %s
                WHERE topic_id = %s AND partition = %s"""
CREATE_REPLICA = ("""INSERT INTO partition_state (topic_id, partition, promised_epoch) VALUES (%(topic_id)s, %(partition)s,
                     coalesce((SELECT promised_epoch FROM kept_promise WHERE topic_id = %(topic_id)s AND partition = %(partition)s), 0))
                     ON CONFLICT DO NOTHING""",
                  "INSERT INTO partition_commit (topic_id, partition) VALUES (%(topic_id)s, %(partition)s) ON CONFLICT DO NOTHING")
DISCARD = """DELETE FROM log_entry WHERE topic_id = %(topic_id)s AND partition = %(partition)s AND lsn <= (SELECT max(lsn) FROM
             (SELECT lsn FROM log_entry WHERE topic_id = %(topic_id)s AND partition = %(partition)s ORDER BY lsn LIMIT %(rows)s) first)"""
KEEP_PROMISE = """INSERT INTO kept_promise SELECT topic_id, partition, promised_epoch FROM partition_state WHERE topic_id = %s AND partition = %s
                  ON CONFLICT (topic_id, partition) DO UPDATE SET promised_epoch = excluded.promised_epoch"""
SEGMENT_OF = """(SELECT max(segment_id) FROM segment_start s
                 WHERE s.topic_id = %(topic_id)s AND s.partition = %(partition)s AND s.first_offset <= %(offset)s)"""
# Both bounds are offsets, so that the plan is an index scan whatever the statistics. How many records fit is guessed from the
# first block and cut to size by the running sum; sizes are read without reading the values.
READ = f"""COPY (
    WITH first AS (
        SELECT base_offset, record_count, {_SIZE} AS size FROM {{table}}
        WHERE topic_id = %(topic_id)s AND partition = %(partition)s AND kind = 1
          AND base_offset <= %(offset)s AND base_offset > %(offset)s - {BLOCK_RECORDS_MAX} ORDER BY base_offset DESC LIMIT 1)
    SELECT {_READ_NAMES} FROM (
        SELECT *, sum(size) OVER (ORDER BY base_offset) AS total FROM (
            SELECT {_READ_NAMES}, {_SIZE} AS size FROM {{table}}
            WHERE topic_id = %(topic_id)s AND partition = %(partition)s AND kind = 1
              AND base_offset >= (SELECT base_offset FROM first)
              AND base_offset < (SELECT least(%(end)s, %(offset)s + %(records_max)s, base_offset
                    + greatest(record_count, least({READ_RECORDS_MAX}, %(bytes_max)s::bigint * record_count / size))) FROM first)) e) e
    WHERE total <= %(bytes_max)s OR total = size ORDER BY base_offset) TO STDOUT (FORMAT binary)"""
RECORD_AT = f"""SELECT append_time, "values"[place], keys[place], headers[place], timestamps[place]
                FROM {{table}}, LATERAL (SELECT (%(offset)s - base_offset + 1)::int AS place) p
                WHERE topic_id = %(topic_id)s AND partition = %(partition)s AND kind = 1
                  AND base_offset <= %(offset)s AND base_offset > %(offset)s - {BLOCK_RECORDS_MAX} ORDER BY base_offset DESC LIMIT 1"""

# The segment that holds an offset, and where the next one begins.
SEGMENT_AT = """SELECT segment_id, next_offset FROM (
                    SELECT segment_id, first_offset, lead(first_offset) OVER (ORDER BY segment_id) AS next_offset
                    FROM segment_start WHERE topic_id = %(topic_id)s AND partition = %(partition)s) s
                WHERE first_offset <= %(offset)s ORDER BY segment_id DESC LIMIT 1"""
BLOCK_AT = f"""SELECT base_offset, record_count, append_time FROM {{table}}
               WHERE topic_id = %(topic_id)s AND partition = %(partition)s AND kind = 1
                 AND base_offset <= %(offset)s AND base_offset > %(offset)s - {BLOCK_RECORDS_MAX} ORDER BY base_offset DESC LIMIT 1"""
# Only keys are unpacked for all that is looked at; the columns of the hits come by their blocks' index.
WITH_KEY = "unnest(e.keys) WITH ORDINALITY AS k (key, place) WHERE k.key = %(key)s"
ALL = "generate_series(1, e.record_count) AS k (place) WHERE true"
SEARCH = f"""
    WITH first AS ({BLOCK_AT}),
    hit AS (
        SELECT e.base_offset, k.place::int AS place, e.base_offset + k.place - 1 AS msg_offset
        FROM (SELECT base_offset, record_count, keys FROM {{table}}
              WHERE topic_id = %(topic_id)s AND partition = %(partition)s AND kind = 1
                AND base_offset >= (SELECT base_offset FROM first) AND base_offset < %(until)s) e
        CROSS JOIN LATERAL {{places}} AND e.base_offset + k.place - 1 >= %(offset)s AND e.base_offset + k.place - 1 < %(until)s
        ORDER BY msg_offset LIMIT %(records_max)s),
    sized AS (
        SELECT *, octet_length(value) + coalesce(octet_length(key), 0) + coalesce(octet_length(headers), 0) AS size FROM (
            SELECT h.msg_offset, e.append_time, e."values"[h.place] AS value, e.keys[h.place] AS key, e.headers[h.place] AS headers,
                   e.timestamps[h.place] AS client_time
            FROM hit h
            JOIN {{table}} e ON e.topic_id = %(topic_id)s AND e.partition = %(partition)s AND e.kind = 1 AND e.base_offset = h.base_offset) r)
    SELECT msg_offset, append_time, value, key, headers, client_time, hits FROM (
        SELECT *, sum(size) OVER (ORDER BY msg_offset) AS total, count(*) OVER () AS hits FROM sized) s
    WHERE total <= %(bytes_max)s OR total = size ORDER BY msg_offset"""


class _Rows:
    """The input of a COPY as the driver reads it: made piece by piece, while the server stores the one before."""

    def __init__(self, entries: Iterable[LogEntry]) -> None:
        self.entries: list[LogEntry] = []  # those that were read
        self._pieces = encode_rows(self._remembered(entries))

    def read(self, size: int) -> bytes:
        """The next piece, whatever its size; the driver takes any."""
        return next(self._pieces, b"")

    def _remembered(self, entries: Iterable[LogEntry]) -> Iterator[LogEntry]:
        for entry in entries:
            self.entries.append(entry)
            yield entry


class _Held:
    """One transaction under the head row's lock. Small changes are gathered and sent with the COMMIT."""

    def __init__(self, cursor: Any, partition: PartitionId, row: Sequence[Any], *, in_state: bool) -> None:
        self._cursor, self._partition = cursor, partition
        self.head = _head(row)
        self._segment, self._open_segment = row[HEAD_COLUMNS:HEAD_COLUMNS + 2]
        self.state = folding.state_of(row[HEAD_COLUMNS + 2:])
        self.state.trim_offset = self.head.trim_offset
        self._stored = frozenset(self.state.producers), frozenset(self.state.consumers)  # which have a row
        self._statements: list[Statement] = []
        self.after: Remembered | None = None  # how the log is left, where that is known
        if self.head.applied_lsn < self.head.end.lsn and in_state:
            self._fold_above_applied()

    def _fold_above_applied(self) -> None:
        """Decisions see every entry, committed or not; the stored state only what is applied."""
        self._cursor.execute(folding.ABOVE_APPLIED, (*self._partition, self.head.applied_lsn, self.head.end.lsn))
        for head, record_count, body in map(folding.request_of, self._cursor.fetchall()):
            self.state.fold(head, record_count, body)

    def append(self, entries: Sequence[LogEntry], end: LogEnd, changes: LogState | None = None) -> tuple[Sequence[LogEntry], LogEnd]:
        if self._open_segment is None:
            raise UnavailableError(f"topic {self._partition.topic_id} has no open segment")
        rows = _Rows(chained(self.head.end.chain, entries))
        try:
            self._cursor.copy_expert(_copy_into(self._open_segment), rows)
        except psycopg2.Error as error:
            if _is_of_the_batch(error):
                raise CorruptBatchError(UNFIT) from error
            raise
        end = end_chained(end, rows.entries, self.head.end.chain)
        if self._segment != self._open_segment:
            self._statements.append((OPEN_SEGMENT, (*self._partition, self._open_segment, self.head.end.lsn, self.head.end.offset)))
            self._segment = self._open_segment
        self._statements.append(_set_end(self._partition, end, self._segment))
        if changes is not None:
            self.after = _left(Remembered(self.head, self.state, self._segment), end, changes)
        return rows.entries, end

    def commit(self, lsn: int, offset: int, changes: LogState) -> None:
        self._statements += _commit(self._partition, lsn, offset, changes, self._stored)
        if self.after is not None:
            self.after = _committed(self.after, lsn, offset)

    @property
    def log(self) -> SqlLogView:
        return SqlLogView(self._cursor, self._partition, self.head)

    def offset_at(self, lsn: int) -> int:
        head = self.head
        if lsn == head.end.lsn:
            return head.end.offset
        if lsn == head.start_lsn:
            return head.start_offset
        found = self.log.mark(lsn - 1).head
        return found.base_offset + found.record_count

    def truncate(self, lsn: int) -> None:
        head, log = self.head, self.log
        end = LogEnd(head.start_lsn, head.start_offset, head.start_epoch, head.start_chain, head.end.append_time)
        if lsn > head.start_lsn:
            last = log.mark(lsn - 1)
            end = LogEnd(lsn, last.head.base_offset + last.head.record_count, last.head.epoch, last.chain, last.head.append_time)
        self._cursor.execute(TRUNCATE, (*self._partition, lsn))
        self._cursor.execute(TRUNCATE_STARTS, (*self._partition, lsn))
        self._cursor.execute(SEGMENT_LEFT, self._partition)
        self._segment = self._cursor.fetchone()[0]
        self.head = replace(head, end=end)
        self._statements.append(_set_end(self._partition, end, self._segment))

    def raise_commit(self, lsn: int, offset: int) -> None:
        self._statements.append((RAISE_COMMIT, (lsn, offset, *self._partition)))

    def begin_anew(self, start: LogEnd, state: LogState, applied_lsn: int) -> None:
        # What is committed below the start lies there unseen until its segments go: to delete it row by row may take longer than a transaction may.
        self._cursor.execute(LOCK_COMMIT, self._partition)
        self._cursor.execute(TRUNCATE, (*self._partition, min(self.head.commit_lsn, start.lsn)))
        self._cursor.execute(TRUNCATE_STARTS, (*self._partition, 0))
        folding.replace_state(self._cursor, self._partition, state)
        self.head = self.head.begun_anew(start, state, applied_lsn)
        self._segment = None
        self._statements += [(BEGIN_ANEW, (*start[:4], *start, self.head.seeding_until, *self._partition)),
                             (BEGIN_COMMIT, (*start[:2], start.lsn, state.trim_offset, *self._partition))]

    def end_seeding(self, offset: int) -> None:
        until = self.head.seeding_until
        assert until is not None, "it is not being seeded"
        self.raise_commit(until, offset)
        self._statements += [(SET_APPLIED, (until, *self._partition)), (END_SEEDING, self._partition)]

    def set_learners(self, learners: Sequence[int]) -> None:
        self._statements.append((SET_LEARNERS, (list(learners), *self._partition)))

    def set_fault(self, text: str) -> None:
        self._statements.append((SET_FAULT, (text[:500], *self._partition)))

    def promise(self, epoch: int) -> None:
        self._statements.append((SET_PROMISE, (epoch, *self._partition)))

    def lead(self, epoch: int, voters: Mapping[int, str | None], replication_factor: int, learners: Sequence[int] = ()) -> None:
        self._statements.append((SET_LEADER, (epoch, epoch, json.dumps(dict(voters)), replication_factor, list(learners), *self._partition)))

    def borders(self) -> list[Border]:
        end = self.head.end
        self._cursor.execute(segments.BORDERS, self._partition)
        return [Border(end.lsn, end.offset) if lsn is None else Border(lsn, offset) for lsn, offset in self._cursor.fetchall()]

    def begin_at(self, border: Border) -> None:
        epoch, chain = epoch_before(self.log, border.lsn), chain_before(self.log, border.lsn)
        self._statements += [(SET_START, (*border, epoch, chain, *self._partition)), (segments.FORGET_STARTS, (*self._partition, border.lsn))]
        self.head = self.head.begun_at(border, epoch, chain)

    def record_at(self, offset: int) -> StoredRecord:
        parameters = {"topic_id": self._partition.topic_id, "partition": self._partition.partition, "offset": offset}
        self._cursor.execute(f"SELECT {SEGMENT_OF}", parameters)
        segment_id = self._cursor.fetchone()[0]
        if segment_id is not None:
            self._cursor.execute(RECORD_AT.format(table=segments.table_name(segment_id)), parameters)
            for append_time, value, key, headers, timestamp in self._cursor.fetchall():
                if value is not None:
                    return _stored((offset, append_time, value, key, headers, timestamp))
        raise LogFaultError(f"offset {offset} of partition {self._partition} is committed and cannot be found")

    def has_entry(self, lsn: int, chain: bytes) -> bool:
        self._cursor.execute(HAS_ENTRY, (*self._partition, lsn, chain))
        return self._cursor.fetchone() is not None

    def finish(self) -> None:
        """Send what was gathered, and COMMIT."""
        texts = [text for text, _ in self._statements]
        values = [value for _, values in self._statements for value in values]
        self._cursor.execute("; ".join([*texts, "COMMIT"]), values or None)

    @property
    def changed(self) -> bool:
        return bool(self._statements)


class PostgresLogStore:
    """Logs in a broker's database.

    Args:
        writer, reader: engines whose pools are apart, so that no number of readers keeps a writer waiting.
        on_event: called with ``before_commit`` and ``after_commit`` around each commit of a held log; for fault points.
        remembers: whether logs are remembered as they were left; of no use where other processes write them as often, since the server logs each
            time that one was not as it was remembered.
    """

    def __init__(self, writer: sqlalchemy.Engine, reader: sqlalchemy.Engine, *, on_event: Callable[[str], None] = lambda event: None,
                 remembers: bool = True) -> None:
        self._writer, self._reader, self._on_event, self._remembers = writer, reader, on_event, remembers
        self._planned = weakref.WeakSet[Any]()  # connections that have what PREPARE makes
        self._sealed: dict[PartitionId, dict[int, Part]] = {}  # by segment: looked at once, since they do not change any more
        self._memory: dict[PartitionId, Remembered] = {}  # logs as they were left last

    # --- writing ---

    def create(self, partition: PartitionId, *, topic: str, config: Mapping[str, object]) -> None:
        with self.transaction() as cursor:
            cursor.execute("""INSERT INTO topic (topic_id, name, config) VALUES (%s, %s, %s)
                              ON CONFLICT (topic_id) DO UPDATE SET name = excluded.name, config = excluded.config
                              WHERE (topic.name, topic.config) IS DISTINCT FROM (excluded.name, excluded.config)""",
                           (partition.topic_id, topic, json.dumps(dict(config))))
            segments.ensure_open(cursor, partition.topic_id)
            for statement in CREATE_REPLICA:
                cursor.execute(statement, {"topic_id": partition.topic_id, "partition": partition.partition})

    def configure(self, configs: Mapping[int, Mapping[str, object]]) -> None:
        with self._reading() as cursor:
            cursor.execute("SELECT topic_id, config FROM topic WHERE topic_id = ANY (%s)", (list(configs),))
            changed = [topic_id for topic_id, config in cursor.fetchall() if config != configs[topic_id]]
        for topic_id in changed:
            with self.transaction() as cursor:
                cursor.execute("UPDATE topic SET config = %s WHERE topic_id = %s", (json.dumps(dict(configs[topic_id])), topic_id))

    def drop(self, topic_id: int) -> list[PartitionId]:
        with self.transaction() as cursor:
            cursor.execute("DELETE FROM partition_state WHERE topic_id = %s RETURNING partition", (topic_id,))
            gone = sorted(PartitionId(topic_id, row[0]) for row in cursor.fetchall())
            for table in ("partition_commit", "replica_progress", "consumer_offset", "consumer_request", "producer_state", "segment_start",
                          "kept_promise", "topic"):
                cursor.execute(f"DELETE FROM {table} WHERE topic_id = %s", (topic_id,))
        try:
            segments.drop_all(self._plain_transaction, topic_id)
        except psycopg2.Error as error:
            raise _ours(error) from error
        return gone

    def parts(self, partition: PartitionId, *, with_sizes: bool) -> list[Part]:
        with self._reading() as cursor:
            cursor.execute(segments.PARTS, {"topic_id": partition.topic_id, "partition": partition.partition})
            found = cursor.fetchall()
            known = self._sealed.setdefault(partition, {})
            for gone in known.keys() - {row[0] for row in found}:
                del known[gone]
            for segment_id, first, end, offset in found:
                part = known.get(segment_id)
                if part is None or part.end.lsn != end or (with_sizes and part.size_bytes is None):
                    known[segment_id] = _part(cursor, segment_id, partition, range(first, end), offset, with_size=with_sizes)
            return [known[row[0]] for row in found]

    def may_begin_later(self) -> list[PartitionId]:
        with self._reading() as cursor:
            cursor.execute(segments.MAY_BEGIN_LATER)
            return sorted(PartitionId(*row) for row in cursor.fetchall())

    def drop_segments(self) -> list[int]:
        try:
            return segments.drop_abandoned(self._plain_transaction)
        except psycopg2.Error as error:
            raise _ours(error) from error

    def drop_partition(self, partition: PartitionId, *, before_epoch: int) -> bool:
        with self.transaction() as cursor:
            # Who makes it again waits for the topic's row, as here, and so sees what was promised.
            cursor.execute(segments.LOCK_TOPIC, (partition.topic_id,))
            cursor.execute(f"SELECT promised_epoch FROM partition_state {NEWEST} FOR UPDATE", folding.parameters(partition))
            found = cursor.fetchone()
            if found is not None and found[0] >= before_epoch:
                return False
            cursor.execute(KEEP_PROMISE, partition)
            for table in ("log_entry", "partition_commit", "replica_progress", "consumer_offset", "consumer_request", "producer_state",
                          "segment_start", "partition_state"):
                cursor.execute(f"DELETE FROM {table} WHERE topic_id = %s AND partition = %s", partition)
        self._sealed.pop(partition, None)
        return True

    def discard_damaged(self, partition: PartitionId, *, rows_max: int) -> bool:
        with self.transaction() as cursor:
            cursor.execute(f"SELECT fault FROM partition_state {NEWEST} FOR UPDATE", folding.parameters(partition))
            found = cursor.fetchone()
            if found is None or found[0] is None:
                return True
            cursor.execute(DISCARD, {"topic_id": partition.topic_id, "partition": partition.partition, "rows": rows_max})
            return bool(cursor.rowcount < rows_max)

    def topic(self, topic_id: int) -> tuple[str, Mapping[str, object]] | None:
        with self._reading() as cursor:
            cursor.execute("SELECT name, config FROM topic WHERE topic_id = %s", (topic_id,))
            return cursor.fetchone()

    def maintain_segments(self, policy: segments.RollPolicy) -> list[int]:
        """Make spare segments and roll what is due; which were opened."""
        return segments.maintain(self.transaction, policy)

    @contextmanager
    def locked(self, partition: PartitionId, wanted: Wanted = NOTHING, *, lock_timeout_seconds: float = 5.0) -> Iterator[_Held]:
        with self._connection(self._writer) as connection, connection.cursor() as cursor:
            try:
                cursor.execute(BEGIN + self._lock_statement(connection, cursor, wanted), folding.parameters(partition, wanted, lock_timeout_seconds))
                row = cursor.fetchone()
                if row is None:
                    raise UnknownPartitionError(f"partition {partition} is not held here")
                held = _Held(cursor, partition, row, in_state=bool(wanted))
                yield held
                if held.changed:
                    self._on_event("before_commit")
            except BaseException as error:
                _roll_back(cursor)
                if isinstance(error, psycopg2.Error):
                    raise _ours(error) from error
                raise
            if not held.changed:
                _roll_back(cursor)  # nothing to keep, and nothing to wait for
                return
            self._finish(connection, cursor, held)
            self._remember(partition, held)
            self._on_event("after_commit")

    def remembered(self, partition: PartitionId, wanted: Wanted) -> Remembered | None:
        found = self._memory.get(partition)
        return found if found is not None and found.holds(wanted) else None

    def append_expecting(self, partition: PartitionId, remembered: Remembered, entries: Sequence[LogEntry], end: LogEnd, changes: LogState, *,
                         commits: bool, wait: Callable[[], None] | None = None, on_sent: Callable[[Remembered], None] = lambda left: None,
                         lock_timeout_seconds: float = 5.0) -> Planned:
        self._memory.pop(partition, None)
        before, size, is_sent = remembered.head.end.chain, sum(entry.size_bytes for entry in entries), False
        with self._connection(self._writer) as connection, connection.cursor() as cursor:
            try:
                self._plan(connection, cursor)
                expected = _expected(partition, remembered, lock_timeout_seconds)
                begin, expect = cursor.mogrify(BEGIN, expected), cursor.mogrify(EXPECT, expected)
                copy = _copy_into(remembered.place).encode()
                if size <= AT_ONCE_BYTES_MAX and len(entries) <= AT_ONCE_ENTRIES_MAX:
                    if wait is not None:
                        wait()
                    made = list(chained(before, entries))
                    rows = _Rows(made)
                    after, finish = self._finish_of(cursor, partition, remembered, made, end, changes, commits=commits)
                    is_sent = True
                    cursor.copy_expert(begin + expect + copy + b"; " + finish, rows)
                else:  # digested while the database stores what comes before
                    rows = _Rows(chained(before, entries))
                    cursor.copy_expert(begin + (expect if wait is None else b"") + copy, rows)
                    after, finish = self._finish_of(cursor, partition, remembered, rows.entries, end, changes, commits=commits)
                    if size >= FOLLOWED_BYTES_MIN:
                        on_sent(after)
                    if wait is not None:
                        wait()
                    is_sent = True
                    cursor.execute((b"" if wait is None else expect) + finish)
            except BaseException as error:
                if not isinstance(error, psycopg2.Error):
                    _roll_back(cursor)
                    raise
                if connection.closed and is_sent:
                    raise OutcomeUnknownError("the database's answer to a commit was lost") from error
                _roll_back(cursor)
                if isinstance(error, pg.DivisionByZero | pg.UniqueViolation):  # the latter of what is sent before the log is looked at
                    raise HeadMovedError("the log is not as it was remembered") from error
                raise (CorruptBatchError(UNFIT) if _is_of_the_batch(error) else _ours(error)) from error
            self._keep(partition, after)
            self._on_event("after_commit")
            return rows.entries, after.head.end

    def _finish_of(self, cursor: Any, partition: PartitionId, remembered: Remembered, entries: Sequence[LogEntry], end: LogEnd, changes: LogState, *,
                   commits: bool) -> tuple[Remembered, bytes]:
        """How the log is left, and the string that ends the transaction."""
        end = end_chained(end, entries, remembered.head.end.chain)
        after, statements = _left(remembered, end, changes), [_set_end(partition, end, remembered.place)]
        if commits:
            after = _committed(after, end.lsn, end.offset)
            statements += _commit(partition, end.lsn, end.offset, changes, (remembered.state.producers.keys(), ()))
        text = cursor.mogrify("; ".join([*(text for text, _ in statements), "COMMIT"]), [value for _, values in statements for value in values])
        self._on_event("before_commit")
        return after, bytes(text)

    def _remember(self, partition: PartitionId, held: _Held) -> None:
        """What is known of producers beside those that were looked up stays known where nobody has written in between."""
        before, after = self._memory.pop(partition, None), held.after
        if after is None:
            return
        if before is not None and before.head.end == held.head.end:
            after = replace(after, state=LogState({**before.state.producers, **after.state.producers}, trim_offset=after.state.trim_offset))
        self._keep(partition, after)

    def _keep(self, partition: PartitionId, after: Remembered) -> None:
        if len(self._memory) >= REMEMBERED_MAX:
            self._memory.clear()
        if self._remembers and len(after.state.producers) <= REMEMBERED_PRODUCERS_MAX:
            self._memory[partition] = after

    def _plan(self, connection: Any, cursor: Any) -> None:
        if connection not in self._planned:
            cursor.execute(PREPARE)
            self._planned.add(connection)

    def _lock_statement(self, connection: Any, cursor: Any, wanted: Wanted) -> str:
        self._plan(connection, cursor)
        if wanted.consumers or wanted.requests:
            return f"{LOCK_ROW}; {LOCKED}{folding.wanted_sql(wanted)}"
        return LOCK_HEAD_AND_PRODUCERS if wanted.producers else LOCK_HEAD

    @staticmethod
    def _finish(connection: Any, cursor: Any, held: _Held) -> None:
        try:
            held.finish()
        except psycopg2.Error as error:
            if connection.closed:
                raise OutcomeUnknownError("the database's answer to a commit was lost") from error
            _roll_back(cursor)
            raise _ours(error) from error

    def advance(self, partition: PartitionId, lsn: int, offset: int) -> None:
        with self._connection(self._writer) as connection, connection.cursor() as cursor:
            try:
                cursor.execute(ADVANCE, (lsn, offset, *partition))
            except psycopg2.Error as error:
                _roll_back(cursor)
                raise _ours(error) from error

    def fold(self, partition: PartitionId, *, entries_max: int = 2_000) -> bool:
        with self._connection(self._writer) as connection, connection.cursor() as cursor:
            try:
                cursor.execute(FOLD, folding.parameters(partition))
                applied, commit, seeding_until = _found(cursor.fetchone(), partition)
                folded = applied
                if seeding_until is None and applied < commit:
                    folded = folding.fold(cursor, partition, applied, min(commit, applied + entries_max))
                    if folded == applied:  # one request of more entries
                        folded = folding.fold(cursor, partition, applied, commit)
                cursor.execute("COMMIT")
            except BaseException as error:
                _roll_back(cursor)
                if isinstance(error, psycopg2.Error):
                    raise _ours(error) from error
                raise
        return folded < commit and seeding_until is None

    # --- reading ---

    def entries(self, partition: PartitionId, first: int, end: int, *, bytes_max: int) -> list[LogEntry]:
        rows = io.BytesIO()
        with self._reading() as cursor:
            cursor.copy_expert(cursor.mogrify(ENTRIES, (*partition, first, end, bytes_max, first)), rows, COPY_CHUNK_BYTES)
        return decode_rows(rows.getbuffer())

    def snapshot(self, partition: PartitionId) -> Snapshot:
        with self._reading() as cursor:  # one statement: one moment
            cursor.execute(f"SELECT {HEAD}, {folding.ALL_STATE} {OF_PARTITION}", folding.parameters(partition))
            row = _found(cursor.fetchone(), partition)
        head, state = _head(row), folding.state_of(row[HEAD_COLUMNS:])
        state.trim_offset = head.trim_offset
        return Snapshot(head, state)

    def mark(self, partition: PartitionId, lsn: int) -> EntryMark | None:
        with self._reading() as cursor:
            return find_mark(cursor, partition, lsn)

    def head(self, partition: PartitionId) -> Head:
        with self._reading() as cursor:
            cursor.execute(f"SELECT {HEAD} {OF_PARTITION}", folding.parameters(partition))
            return _head(_found(cursor.fetchone(), partition))

    def read(self, partition: PartitionId, offset: int, *, bytes_max: int, records_max: int) -> Slice:
        parameters = folding.parameters(partition) | {"offset": offset, "bytes_max": bytes_max, "records_max": min(records_max, READ_RECORDS_MAX)}
        with self._reading() as cursor:
            cursor.execute(f"""SELECT greatest(p.start_offset, c.trim_offset), c.commit_offset, p.promised_epoch, p.fault, p.seeding_until,
                               {SEGMENT_OF} {OF_PARTITION}""", parameters)
            start, end, epoch, fault, seeding_until, segment_id = _found(cursor.fetchone(), partition)
            serves_nothing = fault is not None or seeding_until is not None
            if serves_nothing or not start <= offset < end or segment_id is None:
                return Slice(ENTRIES_MAGIC, 0, start, end, epoch, fault, seeding_until is not None)
            rows = io.BytesIO()
            statement = cursor.mogrify(READ.format(table=segments.table_name(segment_id)), parameters | {"end": end})
            cursor.copy_expert(statement, rows, COPY_CHUNK_BYTES)
        body, record_count = entries_body(rows.getbuffer())
        return Slice(body, record_count, start, end, epoch)

    def first_offset_since(self, partition: PartitionId, append_time: int) -> int | None:
        with self._reading() as cursor:
            return time_search.first_offset_since(cursor, partition, append_time)

    def search(self, partition: PartitionId, offset: int, end: int, *, key: bytes | None, records_max: int, bytes_max: int, scan_max: int) -> Found:
        with self._reading() as cursor:
            start, committed = _served(cursor, partition)
            offset = max(offset, start)
            if offset >= min(end, committed):
                return Found([], offset)
            parameters = folding.parameters(partition) | {"offset": offset}
            table, next_offset = _segment_at(cursor, partition, parameters)
            until = min(end, committed, offset + scan_max, committed if next_offset is None else next_offset)
            if key is None:
                until = min(until, offset + records_max)  # each is one
            cursor.execute(SEARCH.format(table=table, places=ALL if key is None else WITH_KEY),
                           parameters | {"until": until, "key": key, "records_max": records_max, "bytes_max": bytes_max})
            rows = cursor.fetchall()
        records = [_stored(row) for row in rows]
        is_whole = not rows or (len(rows) == rows[-1][-1] and len(rows) < records_max)
        return Found(records, until if is_whole else records[-1].offset + 1)

    def consumer_offsets(self, partitions: Sequence[PartitionId], consumer: str) -> dict[PartitionId, tuple[Head, int | None]]:
        topic_ids, numbers = [one.topic_id for one in partitions], [one.partition for one in partitions]
        with self._reading() as cursor:
            cursor.execute(f"""SELECT {HEAD}, topic_id, partition {FROM_HEAD}
                               WHERE (topic_id, partition) IN (SELECT unnest(%s::bigint[]), unnest(%s::int[]))""", (topic_ids, numbers))
            heads = {PartitionId(*row[HEAD_COLUMNS:]): _head(row) for row in cursor.fetchall()}
            cursor.execute(consumers.OFFSETS, (consumer, topic_ids, numbers))
            offsets = {PartitionId(*row[:2]): row[2] for row in cursor.fetchall()}
            # Behind the fold there may be more that is committed. The heads were read first: what is folded meanwhile is folded twice, to the same.
            offsets |= {partition: folding.committed_offset(cursor, partition, head, consumer)
                        for partition, head in heads.items() if head.applied_lsn < head.commit_lsn}
            return {partition: (head, offsets.get(partition)) for partition, head in heads.items()}

    def topic_id(self, topic: str) -> int | None:
        with self._reading() as cursor:
            cursor.execute("SELECT max(topic_id) FROM topic WHERE name = %s", (topic,))
            return cursor.fetchone()[0]

    def held(self, topic: str | None = None) -> list[HeldPartition]:
        with self._reading() as cursor:
            cursor.execute(f"""SELECT {HEAD}, t.name, topic_id, partition {FROM_HEAD} JOIN topic t USING (topic_id)
                               WHERE t.name = coalesce(%s, t.name) ORDER BY t.name, topic_id, partition""", (topic,))
            return [HeldPartition(row[HEAD_COLUMNS], PartitionId(*row[HEAD_COLUMNS + 1:]), _head(row)) for row in cursor.fetchall()]

    def sizes(self) -> dict[str, int]:
        with self._reading() as cursor:
            cursor.execute(segments.SIZES)
            return {topic: int(size) for topic, size in cursor.fetchall()}

    # --- connections ---

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """A cursor in a transaction that commits where the block ends well. Foreign errors come out as ours."""
        try:
            with self._plain_transaction() as cursor:
                yield cursor
        except psycopg2.Error as error:
            raise _ours(error) from error

    @contextmanager
    def _plain_transaction(self) -> Iterator[Any]:
        with self._connection(self._writer) as connection, connection.cursor() as cursor:
            try:
                cursor.execute("BEGIN")
                yield cursor
                cursor.execute("COMMIT")
            except BaseException:
                _roll_back(cursor)
                raise

    @contextmanager
    def _reading(self) -> Iterator[Any]:
        """A cursor for statements that each see what is committed when they begin."""
        with self._connection(self._reader) as connection, connection.cursor() as cursor:
            try:
                yield cursor
            except psycopg2.Error as error:
                raise _ours(error) from error

    @contextmanager
    def _connection(self, engine: sqlalchemy.Engine) -> Iterator[Any]:
        try:
            pooled = engine.raw_connection()
        except sqlalchemy.exc.TimeoutError:
            raise OverloadedError("no database connection was free in time") from None
        except (sqlalchemy.exc.SQLAlchemyError, psycopg2.Error) as error:  # also where a connection is ended as soon as it is made
            raise UnavailableError("the database cannot be reached") from error
        connection = pooled.driver_connection
        try:
            connection.autocommit = True
            yield connection
        finally:
            if connection.closed:
                pooled.invalidate()
            pooled.close()


def _copy_into(segment_id: int) -> str:
    return f"COPY {segments.table_name(segment_id)} ({_NAMES}) FROM STDIN (FORMAT binary)"


def _is_of_the_batch(error: psycopg2.Error) -> bool:
    """Whether a COPY failed for what it was given."""
    return (error.pgcode or "")[:2] in ("22", "08") or isinstance(error, pg.CheckViolation)


def _set_end(partition: PartitionId, end: LogEnd, segment_id: int | None) -> Statement:
    return SET_END, (*partition, end.lsn, end.offset, end.epoch, end.chain, end.append_time, segment_id)


def _commit(partition: PartitionId, lsn: int, offset: int, changes: LogState, stored: tuple[Container[int], Container[str]]) -> list[Statement]:
    """What raises the commit position and folds. The commit row first: its lock keeps a fold, which changes the same rows, out until the end."""
    return [(SET_COMMIT, (*partition, lsn, offset, lsn, changes.trim_offset)),
            *producers.statements(partition, changes.producers, stored=stored[0], update=PUT_PRODUCER),
            *consumers.statements(partition, changes.consumers, changes.requests, stored=stored[1])]


def _expected(partition: PartitionId, remembered: Remembered, lock_timeout_seconds: float) -> dict[str, Any]:
    head = remembered.head
    return {**folding.parameters(partition, lock_timeout_seconds=lock_timeout_seconds), "promised_epoch": head.promised_epoch,
            "leader_epoch": head.leader_epoch, "end_lsn": head.end.lsn, "end_chain": head.end.chain, "learners": list(head.learners),
            "segment_id": remembered.place}


def _left(before: Remembered, end: LogEnd, changes: LogState) -> Remembered:
    """A log behind entries that end there; of its state the producers that are known."""
    known = LogState({**before.state.producers, **changes.producers}, trim_offset=changes.trim_offset)
    return Remembered(replace(before.head, end=end), known, before.place)


def _committed(left: Remembered, lsn: int, offset: int) -> Remembered:
    return replace(left, head=replace(left.head, commit_lsn=lsn, commit_offset=offset, applied_lsn=lsn, trim_offset=left.state.trim_offset))


def _roll_back(cursor: Any) -> None:
    with suppress(psycopg2.Error):  # a broken connection has rolled back by itself, and is not used again
        cursor.execute("ROLLBACK")


def _part(cursor: Any, segment_id: int, partition: PartitionId, entries: range, offset: int, *, with_size: bool) -> Part:
    table, size = segments.table_name(segment_id), None
    cursor.execute(segments.PART_TIME.format(table=table), (*partition, entries.stop - 1))
    found = cursor.fetchone()
    if with_size:
        cursor.execute(segments.PART_BYTES.format(size=_SIZE, table=table), (*partition, entries.start, entries.stop))
        size = int(cursor.fetchone()[0])
    return Part(Border(entries.stop, offset), found[0] if found else None, size)


def _stored(row: Sequence[Any]) -> StoredRecord:
    """A record from its columns."""
    offset, append_time, value, key, headers, timestamp = row[:6]
    record = Record(bytes(value), None if key is None else bytes(key), decode_headers(headers) if headers else (), timestamp)
    return StoredRecord(offset, record, append_time)


def _served(cursor: Any, partition: PartitionId) -> tuple[int, int]:
    """The first offset that is served, and the committed end."""
    cursor.execute(f"SELECT greatest(p.start_offset, c.trim_offset), c.commit_offset {OF_PARTITION}", folding.parameters(partition))
    start, end = _found(cursor.fetchone(), partition)
    return start, end


def _segment_at(cursor: Any, partition: PartitionId, parameters: Mapping[str, Any]) -> tuple[str, int | None]:
    """The table that holds a committed offset, and the offset at which the next one begins."""
    cursor.execute(SEGMENT_AT, parameters)
    segment_id, next_offset = _at_hand(cursor.fetchone(), partition)
    return segments.table_name(segment_id), next_offset


def _at_hand(row: Sequence[Any] | None, partition: PartitionId) -> Sequence[Any]:
    """What must be there for an offset that is served; gone where it was trimmed and dropped in this moment."""
    if row is None:
        raise UnavailableError(f"what was looked for in partition {partition} is not there any more; ask again")
    return row


def _ours(error: psycopg2.Error) -> MyQueueError:
    """A database error before the commit: nothing was done."""
    if isinstance(error, pg.LockNotAvailable):
        return LogBusyError()
    if isinstance(error, (pg.UniqueViolation, pg.CheckViolation, pg.ForeignKeyViolation)):
        return LogFaultError(f"the log contradicts itself: {error.diag.constraint_name}")
    if isinstance(error, (psycopg2.OperationalError, psycopg2.InterfaceError, pg.QueryCanceled, pg.UndefinedTable)):
        return UnavailableError(f"the database could not do it ({error.pgcode or 'connection lost'}); nothing was stored")
    _log.error("the database refused a statement", exc_info=error)
    return InternalError(f"the database refused a statement ({error.pgcode})")


def _found(row: Sequence[Any] | None, partition: PartitionId) -> Sequence[Any]:
    if row is None:
        raise UnknownPartitionError(f"partition {partition} is not held here")
    return row


def _head(row: Sequence[Any]) -> Head:
    (promised, leader, voters, factor, learners, start_lsn, start_offset, start_epoch, start_chain,
     end_lsn, end_offset, end_epoch, end_chain, append_time,
     commit_lsn, commit_offset, applied_lsn, seeding_until, fault, trim_offset) = row[:HEAD_COLUMNS]
    return Head(promised, leader, {int(broker): disk for broker, disk in voters.items()}, factor, tuple(learners), start_lsn, start_offset,
                start_epoch, bytes(start_chain),
                LogEnd(end_lsn, end_offset, end_epoch, bytes(end_chain), append_time), commit_lsn, commit_offset, applied_lsn, seeding_until, fault,
                trim_offset)
