"""PostgreSQL alone: the blocks packed beforehand, one connection, a COPY and a commit a batch. Nothing can store them with less."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg2

from db.engine import libpq_url
from db.local_postgres import LocalPostgres
from tests.bench.plan import POSTGRES
from tests.bench.sketch.format import COPY_IN, COPY_OUT, TABLE, End, count_read, cut, pack, rows

from .base import CALL_SECONDS, Contender

READ_BLOCKS = 256  # about 2 MiB, as much as the SDK fetches at once
CONNECT_SECONDS = 5
IO_VERSION = 180_000  # from which on pg_stat_io knows the write-ahead log
FSYNCS_NOW = "SELECT coalesce(sum(fsyncs), 0) FROM pg_stat_io WHERE object = 'wal' AND backend_type = 'client backend'"
FSYNCS_BEFORE_18 = "SELECT wal_sync FROM pg_stat_wal"
ONE_ROW = "INSERT INTO {log} (partition, lsn, base, count, chain, vals) VALUES (0, %s, %s, 1, '', ARRAY[%s]::bytea[])"


class PostgresAlone(Contender):
    """A server of its own with the settings of the brokers' server; also the server below the sketch."""

    name = POSTGRES

    def __init__(self, folder: Path, settings: Mapping[str, str], stack: ExitStack) -> None:
        self._server = LocalPostgres(folder, settings=settings)
        stack.callback(self._server.stop, immediate=True)  # its data are deleted next
        self._server.start()
        self.roots = {"postgres": [self._server.pid or 0]}
        self.dsn = libpq_url(self._server.url())

    def create(self, log: str) -> None:
        self.run(TABLE.format(log=table_name(log)))

    def producing(self, log: str, value: bytes, count: int, batch: int, stack: ExitStack) -> Callable[[], None]:
        groups, end = [], End()
        for first in range(0, count, batch):
            copied, end = rows([pack([value] * min(batch, count - first))], end)
            groups.append(copied)
        cursor, statement = self._connect(stack).cursor(), COPY_IN.format(log=table_name(log))

        def work() -> None:
            for group in groups:
                cursor.copy_expert(statement, io.BytesIO(group), 1 << 20)

        return work

    def consuming(self, log: str, stack: ExitStack) -> Callable[[int], int]:
        return self._reading(log, stack, count_read)

    def consuming_messages(self, log: str, stack: ExitStack) -> Callable[[int], int]:
        """As ``consuming``, and the blocks are cut into messages, as a client must do in the end."""
        return self._reading(log, stack, lambda copied: len(cut(copied)))

    def _reading(self, log: str, stack: ExitStack, count_in: Callable[[memoryview], int]) -> Callable[[int], int]:
        cursor, statement = self._connect(stack).cursor(), COPY_OUT.format(log=table_name(log))

        def work(count: int) -> int:
            seen = 0
            for first in itertools.count(0, READ_BLOCKS):
                out = io.BytesIO()
                cursor.copy_expert(cursor.mogrify(statement, (first, first + READ_BLOCKS)).decode(), out)
                read = count_in(out.getbuffer())
                seen += read
                if seen >= count or not read:
                    return seen
            raise AssertionError("unreachable")

        return work

    def caller(self, log: str, stack: ExitStack) -> Callable[[bytes], None]:
        cursor, statement, numbers = self._connect(stack).cursor(), ONE_ROW.format(log=table_name(log)), self._numbers(log)

        def call(value: bytes) -> None:
            number = next(numbers)
            cursor.execute(statement, (number, number, psycopg2.Binary(value)))

        return call

    def settle(self) -> None:
        checkpoint(self.dsn)

    def fsyncs(self) -> int | None:
        return fsyncs(self.dsn)

    def run(self, statements: str, values: tuple[Any, ...] = ()) -> None:
        with ExitStack() as stack:
            self._connect(stack).cursor().execute(statements, values)

    def _numbers(self, log: str) -> itertools.count[int]:
        """Of a log's rows, one source for all its callers."""
        counters: dict[str, itertools.count[int]] = self.__dict__.setdefault("_counters", {})
        return counters.setdefault(log, itertools.count())

    def _connect(self, stack: ExitStack) -> Any:
        return connect(self.dsn, stack)


def connect(dsn: str, stack: ExitStack) -> Any:
    """A connection on which every statement is a transaction of its own, and none lasts longer than a call may."""
    connection = psycopg2.connect(dsn, connect_timeout=CONNECT_SECONDS, options=f"-c statement_timeout={int(CALL_SECONDS * 1e3)}")
    stack.callback(connection.close)
    connection.autocommit = True
    return connection


def fsyncs(dsn: str) -> int:
    """Syncs of the write-ahead log that the server counted; backends report at the end of a transaction, at most once a second."""
    with ExitStack() as stack:
        connection = connect(dsn, stack)
        cursor = connection.cursor()
        cursor.execute(FSYNCS_NOW if connection.server_version >= IO_VERSION else FSYNCS_BEFORE_18)
        return int(cursor.fetchone()[0])


def checkpoint(dsn: str) -> None:
    """Have the server write all that its log would have it write in the next minutes."""
    with ExitStack() as stack:
        connect(dsn, stack).cursor().execute("CHECKPOINT")


def table_name(log: str) -> str:
    return f"log_{log.replace('-', '_')}"
