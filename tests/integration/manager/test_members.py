"""Who belongs to the managers, on real processes and PostgreSQL: disks that were emptied or put back from a backup, managers that come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg2
import pytest
import requests
from psycopg2 import sql

from db.engine import libpq_url, make_engine
from db.migrate import migrate
from db.wal_store import WalStore
from manager.raft.messages import VoteRequest
from myqueue.supervisor.ports import PortKeeper
from tests.support.managers import ManagerCluster, ManagerProcess, manager_cluster
from tests.support.waiting import wait_until
from tests.support.wal_desk import WalDesk

FLAGS = ("--heartbeat-interval-seconds", "0.2")
TERMS = 40
ASKING = 4  # at once, each over connections of its own
TABLES = ("wal", "member", "broker", "topic", "partition", "producer", "consumer", "id_counter", "client_session")


@pytest.fixture
def cluster(postgres) -> Iterator[ManagerCluster]:
    """Three managers that a test may harm."""
    with manager_cluster(postgres, flags=FLAGS) as cluster:
        cluster.start()
        yield cluster


# --- looking ---


def query(database_url: str, statement: str) -> list[tuple]:
    with closing(psycopg2.connect(libpq_url(database_url), connect_timeout=5)) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


def listens(manager: ManagerProcess) -> bool:
    try:
        return requests.get(f"{manager.url}/livez", timeout=2).status_code == 200
    except requests.RequestException:
        return False


def disk_of(manager: ManagerProcess) -> str:
    return query(manager.database_url, "SELECT disk_id::text FROM raft_state")[0][0]


def members(manager: ManagerProcess) -> dict[int, dict[str, Any]]:
    return {one["node_id"]: one for one in manager.get("/v1/managers").json()["managers"]}


def votes_with(asked: ManagerProcess, node_id: int, disk_id: str) -> Callable[[], bool]:
    """Whether a manager knows of another one that it votes with this disk."""
    return lambda: (found := members(asked).get(node_id, {})).get("voter") is True and found["disk_id"] == disk_id


def acknowledges(manager: ManagerProcess) -> bool:
    """Whether a command is committed now: a registration that needs no broker, refused by the fold, which a majority must have first."""
    return manager.post("/consumer/register", {"topic": "no-such-topic"}).status_code == 400


def check_same(cluster: ManagerCluster) -> None:
    """Every manager has the same log and the same tables."""
    urls = [manager.database_url for manager in cluster.managers]
    state = "SELECT commit_index, applied_index, (SELECT max(index) FROM wal) FROM raft_state"
    wait_until(lambda: len({position for url in urls for position in query(url, state)[0]}) == 1, what="all managers to have applied all of one log")
    for table in TABLES:
        first, *more = [query(url, f"SELECT one::text FROM {table} AS one ORDER BY 1") for url in urls]
        assert all(rows == first for rows in more), table


# --- harming ---


@contextmanager
def administering(postgres: Any) -> Iterator[Callable[..., None]]:
    with closing(psycopg2.connect(libpq_url(postgres.admin_url), connect_timeout=5)) as connection:
        connection.autocommit = True

        def run(statement: str, *names: str) -> None:
            with connection.cursor() as cursor:
                cursor.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

        yield run


def name_of(database_url: str) -> str:
    return database_url.rpartition("/")[2]


def empty(postgres: Any, manager: ManagerProcess) -> None:
    """The same address, another disk: as if its machine had come back without the old one."""
    with administering(postgres) as run:
        run("DROP DATABASE {} WITH (FORCE)", name_of(manager.database_url))
        run("CREATE DATABASE {}", name_of(manager.database_url))
    engine = make_engine(manager.database_url, application_name="tests", pool_size=1)
    migrate(engine, "manager")
    engine.dispose()


@contextmanager
def backup_of(postgres: Any, manager: ManagerProcess) -> Iterator[Callable[[], None]]:
    """A copy of a stopped manager's database as it is now; the function puts it back."""
    name, copy = name_of(manager.database_url), f"{name_of(manager.database_url)}_backup"

    def put_back() -> None:
        with administering(postgres) as run:
            run("DROP DATABASE {} WITH (FORCE)", name)
            run("ALTER DATABASE {} RENAME TO {}", copy, name)

    with administering(postgres) as run:
        run("CREATE DATABASE {} TEMPLATE {}", copy, name)
    try:
        yield put_back
    finally:
        with administering(postgres) as run:
            run("DROP DATABASE IF EXISTS {} WITH (FORCE)", copy)


