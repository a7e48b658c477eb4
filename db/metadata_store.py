"""The metadata tables of a manager: what ``apply`` reads and writes, what requests read, and the heartbeats."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import psycopg2.extras
import sqlalchemy
from psycopg2 import sql

from db.transactions import transaction

Row = dict[str, Any]
ONE_VIEW = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"  # all tables as of one moment
LEADER_COUNTS = "SELECT leader, count(*) FROM partition WHERE leader IS NOT NULL GROUP BY leader"
REPLICA_COUNTS = "SELECT broker_id::bigint, count(*) FROM partition, jsonb_object_keys(voters) AS broker_id GROUP BY broker_id"
STATE = "SELECT cluster_id, applied_index FROM raft_state"
MEMBERS = "SELECT node_id, url, disk_id::text, voter FROM member ORDER BY node_id"
BROKERS = "SELECT broker_id, disk_id::text, host, port, status, database FROM broker ORDER BY broker_id"
TOPICS = "SELECT topic_id, name, replication_factor, config, created_at FROM topic ORDER BY name"
PARTITIONS = """SELECT topic_id, partition, replication_factor, epoch, status, leader, voters::text, learners::text, wanted::text
    FROM partition ORDER BY topic_id, partition"""
GROUPS = "SELECT group_id, name, generation, strategy, start, created_at FROM consumer_group ORDER BY name"
GROUP_MEMBERS = """SELECT member_id, group_id, instance_id, topics, session_timeout_ms, wanted, owned, created_at FROM group_member
    ORDER BY member_id"""
IS_PRODUCER = "SELECT 1 FROM producer WHERE producer_id = %s AND topic_id = %s"
IS_CONSUMER = "SELECT 1 FROM consumer WHERE consumer_id = %s AND topic_id = %s"
HEARTBEATS = """SELECT type, actor_id, extract(epoch FROM clock_timestamp() - last_updated_time)::float8,
    (extract(epoch FROM last_updated_time) * 1000000)::bigint FROM heartbeat WHERE type = ANY (%s)"""
RECORD_HEARTBEATS = """INSERT INTO heartbeat (type, actor_id, last_updated_time) VALUES %s
    ON CONFLICT (type, actor_id) DO UPDATE SET last_updated_time = greatest(heartbeat.last_updated_time, excluded.last_updated_time)"""
FORGET_CLIENTS = """DELETE FROM heartbeat WHERE type IN ('producer', 'consumer', 'group_member')
    AND last_updated_time < clock_timestamp() - make_interval(secs => %s)"""
HEARTBEAT_ROW = "(%s, %s, clock_timestamp() - make_interval(secs => %s))"


class ChangeLike(Protocol):
    """A row to put (``values`` is there) or to delete."""

    @property
    def table(self) -> str: ...

    @property
    def key(self) -> Row: ...


class SqlMetadata:
    """The metadata tables within one transaction: rows by key, and the changes that ``apply`` decided."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def get(self, table: str, **key: Any) -> Row | None:
        rows = self.find(table, **key)
        return rows[0] if rows else None

    def find(self, table: str, **equals: Any) -> list[Row]:
        statement = sql.SQL("SELECT * FROM {}").format(sql.Identifier(table))
        if equals:
            statement += sql.SQL(" WHERE ") + _equalities(equals)
        self._cursor.execute(statement, [_value(value) for value in equals.values()])
        names = [column.name for column in self._cursor.description]
        return [{name: _plain(value) for name, value in zip(names, row, strict=True)} for row in self._cursor.fetchall()]

    def leader_counts(self) -> Mapping[int, int]:
        self._cursor.execute(LEADER_COUNTS)
        return dict(self._cursor.fetchall())

    def replica_counts(self) -> Mapping[int, int]:
        self._cursor.execute(REPLICA_COUNTS)
        return dict(self._cursor.fetchall())

    def write(self, changes: Iterable[Any]) -> None:
        """Carry out the changes in their order; runs of rows for one table go in one statement."""
        run: list[Any] = []
        for change in changes:
            if run and not _belong_together(run[-1], change):
                self._write_run(run)
                run = []
            run.append(change)
        if run:
            self._write_run(run)

    def _write_run(self, run: Sequence[Any]) -> None:
        first = run[0]
        if not hasattr(first, "values"):
            for change in run:
                statement = sql.SQL("DELETE FROM {} WHERE ").format(sql.Identifier(first.table)) + _equalities(change.key)
                self._cursor.execute(statement, [_value(value) for value in change.key.values()])
            return
        rows = {tuple(change.key.values()): [_value(value) for value in (*change.key.values(), *change.values.values())] for change in run}
        names = [sql.Identifier(name) for name in (*first.key, *first.values)]
        statement = sql.SQL("INSERT INTO {} ({}) VALUES %s ON CONFLICT ({}) DO UPDATE SET {}").format(
            sql.Identifier(first.table), sql.SQL(", ").join(names), sql.SQL(", ").join(map(sql.Identifier, first.key)),
            sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in first.values))
        psycopg2.extras.execute_values(self._cursor, statement, list(rows.values()), page_size=1_000)


def _belong_together(one: Any, other: Any) -> bool:
    return one.table == other.table and type(one) is type(other) and list(one.key) == list(other.key) and (
        not hasattr(one, "values") or list(one.values) == list(other.values))


