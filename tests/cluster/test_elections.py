"""Three managers on real processes and PostgreSQL: leaders killed, stopped, cut from their majority, all of them restarted.

After each fault: what was acknowledged is on every manager, the WALs are the same row for row, and so are the tables.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg2
import pytest
import requests

from myqueue.supervisor import Cluster, ClusterSpec
from tests.support.postgres import open_folder
from tests.support.waiting import wait_until

MANAGERS = ("manager-1", "manager-2", "manager-3")
TABLES = ("wal", "member", "broker", "topic", "partition", "producer", "consumer", "id_counter", "client_session")
SETTLE_SECONDS = 30.0


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with open_folder("myqueue elections ") as folder:
        cluster = Cluster(folder / "data", ClusterSpec(brokers=1, managers=3, ports=(0,)))
        try:
            cluster.up()
            yield cluster
        finally:
            cluster.down()


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    """All managers up and settled, before and after."""
    yield running
    for name in MANAGERS:
        if running.node(name)["state"] == "paused":
            running.resume(name)
        elif not running.node(name)["pid"]:
            running.start(name)


class Creator:
    """Creates topics at some managers, one after the other, and keeps which were acknowledged."""

    def __init__(self, urls: list[str]) -> None:
        self._urls = itertools.cycle(urls)
        self._prefix, self._numbers = f"t-{secrets.token_hex(3)}", itertools.count(1)
        self.acknowledged: list[str] = []

    def create(self) -> bool:
        name = f"{self._prefix}-{next(self._numbers)}"
        try:
            answer = requests.post(f"{next(self._urls)}/v1/topics", json={"topic": name}, timeout=10)
        except requests.RequestException:
            return False
        assert answer.status_code in (201, 503), answer.text
        if answer.status_code == 201:
            self.acknowledged.append(name)
        return answer.status_code == 201

    def create_one(self, within_seconds: float = 10.0) -> float:
        """Until one is acknowledged: how long that took."""
        began = time.monotonic()
        wait_until(self.create, timeout_seconds=within_seconds, what="a command to be acknowledged")
        return time.monotonic() - began


def url_of(cluster: Cluster, name: str) -> str:
    return str(cluster.node(name)["url"])


def leader_of(cluster: Cluster, *names: str) -> str:
    """Which manager leads, once these agree on one."""

    def agreed() -> str | None:
        said = set()
        for url in urls:
            try:
                said.add(requests.get(f"{url}/readyz", timeout=2).json().get("leader"))
            except requests.RequestException:
                return None
        return f"manager-{said.pop()}" if len(said) == 1 and None not in said else None

    urls = [url_of(cluster, name) for name in names or MANAGERS]
    return wait_until(agreed, timeout_seconds=SETTLE_SECONDS, what="the managers to agree on a leader")


def others(leader: str) -> list[str]:
    return [name for name in MANAGERS if name != leader]


def rows(cluster: Cluster, name: str, statement: str) -> list[tuple]:
    address = cluster.node(name)["database"]
    with closing(psycopg2.connect(host=address["host"], port=address["port"], dbname=address["name"], user=address["user"],
                                  passfile=str(cluster.folder.pgpass_file), connect_timeout=5)) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


def check_same(cluster: Cluster, acknowledged: list[str]) -> None:
    """Every manager has applied the same log to the same tables, and what was acknowledged is in them, once."""
    state = "SELECT current_term, commit_index, applied_index, (SELECT max(index) FROM wal) FROM raft_state"

    def settled() -> bool:
        found = {rows(cluster, name, state)[0] for name in MANAGERS}
        return len(found) == 1 and len(set(next(iter(found))[1:])) == 1

    wait_until(settled, timeout_seconds=SETTLE_SECONDS, what="all managers to have applied all of one log", interval_seconds=0.1)
    for table in TABLES:
        first, *more = [rows(cluster, name, f"SELECT one::text FROM {table} AS one ORDER BY 1") for name in MANAGERS]
        assert more == [first, first], table
    names = [name for name, in rows(cluster, "manager-1", "SELECT name FROM topic")]
    assert set(acknowledged) <= set(names)
    created = [topic for topic, in rows(cluster, "manager-1", "SELECT command->>'topic' FROM wal WHERE command->>'type' = 'create_topic'")]
    assert all(created.count(name) == 1 for name in acknowledged)


@pytest.mark.timeout(180)
def test_the_next_leader_goes_on_when_the_leader_is_killed_under_load(cluster: Cluster) -> None:
    """kill -9 while topics are created: the next one is acknowledged within seconds, and no acknowledged one is lost."""
    acknowledged = []
    for _ in range(2):
        leader = leader_of(cluster)
        creator = Creator([url_of(cluster, name) for name in others(leader)])
        creator.create_one()
        with ThreadPoolExecutor(1) as pool:
            load = pool.submit(lambda creator=creator: [creator.create() for _ in range(20)])
            wait_until(lambda creator=creator: len(creator.acknowledged) > 3, what="load")
            cluster.kill(leader)
            load.result(60)
        assert creator.create_one() < 5.0
        assert leader_of(cluster, *others(leader)) != leader
        cluster.start(leader)
        acknowledged += creator.acknowledged
    check_same(cluster, acknowledged)


@pytest.mark.timeout(120)
def test_a_leader_that_was_stopped_acknowledges_nothing_afterwards(cluster: Cluster) -> None:
    """SIGSTOP, an election, SIGCONT: the old one steps down; a command sent to it meanwhile is done by nobody, or by the new leader."""
    leader = leader_of(cluster)
    creator, mine = Creator([url_of(cluster, name) for name in others(leader)]), Creator([url_of(cluster, leader)])
    creator.create_one()
    term = term_of(cluster, others(leader)[0])
    cluster.pause(leader)
    with ThreadPoolExecutor(4) as pool:
        sent = [pool.submit(mine.create) for _ in range(4)]  # they wait in the stopped leader's socket
        creator.create_one()
        new = leader_of(cluster, *others(leader))
        assert term_of(cluster, new) > term
        cluster.resume(leader)
        for each in sent:
            each.result(30)
    assert leader_of(cluster) != leader
    check_same(cluster, creator.acknowledged + mine.acknowledged)
    terms = dict(rows(cluster, leader, "SELECT command->>'topic', term FROM wal"))
    assert all(terms[topic] > term for topic in mine.acknowledged)


def term_of(cluster: Cluster, name: str) -> int:
    return int(rows(cluster, name, "SELECT current_term FROM raft_state")[0][0])


@pytest.mark.timeout(120)
def test_without_a_majority_writes_are_refused_in_time_and_reads_go_on(cluster: Cluster) -> None:
    """503 with Retry-After within 3 s, at the managers and at the balancer; reads with their freshness; back again within 10 s."""
    leader = leader_of(cluster)
    creator = Creator([url_of(cluster, leader)])
    creator.create_one()
    for name in others(leader):
        cluster.kill(name)
    for url in (url_of(cluster, leader), cluster.balancer_url):
        for _ in range(3):
            began = time.monotonic()
            answer = requests.post(f"{url}/v1/topics", json={"topic": f"never-{secrets.token_hex(3)}"}, timeout=10)
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1"), answer.text
            assert time.monotonic() - began < 3.0
        answer = requests.get(f"{url}/v1/topics", timeout=10)
        assert creator.acknowledged[0] in {one["topic"] for one in answer.json()["topics"]}
        assert float(answer.headers["MyQueue-Freshness-Seconds"]) > 1
    cluster.start(others(leader)[0])
    assert creator.create_one() < 10.0
    wait_until(Creator([cluster.balancer_url]).create, timeout_seconds=10, what="the balancer to follow")
    cluster.start(others(leader)[1])
    check_same(cluster, creator.acknowledged)


@pytest.mark.timeout(240)
def test_all_managers_killed_again_and_again_keep_what_was_acknowledged(cluster: Cluster) -> None:
    """Five rounds of kill -9 of every manager under load."""
    acknowledged = []
    for _ in range(5):
        leader_of(cluster)
        creator = Creator([url_of(cluster, name) for name in MANAGERS])
        with ThreadPoolExecutor(1) as pool:
            load = pool.submit(lambda creator=creator: [creator.create() for _ in range(12)])
            wait_until(lambda creator=creator: len(creator.acknowledged) > 3, what="load")
            for name in MANAGERS:
                cluster.kill(name)
            load.result(60)
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(cluster.start, MANAGERS))
        acknowledged += creator.acknowledged
    leader_of(cluster)
    check_same(cluster, acknowledged)


@pytest.mark.timeout(120)
def test_the_balancer_follows_the_leader(cluster: Cluster) -> None:
    """Writes through the balancer go on by themselves after the leader's death."""
    leader = leader_of(cluster)
    through = Creator([cluster.balancer_url])
    through.create_one()
    cluster.kill(leader)
    assert through.create_one() < 5.0
    cluster.start(leader)
    check_same(cluster, through.acknowledged)
