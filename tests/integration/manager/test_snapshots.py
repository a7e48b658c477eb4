"""Snapshots in SQL: taken, kept with a tail of the WAL, and put in place of another manager's metadata, all or nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from db.engine import make_engine
from db.replication import OfferedStart
from db.snapshots import Snapshot, keep, newest, view_of_state
from db.transactions import transaction
from db.wal import RaftState
from db.wal_store import WalStore
from manager.cluster import commands as c
from manager.node.snapshots import StateOrder, offer_from_json, offer_of, offer_to_json
from manager.raft.log import Proposal
from manager.raft.messages import InstallSnapshot
from myqueue.errors import LogFaultError
from myqueue.protocol.metadata_state import KEYS, MetadataState, state_to_text
from tests.support.metadata import DATABASE, DISKS, LOG, NOW
from tests.support.wal_desk import WalDesk

OF_THIS_MANAGER = {"raft_state", "wal", "snapshot", "heartbeat", "member_request"}  # not folded from the log
APPLIED = [command for command in LOG if isinstance(command, (c.AddBroker, c.CreateTopic, c.RegisterProducers, c.RegisterConsumers, c.DeleteTopic))]


@pytest.fixture
def stores(postgres) -> Iterator[tuple[WalStore, WalStore]]:
    """Two managers' databases."""
    with ExitStack() as stack:
        engines = [make_engine(stack.enter_context(postgres.database("manager")), application_name="tests", pool_size=2) for _ in range(2)]
        for engine in engines:
            stack.callback(engine.dispose)
        yield WalStore(engines[0]), WalStore(engines[1])


@pytest.fixture
def leader(stores: tuple[WalStore, WalStore]) -> WalDesk:
    """The only voter, with something of everything in its tables."""
    desk = WalDesk(stores[0])
    desk.lead_alone()
    for seq, command in enumerate(APPLIED, 1):
        desk.wal.propose([Proposal(c.to_json(command), f"client-{seq % 3}", seq)])
    desk.advance()
    desk.advance()
    return desk


def more(desk: WalDesk, *numbers: int) -> None:
    for number in numbers:
        desk.wal.propose([Proposal(c.to_json(c.AddBroker(DISKS[7], "127.0.0.1", 9_000 + number, DATABASE)), "more", number)])
    desk.advance()
    desk.advance()


def state(store: WalStore) -> MetadataState:
    with view_of_state(store) as view:
        return view.read()


def text(store: WalStore) -> str:
    return state_to_text(state(store))


def take(store: WalStore) -> Snapshot:
    snapshot = Snapshot.of(state(store))
    with store.locked() as held:
        keep(held, snapshot)
    return snapshot


def raft_state(store: WalStore) -> RaftState:
    return store.state()


def kept(store: WalStore) -> tuple[list[int], list[int]]:
    """The indexes of snapshots and of entries."""
    with transaction(store._engine) as cursor:
        cursor.execute("SELECT array(SELECT index FROM snapshot ORDER BY 1), array(SELECT index FROM wal ORDER BY 1)")
        return cursor.fetchone()


def test_the_wal_begins_at_the_snapshot_before_the_last_one(leader: WalDesk, stores):
    """So the entries between the two stay, and everything that looks at the log finds its start."""
    store = stores[0]
    first = take(store)
    assert ([first.index], list(range(1, first.index + 1))) == kept(store)
    more(leader, 1, 2, 3)
    second = take(store)
    assert ([first.index, second.index], [first.index + 1, first.index + 2, first.index + 3]) == kept(store)
    found = raft_state(store)
    assert (first.index, first.term, first.chain) == (found.snapshot_index, found.snapshot_term, found.snapshot_chain)
    more(leader, 4)
    third = take(store)
    assert ([second.index, third.index], [third.index]) == kept(store)
    with store.reading() as held:
        assert (second.index, third.index) == (held.log.start, held.log.end)
        assert third == newest(held)
    more(leader, 5)
    assert third.index + 1 == raft_state(store).applied_index


def test_keeping_the_same_or_an_older_snapshot_again_changes_nothing(leader: WalDesk, stores):
    first = take(stores[0])
    more(leader, 1)
    take(stores[0])
    before = kept(stores[0])
    with stores[0].locked() as held:
        assert 0 == keep(held, first)
    take(stores[0])
    assert before == kept(stores[0])


def test_every_table_that_is_folded_is_in_a_state(stores):
    """A table that a later migration adds is either of this manager alone, or belongs into the state (and its format changes)."""
    with transaction(stores[0]._engine) as cursor:
        cursor.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' AND table_type = 'BASE TABLE'")
        tables = {row[0] for row in cursor.fetchall() if "migration" not in row[0]}
    assert set(KEYS) | OF_THIS_MANAGER == tables