def lives_seen(cluster: ManagerCluster, disk_id: str, but: ManagerProcess) -> int:
    """The least that the other managers have seen of a disk's life number."""
    return min(query(manager.database_url, f"SELECT coalesce((lives->>'{disk_id}')::bigint, 0) FROM raft_state")[0][0]
               for manager in cluster.managers if manager is not but)


# --- the tests ---


@pytest.mark.timeout(150)
@pytest.mark.parametrize("harm", ["emptied", "put back from a backup"])
def test_a_disk_that_lost_what_it_held_counts_again_only_when_it_has_caught_up(cluster: ManagerCluster, postgres: Any, harm: str) -> None:
    """With one other manager away it is no majority, not even in an election; with that one back it is repaired without help, and then it counts."""
    lost, other = cluster.reads
    leader = cluster.write
    wait_until(lambda: acknowledges(leader), what="commands to be done")
    old = disk_of(lost)
    if harm == "emptied":
        lost.stop()
        empty(postgres, lost)
    else:
        lost.stop()
        with backup_of(postgres, lost) as put_back:
            known = query(lost.database_url, "SELECT life FROM raft_state")[0][0]
            lost.start()
            wait_until(lambda: lives_seen(cluster, old, lost) > known + 1, timeout_seconds=30, what="the life to go on")
            lost.stop()
            put_back()
        assert disk_of(lost) == old
    other.stop()
    wait_until(lambda: not acknowledges(leader), what="the leader to be alone")
    leader.stop()
    leader.start()  # so that it must be elected anew: the lost disk must not give it a vote
    lost.start()
    for manager in (leader, lost):
        wait_until(lambda manager=manager: listens(manager), timeout_seconds=20, what="an answer")
    for _ in range(3):
        assert not acknowledges(leader)
        assert not acknowledges(lost)
    assert cluster.leader() is None
    assert query(leader.database_url, "SELECT count(*) FROM wal WHERE command->>'type' IN ('set_member', 'disk_lost')") == [(0,)]

    other.start()
    wait_until(lambda: listens(other), timeout_seconds=20, what="the third manager")
    wait_until(lambda: disk_of(lost) != old and votes_with(other, lost.node_id, disk_of(lost))(), timeout_seconds=30, what="the new disk to vote")
    # Of the one that shows it: another one may get it some milliseconds later.
    commands = [command for command, in query(other.database_url, "SELECT command FROM wal WHERE command->>'type' = 'set_member' ORDER BY index")]
    told = [(one["node_id"], one["disk_id"], one["voter"]) for one in commands]
    assert told == [(lost.node_id, disk_of(lost), False), (lost.node_id, disk_of(lost), True)]
    wait_until(lambda: acknowledges(lost), timeout_seconds=20, what="commands to be done")
    check_same(cluster)

    wait_until(lambda: cluster.leader() is not None, timeout_seconds=20, what="a leader")
    next(manager for manager in (other, leader) if manager is not cluster.write).stop()  # now the new disk is one of two
    wait_until(lambda: acknowledges(cluster.write), timeout_seconds=20, what="the new disk to count")


@pytest.mark.timeout(120)
def test_an_older_copy_under_a_running_manager_becomes_another_disk_at_once(cluster: ManagerCluster, postgres: Any) -> None:
    """The manager remembers how far its disk was: it never answers in that disk's name again, and is repaired."""
    harmed = cluster.reads[0]
    old = disk_of(harmed)
    harmed.stop()
    with backup_of(postgres, harmed) as put_back:
        known = query(harmed.database_url, "SELECT life FROM raft_state")[0][0]
        harmed.start()
        wait_until(lambda: query(harmed.database_url, "SELECT life FROM raft_state")[0][0] > known + 1, timeout_seconds=30, what="the life to go on")
        put_back()
    wait_until(lambda: disk_of(harmed) != old, timeout_seconds=20, what="another identity")
    wait_until(votes_with(cluster.write, harmed.node_id, disk_of(harmed)), timeout_seconds=30, what="the new disk to vote")
    check_same(cluster)


