"""Fills a manager's database with commands by the managers' own code: placed in the WAL, committed, applied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from db.engine import make_engine
from db.snapshots import Snapshot, keep, view_of_state
from db.wal import WalEntry
from db.wal_store import WalStore
from manager.cluster import commands
from manager.cluster.state import apply
from myqueue.protocol.chain import wal_chain


def fill_wal(url: str, log: Sequence[commands.Command], *, term: int = 1) -> None:
    """Append the commands to the WAL and apply them, in one transaction."""
    engine = make_engine(url, application_name="tests", pool_size=1)
    try:
        with WalStore(engine).locked() as held:
            chain = held.log.chain_at(held.log.end - 1) if held.log.end else held.state.snapshot_chain
            entries = []
            for index, command in enumerate(log, held.log.end + 1):
                body = commands.to_json(command)
                chain = wal_chain(chain, index=index, term=term, command=body, client_id=None, client_seq=None)
                entries.append(WalEntry(index, term, body, None, None, chain))
            held.append(entries)
            for command in log:
                held.metadata.write(apply(held.metadata, command).changes)
            held.write_state(replace(held.state, commit_index=entries[-1].index, applied_index=entries[-1].index))
    finally:
        engine.dispose()


def take_snapshot(url: str) -> Snapshot:
    """As the driver takes one: of the applied index, kept, with the WAL beginning at the one before."""
    engine = make_engine(url, application_name="tests", pool_size=1)
    try:
        store = WalStore(engine)
        with view_of_state(store) as view:
            snapshot = Snapshot.of(view.read())
        with store.locked() as held:
            keep(held, snapshot)
        return snapshot
    finally:
        engine.dispose()
