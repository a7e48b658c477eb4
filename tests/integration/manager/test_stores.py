"""The WAL and the metadata in SQL: the log rules under the row lock, and ``apply`` over tables equal to ``apply`` over dictionaries."""

from __future__ import annotations

import json
from collections.abc import Iterator

import psycopg2
import pytest
import sqlalchemy

from db.engine import make_engine
from db.metadata_store import HeartbeatStore, MetadataStore
from db.replication import AppendRequest, Holder, Refusal
from db.transactions import transaction
from db.wal_store import DriverLock, WalStore
from manager.cluster import commands as c
from manager.cluster.memory import MemoryMetadata
from manager.cluster.state import apply
from manager.node.role import FixedRole
from manager.node.wal import Answered, Placed, Proposal, Wal
from myqueue.errors import (
    BadRequestError,
    ConfigurationError,
    DuplicateSequenceError,
    NotLeaderError,
    OutcomeUnknownError,
    OverloadedError,
    UnavailableError,
)
from myqueue.protocol.chain import GENESIS, wal_chain
from tests.support.metadata import DATABASE, DISKS, LOG, NOW
from tests.support.waiting import wait_until

LEADER, FOLLOWER = FixedRole(1, 1), FixedRole(2, 1)


@pytest.fixture
def engine(manager_database: str) -> Iterator[sqlalchemy.Engine]:
    engine = make_engine(manager_database, application_name="tests", pool_size=2, pool_wait_seconds=0.2)
    yield engine
    engine.dispose()


@pytest.fixture
def store(engine: sqlalchemy.Engine) -> WalStore:
    return WalStore(engine)


@pytest.fixture
def leader(store: WalStore) -> Wal:
    """A write manager that is the only voter."""
    wal = Wal(store, LEADER)
    disk_id = wal.begin_term().disk_id
    wal.propose([Proposal(c.InitCluster("6c6f6700-0000-4000-8000-000000000001", (c.Member(1, "http://127.0.0.1:1", disk_id),)), None, None)])
    alone(wal)
    return wal


def alone(wal: Wal) -> object:
    return wal.advance(lambda own: {1: own})


def topic(name: str, seq: int, client: str = "client") -> Proposal:
    return Proposal(c.CreateTopic(name, created_at=NOW, live_brokers=(1,)), client, seq)


def test_nothing_comes_before_the_voters_are_named(store: WalStore):
    """A broker may knock before the cluster is founded: an entry before ``init_cluster`` could never be committed."""
    wal = Wal(store, LEADER)
    wal.begin_term()
    with pytest.raises(UnavailableError, match="not initialised yet"):
        wal.propose([topic("early", 1)])
    with store.reading() as held:
        assert held.log.end == 0


def test_sql_folds_to_the_same_tables_and_answers_as_memory(store: WalStore):
    """One log through the tables and through dictionaries: equal replies after each command, equal rows at the end."""
    memory = MemoryMetadata()
    with store.locked() as held:
        for command in LOG:
            command = c.from_json(json.loads(json.dumps(c.to_json(command))))
            expected, found = apply(memory, command), apply(held.metadata, command)
            assert (expected.reply, expected.events) == (found.reply, found.events)
            memory.write(expected.changes)
            held.metadata.write(found.changes)
            assert dict(memory.leader_counts()) == dict(held.metadata.leader_counts())
        for table, rows in memory.tables.items():
            if table != "raft_state":
                key = lambda row: json.dumps(row, sort_keys=True)  # noqa: E731
                assert sorted(rows.values(), key=key) == sorted(held.metadata.find(table), key=key), table
        assert held.metadata.get("raft_state", only_row=True)["cluster_id"] == LOG[0].cluster_id


def test_a_command_is_applied_once_with_its_session(leader: Wal, store: WalStore):
    proposal = topic("x", 1)
    [placed] = leader.propose([proposal])
    assert isinstance(placed, Placed)
    assert leader.answer(placed, proposal) is None
    alone(leader)
    answered = leader.answer(placed, proposal)
    assert answered == Answered(placed.index, answered.reply)
    assert answered.reply["error"]["code"] == "unavailable"  # no broker: a recorded rejection
    assert store.state().applied_index == store.state().commit_index == placed.index


def test_the_same_proposal_again_is_not_made_again(leader: Wal, store: WalStore):
    """Before it is applied it is named where it stands, afterwards with its answer, in the same group too."""
    first, again = leader.propose([topic("x", 1), topic("x", 1)])
    assert first == again == leader.propose([topic("x", 1)])[0]
    alone(leader)
    [answered] = leader.propose([topic("x", 1)])
    assert isinstance(answered, Answered)
    with store.reading() as held:
        assert held.log.end == first.index


def test_a_sequence_below_the_session_s_is_refused(leader: Wal):
    leader.propose([topic("x", 2)])
    alone(leader)
    assert isinstance(leader.propose([topic("x", 1)])[0], DuplicateSequenceError)


@pytest.mark.parametrize("config", [{"a": 1.5}, {"a": "x\0y"}, {"a": "\ud800"}])
def test_what_cannot_be_stored_is_refused_and_the_others_of_its_group_are_not(leader: Wal, config: dict):
    bad = Proposal(c.CreateTopic("bad", config=config, created_at=NOW), "other", 1)
    refused, placed = leader.propose([bad, topic("x", 1)])
    assert isinstance(refused, BadRequestError)
    assert isinstance(placed, Placed)