def _equalities(equals: Mapping[str, Any]) -> sql.Composable:
    return sql.SQL(" AND ").join(sql.SQL("{} = %s").format(sql.Identifier(name)) for name in equals)


def _value(value: Any) -> Any:
    return psycopg2.extras.Json(value) if isinstance(value, (dict, list)) else value


def _plain(value: Any) -> Any:
    """A column's value as metadata rows have it: JSON types only."""
    return str(value) if isinstance(value, uuid.UUID) else value


class BrokerRow(NamedTuple):
    broker_id: int
    disk_id: str
    host: str
    port: int
    status: str
    database: Row


class TopicRow(NamedTuple):
    topic_id: int
    name: str
    replication_factor: int
    config: Row
    created_at: int


class PartitionRow(NamedTuple):
    topic_id: int
    partition: int
    replication_factor: int
    epoch: int
    status: str
    leader: int | None
    voters: Row
    learners: Sequence[int] = ()
    wanted: Sequence[int] | None = None  # where an operator moves its replicas to


@lru_cache(maxsize=10_000)
def _decoded(text: str) -> Any:
    """JSON of which many rows have the same: the few sets of brokers that hold all partitions. Nobody changes what is returned."""
    return json.loads(text)


def _partition_row(topic_id: int, partition: int, replication_factor: int, epoch: int, status: str, leader: int | None, voters: str,
                   learners: str, wanted: str | None) -> PartitionRow:
    return PartitionRow(topic_id, partition, replication_factor, epoch, status, leader, _decoded(voters), _decoded(learners),
                        None if wanted is None else _decoded(wanted))


class MemberRow(NamedTuple):
    node_id: int
    url: str
    disk_id: str
    voter: bool


class GroupRow(NamedTuple):
    group_id: int
    name: str
    generation: int
    strategy: str
    start: str
    created_at: int


class GroupMemberRow(NamedTuple):
    member_id: int
    group_id: int
    instance_id: str
    topics: Sequence[str]
    session_timeout_ms: int
    wanted: Sequence[str]  # topic_id/partition
    owned: Mapping[str, int]  # topic_id/partition: the generation in which it got it
    created_at: int


@dataclass(frozen=True, slots=True)
class CatalogueRows:
    """Everything a manager routes by, as of one applied index."""

    cluster_id: str | None
    applied_index: int
    members: tuple[MemberRow, ...]
    brokers: tuple[BrokerRow, ...]
    topics: tuple[TopicRow, ...]
    partitions: tuple[PartitionRow, ...]
    groups: tuple[GroupRow, ...] = ()
    group_members: tuple[GroupMemberRow, ...] = ()


class MetadataStore:
    """What requests read of the metadata."""

    def __init__(self, engine: sqlalchemy.Engine) -> None:
        self._engine = engine

    def catalogue(self) -> CatalogueRows:
        with transaction(self._engine) as cursor:
            cursor.execute(ONE_VIEW)
            cursor.execute(STATE)
            cluster_id, applied_index = cursor.fetchone()
            tables = []
            for statement, row in ((MEMBERS, MemberRow), (BROKERS, BrokerRow), (TOPICS, TopicRow), (PARTITIONS, _partition_row),
                                   (GROUPS, GroupRow), (GROUP_MEMBERS, GroupMemberRow)):
                cursor.execute(statement)
                tables.append(tuple(row(*values) for values in cursor.fetchall()))
        return CatalogueRows(cluster_id, applied_index, *tables)

    def is_producer(self, producer_id: int, topic_id: int) -> bool:
        return self._exists(IS_PRODUCER, (producer_id, topic_id))

    def is_consumer(self, consumer_id: int, topic_id: int) -> bool:
        return self._exists(IS_CONSUMER, (consumer_id, topic_id))

    def _exists(self, statement: str, key: tuple) -> bool:
        with transaction(self._engine) as cursor:
            cursor.execute(statement, key)
            return cursor.fetchone() is not None


class HeartbeatRow(NamedTuple):
    type: str
    actor_id: int
    age_seconds: float
    last_updated_us: int  # microseconds since 1970


class HeartbeatStore:
    """When each actor was last heard of. Soft state: written without waiting for the disk."""

    def __init__(self, engine: sqlalchemy.Engine) -> None:
        self._engine = engine

    def record(self, heard: Sequence[tuple[str, int, float]]) -> None:
        """Note (type, actor_id, age in seconds); an older one than what is known changes nothing."""
        if heard:
            with transaction(self._engine, durable=False) as cursor:
                psycopg2.extras.execute_values(cursor, RECORD_HEARTBEATS, sorted(heard), template=HEARTBEAT_ROW, page_size=1_000)

    def rows(self, types: Sequence[str]) -> list[HeartbeatRow]:
        with transaction(self._engine) as cursor:
            cursor.execute(HEARTBEATS, (list(types),))
            return [HeartbeatRow(*row) for row in cursor.fetchall()]

    def forget_clients(self, older_than_seconds: float) -> None:
        """Drop the producers and consumers that were silent for so long."""
        with transaction(self._engine, durable=False) as cursor:
            cursor.execute(FORGET_CLIENTS, (older_than_seconds,))
