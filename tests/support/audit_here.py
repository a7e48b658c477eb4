"""The audit's look at one partition in one database, without a cluster around it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg2

from myqueue.protocol.types import PartitionId
from pipeline.audit import statements
from pipeline.audit.consumers import OFFSETS, judge_consumers
from pipeline.audit.log_checks import Damage, check_stretch, judge_head
from pipeline.audit.stretches import plan_stretches
from pipeline.cluster import DatabaseAddress
from pipeline.databases import rows_of
from pipeline.source.positions import read_positions

LOOKS = 5
NOWHERE = DatabaseAddress("-", 1, "-", "-")


class _Database:
    """In the place of ``pipeline.databases.Database``: a URL with its password."""

    def __init__(self, url: str) -> None:
        self._url = url

    @contextmanager
    def snapshot(self) -> Iterator[Any]:
        with closing(psycopg2.connect(self._url, connect_timeout=5)) as connection:
            connection.set_session(isolation_level="REPEATABLE READ", readonly=True)
            with connection.cursor() as cursor:
                yield cursor


def log_damage(url: str, partition: PartitionId) -> list[Damage]:
    """What the audit finds wrong with this replica's log, head, consumers' offsets and count of records."""
    for _ in range(LOOKS - 1):
        try:
            return _log_damage(url, partition)
        except psycopg2.errors.UndefinedTable:
            continue  # dropped between survey and look, as pipeline.audit.logs.audit_logs looks again
    return _log_damage(url, partition)


def _log_damage(url: str, partition: PartitionId) -> list[Damage]:
    database, topics = _Database(url), {"topic_ids": [partition.topic_id]}
    with database.snapshot() as cursor:
        position = read_positions(cursor, [partition.topic_id])[partition]
        [head] = [row for row in rows_of(cursor, statements.HEADS, topics) if row["partition"] == partition.partition]
        found = judge_head(head) + judge_consumers(rows_of(cursor, OFFSETS, topics)).get(partition, [])
    facts = [check_stretch(stretch, database) for stretch in plan_stretches(1, NOWHERE, "t", position, 20_000)]  # type: ignore[arg-type]
    found += [damage for fact in facts for damage in fact.damage]
    records = sum(fact.committed_records for fact in facts)
    return found if records == len(position.stored) else [*found, Damage("count", -1, detail=f"{records} of {position.stored}")]
