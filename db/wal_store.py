"""A manager's WAL and Raft state in SQL. The row lock of ``raft_state`` is the mutex: whoever decides anything holds it.

``with store.locked() as held`` is one transaction: lock, look through ``held.state`` and ``held.log``, write, commit. The log
satisfies the replication core's ``LogView``: the entry with index i stands at position i - 1, so that an index is the
border behind its entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg2.extras
import sqlalchemy

from db.metadata_store import SqlMetadata
from db.transactions import transaction
from myqueue.errors import ConfigurationError
from myqueue.protocol.chain import wal_chain

STATE_COLUMNS = ("cluster_id, node_id, disk_id::text, life, current_term, voted_for, commit_index, applied_index, "
                 "snapshot_index, snapshot_term, snapshot_chain")
READ_STATE = f"SELECT {STATE_COLUMNS} FROM raft_state"  # noqa: S608 - a constant
LOCK_STATE = f"{READ_STATE} FOR UPDATE"
CLAIM_NODE = "UPDATE raft_state SET node_id = %s WHERE node_id IS NULL"
SET_TERM = "UPDATE raft_state SET current_term = %s, voted_for = %s"
SET_COMMIT = "UPDATE raft_state SET commit_index = %s"
SET_APPLIED = "UPDATE raft_state SET commit_index = %s, applied_index = %s"
LAST_ENTRY = "SELECT index, term, chain FROM wal ORDER BY index DESC LIMIT 1"
ONE_ENTRY = "SELECT term, chain FROM wal WHERE index = %s"
FIRST_OF_TERM = "SELECT min(index) FROM wal WHERE term >= %s"
ENTRIES = "SELECT index, term, command, client_id, client_seq, chain FROM wal WHERE index > %s AND index <= %s ORDER BY index"
INSERT_ENTRIES = "INSERT INTO wal (index, term, command, client_id, client_seq, chain) VALUES %s"
DELETE_FROM = "DELETE FROM wal WHERE index > %s"
PENDING = "SELECT client_id, client_seq, index, term FROM wal WHERE index > %s AND client_id = ANY (%s)"
SESSIONS = "SELECT client_id, last_seq, reply, last_index FROM client_session WHERE client_id = ANY (%s)"
PUT_SESSION = """INSERT INTO client_session (client_id, last_seq, reply, last_index) VALUES (%s, %s, %s, %s)
    ON CONFLICT (client_id) DO UPDATE SET last_seq = excluded.last_seq, reply = excluded.reply, last_index = excluded.last_index"""
EXPIRE_SESSIONS = "DELETE FROM client_session WHERE last_index < %s"
TRY_DRIVE = "SELECT pg_try_advisory_lock(%s)"
DRIVER_LOCK = 0x6D79_7175_6472_76  # "myqudrv": one driver per manager


@dataclass(frozen=True, slots=True)
class RaftState:
    """The one row of ``raft_state``."""

    cluster_id: str | None
    node_id: int | None
    disk_id: str
    life: int
    current_term: int
    voted_for: int | None
    commit_index: int
    applied_index: int
    snapshot_index: int
    snapshot_term: int
    snapshot_chain: bytes


@dataclass(frozen=True, slots=True)
class WalEntry:
    """A metadata command at its place. It is an ``Entry`` of the replication core: each is a request of its own."""

    index: int
    term: int
    command: dict[str, Any]
    client_id: str | None
    client_seq: int | None
    chain: bytes
    request_index: int = 0
    request_count: int = 1

    @property
    def epoch(self) -> int:
        return self.term

    def chain_after(self, previous: bytes) -> bytes:
        return wal_chain(previous, index=self.index, term=self.term, command=self.command, client_id=self.client_id,
                         client_seq=self.client_seq)


@dataclass(frozen=True, slots=True)
class Session:
    """The last command of a client that was applied, and its answer."""

    client_id: str
    last_seq: int
    reply: dict[str, Any]
    last_index: int


class SqlLog:
    """The WAL as the replication core reads it, within one transaction."""

    def __init__(self, cursor: Any, state: RaftState) -> None:
        self._cursor = cursor
        self.start, self.start_epoch, self.start_chain = state.snapshot_index, state.snapshot_term, state.snapshot_chain
        self._end: tuple[int, int, bytes] | None = None

    @property
    def end(self) -> int:
        return self._last()[0]

    def epoch_at(self, position: int) -> int:
        return self._at(position)[0]

    def chain_at(self, position: int) -> bytes:
        return self._at(position)[1]

    def first_position_of_epoch(self, epoch: int) -> int:
        self._cursor.execute(FIRST_OF_TERM, (epoch,))
        index = self._cursor.fetchone()[0]
        return self.end if index is None else index - 1

    def request_start(self, position: int) -> int:
        return position  # each command is a request of its own

    def entries(self, first: int, end: int) -> list[WalEntry]:
        """The entries at the positions first … end - 1."""
        self._cursor.execute(ENTRIES, (first, end))
        return [WalEntry(*row[:5], bytes(row[5])) for row in self._cursor.fetchall()]

    def forget_end(self) -> None:
        """After a write: the end is looked up again."""
        self._end = None

    def _last(self) -> tuple[int, int, bytes]:
        if self._end is None:
            self._cursor.execute(LAST_ENTRY)
            row = self._cursor.fetchone()
            self._end = (self.start, self.start_epoch, self.start_chain) if row is None else (row[0], row[1], bytes(row[2]))
        return self._end

    def _at(self, position: int) -> tuple[int, bytes]:
        end, term, chain = self._last()
        if position == end - 1:
            return term, chain
        self._cursor.execute(ONE_ENTRY, (position + 1,))
        row = self._cursor.fetchone()
        assert row is not None, f"position {position} is not in the WAL [{self.start}, {end})"
        return row[0], bytes(row[1])


class HeldWal:
    """The WAL under the lock of ``raft_state``, in one transaction. Nothing is durable before the block has ended."""

    def __init__(self, cursor: Any, state: RaftState) -> None:
        self._cursor = cursor
        self.state = state
        self.log = SqlLog(cursor, state)
        self.metadata = SqlMetadata(cursor)

    def set_term(self, term: int, voted_for: int | None) -> None:
        """Promise: nothing below this term is accepted any more."""
        assert term >= self.state.current_term, "a term never falls"
        self._cursor.execute(SET_TERM, (term, voted_for))

    def set_commit(self, index: int) -> None:
        assert index >= self.state.commit_index, "the commit index never falls"
        self._cursor.execute(SET_COMMIT, (index,))

    def set_applied(self, *, commit: int, applied: int) -> None:
        assert self.state.applied_index <= applied <= commit, "applied never falls and never passes the commit"
        self._cursor.execute(SET_APPLIED, (commit, applied))

    def append(self, entries: Sequence[WalEntry]) -> None:
        rows = [(e.index, e.term, psycopg2.extras.Json(e.command), e.client_id, e.client_seq, e.chain) for e in entries]
        psycopg2.extras.execute_values(self._cursor, INSERT_ENTRIES, rows, page_size=len(rows) or 1)
        self.log.forget_end()

    def truncate(self, position: int) -> None:
        """Delete the entries from ``position`` on."""
        assert position >= self.state.commit_index, "what is committed is never deleted"
        self._cursor.execute(DELETE_FROM, (position,))
        self.log.forget_end()

    def sessions(self, client_ids: Sequence[str]) -> dict[str, Session]:
        self._cursor.execute(SESSIONS, (list(client_ids),))
        return {row[0]: Session(*row) for row in self._cursor.fetchall()}

    def pending(self, client_ids: Sequence[str]) -> dict[tuple[str, int], tuple[int, int]]:
        """(client_id, client_seq) → (index, term) of these clients' entries that are not applied yet."""
        self._cursor.execute(PENDING, (self.state.applied_index, list(client_ids)))
        return {(row[0], row[1]): (row[2], row[3]) for row in self._cursor.fetchall()}

    def put_session(self, session: Session) -> None:
        self._cursor.execute(PUT_SESSION, (session.client_id, session.last_seq, psycopg2.extras.Json(session.reply), session.last_index))

    def expire_sessions(self, below_index: int) -> None:
        """Forget the clients whose last command lies below this index."""
        self._cursor.execute(EXPIRE_SESSIONS, (below_index,))


