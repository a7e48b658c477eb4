"""Producer epochs and sequences in SQL: the rows that the fold of a log keeps."""

# Statements are put together from the constants here; values are always parameters.
# ruff: noqa: S608

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from typing import Any

from myqueue.protocol.fold import ProducerState, StoredRequest
from myqueue.protocol.types import PartitionId

# Scalar subqueries over the head row p: for the producers named in the parameter, each from its newest version on (see folding.NEWEST), or for all.
_FOUND = "(SELECT jsonb_agg(jsonb_build_array(s.producer_id, s.producer_epoch, s.last_seq, s.recent, s.append_time)) FROM"
SELECT_ALL = f"{_FOUND} producer_state s WHERE s.topic_id = p.topic_id AND s.partition = p.partition)"
SELECT = f"""{_FOUND} unnest(%(producers)s::bigint[]) AS wanted (id), LATERAL (
                 SELECT * FROM producer_state WHERE topic_id = p.topic_id AND partition = p.partition
                 AND producer_id >= wanted.id AND producer_id <= wanted.id ORDER BY producer_id DESC LIMIT 1) s)"""
UPDATE = """UPDATE producer_state SET producer_epoch = %s, last_seq = %s, recent = %s, append_time = %s
            WHERE ctid = (SELECT ctid FROM producer_state WHERE topic_id = %s AND partition = %s
                          AND producer_id >= %s AND producer_id <= %s ORDER BY producer_id DESC LIMIT 1)"""
UPSERT = """INSERT INTO producer_state (topic_id, partition, producer_id, producer_epoch, last_seq, recent, append_time)
            VALUES (%s, %s, %s, %s, %s, %s, %s)
            ON CONFLICT (topic_id, partition, producer_id) DO UPDATE SET producer_epoch = excluded.producer_epoch,
                last_seq = excluded.last_seq, recent = excluded.recent, append_time = excluded.append_time"""


def from_rows(rows: list[list[Any]] | None) -> dict[int, ProducerState]:
    """What SELECT found."""
    return {producer_id: ProducerState(epoch, last_seq, tuple(StoredRequest(*request) for request in recent), append_time)
            for producer_id, epoch, last_seq, recent, append_time in rows or ()}


def statements(partition: PartitionId, changed: Mapping[int, ProducerState], *, stored: Container[int] = (),
               update: str = UPDATE) -> list[tuple[str, tuple[Any, ...]]]:
    """What writes the changed producers.

    Args:
        stored: those that surely have a row, which nobody else changes at the same time: ``update`` is enough for them.
    """
    out: list[tuple[str, tuple[Any, ...]]] = []
    for producer_id, state in changed.items():
        values = state.epoch, state.last_seq, json.dumps(state.recent), state.append_time
        out.append((update, (*values, *partition, producer_id, producer_id)) if producer_id in stored else
                   (UPSERT, (*partition, producer_id, *values)))
    return out