@pytest.mark.timeout(120)
def test_managers_are_added_and_removed_one_at_a_time(cluster: ManagerCluster, postgres: Any, tmp_path: Path, keeper: PortKeeper) -> None:
    """Asked for at any manager: a new one gets the log, then a vote, counts, and leaves again; what cannot be is refused in a sentence."""
    reader = cluster.reads[0]
    urls = {manager.node_id: manager.url for manager in cluster.managers} | {4: f"http://127.0.0.1:{keeper.pick()}"}
    with postgres.database("manager") as database_url:
        added = ManagerProcess(4, urls, database_url, tmp_path, FLAGS)
        body = {"node_id": 4, "url": added.url}
        for asked, status, text in (({**body, "node_id": 0}, 400, "node_id"), ({**body, "url": "4"}, 400, "http://host:port"),
                                    (body, 400, "no manager answers"), ({**body, "url": reader.url}, 409, f"manager {reader.node_id} listens"),
                                    ({"node_id": 1, "url": added.url}, 409, "remove it first")):
            answer = reader.post("/v1/managers", asked)
            assert (answer.status_code, text in answer.json()["error"]["message"]) == (status, True), answer.text
        try:
            added.start()
            wait_until(lambda: listens(added), timeout_seconds=20, what="the new manager")
            answer = reader.post("/v1/managers", body)
            assert (answer.status_code, answer.json()["node_id"]) == (201, 4), answer.text
            wait_until(votes_with(reader, 4, disk_of(added)), timeout_seconds=30, what="the new manager to vote")
            assert reader.post("/v1/managers", body).json()["voter"] is True, "again is a success"
            check_same(ManagerCluster([*cluster.managers, added]))
            wait_until(lambda: acknowledges(added), what="commands through the new manager")
            assert {one["node_id"] for one in reader.get("/v1/cluster").json()["managers"]} == {1, 2, 3, 4}
            cluster.reads[0].pause()  # three of four are a majority, and the new one is among them
            wait_until(lambda: acknowledges(added), timeout_seconds=20, what="the new manager to count")
            for manager in cluster.managers:
                manager.resume()
            wait_until(lambda: reader.call("DELETE", "/v1/managers/4").status_code in (200, 404), timeout_seconds=20, what="the removal")
            wait_until(lambda: set(members(reader)) == {1, 2, 3}, what="the removal to be known")
            assert reader.call("DELETE", "/v1/managers/4").status_code == 404
            wait_until(lambda: acknowledges(reader), what="commands without it")
        finally:
            added.kill()


def test_of_votes_asked_at_the_same_time_each_term_has_one_grant(postgres: Any) -> None:
    """Forty terms, several candidates at once, each through a connection and a process's memory of its own."""
    with postgres.database("manager") as url:
        engines = [make_engine(url, application_name=f"candidate {number}", pool_size=1) for number in range(ASKING)]
        try:
            desks = [WalDesk(WalStore(engine)) for engine in engines]
            with ThreadPoolExecutor(ASKING) as pool:
                for term in range(1, TERMS + 1):
                    replies = list(pool.map(lambda place, term=term: desks[place].wal.handle(VoteRequest(term, 2 + place, 9, 9)), range(ASKING)))
                    assert [reply.granted for reply in replies].count(True) == 1, term
                    [granted] = [2 + place for place, reply in enumerate(replies) if reply.granted]
                    assert query(url, "SELECT current_term, voted_for FROM raft_state") == [(term, granted)]
        finally:
            for engine in engines:
                engine.dispose()


def test_a_manager_does_not_start_on_a_database_that_is_not_durable(postgres: Any, tmp_path: Path, keeper: PortKeeper) -> None:
    """It says which setting, and what for."""
    with postgres.database("manager") as url:
        with administering(postgres) as run:
            run("ALTER DATABASE {} SET synchronous_commit = off", name_of(url))
        manager = ManagerProcess(1, {1: f"http://127.0.0.1:{keeper.pick()}"}, url, tmp_path)
        manager.start()
        try:
            assert manager.process is not None
            assert manager.process.wait(30) != 0
            assert "synchronous_commit switched off" in manager.log()
        finally:
            manager.kill()
