"""The WAL and the metadata in SQL: the log rules under the row lock, and ``apply`` over tables equal to ``apply`` over dictionaries."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator

import psycopg2
import pytest
import sqlalchemy

from db import wal_store
from db.engine import make_engine
from db.metadata_store import HeartbeatStore, MetadataStore
from db.replication import AppendReply, AppendRequest, Refusal
from db.transactions import transaction
from db.wal import WalEntry
from db.wal_store import DriverLock, WalStore
from manager.cluster import commands as c
from manager.cluster.memory import MemoryMetadata
from manager.cluster.state import apply
from manager.node.wal import Answered, Placed
from manager.raft.log import Proposal
from manager.raft.messages import Append, VoteRequest
from manager.raft.proposal import Outcome
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
from tests.support.wal_desk import WalDesk


@pytest.fixture
def engine(manager_database: str) -> Iterator[sqlalchemy.Engine]:
    engine = make_engine(manager_database, application_name="tests", pool_size=2, pool_wait_seconds=0.2)
    yield engine
    engine.dispose()


@pytest.fixture
def store(engine: sqlalchemy.Engine) -> WalStore:
    return WalStore(engine)


@pytest.fixture
def leader(store: WalStore) -> WalDesk:
    """A write manager that is the only voter."""
    desk = WalDesk(store)
    desk.lead_alone()
    return desk


def topic(name: str, seq: int, client: str = "client") -> Proposal:
    return proposal(c.CreateTopic(name, created_at=NOW, live_brokers=(1,)), client, seq)


def proposal(command: c.Command, client: str, seq: int) -> Proposal:
    return Proposal(c.to_json(command), client, seq)


def test_nothing_comes_before_the_voters_are_named(store: WalStore):
    """A broker may knock before the cluster is founded: an entry before ``init_cluster`` could never be committed."""
    with pytest.raises(NotLeaderError):
        WalDesk(store).wal.propose([topic("early", 1)])
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


def test_a_command_is_applied_once_with_its_session(leader: WalDesk, store: WalStore):
    wanted = topic("x", 1)
    [placed] = leader.wal.propose([wanted])
    assert isinstance(placed, Placed)
    assert leader.wal.look(placed, wanted) is Outcome.WAITING
    leader.advance()
    answered = leader.wal.look(placed, wanted)
    assert answered == Answered(placed.index, answered.reply)
    assert answered.reply["error"]["code"] == "unavailable"  # no broker: a recorded rejection
    assert store.state().applied_index == store.state().commit_index == placed.index


def test_the_same_proposal_again_is_not_made_again(leader: WalDesk, store: WalStore):
    """Before it is applied it is named where it stands, afterwards with its answer, in the same group too."""
    first, again = leader.wal.propose([topic("x", 1), topic("x", 1)])
    assert first == again == leader.wal.propose([topic("x", 1)])[0]
    leader.advance()
    [answered] = leader.wal.propose([topic("x", 1)])
    assert isinstance(answered, Answered)
    with store.reading() as held:
        assert held.log.end == first.index


def test_a_sequence_below_the_session_s_is_refused(leader: WalDesk):
    leader.wal.propose([topic("x", 2)])
    leader.advance()
    assert isinstance(leader.wal.propose([topic("x", 1)])[0], DuplicateSequenceError)


@pytest.mark.parametrize("config", [{"a": 1.5}, {"a": "x\0y"}, {"a": "\ud800"}])
def test_what_cannot_be_stored_is_refused_and_the_others_of_its_group_are_not(leader: WalDesk, config: dict):
    bad = proposal(c.CreateTopic("bad", config=config, created_at=NOW), "other", 1)
    refused, placed = leader.wal.propose([bad, topic("x", 1)])
    assert isinstance(refused, BadRequestError)
    assert isinstance(placed, Placed)


def test_a_backslash_before_u0000_is_no_nul(leader: WalDesk):
    [placed] = leader.wal.propose([proposal(c.CreateTopic("fine", config={"a": "\\u0000"}, created_at=NOW), "client", 1)])
    assert isinstance(placed, Placed)


def test_a_read_manager_does_not_propose(store: WalStore):
    with pytest.raises(NotLeaderError):
        WalDesk(store).wal.propose([topic("x", 1)])


def test_nothing_is_committed_without_a_majority(store: WalStore):
    """Three voters: the leader's own disk is not enough, a disk that is not registered counts for nothing, another voter's is enough."""
    desk = WalDesk(store)
    desk.found({2: DISKS[2], 3: DISKS[3]})
    desk.tick()
    desk.tick()
    desk.grant(2, DISKS[2])
    desk.grant(2, DISKS[2])
    assert store.state().leading

    assert desk.advance().commit_index == 0
    append = desk.ready.send[0].message.request

    def acknowledged(disk_id: str) -> int:
        reply = AppendReply(append.epoch, disk_id, append.position, append.round, matched=store_end(store))
        return desk.take(lambda held: desk.node.step(held, 2, reply, now=desk.now)).commit_index

    assert acknowledged(DISKS[7]) == 0
    assert acknowledged(DISKS[2]) == 2


def store_end(store: WalStore) -> int:
    with store.reading() as held:
        return held.log.end


def test_a_vote_and_a_higher_term_are_on_disk_and_end_a_leadership(leader: WalDesk, store: WalStore):
    """Who asks with a log as good gets the vote once; the old leader takes no proposal any more, in any process."""
    term = store.state().current_term
    request = VoteRequest(term + 1, 2, term, store_end(store))
    assert leader.wal.handle(request).granted
    assert leader.wal.handle(request).granted
    assert not leader.wal.handle(dataclasses.replace(request, candidate=3)).granted
    state = store.state()
    assert (state.current_term, state.voted_for, state.leading) == (term + 1, 2, False)
    with pytest.raises(NotLeaderError):
        leader.wal.propose([topic("x", 1)])


def test_a_placed_command_that_another_leader_replaced_is_unknown(leader: WalDesk, store: WalStore):
    """Its answer is neither yes nor no: the same name is asked for again at the new leader."""
    wanted = topic("x", 1)
    [placed] = leader.wal.propose([wanted])
    with store.reading() as held:
        before = held.log.between(0, placed.index - 1)[-1]
    noop = entry_behind(before, placed.term + 1)
    reply = leader.wal.handle(Append(2, AppendRequest(placed.term + 1, before.index, before.term, (noop,), noop.index)))
    assert reply.matched == noop.index
    assert leader.wal.look(placed, wanted) is Outcome.UNKNOWN


def entry_behind(before: WalEntry, term: int) -> WalEntry:
    noop = WalEntry(before.index + 1, term, {"type": "noop"}, None, None, b"")
    return dataclasses.replace(noop, chain=noop.chain_after(before.chain))


def test_a_decision_that_changes_nothing_writes_nothing(leader: WalDesk, engine: sqlalchemy.Engine):
    """A heartbeat costs no wait for the disk: its transaction is rolled back."""
    version = "SELECT xmin::text, ctid::text FROM raft_state"
    before = rows_of(engine, version)
    for _ in range(3):
        leader.advance()
    assert rows_of(engine, version) == before


def rows_of(engine: sqlalchemy.Engine, statement: str) -> list[tuple]:
    with transaction(engine) as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


def test_reading_the_log_is_bounded_by_bytes_and_gives_one_entry_at_least(leader: WalDesk, store: WalStore, monkeypatch: pytest.MonkeyPatch):
    """What does not fit into one append goes with the next one."""
    first = store_end(store)
    leader.wal.propose([topic(f"t{number}", number) for number in range(1, 6)])
    with store.reading() as held:
        size = max(len(json.dumps(entry.command)) for entry in held.log.between(first, first + 5))
        monkeypatch.setattr(wal_store, "BETWEEN_BYTES_MAX", 2 * size + 20)
        assert [entry.index for entry in held.log.between(first, first + 5)] == [first + 1, first + 2]
        monkeypatch.setattr(wal_store, "BETWEEN_BYTES_MAX", 1)
        assert [entry.index for entry in held.log.between(first, first + 5)] == [first + 1]


def test_a_follower_takes_whole_chains_once_and_applies_what_is_committed(store: WalStore, leader: WalDesk, postgres):
    """Repeats change nothing, a broken chain and another history are refused, the tables come out equal."""
    leader.wal.propose([topic("x", 1), proposal(c.AddBroker(DISKS[4], "127.0.0.1", 1, DATABASE), "b", 1), topic("y", 1, "z")])
    leader.advance()
    with store.reading() as held:
        entries, state = tuple(held.log.between(0, held.log.end)), held.state
    with postgres.database("manager") as url:
        engine = make_engine(url, application_name="tests", pool_size=2)
        follower_store = WalStore(engine)
        follower = WalDesk(follower_store, 2)
        term, commit = state.current_term, state.commit_index
        request = AppendRequest(epoch=term, position=0, prev_epoch=0, entries=entries, commit=commit)
        for _ in range(2):
            reply = follower.wal.handle(Append(1, request))
            assert (reply.matched, reply.disk_id) == (len(entries), follower_store.state().disk_id)
        reply = follower.wal.handle(Append(1, AppendRequest(epoch=term, position=9, prev_epoch=1, entries=(), commit=commit)))
        assert (reply.refusal, reply.hint.next) == (Refusal.NO_MATCH, len(entries))
        reply = follower.wal.handle(Append(1, AppendRequest(epoch=term, position=0, prev_epoch=0, entries=(entries[1],), commit=0)))
        assert (reply.matched, reply.refusal) == (None, Refusal.BROKEN_CHAIN)
        assert follower.advance().applied_index == commit
        assert follower.advance().results == ()
        rows, theirs = MetadataStore(store._engine).catalogue(), MetadataStore(engine).catalogue()
        assert (rows.topics, rows.brokers, rows.partitions) == (theirs.topics, theirs.brokers, theirs.partitions)
        assert follower_store.state().current_term == term
        engine.dispose()


def test_the_chain_is_the_published_one(leader: WalDesk, store: WalStore):
    leader.wal.propose([topic("x", 1)])
    chain = GENESIS
    with store.reading() as held:
        for entry in held.log.between(0, held.log.end):
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
