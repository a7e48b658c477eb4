"""Consumer offsets in SQL: the rows that the fold of a log keeps, and what was handed out under a request id."""

# Statements are put together from the constants here; values are always parameters.
# ruff: noqa: S608

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from myqueue.protocol.fold import REQUEST_TTL_US, ConsumerState, HandedOut
from myqueue.protocol.types import PartitionId

# Scalar subqueries over the head row p: for the consumers (each from its newest version on, see folding.NEWEST) and requests named, or for all.
_FOUND = """(SELECT jsonb_agg(jsonb_build_array(s.consumer, s.next_offset, s.generation, s.lsn, s.append_time, s.handed_end, s.deaths, s.committer,
              s.sequence)) FROM"""
SELECT_ALL = f"{_FOUND} consumer_offset s WHERE s.topic_id = p.topic_id AND s.partition = p.partition)"
SELECT = f"""{_FOUND} unnest(%(consumers)s::text[]) AS wanted (name), LATERAL (
                 SELECT * FROM consumer_offset WHERE topic_id = p.topic_id AND partition = p.partition
                 AND consumer >= wanted.name AND consumer <= wanted.name ORDER BY consumer DESC LIMIT 1) s)"""
_SELECT_REQUESTS = """(SELECT jsonb_agg(jsonb_build_array(consumer, request_id, message_offset, append_time)) FROM consumer_request
                       WHERE topic_id = p.topic_id AND partition = p.partition{wanted})"""
SELECT_REQUESTS = _SELECT_REQUESTS.format(
    wanted=" AND (consumer, request_id) IN (SELECT unnest(%(request_consumers)s::text[]), unnest(%(request_ids)s::text[]))")
SELECT_ALL_REQUESTS = _SELECT_REQUESTS.format(wanted="")
UPSERT = """INSERT INTO consumer_offset (topic_id, partition, consumer, next_offset, generation, lsn, append_time, handed_end, deaths, committer,
                sequence)
            VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
            ON CONFLICT (topic_id, partition, consumer) DO UPDATE SET next_offset = excluded.next_offset,
                generation = excluded.generation, lsn = excluded.lsn, append_time = excluded.append_time,
                handed_end = excluded.handed_end, deaths = excluded.deaths, committer = excluded.committer, sequence = excluded.sequence"""
UPDATE = """UPDATE consumer_offset SET next_offset = %s, generation = %s, lsn = %s, append_time = %s, handed_end = %s, deaths = %s, committer = %s,
                sequence = %s
            WHERE ctid = (SELECT ctid FROM consumer_offset WHERE topic_id = %s AND partition = %s
                          AND consumer >= %s AND consumer <= %s ORDER BY consumer DESC LIMIT 1)"""
UPSERT_REQUEST = """INSERT INTO consumer_request (topic_id, partition, consumer, request_id, message_offset, append_time)
                    VALUES (%s, %s, %s, %s, %s, %s)
                    ON CONFLICT (topic_id, partition, consumer, request_id) DO UPDATE SET message_offset = excluded.message_offset,
                        append_time = excluded.append_time"""
EXPIRE_REQUESTS = "DELETE FROM consumer_request WHERE topic_id = %s AND partition = %s AND append_time < %s"
OFFSETS = """SELECT topic_id, partition, next_offset FROM consumer_offset
             WHERE consumer = %s AND (topic_id, partition) IN (SELECT unnest(%s::bigint[]), unnest(%s::int[]))"""


def consumers_from_rows(rows: list[list[Any]] | None) -> dict[str, ConsumerState]:
    """What SELECT found."""
    return {consumer: ConsumerState(*state) for consumer, *state in rows or ()}


def requests_from_rows(rows: list[list[Any]] | None) -> dict[tuple[str, str], HandedOut]:
    """What SELECT_REQUESTS found."""
    return {(consumer, request_id): HandedOut(*handed) for consumer, request_id, *handed in rows or ()}


def statements(partition: PartitionId, consumers: Mapping[str, ConsumerState], requests: Mapping[tuple[str, str], HandedOut], *,
               stored: Container[str] = ()) -> list[tuple[str, tuple[Any, ...]]]:
    """What writes the changed offsets. Requests expire inside the fold, by append time, so that every replica forgets the same.

    Args:
        stored: consumers that surely have a row, which nobody else changes at the same time.
    """
    out: list[tuple[str, tuple[Any, ...]]] = [
        (UPDATE, (*state, *partition, consumer, consumer)) if consumer in stored else (UPSERT, (*partition, consumer, *state))
        for consumer, state in consumers.items()]
    out += [(UPSERT_REQUEST, (*partition, consumer, request_id, *handed)) for (consumer, request_id), handed in requests.items()]
    if requests:
        newest = max(handed.append_time for handed in requests.values())
        out.append((EXPIRE_REQUESTS, (*partition, newest - REQUEST_TTL_US)))
    return out
