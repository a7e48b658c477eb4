"""Three managers on real processes and PostgreSQL: leaders killed, stopped, cut from their majority, all of them restarted.

After each fault: what was acknowledged is on every manager, the WALs are the same row for row, and so are the tables.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from myqueue import AdminClient
from myqueue.errors import UnavailableError
from myqueue.supervisor import Cluster, ClusterSpec
from tests.support.clusters import running_cluster
from tests.support.load import PAUSE_SECONDS, QueueFaceLoad, SdkLoad
from tests.support.long import LONG
from tests.support.manager_faults import (
    MANAGERS,
    Campaign,
    Creator,
    check_same,
    heal,
    leader_of,
    others,
    rows,
    schedule,
    term_of,
    url_of,
)
from tests.support.waiting import wait_until

HERE = ("kill_driver", "stop_postgres_at_once", "kill_a_majority")  # some of all kinds; others have tests below


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with running_cluster(ClusterSpec(brokers=1, managers=3, ports=(0,), postgres="per-node")) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Iterator[Cluster]:
    """All managers up and settled, before and after."""
    yield running
    heal(running)


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
        began = time.monotonic()
        through = requests.post(f"{cluster.balancer_url}/v1/topics", json={"topic": f"through-{secrets.token_hex(3)}"}, timeout=15)
        assert time.monotonic() - began < 5.0  # not the 15 s that a manager may take to answer
        assert through.status_code == 201 or (through.status_code, through.headers["Retry-After"]) == (503, "1"), through.text
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


@pytest.mark.timeout(120)
def test_without_a_majority_writes_are_refused_in_time_and_reads_go_on(cluster: Cluster) -> None:
    """503 with Retry-After within 3 s, at the managers and at the balancer; reads with their freshness; back again within 10 s."""
    leader = leader_of(cluster)
    creator = Creator([url_of(cluster, leader)])
    creator.create_one()
    for name in others(leader):
        cluster.kill(name)
    for url in (url_of(cluster, leader), cluster.balancer_url):
        for _ in range(2):
            began = time.monotonic()
            answer = requests.post(f"{url}/v1/topics", json={"topic": f"never-{secrets.token_hex(3)}"}, timeout=10)
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1"), answer.text
            assert time.monotonic() - began < 3.0
        answer = requests.get(f"{url}/v1/topics", timeout=10)
        assert creator.acknowledged[0] in {one["topic"] for one in answer.json()["topics"]}
        assert float(answer.headers["MyQueue-Freshness-Seconds"]) > 1
        with AdminClient(url.removeprefix("http://")) as admin:
            began = time.monotonic()
            with pytest.raises(UnavailableError):
                admin.create_topic(f"never-{secrets.token_hex(3)}")
            assert time.monotonic() - began < 3.0
            assert creator.acknowledged[0] in {topic.topic for topic in admin.topics()}
    cluster.start(others(leader)[0])
    assert creator.create_one() < 10.0
    wait_until(Creator([cluster.balancer_url]).create, timeout_seconds=10, what="the balancer to follow")
    cluster.start(others(leader)[1])
    check_same(cluster, creator.acknowledged)


@pytest.mark.timeout(3_000 if LONG else 240)
def test_all_managers_killed_again_and_again_keep_what_was_acknowledged(cluster: Cluster) -> None:
    """kill -9 of every manager under load, twice; fifty times in the long form."""
    acknowledged = []
    for _ in range(50 if LONG else 2):
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


@pytest.mark.timeout(6_000 if LONG else 240)
def test_nothing_acknowledged_is_lost_whatever_is_done_to_the_leader(cluster: Cluster) -> None:
    """Its driver, its PostgreSQL, a clean end, a majority, under load; in the long form fifty random rounds of all there is."""
    campaign = Campaign(cluster)
    for fault in schedule(secrets.randbelow(1 << 31), 50) if LONG else HERE:
        campaign.round(fault)
    assert len(campaign.acknowledged) > len(campaign.counts)


@pytest.mark.timeout(240)
def test_a_rolling_restart_of_all_managers_is_noticed_by_nobody(cluster: Cluster) -> None:
    """Under load of both faces and of registrations, all through the balancer: no call fails, none waits for an election."""
    sdk = SdkLoad(cluster.bootstrap, f"rolling-{secrets.token_hex(3)}")
    queue = QueueFaceLoad(cluster.balancer_url, f"rolling-{secrets.token_hex(3)}")
    ended = threading.Event()

    def create_and_list() -> list[float]:
        taken = []
        with AdminClient(cluster.bootstrap) as admin:
            while not ended.wait(PAUSE_SECONDS):
                name, began = f"made-{secrets.token_hex(4)}", time.monotonic()
                admin.create_topic(name)
                assert name in {topic.topic for topic in admin.topics()}  # at once, whichever manager lists
                taken.append(time.monotonic() - began)
        return taken

    def register_and_consume() -> int:
        """By plain calls, which nobody repeats."""
        done = 0
        while not ended.wait(PAUSE_SECONDS):
            made = requests.post(f"{cluster.balancer_url}/consumer/register", json={"topic": queue.topic}, timeout=15)
            assert made.status_code == 200, made.text
            consume = {"topic": queue.topic, "consumer_id": made.json()["consumer_id"]}
            answer = requests.get(f"{cluster.balancer_url}/consumer/consume", params=consume, timeout=15)
            assert answer.status_code == 200, answer.text
            done += 1
        return done

    with ThreadPoolExecutor(2) as pool:
        wait_until(lambda: queue.acknowledged, what="a message")
        users = [pool.submit(create_and_list), pool.submit(register_and_consume)]
        first = leader_of(cluster)
        try:
            for name in (first, *others(first)):
                cluster.restart(name)
        finally:
            ended.set()
        taken, done = users[0].result(60), users[1].result(60)
    queue.finish()
    sdk.finish()
    assert ([], []) == (queue.refused, queue.unknown)
    assert [] == [*queue.faults(), *sdk.faults()]
    assert done > 10 and len(taken) > 5
    check_same(cluster, [])