def offered(leader: WalDesk, store: WalStore) -> InstallSnapshot:
    """As it arrives at the other manager."""
    offer = offer_of(store, StateOrder(2, leader.node.term, 5))
    assert offer is not None
    return offer_from_json(offer_to_json(offer))


def test_a_state_is_taken_in_place_of_an_empty_one(leader: WalDesk, stores):
    """The same text with the same digest, the tables equal to the leader's, the log beginning there; the rest comes by appends."""
    take(stores[0])
    more(leader, 1)
    snapshot = take(stores[0])
    other = WalDesk(stores[1], node_id=2)
    before = raft_state(stores[1])
    reply = other.wal.handle(offered(leader, stores[0]))
    assert (reply.matched, reply.round, reply.disk_id) == (snapshot.index, 5, before.disk_id)
    assert text(stores[0]) == text(stores[1])
    assert ([snapshot.index], []) == kept(stores[1])
    after = raft_state(stores[1])
    assert (snapshot.index, snapshot.index, snapshot.index) == (after.applied_index, after.commit_index, after.snapshot_index)
    assert (snapshot.chain, raft_state(stores[0]).cluster_id, 2) == (after.snapshot_chain, after.cluster_id, after.node_id)
    again = other.wal.handle(offered(leader, stores[0]))
    assert (again.matched, after) == (snapshot.index, raft_state(stores[1]))


def test_a_state_replaces_a_log_that_is_behind(leader: WalDesk, stores):
    """What it had is gone as a whole: rows, entries and snapshots."""
    other = WalDesk(stores[1], node_id=2)
    other.found({})
    other.tick()
    take(stores[0])
    more(leader, 1)
    take(stores[0])
    offer = dataclasses.replace(offered(leader, stores[0]), term=9)
    other.wal.handle(offer)
    assert text(stores[0]) == text(stores[1])
    assert (9, None) == (raft_state(stores[1]).current_term, raft_state(stores[1]).voted_for)


def test_a_state_that_is_not_what_it_says_changes_nothing(leader: WalDesk, stores):
    take(stores[0])
    offer = offered(leader, stores[0])
    other = WalDesk(stores[1], node_id=2)
    before = raft_state(stores[1])
    wrong = Snapshot.of(dataclasses.replace(offer.state.checked(), index=offer.start.position + 1))
    with pytest.raises(LogFaultError):
        other.wal.handle(dataclasses.replace(offer, state=dataclasses.replace(offer.state, state=wrong.state, digest=wrong.digest)))
    with pytest.raises(LogFaultError, match="digest"):
        other.wal.handle(dataclasses.replace(offer, state=dataclasses.replace(offer.state, digest=bytes(32))))
    assert (before, ([], [])) == (raft_state(stores[1]), kept(stores[1]))


def test_who_takes_a_state_that_says_its_disk_is_lost_is_another_disk(leader: WalDesk, stores):
    """As if it had applied the command itself; and it answers as that disk."""
    other = WalDesk(stores[1], node_id=2)
    take(stores[0])
    offer = offered(leader, stores[0])
    known = offer.state.checked()
    lost = {**known.tables, "member": [*known.tables["member"], {"node_id": 2, "url": "http://127.0.0.1:2", "disk_id": None, "voter": False}]}
    snapshot = Snapshot.of(dataclasses.replace(known, tables=lost))
    reply = other.wal.handle(dataclasses.replace(offer, state=snapshot))
    assert other.disk_id != raft_state(stores[1]).disk_id == reply.disk_id


def test_only_the_leader_of_the_term_offers_its_state(leader: WalDesk, stores):
    """Another term's rounds are counted anew: an answer to an old offer would confirm reads that it cannot."""
    snapshot = take(stores[0])
    term = leader.node.term
    assert offer_of(stores[0], StateOrder(2, term, 1)) == InstallSnapshot(
        term, 1, OfferedStart(snapshot.index, snapshot.term, snapshot.chain), snapshot, 1)
    assert None is offer_of(stores[0], StateOrder(2, term + 1, 1))
    assert None is offer_of(stores[1], StateOrder(2, term, 1))


def test_ten_thousand_partitions_fit_well_into_a_message(leader: WalDesk, stores):
    """Taken, sent and given back in a second or two, with much room left."""
    command = c.CreateTopic("big", partitions=10_000, replication_factor=1, created_at=NOW, live_brokers=(1, 2))
    leader.wal.propose([Proposal(c.to_json(command), "big", 1)])
    leader.advance()
    leader.advance()
    snapshot = take(stores[0])
    offer = offer_to_json(offer_of(stores[0], StateOrder(2, leader.node.term, 5)))
    assert 10_000 <= snapshot.state.count('"learners"')
    assert len(offer["state"]["deflated"]) < (8 << 20) / 8
    WalDesk(stores[1], node_id=2).wal.handle(offer_from_json(offer))
    assert snapshot == Snapshot.of(state(stores[1]))