def test_a_backslash_before_u0000_is_no_nul(leader: Wal):
    [placed] = leader.propose([Proposal(c.CreateTopic("fine", config={"a": "\\u0000"}, created_at=NOW), "client", 1)])
    assert isinstance(placed, Placed)


def test_a_read_manager_does_not_propose(store: WalStore):
    with pytest.raises(NotLeaderError):
        Wal(store, FOLLOWER).propose([topic("x", 1)])


def test_nothing_is_committed_without_a_majority(store: WalStore):
    """Three voters: the leader's own disk is not enough, another one is, a disk that is not registered counts for nothing."""
    wal = Wal(store, LEADER)
    disk_id = wal.begin_term().disk_id
    members = (c.Member(1, "http://h:1", disk_id), c.Member(2, "http://h:2", DISKS[2]), c.Member(3, "http://h:3", DISKS[3]))
    wal.propose([Proposal(c.InitCluster("cluster", members), None, None)])
    assert wal.advance(lambda own: {1: own}).commit_index == 0
    assert wal.advance(lambda own: {1: own, 2: Holder(DISKS[7], 1)}).commit_index == 0
    assert wal.advance(lambda own: {1: own, 2: Holder(DISKS[2], 1)}).applied_index == 1


def test_a_follower_takes_whole_chains_once_and_applies_what_is_committed(store: WalStore, leader: Wal, postgres):
    """Repeats change nothing, a broken chain and another history are refused, the tables come out equal."""
    leader.propose([topic("x", 1), Proposal(c.AddBroker(DISKS[4], "127.0.0.1", 1, DATABASE), "b", 1), topic("y", 1, "z")])
    alone(leader)
    with store.reading() as held:
        entries, commit = tuple(held.log.entries(0, held.log.end)), held.state.commit_index
    with postgres.database("manager") as url:
        engine = make_engine(url, application_name="tests", pool_size=2)
        follower_store = WalStore(engine)
        follower = Wal(follower_store, FOLLOWER)
        request = AppendRequest(epoch=1, position=0, prev_epoch=0, entries=entries, commit=commit)
        for _ in range(2):
            reply, _ = follower.append(request)
            assert (reply.matched, reply.disk_id) == (len(entries), follower_store.state().disk_id)
        reply, _ = follower.append(AppendRequest(epoch=1, position=9, prev_epoch=1, entries=(), commit=commit))
        assert (reply.refusal, reply.hint.next) == (Refusal.NO_MATCH, len(entries))
        reply, _ = follower.append(AppendRequest(epoch=1, position=0, prev_epoch=0, entries=(entries[1],), commit=0))
        assert (reply.matched, reply.refusal) == (None, Refusal.BROKEN_CHAIN)
        assert follower.apply_committed().applied_index == commit
        assert follower.apply_committed().results == ()
        rows, theirs = MetadataStore(store._engine).catalogue(), MetadataStore(engine).catalogue()
        assert (rows.topics, rows.brokers, rows.partitions) == (theirs.topics, theirs.brokers, theirs.partitions)
        assert follower_store.state().current_term == 1
        engine.dispose()


def test_the_chain_is_the_published_one(leader: Wal, store: WalStore):
    leader.propose([topic("x", 1)])
    chain = GENESIS
    with store.reading() as held:
        for entry in held.log.entries(0, held.log.end):
            chain = wal_chain(chain, index=entry.index, term=entry.term, command=entry.command, client_id=entry.client_id,
                              client_seq=entry.client_seq)
            assert chain == entry.chain


def test_a_database_keeps_its_node(store: WalStore):
    assert store.claim(2).node_id == 2
    with pytest.raises(ConfigurationError, match="belongs to manager 2"):
        store.claim(3)


def test_one_driver_at_a_time(manager_database: str):
    engines = [make_engine(manager_database, application_name="tests", pool_size=1) for _ in range(2)]
    one, two = map(DriverLock, engines)
    assert (one.held(), two.held(), one.held()) == (True, False, True)
    one.release()
    wait_until(two.held, what="the server to notice that the first one is gone")
    two.release()
    for engine in engines:
        engine.dispose()


def test_a_lost_connection_is_unavailable_and_during_commit_unknown(engine: sqlalchemy.Engine, manager_database: str):
    """The server ends our connection: in a statement nothing was done, in COMMIT nobody knows; the next transaction works."""

    def end(cursor: object) -> None:
        cursor.execute("SELECT pg_backend_pid()")
        pid = cursor.fetchone()[0]
        other = psycopg2.connect(manager_database)
        with other, other.cursor() as killer:
            killer.execute("SELECT pg_terminate_backend(%s, 2000)", (pid,))
        other.close()

    with pytest.raises(UnavailableError, match="cannot answer now"), transaction(engine) as cursor:
        end(cursor)
        cursor.execute("SELECT 1")
    with pytest.raises(OutcomeUnknownError), transaction(engine) as cursor:
        end(cursor)
    with transaction(engine) as cursor:
        cursor.execute("SELECT 1")


def test_a_pool_without_a_free_connection_is_overload(engine: sqlalchemy.Engine):
    with transaction(engine), transaction(engine), pytest.raises(OverloadedError), transaction(engine):
        pass


def test_heartbeats_never_go_back(engine: sqlalchemy.Engine):
    heartbeats = HeartbeatStore(engine)
    heartbeats.record([("broker", 1, 2.0), ("producer", 1, 200_000.0)])
    heartbeats.record([("broker", 1, 60.0)])
    [row] = heartbeats.rows(["broker"])
    assert 2.0 <= row.age_seconds < 30.0
    heartbeats.forget_clients(86_400.0)
    assert heartbeats.rows(["producer"]) == []