class WalStore:
    """One manager's WAL."""

    def __init__(self, engine: sqlalchemy.Engine) -> None:
        self._engine = engine

    @contextmanager
    def locked(self) -> Iterator[HeldWal]:
        """One transaction that holds the lock of ``raft_state`` until its commit. Raises like ``transaction``."""
        with transaction(self._engine) as cursor:
            cursor.execute(LOCK_STATE)
            yield HeldWal(cursor, _state(cursor.fetchone()))

    @contextmanager
    def reading(self) -> Iterator[HeldWal]:
        """One transaction without the lock, for what is true of committed rows at any moment."""
        with transaction(self._engine) as cursor:
            cursor.execute(READ_STATE)
            yield HeldWal(cursor, _state(cursor.fetchone()))

    def state(self) -> RaftState:
        with self.reading() as held:
            return held.state

    def claim(self, node_id: int) -> RaftState:
        """Take this database for a node: the first one to come keeps it.

        Raises:
            ConfigurationError: it belongs to another node.
        """
        with transaction(self._engine) as cursor:
            cursor.execute(CLAIM_NODE, (node_id,))
            cursor.execute(READ_STATE)
            state = _state(cursor.fetchone())
        if state.node_id != node_id:
            raise ConfigurationError(f"this database belongs to manager {state.node_id}, not to manager {node_id}")
        return state


class DriverLock:
    """The advisory lock of a manager's one driver, held on a connection of its own for as long as that lives."""

    def __init__(self, engine: sqlalchemy.Engine) -> None:
        """``engine`` has one connection, which nobody else uses."""
        self._engine = engine
        self._connection: Any = None
        self._taken = False

    def held(self) -> bool:
        """Whether this process is the driver now: takes the lock if it is free, and looks whether it was lost."""
        try:
            if self._connection is None:
                self._connection = self._engine.raw_connection()
                self._connection.driver_connection.autocommit = True
            with self._connection.cursor() as cursor:
                if self._taken:
                    cursor.execute("SELECT 1")
                else:
                    cursor.execute(TRY_DRIVE, (DRIVER_LOCK,))
                    self._taken = bool(cursor.fetchone()[0])
                return self._taken
        except (psycopg2.Error, sqlalchemy.exc.SQLAlchemyError):
            self.release()
            return False

    def release(self) -> None:
        """Let go of the lock, by closing its connection."""
        connection, self._connection, self._taken = self._connection, None, False
        if connection is not None:
            connection.invalidate()
            connection.close()


def _state(row: tuple) -> RaftState:
    return RaftState(*row[:10], bytes(row[10]))
