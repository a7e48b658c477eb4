"""What a log says of producers, consumers and its beginning, in SQL: loaded for a decision, and folded behind the commit position."""

# Statements are put together from the constants here; values are always parameters.
# ruff: noqa: S608

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from myqueue.protocol.chain import NO_PRODUCER, OFFSET_COMMIT, RECORDS, EntryHead
from myqueue.protocol.fold import LogState, OffsetCommit
from myqueue.protocol.types import PartitionId

from . import consumers, producers
from .log_store import NOTHING, Head, Wanted

FROM_HEAD = "FROM partition_state p JOIN partition_commit c USING (topic_id, partition)"
# Rows that change with every append are looked for from their newest version on. While somebody's old snapshot keeps what is dead, thousands of
# versions lie before it in the index: a range read backwards meets the newest first, where an equality would begin with the oldest.
NEWEST = "WHERE topic_id = %(topic_id)s AND partition >= %(partition)s AND partition <= %(partition)s ORDER BY partition DESC LIMIT 1"
OF_PARTITION = f"FROM (SELECT * FROM partition_state {NEWEST}) p CROSS JOIN (SELECT * FROM partition_commit {NEWEST}) c"
ABOVE_APPLIED = """SELECT * FROM (
    SELECT topic_id, partition, lsn, epoch, kind, base_offset, record_count, append_time, producer_id, producer_epoch, producer_seq,
           request_index, request_count, sum(record_count) OVER (PARTITION BY lsn - request_index), body
    FROM log_entry WHERE topic_id = %s AND partition = %s AND lsn >= %s AND lsn < %s) e WHERE request_index = 0 ORDER BY lsn"""
SET_APPLIED = """UPDATE partition_commit SET applied_lsn = %s, trim_offset = greatest(trim_offset, %s)
                 WHERE topic_id = %s AND partition = %s"""
ALL_STATE = f"{producers.SELECT_ALL}, {consumers.SELECT_ALL}, {consumers.SELECT_ALL_REQUESTS}"
STATEMENTS_AT_ONCE = 1_000
Folding = tuple[EntryHead, int, bytes | None]  # a request: its first entry's head, the records of all its entries, the body


def request_of(row: Sequence[Any]) -> Folding:
    """A row of ABOVE_APPLIED: the first entry's head, the records of the request, the body."""
    *head, record_count, body = row
    return EntryHead(*head), int(record_count), None if body is None else bytes(body)


def fold(cursor: Any, partition: PartitionId, applied: int, end: int) -> int:
    """Fold the whole requests in [applied, end); up to where it came."""
    cursor.execute(ABOVE_APPLIED, (*partition, applied, end))
    requests = [one for one in map(request_of, cursor.fetchall()) if one[0].lsn + one[0].request_count <= end]
    if not requests:
        return applied
    wanted = touched(requests)
    stored = LogState()
    if wanted:
        cursor.execute(f"SELECT {wanted_sql(wanted)}", parameters(partition, wanted))
        stored = state_of(cursor.fetchone())
    state = stored.copy()
    for head, record_count, body in requests:
        state.fold(head, record_count, body)
    changes = state.changed_since(stored)
    folded = requests[-1][0].lsn + requests[-1][0].request_count
    statements = [*producers.statements(partition, changes.producers, stored=stored.producers.keys()),
                  *consumers.statements(partition, changes.consumers, changes.requests, stored=stored.consumers.keys()),
                  (SET_APPLIED, (folded, changes.trim_offset, *partition))]
    cursor.execute("; ".join(text for text, _ in statements), [value for _, values in statements for value in values])
    return folded


def committed_offset(cursor: Any, partition: PartitionId, head: Head, consumer: str) -> int | None:
    """A consumer's offset by all that is committed, folded or not yet."""
    wanted = Wanted(consumers=frozenset({consumer}))
    cursor.execute(f"SELECT {wanted_sql(wanted)}", parameters(partition, wanted))
    state = state_of(cursor.fetchone())
    cursor.execute(ABOVE_APPLIED, (*partition, head.applied_lsn, head.commit_lsn))
    for first, record_count, body in map(request_of, cursor.fetchall()):
        if first.kind == OFFSET_COMMIT:
            state.fold(first, record_count, body)
    known = state.consumers.get(consumer)
    return None if known is None else known.next_offset


def state_of(row: Sequence[Any]) -> LogState:
    in_producers, in_consumers, in_requests = row
    return LogState(producers.from_rows(in_producers), consumers.consumers_from_rows(in_consumers), consumers.requests_from_rows(in_requests))


def replace_state(cursor: Any, partition: PartitionId, state: LogState) -> None:
    """Forget what is folded, and hold this state instead; not its trim offset, which is in the commit row."""
    for table in ("consumer_offset", "consumer_request", "producer_state"):
        cursor.execute(f"DELETE FROM {table} WHERE topic_id = %s AND partition = %s", partition)
    statements = [*producers.statements(partition, state.producers), *consumers.statements(partition, state.consumers, state.requests)]
    for at in range(0, len(statements), STATEMENTS_AT_ONCE):
        some = statements[at:at + STATEMENTS_AT_ONCE]
        cursor.execute("; ".join(text for text, _ in some), [value for _, values in some for value in values])


def touched(requests: Sequence[Folding]) -> Wanted:
    """Whose state these requests change."""
    commits = [OffsetCommit.from_body(body) for head, _, body in requests if head.kind == OFFSET_COMMIT and body is not None]
    return Wanted(frozenset(head.producer_id for head, _, _ in requests if head.kind == RECORDS and head.producer_id != NO_PRODUCER),
                  frozenset(commit.consumer for commit in commits),
                  frozenset((commit.consumer, commit.request_id) for commit in commits if commit.request_id is not None))


def parameters(partition: PartitionId, wanted: Wanted = NOTHING, lock_timeout_seconds: float = 5.0) -> dict[str, Any]:
    requests = list(wanted.requests)
    return {"topic_id": partition.topic_id, "partition": partition.partition, "lock_timeout_ms": max(1, round(lock_timeout_seconds * 1_000)),
            "producers": list(wanted.producers), "consumers": list(wanted.consumers),
            "request_consumers": [consumer for consumer, _ in requests], "request_ids": [request_id for _, request_id in requests]}


def wanted_sql(wanted: Wanted) -> str:
    return (f"{producers.SELECT if wanted.producers else 'NULL'}, {consumers.SELECT if wanted.consumers else 'NULL'}, "
            f"{consumers.SELECT_REQUESTS if wanted.requests else 'NULL'} {OF_PARTITION}")
