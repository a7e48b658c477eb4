"""An honest little writer of partition logs: packs, chains and inserts as a broker does, for tests that only read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import psycopg2
from psycopg2 import sql

from myqueue.protocol.batch import blocks_of, elements, pack
from myqueue.protocol.chain import GENESIS, MARKER, NO_PRODUCER, OFFSET_COMMIT, RECORDS, EntryHead, canonical_json, entry_chain
from myqueue.protocol.types import PartitionId, Record

INSERT = """INSERT INTO log_segment_{:d} VALUES
    (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s::bytea[], %s::bytea[], %s::bytea[], %s::bigint[], %s)"""
FIRST_TIME = 1_700_000_000_000_000


class LogFiller:
    """Fills one broker database, over a connection that ends with the database. Heads, commit positions and segments are kept right."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Any = None
        self._heads: dict[PartitionId, dict] = {}
        self._segments: dict[int, int] = {}

    def create_topic(self, topic_id: int, name: str, partitions: int = 1) -> None:
        """A topic whose partitions each begin with a marker of epoch 1, led here."""
        self._execute("INSERT INTO topic VALUES (%s, %s)", topic_id, name)
        self.roll(topic_id)
        for partition in range(partitions):
            id_ = PartitionId(topic_id, partition)
            self._heads[id_] = {"lsn": 0, "offset": 0, "epoch": 1, "chain": GENESIS, "time": FIRST_TIME}
            self._execute("INSERT INTO partition_state (topic_id, partition, promised_epoch, leader_epoch) VALUES (%s, %s, 1, 1)", *id_)
            self._execute("INSERT INTO partition_commit VALUES (%s, %s)", *id_)
            self.add_marker(id_)

    def roll(self, topic_id: int) -> None:
        """The next entries of the topic go into a new segment."""
        [self._segments[topic_id]] = self._execute("SELECT create_segment(%s)", topic_id)
        self._execute("UPDATE segment SET state = 'open' WHERE segment_id = %s", self._segments[topic_id])

    def append(self, id_: PartitionId, records: Sequence[Record], *, committed: bool = True) -> int:
        """One request of one or more blocks. Gives its first offset."""
        first, blocks = self._heads[id_]["offset"], blocks_of(pack(records))
        for index, block in enumerate(blocks):
            keys, values, headers, times = (column and list(elements(column, block.count)) for column in block[1:])
            times = times and [raw and int.from_bytes(raw, "big", signed=True) for raw in times]
            self._entry(id_, RECORDS, block.count, index, len(blocks), [keys, values, headers, times, None], (*block[1:], None))
        self._write_head(id_, committed)
        return first

    def pass_time(self, id_: PartitionId, milliseconds: int) -> None:
        """What comes next is appended so much later."""
        self._heads[id_]["time"] += milliseconds * 1000

    def add_marker(self, id_: PartitionId) -> None:
        self._entry(id_, MARKER, 0, 0, 1, [None] * 5, (None,) * 5)
        self._write_head(id_, True)

    def commit_offset(self, id_: PartitionId, consumer: str, next_offset: int) -> None:
        body = canonical_json({"consumer": consumer, "next_offset": next_offset})
        self._entry(id_, OFFSET_COMMIT, 0, 0, 1, [None] * 4 + [body], (None, None, None, None, body))
        self._write_head(id_, True)

    def _entry(self, id_: PartitionId, kind: int, count: int, index: int, total: int, stored: list, chained: tuple) -> None:
        head = self._heads[id_]
        numbers = EntryHead(*id_, head["lsn"], head["epoch"], kind, head["offset"], count, head["time"],
                            NO_PRODUCER, NO_PRODUCER, NO_PRODUCER, index, total)
        chain = entry_chain(head["chain"], numbers, *chained)
        segment = self._segments[id_.topic_id]
        self._execute("INSERT INTO segment_start VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING", *id_, segment, head["lsn"], head["offset"])
        self._execute(INSERT.format(segment), *numbers, chain, *stored)
        head.update(lsn=head["lsn"] + 1, offset=head["offset"] + count, chain=chain, time=head["time"] + 1)

    def _write_head(self, id_: PartitionId, committed: bool) -> None:
        head = self._heads[id_]
        self._execute("UPDATE partition_state SET end_lsn = %s, end_offset = %s, end_epoch = %s, end_chain = %s, last_append_time = %s, "
                      "segment_id = %s WHERE topic_id = %s AND partition = %s",
                      head["lsn"], head["offset"], head["epoch"], head["chain"], head["time"] - 1, self._segments[id_.topic_id], *id_)
        if committed:
            self._execute("UPDATE partition_commit SET commit_lsn = %s, commit_offset = %s WHERE topic_id = %s AND partition = %s",
                          head["lsn"], head["offset"], *id_)

    def _execute(self, statement: str, *parameters: object) -> Sequence[Any]:
        """One statement in a transaction of its own; its first row, where it has any."""
        if self._connection is None:
            self._connection = psycopg2.connect(self._url, connect_timeout=5)
            self._connection.autocommit = True
        with self._connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            return cursor.fetchone() if cursor.description else ()


def execute(url: str, statement: str, *parameters: object) -> int:
    """One statement in a transaction of its own, e.g. planted damage. Gives the number of rows it touched."""
    with closing(psycopg2.connect(url, connect_timeout=5)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.rowcount


@contextmanager
def restored(url: str, tables: Sequence[str]) -> Iterator[None]:
    """What is done to these tables inside is undone afterwards: cheaper than a fresh database. Named parents first."""
    pairs = [(sql.Identifier(table), sql.Identifier(f"saved_{table}")) for table in tables]
    with closing(psycopg2.connect(url, connect_timeout=5)) as connection, connection, connection.cursor() as cursor:
        for table, saved in pairs:
            cursor.execute(sql.SQL("CREATE TABLE {} AS TABLE {}").format(saved, table))
    try:
        yield
    finally:
        with closing(psycopg2.connect(url, connect_timeout=5)) as connection, connection, connection.cursor() as cursor:
            for table, _ in reversed(pairs):
                cursor.execute(sql.SQL("DELETE FROM {}").format(table))
            for table, saved in pairs:
                cursor.execute(sql.SQL("INSERT INTO {} TABLE {}").format(table, saved))
                cursor.execute(sql.SQL("DROP TABLE {}").format(saved))
