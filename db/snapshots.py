"""Snapshots of a manager's metadata: taken from the tables, kept beside the WAL, put in place of the tables.

The WAL begins behind a snapshot that is kept: the row at ``raft_state.snapshot_index`` is there unless that is 0. There is at
most one newer one. The entries between the two are the tail, so that a follower which is a little behind needs no snapshot, and an audit can
fold from the older one to the newer one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import psycopg2.extras
from psycopg2 import sql

from db.replication import chain_before, epoch_before
from db.wal_store import HeldWal, WalStore
from myqueue.errors import LogFaultError
from myqueue.protocol.metadata_state import KEYS, MetadataState, Row, state_digest, state_from_text, state_to_text

COLUMNS = "index, term, chain, state, digest"
NEWEST = f"SELECT {COLUMNS} FROM snapshot ORDER BY index DESC LIMIT 1"  # noqa: S608 - a constant
NEWEST_INDEX = "SELECT max(index) FROM snapshot"
BEFORE = "SELECT index, term, chain FROM snapshot WHERE index < %s ORDER BY index DESC LIMIT 1"
PUT = f"INSERT INTO snapshot ({COLUMNS}) VALUES (%s, %s, %s, %s, %s) ON CONFLICT (index) DO NOTHING"  # noqa: S608 - a constant
FORGET = "DELETE FROM snapshot WHERE index < %s"
FORGET_ALL = "DELETE FROM snapshot"
SET_CLUSTER = "UPDATE raft_state SET cluster_id = %s"
ROWS_MAX = 1_000  # in one statement


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A row of ``snapshot``."""

    index: int
    term: int
    chain: bytes
    state: str
    digest: bytes

    @classmethod
    def of(cls, state: MetadataState) -> Snapshot:
        text = state_to_text(state)
        return cls(state.index, state.term, state.chain, text, state_digest(text))

    def checked(self) -> MetadataState:
        """The state, once it is what its digest and its columns say. Raises LogFaultError where it is not."""
        if state_digest(self.state) != self.digest:
            raise LogFaultError(f"the snapshot at {self.index} does not match its digest")
        state = state_from_text(self.state)
        if (state.index, state.term, state.chain) != (self.index, self.term, self.chain):
            raise LogFaultError(f"the snapshot at {self.index} of term {self.term} holds the state at {state.index} of term {state.term}")
        return state


@contextmanager
def view_of_state(store: WalStore) -> Iterator[StateView]:
    """The metadata at the index that is applied now, for as long as the block lasts; nobody waits for it."""
    with store.reading() as held:
        yield StateView(held)


class StateView:
    """The metadata tables as of one moment."""

    def __init__(self, held: HeldWal) -> None:
        self._held = held
        self.index = held.state.applied_index
        self.newest = newest_index(held)

    def read(self) -> MetadataState:
        held, index = self._held, self.index
        tables = {table: held.metadata.find(table) for table in KEYS}
        return MetadataState(index, epoch_before(held.log, index), chain_before(held.log, index), held.state.cluster_id, tables)


def newest(held: HeldWal) -> Snapshot | None:
    held.cursor.execute(NEWEST)
    row = held.cursor.fetchone()
    return None if row is None else Snapshot(row[0], row[1], bytes(row[2]), row[3], bytes(row[4]))


def newest_index(held: HeldWal) -> int:
    """Of the newest snapshot; 0 without one."""
    held.cursor.execute(NEWEST_INDEX)
    return held.cursor.fetchone()[0] or 0


def keep(held: HeldWal, snapshot: Snapshot) -> int:
    """Keep a snapshot, and let the WAL begin at the one before it; older ones and the entries below go. How many entries went.

    Nothing is done where the WAL begins behind it already (a state was installed meanwhile).
    """
    if not held.state.snapshot_index < snapshot.index <= held.state.applied_index:
        return 0
    held.cursor.execute(PUT, (snapshot.index, snapshot.term, snapshot.chain, snapshot.state, snapshot.digest))
    held.changed = True
    held.cursor.execute(BEFORE, (snapshot.index,))
    before = held.cursor.fetchone()
    if before is None:
        return 0
    held.cursor.execute(FORGET, (before[0],))
    return held.begin_log_at(before[0], before[1], bytes(before[2]))


def install(held: HeldWal, snapshot: Snapshot) -> None:
    """Put a snapshot in place of all metadata and of the whole WAL. The caller has raised the applied index to it in the same transaction.

    Raises:
        LogFaultError: the snapshot is not what its digest says.
    """
    state = snapshot.checked()
    held.begin_log_at(snapshot.index, snapshot.term, snapshot.chain)
    held.truncate(snapshot.index)
    for table in reversed(KEYS):
        held.cursor.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))
    for table in KEYS:
        _insert(held.cursor, table, state.tables[table])
    held.cursor.execute(SET_CLUSTER, (state.cluster_id,))
    held.state = replace(held.state, cluster_id=state.cluster_id)
    held.cursor.execute(FORGET_ALL)
    held.cursor.execute(PUT, (snapshot.index, snapshot.term, snapshot.chain, snapshot.state, snapshot.digest))


def _insert(cursor: Any, table: str, rows: list[Row]) -> None:
    if not rows:
        return
    names = list(rows[0])
    statement = sql.SQL("INSERT INTO {} ({}) VALUES %s").format(sql.Identifier(table), sql.SQL(", ").join(map(sql.Identifier, names)))
    values = [[psycopg2.extras.Json(row[name]) if isinstance(row[name], (dict, list)) else row[name] for name in names] for row in rows]
    psycopg2.extras.execute_values(cursor, statement, values, page_size=ROWS_MAX)
