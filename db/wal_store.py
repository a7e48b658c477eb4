"""A manager's WAL and Raft state in SQL. The row lock of ``raft_state`` is the mutex: whoever decides anything holds it.

``with store.locked() as held`` is one transaction: lock, look through ``held.state`` and ``held.log``, write, commit. The log
satisfies the replication core's ``LogView``: the entry with index i stands at position i - 1, so that an index is the
border behind its entry.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import psycopg2.extras
import sqlalchemy

from db.metadata_store import ONE_VIEW, SqlMetadata
from db.transactions import transaction
from db.wal import RaftState, WalEntry
from myqueue.errors import ConfigurationError

STATE_COLUMNS = ("node_id, disk_id::text, current_term, voted_for, leader_term, commit_index, applied_index, cluster_id, life, "
                 "snapshot_index, snapshot_term, snapshot_chain, lives")
READ_STATE = f"SELECT {STATE_COLUMNS} FROM raft_state"  # noqa: S608 - a constant
LOCK_STATE = f"{READ_STATE} FOR UPDATE"
CLAIM_NODE = "UPDATE raft_state SET node_id = %s WHERE node_id IS NULL"
SERVER = "SELECT (SELECT system_identifier FROM pg_control_system())::text, (SELECT timeline_id FROM pg_control_checkpoint())::bigint"
KNOWN_SERVER = "SELECT system_identifier, timeline FROM raft_state"
SET_SERVER = "UPDATE raft_state SET system_identifier = %s, timeline = %s"
SET_LIFE = "UPDATE raft_state SET life = %s, lives = %s"
NEW_DISK = "UPDATE raft_state SET disk_id = gen_random_uuid(), life = 0, leader_term = 0 RETURNING disk_id::text"
SET_STATE = "UPDATE raft_state SET current_term = %s, voted_for = %s, leader_term = %s, commit_index = %s, applied_index = %s"
LAST_ENTRY = "SELECT index, term, chain FROM wal ORDER BY index DESC LIMIT 1"
ONE_ENTRY = "SELECT term, chain FROM wal WHERE index = %s"
FIRST_OF_TERM = "SELECT min(index) FROM wal WHERE term >= %s"
ENTRY_COLUMNS = "index, term, command, client_id, client_seq, chain"
ENTRIES = f"""SELECT {ENTRY_COLUMNS} FROM (
        SELECT *, sum(octet_length(command::text)) OVER (ORDER BY index) AS bytes FROM wal WHERE index > %(first)s AND index <= %(end)s) AS entry
    WHERE bytes <= %(bytes_max)s OR index = %(first)s + 1 ORDER BY index"""  # noqa: S608 - constants
ENTRIES_OF_TYPES = f"SELECT {ENTRY_COLUMNS} FROM wal WHERE index > %s AND command->>'type' = ANY (%s) ORDER BY index"  # noqa: S608 - constants
BETWEEN_BYTES_MAX = 4 << 20  # of commands that are read at a time, and so of those in one append; the body limit of a node is above it
INSERT_ENTRIES = "INSERT INTO wal (index, term, command, client_id, client_seq, chain) VALUES %s"
DELETE_FROM = "DELETE FROM wal WHERE index > %s"
DELETE_TO = "DELETE FROM wal WHERE index <= %s"
SET_START = "UPDATE raft_state SET snapshot_index = %s, snapshot_term = %s, snapshot_chain = %s"
PENDING = "SELECT client_id, client_seq, index, term FROM wal WHERE index > %s AND client_id = ANY (%s)"
SESSIONS = "SELECT client_id, last_seq, reply, last_index FROM client_session WHERE client_id = ANY (%s)"
PUT_SESSION = """INSERT INTO client_session (client_id, last_seq, reply, last_index) VALUES (%s, %s, %s, %s)
    ON CONFLICT (client_id) DO UPDATE SET last_seq = excluded.last_seq, reply = excluded.reply, last_index = excluded.last_index"""
EXPIRE_SESSIONS = "DELETE FROM client_session WHERE last_index < %s"
TRY_DRIVE = "SELECT pg_try_advisory_lock(%s)"
DRIVER_LOCK = 0x6D79_7175_6472_76  # "myqudrv": one driver per manager
_log = logging.getLogger(__name__)


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

    def between(self, first: int, end: int) -> list[WalEntry]:
        """The entries at the positions first … end - 1: fewer, but at least one, where they would pass BETWEEN_BYTES_MAX."""
        if first >= end:
            return []
        self._cursor.execute(ENTRIES, {"first": first, "end": end, "bytes_max": BETWEEN_BYTES_MAX})
        return [_entry(row) for row in self._cursor.fetchall()]

    def of_types(self, types: Sequence[str], *, behind: int) -> list[WalEntry]:
        """The entries with an index above ``behind`` whose command is of one of these types."""
        if behind >= self.end:
            return []
        self._cursor.execute(ENTRIES_OF_TYPES, (behind, list(types)))
        return [_entry(row) for row in self._cursor.fetchall()]

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
        self.changed = False  # whether there is anything to commit

    @property
    def cursor(self) -> Any:
        """For the statements of ``db.snapshots``, in the same transaction."""
        return self._cursor

    def write_state(self, state: RaftState) -> None:
        """Write the row as it is after a decision."""
        before = self.state
        assert state.current_term >= before.current_term and state.commit_index >= before.commit_index, "a term or commit index never falls"
        assert before.applied_index <= state.applied_index <= state.commit_index, "applied never falls and never passes the commit"
        self._cursor.execute(SET_STATE, (state.current_term, state.voted_for, state.leader_term, state.commit_index, state.applied_index))
        self.state, self.changed = state, True

    def write_life(self, life: int, lives: Mapping[str, int]) -> None:
        """Write this disk's life number and what was seen of others'; neither falls."""
        assert life >= self.state.life and all(lives.get(disk, number) >= number for disk, number in self.state.lives.items()), "lives never fall"
        self._cursor.execute(SET_LIFE, (life, psycopg2.extras.Json(dict(lives))))
        self.state, self.changed = replace(self.state, life=life, lives=lives), True

    def is_moved(self) -> bool:
        """Whether this database was last used on another server or timeline, which is noted: a copy made by the server's own means."""
        self._cursor.execute(SERVER)
        server = self._cursor.fetchone()
        self._cursor.execute(KNOWN_SERVER)
        known = self._cursor.fetchone()
        if known != server:
            self._cursor.execute(SET_SERVER, server)
        return known not in (server, (None, None))

    def take_new_disk(self) -> str:
        """From now on this is another disk, which has promised nothing, acknowledged nothing and leads nowhere; its identity."""
        self._cursor.execute(NEW_DISK)
        disk_id = self._cursor.fetchone()[0]
        self.state, self.changed = replace(self.state, disk_id=disk_id, life=0, leader_term=0), True
        return disk_id

    def append(self, entries: Sequence[WalEntry]) -> None:
        rows = [(e.index, e.term, psycopg2.extras.Json(e.command), e.client_id, e.client_seq, e.chain) for e in entries]
        psycopg2.extras.execute_values(self._cursor, INSERT_ENTRIES, rows, page_size=len(rows) or 1)
        self.changed = True
        self.log.forget_end()

    def truncate(self, position: int) -> None:
        """Delete the entries from ``position`` on."""
        assert position >= self.state.commit_index, "what is committed is never deleted"
        self._cursor.execute(DELETE_FROM, (position,))
        self.changed = True
        self.log.forget_end()

    def begin_log_at(self, index: int, term: int, chain: bytes) -> int:
        """Let the log begin behind an applied entry, of which term and chain stay known; the entries up to it go. How many went."""
        assert self.state.snapshot_index <= index <= self.state.applied_index, "the log never begins behind what is applied"
        self._cursor.execute(SET_START, (index, term, chain))
        self._cursor.execute(DELETE_TO, (index,))
        gone = self._cursor.rowcount
        self.state, self.changed = replace(self.state, snapshot_index=index, snapshot_term=term, snapshot_chain=chain), True
        self.log = SqlLog(self._cursor, self.state)
        return gone

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
        """One transaction that holds the lock of ``raft_state`` until its commit. Raises like ``transaction``.

        Where nothing was changed it is rolled back: the lock alone would cost a wait for the disk.
        """
        with transaction(self._engine) as cursor:
            cursor.execute(LOCK_STATE)
            held = HeldWal(cursor, _state(cursor.fetchone()))
            yield held
            if not held.changed:
                cursor.connection.rollback()

    @contextmanager
    def reading(self) -> Iterator[HeldWal]:
        """One transaction without the lock: everything in it as of one moment."""
        with transaction(self._engine) as cursor:
            cursor.execute(ONE_VIEW)
            cursor.execute(READ_STATE)
            yield HeldWal(cursor, _state(cursor.fetchone()))

    def state(self) -> RaftState:
        with self.reading() as held:
            return held.state

    def claim(self, node_id: int) -> RaftState:
        """Take this database for a node: the first one to come keeps it. On another server or timeline than before it becomes another disk.

        Raises:
            ConfigurationError: it belongs to another node.
        """
        with transaction(self._engine) as cursor:
            cursor.execute(LOCK_STATE)
            held = HeldWal(cursor, _state(cursor.fetchone()))
            if held.state.node_id not in (None, node_id):
                raise ConfigurationError(f"this database belongs to manager {held.state.node_id}, not to manager {node_id}")
            cursor.execute(CLAIM_NODE, (node_id,))
            if held.is_moved():
                _log.warning("this database was copied to another server or timeline: it is disk %s from now on", held.take_new_disk())
            cursor.execute(READ_STATE)
            return _state(cursor.fetchone())


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
    return RaftState(*row[:11], bytes(row[11]), row[12])


def _entry(row: tuple) -> WalEntry:
    return WalEntry(*row[:5], bytes(row[5]))
