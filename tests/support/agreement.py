"""Whether managers agree: the same end of the log, the same entries where two hold them, the same tables, equal digests of snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import psycopg2

from myqueue.protocol.metadata_state import KEYS
from tests.support.managers import ManagerProcess
from tests.support.waiting import wait_until

WAL = "SELECT index, term, command::text, client_id, client_seq, encode(chain, 'hex') FROM wal ORDER BY index"
STATE = "SELECT applied_index, commit_index, snapshot_index FROM raft_state"
SNAPSHOTS = "SELECT index, encode(digest, 'hex'), sha256(convert_to(state, 'UTF8')) = digest FROM snapshot ORDER BY index"
SETTLE_SECONDS = 30.0


@dataclass(frozen=True)
class Kept:
    """What one manager has on disk."""

    applied: int
    commit: int
    start: int
    wal: dict[int, tuple]
    tables: dict[str, list[str]]
    snapshots: dict[int, str]

    @property
    def end(self) -> int:
        return max(self.wal, default=self.start)


def kept(manager: ManagerProcess) -> Kept:
    """All of it as of one moment."""
    with closing(psycopg2.connect(manager.database_url, connect_timeout=5)) as connection, connection.cursor() as cursor:
        connection.set_session(isolation_level="REPEATABLE READ", readonly=True)

        def rows(statement: str) -> list[tuple]:
            cursor.execute(statement)
            return cursor.fetchall()

        [(applied, commit, start)] = rows(STATE)
        snapshots = rows(SNAPSHOTS)
        assert all(whole for _, _, whole in snapshots), f"manager {manager.node_id} keeps a snapshot that does not match its digest"
        return Kept(applied, commit, start, {row[0]: row for row in rows(WAL)},
                    {table: sorted(row[0] for row in rows(f"SELECT t::text FROM {table} AS t")) for table in KEYS},
                    {index: digest for index, digest, _ in snapshots})


def assert_agreed(managers: Sequence[ManagerProcess]) -> list[Kept]:
    """Wait until every manager has applied all of one log, then compare them."""
    found: list[Kept] = []

    def settled() -> bool:
        found[:] = [kept(manager) for manager in managers]
        return len({(one.applied, one.commit, one.end) for one in found}) == 1 and found[0].applied == found[0].end

    wait_until(settled, timeout_seconds=SETTLE_SECONDS, what="every manager to apply all of one log")
    first = found[0]
    for manager, one in zip(managers, found, strict=True):
        assert sorted(one.wal) == list(range(one.start + 1, one.end + 1)), f"the WAL of manager {manager.node_id} has gaps"
        assert one.start == 0 or one.start in one.snapshots, f"the WAL of manager {manager.node_id} begins behind no snapshot"
        for held, other, what in ((one.wal, first.wal, "entries"), (one.snapshots, first.snapshots, "snapshots")):
            shared = sorted(held.keys() & other.keys())
            assert [held[index] for index in shared] == [other[index] for index in shared], f"the {what} of manager {manager.node_id} differ"
        assert one.tables == first.tables, f"the tables of manager {manager.node_id} differ"
    return found
