"""Producer epochs and sequences in SQL: the rows that the fold of a log keeps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from myqueue.protocol.fold import ProducerState, StoredRequest
from myqueue.protocol.types import PartitionId

# A scalar subquery over the head row p: for the producers named in the parameter, or for all.
_SELECT = """(SELECT jsonb_agg(jsonb_build_array(producer_id, producer_epoch, last_seq, recent, append_time)) FROM producer_state
             WHERE topic_id = p.topic_id AND partition = p.partition{wanted})"""
SELECT, SELECT_ALL = _SELECT.format(wanted=" AND producer_id = ANY (%(producers)s)"), _SELECT.format(wanted="")
UPSERT = """INSERT INTO producer_state (topic_id, partition, producer_id, producer_epoch, last_seq, recent, append_time)
            VALUES (%s, %s, %s, %s, %s, %s, %s)
            ON CONFLICT (topic_id, partition, producer_id) DO UPDATE SET producer_epoch = excluded.producer_epoch,
                last_seq = excluded.last_seq, recent = excluded.recent, append_time = excluded.append_time"""


def from_rows(rows: list[list[Any]] | None) -> dict[int, ProducerState]:
    """What SELECT found."""
    return {producer_id: ProducerState(epoch, last_seq, tuple(StoredRequest(*request) for request in recent), append_time)
            for producer_id, epoch, last_seq, recent, append_time in rows or ()}


def statements(partition: PartitionId, changed: Mapping[int, ProducerState], upsert: str = UPSERT) -> list[tuple[str, tuple[Any, ...]]]:
    """What writes the changed producers, by ``upsert`` or what takes the same values."""
    return [(upsert, (*partition, producer_id, state.epoch, state.last_seq, json.dumps(state.recent), state.append_time))
            for producer_id, state in changed.items()]
