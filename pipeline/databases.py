"""The one door to the nodes' databases: read only, bounded in time, the password from PGPASSFILE (libpq reads it)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

import psycopg2
import psycopg2.errors
import psycopg2.extensions

from myqueue.errors import NotFoundError, UnreachableError

from .cluster import DatabaseAddress

if TYPE_CHECKING:
    import pyarrow as pa

APPLICATION_NAME = "myqueue-pipeline"
_LOGIN_HINT = ": name the cluster's data folder by --data, or its password file by PGPASSFILE"


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on every call to a database."""

    connect_seconds: float = 10.0
    statement_seconds: float = 120.0


class HasTimeouts(Protocol):
    """Options of a read, settings of a job: what says how long may be waited."""

    @property
    def request_timeout_seconds(self) -> float: ...
    @property
    def statement_timeout_seconds(self) -> float: ...


def limits_of(options: HasTimeouts) -> Limits:
    return Limits(options.request_timeout_seconds, options.statement_timeout_seconds)


def connection_options(limits: Limits) -> dict[str, str]:
    """libpq's options: nothing can be written, no statement and no cut connection waits for ever."""
    return {
        "application_name": APPLICATION_NAME,
        "connect_timeout": str(max(2, round(limits.connect_seconds))),  # libpq takes whole seconds, two at least
        "options": f"-c default_transaction_read_only=on -c statement_timeout={round(limits.statement_seconds * 1000)}",
        "keepalives_idle": "2", "keepalives_interval": "1", "keepalives_count": "3", "tcp_user_timeout": "8000",
    }


def libpq_uri(address: DatabaseAddress, limits: Limits) -> str:
    """The connection as a URI without a password."""
    host = f"[{address.host}]" if ":" in address.host else quote(address.host, safe="")
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in connection_options(limits).items())
    return f"postgresql://{quote(address.user, safe='')}@{host}:{address.port}/{quote(address.name, safe='')}?{query}"


class Database:
    """A database of a node: connected on first use, and again after the connection broke."""

    def __init__(self, address: DatabaseAddress, limits: Limits) -> None:
        self._address, self._limits = address, limits
        self._connection: psycopg2.extensions.connection | None = None

    @contextmanager
    def snapshot(self) -> Iterator[psycopg2.extensions.cursor]:
        """A cursor whose statements all see one snapshot (REPEATABLE READ, read only); the transaction ends with the block.

        Raises:
            NotFoundError: a table is not there (any more).
            UnreachableError: there is no connection, or it broke, or a statement took too long or was refused.
        """
        try:
            if self._connection is None:
                self._connection = psycopg2.connect(libpq_uri(self._address, self._limits))
                self._connection.set_session(isolation_level="REPEATABLE READ", readonly=True)
            with self._connection.cursor() as cursor:
                yield cursor
            self._connection.rollback()
        except psycopg2.Error as error:
            self.close()
            kind = NotFoundError if isinstance(error, psycopg2.errors.UndefinedTable) else UnreachableError
            raise kind(f"{self._address}: {_first_line(error)}") from error

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


Look = Callable[[DatabaseAddress], AbstractContextManager[psycopg2.extensions.cursor]]  # a snapshot of that database


@contextmanager
def snapshot_cursor(address: DatabaseAddress, limits: Limits) -> Iterator[psycopg2.extensions.cursor]:
    """One snapshot on a connection of its own. Raises UnreachableError."""
    with closing(Database(address, limits)) as database, database.snapshot() as cursor:
        yield cursor


class Databases:
    """Databases of several nodes, each with a connection of its own that stays open between looks."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_address: dict[DatabaseAddress, Database] = {}

    def snapshot(self, address: DatabaseAddress) -> AbstractContextManager[psycopg2.extensions.cursor]:
        """As :meth:`Database.snapshot`."""
        return self._by_address.setdefault(address, Database(address, self._limits)).snapshot()

    def close(self) -> None:
        for database in self._by_address.values():
            database.close()
        self._by_address = {}


def _first_line(error: Exception) -> str:
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return line + _LOGIN_HINT if line.endswith("no password supplied") else line


def rows_of(cursor: psycopg2.extensions.cursor, statement: str, parameters: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Run a statement and give its rows by column name, bytea as bytes."""
    cursor.execute(statement, parameters or {})
    names = [column.name for column in cursor.description or ()]
    return [{name: bytes(value) if isinstance(value, memoryview) else value for name, value in zip(names, row, strict=True)}
            for row in cursor.fetchall()]


class ArrowConnection:
    """A connection that streams COPY into Arrow batches; each statement is a transaction of its own."""

    def __init__(self, address: DatabaseAddress, limits: Limits) -> None:
        from adbc_driver_postgresql import dbapi  # heavy: only where rows are read, not where a read is planned

        self._address = address
        try:
            self._connection = dbapi.connect(libpq_uri(address, limits), autocommit=True)
        except dbapi.Error as error:
            raise UnreachableError(f"{address}: {_first_line(error)}") from error

    def batches(self, statement: str, *, batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """The statement's rows in batches of about ``batch_bytes``. Parameters would leave the COPY path: there are none."""
        from adbc_driver_postgresql import dbapi

        options = {"adbc.postgresql.batch_size_hint_bytes": batch_bytes}
        try:
            with closing(self._connection.cursor(adbc_stmt_kwargs=options)) as cursor:
                cursor.execute(statement)
                with cursor.fetch_record_batch() as reader:
                    yield from reader
        except dbapi.Error as error:
            raise UnreachableError(f"{self._address}: {_first_line(error)}") from error

    def close(self) -> None:
        self._connection.close()

