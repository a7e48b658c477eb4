"""Three managers as one: concurrent commands, reading one's own writes, freshness, heartbeats, and life without some of them."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg2
import pytest

from db.engine import libpq_url
from myqueue.errors import NotLeaderError
from tests.support.broker_stub import BrokerStub
from tests.support.managers import ManagerCluster, ManagerProcess, manager_cluster, register
from tests.support.waiting import wait_until


@pytest.fixture
def own(postgres) -> Iterator[tuple[ManagerCluster, BrokerStub]]:
    """Managers that a test may harm."""
    with manager_cluster(postgres) as cluster, BrokerStub() as stub:
        cluster.start()
        register(cluster.write, stub)
        stub.beat_to([manager.url for manager in cluster.managers])
        yield cluster, stub


def test_of_32_creations_at_once_exactly_one_succeeds(cluster: ManagerCluster, stub: BrokerStub, new_topic: Callable[[], str]):
    """Through all managers at the same time: one success, 31 times *exists*, never a 5xx, one topic."""
    with ThreadPoolExecutor(32) as pool:
        for _ in range(3):
            name = new_topic()

            def create(number: int, name: str = name) -> tuple[int, str]:
                answer = cluster.managers[number % 3].post("/topics", {"topic": name, "partitions": 2})
                return answer.status_code, answer.json()["message"]

            answers = Counter(pool.map(create, range(32)))
            assert answers == {(200, f"Topic '{name}' created successfully"): 1, (400, f"Topic '{name}' already exists"): 31}
            assert cluster.write.get(f"/v1/topics/{name}").json()["partitions"] == 2


def test_a_registration_on_one_manager_is_known_on_all_at_once(cluster: ManagerCluster, stub: BrokerStub, new_topic: Callable[[], str]):
    """Registered here, used on another manager in the very next call, a hundred times over."""
    name = new_topic()
    assert cluster.reads[0].post("/v1/topics", {"topic": name}).status_code == 201
    for turn in range(34):
        made, used, third = (cluster.managers[(turn + offset) % 3] for offset in range(3))
        consumer_id = made.post("/consumer/register", {"topic": name}).json()["consumer_id"]
        for manager in (made, used, third):
            answer = manager.get("/size", {"topic": name, "consumer_id": consumer_id})
            assert (answer.status_code, answer.json()["status"]) == (200, "success"), answer.text


def test_ids_are_one_space_whoever_hands_them_out(cluster: ManagerCluster, stub: BrokerStub, new_topic: Callable[[], str]):
    name = new_topic()
    cluster.write.post("/topics", {"topic": name})
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda number: cluster.managers[number % 3].post("/producer/register", {"topic": name}).json(), range(60)))
    ids = [answer["producer_id"] for answer in answers]
    assert len(set(ids)) == 60
    assert [answer["message"] for answer in answers] == [f"Producer ID {number} registered for topic {name}" for number in ids]


def test_answers_say_how_fresh_they_are(cluster: ManagerCluster, stub: BrokerStub, new_topic: Callable[[], str]):
    """The index of a write is applied where it was asked for, and on another manager when that is asked to wait for it."""
    for made, read in zip(cluster.managers, cluster.managers[1:] + cluster.managers[:1], strict=True):
        name = new_topic()
        index = made.post("/topics", {"topic": name}).headers["MyQueue-Applied-Index"]
        answer = read.get("/v1/cluster", headers={"MyQueue-Min-Index": index})
        assert name in {one["topic"] for one in answer.json()["partitions"]}
        assert answer.json()["version"] >= int(index)
        assert int(answer.headers["MyQueue-Applied-Index"]) >= int(index)
        assert 0 <= float(answer.headers["MyQueue-Freshness-Seconds"]) < 10
    refused = cluster.reads[0].get("/topics", headers={"MyQueue-Min-Index": "999999999"})
    assert (refused.status_code, refused.json()["code"], refused.headers["Retry-After"]) == (503, "stale_metadata", "1")
    assert cluster.reads[0].get("/topics", headers={"MyQueue-Min-Index": "x"}).status_code == 400


def test_a_fresh_read_shows_what_was_done_before_it_at_every_manager(cluster: ManagerCluster, stub: BrokerStub, new_topic: Callable[[], str]):
    """Right after the answer of one manager, without an index: a round of a majority confirms how far everybody must have come."""
    for manager in cluster.managers:
        name = new_topic()
        assert manager.post("/v1/topics", {"topic": name}).status_code == 201
        for other in cluster.managers:
            answer = other.get("/v1/topics?fresh=true")
            assert answer.status_code == 200, answer.text
            assert name in {one["topic"] for one in answer.json()["topics"]}
    assert cluster.write.get("/v1/topics?fresh=maybe").status_code == 400


def test_the_snapshot_has_all_that_a_client_needs_and_no_password(cluster: ManagerCluster, stub: BrokerStub, new_topic: Callable[[], str]):
    name = new_topic()
    leader = cluster.write
    leader.post("/topics", {"topic": name, "partitions": 2})
    for manager in cluster.managers:
        wait_until(lambda manager=manager: all("database" in one for one in manager.get("/v1/cluster").json()["managers"]),
                   what="the databases of all managers to be known")
        answer = manager.get(f"/v1/cluster?topic={name}")
        body = answer.json()
        assert [(one["topic"], one["partition"], one["leader"], one["epoch"]) for one in body["partitions"]] == [(name, 0, 1, 1), (name, 1, 1, 1)]
        assert [(one["broker_id"], one["port"], one["database"]["name"]) for one in body["brokers"]] == [(1, stub.port, "broker_1")]
        roles = {one.node_id: "write" if one is leader else "read" for one in cluster.managers}
        assert {one["node_id"]: one["role"] for one in body["managers"]} == roles
        assert {one["database"]["user"] for one in body["managers"]} == {"myqueue_reader"}
        assert "password" not in answer.text
        secret = manager.database_url.split(":")[2].split("@")[0]
        assert secret not in answer.text
        assert secret not in manager.get("/internal/identity").text


def test_a_broker_keeps_its_id_by_its_disk(cluster: ManagerCluster, stub: BrokerStub):
    """Registering again, at any manager and with another address, is the same broker; a foreign disk with an id is refused."""
    for manager in cluster.managers:
        assert register(manager, stub) == 1
    foreign = {**stub.description, "disk_id": "11111111-1111-4111-8111-111111111111", "broker_id": 77}
    answer = cluster.reads[0].post("/internal/brokers", foreign)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")
    assert cluster.write.post("/internal/brokers", {"disk_id": "x"}).status_code == 400


def test_a_topic_is_answered_for_when_its_leader_has_taken_it(cluster: ManagerCluster, stub: BrokerStub, new_topic: Callable[[], str]):
    """A leader that refuses makes the outcome unknown; the appointment goes on in the background; the topic is there."""
    name = new_topic()
    stub.refusing = True
    began = time.monotonic()
    answer = cluster.write.post("/topics", {"topic": name})
    assert (answer.status_code, answer.json()["outcome"], answer.headers["Retry-After"]) == (503, "unknown", "1")
    assert time.monotonic() - began < 8
    topic_id = cluster.write.get(f"/v1/topics/{name}").json()["topic_id"]
    assert (topic_id, 0) not in stub.logs
    stub.refusing = False
    wait_until(lambda: (topic_id, 0) in stub.logs, what="the appointer to get through")
    stub.failing["appoint"] = NotLeaderError("down")
    producer = cluster.write.post("/producer/register", {"topic": name})
    assert producer.status_code == 200  # of a topic that is there already: its leader is not waited for


def test_a_deleted_topic_is_dropped_and_comes_back_as_another(cluster: ManagerCluster, stub: BrokerStub, new_topic: Callable[[], str]):
    name = new_topic()
    first = cluster.write.post("/v1/topics", {"topic": name}).json()["topic_id"]
    consumer_id = cluster.write.post("/consumer/register", {"topic": name}).json()["consumer_id"]
    assert cluster.reads[0].call("DELETE", f"/v1/topics/{name}").status_code == 200
    assert cluster.reads[0].get(f"/v1/topics/{name}").status_code == 404
    assert (first, 0) not in stub.logs, "what is deleted takes no message any more when that is answered"
    assert cluster.write.post("/v1/topics", {"topic": name}).json()["topic_id"] > first
    assert cluster.write.get("/consumer/consume", {"topic": name, "consumer_id": consumer_id}).status_code == 400


def test_more_replicas_than_there_are_brokers_is_a_mistake_and_no_matter_of_waiting(cluster: ManagerCluster, stub: BrokerStub,
                                                                                     new_topic: Callable[[], str]):
    name = new_topic()
    for manager in (*cluster.reads, cluster.write):
        answer = manager.post("/v1/topics", {"topic": name, "replication_factor": 7})
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "refused")
        assert "there is 1" in answer.json()["error"]["message"]
        assert (400, "failure") == ((older := manager.post("/topics", {"topic": name, "replication_factor": 7})).status_code, older.json()["status"])
    assert cluster.write.get(f"/v1/topics/{name}").status_code == 404


def test_a_topic_is_deleted_though_its_broker_cannot_be_told(cluster: ManagerCluster, stub: BrokerStub, new_topic: Callable[[], str]):
    name = new_topic()
    topic_id = cluster.write.post("/v1/topics", {"topic": name}).json()["topic_id"]
    stub.failing["drop"] = NotLeaderError("down")
    assert cluster.write.call("DELETE", f"/v1/topics/{name}").status_code == 200
    assert (topic_id, 0) in stub.logs
    stub.failing.clear()
    wait_until(lambda: (topic_id, 0) not in stub.logs, what="the appointer to have it dropped")


def test_heartbeats_reach_the_write_manager_whoever_hears_them(cluster: ManagerCluster, stub: BrokerStub, new_topic: Callable[[], str]):
    """Every kind of actor, heard by a read manager, is alive in the health of all; each manager beats by itself."""
    name = new_topic()
    producer_id = cluster.write.post("/producer/register", {"topic": name}).json()["producer_id"]
    consumer_id = cluster.write.post("/consumer/register", {"topic": name}).json()["consumer_id"]
    reader = cluster.reads[1]
    assert reader.post("/v1/heartbeats", {"producers": [producer_id], "consumers": [consumer_id]}).json() == {}
    assert reader.post("/internal/heartbeats", {"heartbeats": [{"type": "broker", "actor_id": 1, "age_seconds": 0}]}).json()["version"] > 0

    def seen() -> bool:
        health = cluster.write.get("/health").json()
        ages = {kind: {one["id"]: one for one in health[kind]} for kind in ("brokers", "managers", "producers", "consumers")}
        return (ages["brokers"][1]["state"] == "alive" and {one["state"] for one in ages["managers"].values()} == {"alive"}
                and len(ages["managers"]) == 3 and producer_id in ages["producers"] and consumer_id in ages["consumers"])

    wait_until(seen, what="the write manager to have heard of all")
    assert {one["id"] for one in reader.get("/v1/health").json()["managers"]} == {1, 2, 3}
    for bad in ({"heartbeats": [{"type": "ghost", "actor_id": 1}]}, {"heartbeats": [{"type": "broker", "actor_id": 0}]},
                {"heartbeats": [{"type": "broker", "actor_id": 1, "age_seconds": -1}]}, {"heartbeats": 1}):
        assert reader.post("/internal/heartbeats", bad).status_code == 400


@pytest.mark.timeout(120)
def test_without_a_majority_nothing_is_acknowledged_and_reads_go_on(own):
    """Both followers gone: 503 within 3 s, reads say how old they are; one back: writes resume by themselves; nothing was made twice."""
    cluster, _ = own
    leader, readers = cluster.write, cluster.reads
    assert leader.post("/topics", {"topic": "before"}).status_code == 200
    for reader in readers:
        reader.kill()
    for name in ("first", "second", "third"):
        began = time.monotonic()
        answer = leader.post("/topics", {"topic": name})
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1"), answer.text
        assert time.monotonic() - began < 3.0
    assert leader.post("/topics", {"topic": "fourth"}).json()["outcome"] == "not_done"
    answer = leader.get("/topics")
    assert answer.json()["topics"] == ["before"]
    assert float(answer.headers["MyQueue-Freshness-Seconds"]) > 2
    assert leader.get("/v1/topics?fresh=true").status_code == 503
    assert {one["role"] for one in leader.get("/v1/cluster").json()["managers"]} == {"read"}
    assert leader.get("/readyz").json()["leader"] is None
    readers[0].start()
    wait_until(lambda: leader.post("/topics", {"topic": "after"}).status_code in (200, 400), timeout_seconds=10, what="writes to resume")
    assert {"before", "after"} <= set(leader.get("/topics").json()["topics"])


@pytest.mark.timeout(120)
def test_the_last_manager_reads_and_says_so(own):
    """It answers from what it has, refuses writes, does not deny what it cannot know, and gets better by itself."""
    cluster, _ = own
    reader = cluster.reads[0]
    others = [manager for manager in cluster.managers if manager is not reader]
    assert reader.post("/topics", {"topic": "x"}).status_code == 200
    for manager in others:
        manager.kill()
    assert reader.get("/topics").json()["topics"] == ["x"]
    answer = reader.post("/topics", {"topic": "y"})
    assert (answer.status_code, answer.json()["outcome"]) == (503, "not_done")
    wait_until(lambda: reader.get("/partitions", {"topic": "unknown"}).status_code == 503, what="nothing to be denied")
    wait_until(lambda: float(reader.get("/topics").headers["MyQueue-Freshness-Seconds"]) > 3, what="the reader to say that it is behind")
    assert reader.get("/health").status_code == 200
    others[0].start()
    wait_until(lambda: reader.post("/topics", {"topic": "y"}).status_code in (200, 400), timeout_seconds=10, what="writes to resume")
    assert reader.get("/partitions", {"topic": "unknown"}).status_code == 400


@pytest.mark.timeout(120)
def test_an_emptied_disk_founds_nothing_and_gets_the_log(own, postgres):
    """Not even on the manager that founded the group. (When it counts again: test_members.)"""
    cluster, _ = own
    emptied = cluster.managers[0]
    assert cluster.write.post("/topics", {"topic": "kept"}).status_code == 200
    cluster_id = emptied.readiness()["cluster_id"]
    emptied.kill()
    with postgres.database() as url:
        emptied.database_url = url
        emptied.start()
        cluster.wait_ready()
        assert emptied.readiness()["cluster_id"] == cluster_id
        wait_until(lambda: emptied.get("/topics").json()["topics"] == ["kept"], what="the log to come back")
        assert cluster.write.post("/topics", {"topic": "more"}).status_code == 200
        founded = "SELECT count(*) FROM wal WHERE command->>'type' = 'init_cluster'"
        with closing(psycopg2.connect(libpq_url(url), connect_timeout=5)) as connection, connection.cursor() as cursor:
            cursor.execute(founded)
            assert cursor.fetchone() == (1,)
        emptied.kill()


@pytest.mark.timeout(120)
def test_all_killed_at_once_keep_what_was_acknowledged(own):
    """kill -9 of every manager under load, three times: every acknowledged topic is on every manager, each once."""
    cluster, _ = own
    acknowledged: list[str] = []
    for turn in range(3):
        leader = cluster.write
        with ThreadPoolExecutor(4) as pool:
            def create(number: int, turn: int = turn, leader: ManagerProcess = leader) -> None:
                name = f"t-{turn}-{number}"
                with contextlib.suppress(OSError):  # the connection ended with the process
                    if leader.post("/topics", {"topic": name}).status_code == 200:
                        acknowledged.append(name)

            results = pool.map(create, range(100))
            wait_until(lambda some=5 * (turn + 1): len(acknowledged) >= some, what="some commands to be done")
            for manager in cluster.managers:
                manager.kill()
            list(results)
        for manager in reversed(cluster.managers):
            manager.start()
        cluster.wait_ready()
    index = cluster.write.committed_index()
    for manager in cluster.managers:
        wait_until(lambda manager=manager: manager.applied_index() >= index, what="all managers to catch up")
        topics = manager.get("/topics").json()["topics"]
        assert set(acknowledged) <= set(topics)
        assert len(topics) == len(set(topics))
    assert len(acknowledged) >= 15


@pytest.mark.timeout(90)
def test_several_worker_processes_are_one_manager(postgres):
    """Two workers each: any of them takes a command, and what one does the other knows."""
    with manager_cluster(postgres, flags=("--workers", "2")) as cluster, BrokerStub() as stub:
        cluster.start()
        register(cluster.reads[0], stub)
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda number: cluster.managers[number % 3].post("/producer/register", {"topic": f"t{number % 4}"}), range(48)))
        assert {answer.status_code for answer in answers} == {200}
        assert sorted(answer.json()["producer_id"] for answer in answers) == list(range(1, 49))
        made = [(f"t{number % 4}", answer.json()["producer_id"]) for number, answer in enumerate(answers)]
        for number, (topic, producer_id) in enumerate(made):
            answer = cluster.managers[number % 3].post("/producer/produce", {"topic": topic, "producer_id": producer_id, "message": "m"})
            assert answer.status_code == 200, answer.text
        cluster.stop()


@pytest.mark.timeout(90)
def test_an_actor_that_falls_silent_is_told_once(postgres):
    """A broker that beats no more is logged as suspect once and as dead once, and as alive when it is back."""
    flags = ("--node-suspect-after-seconds", "1.5", "--node-dead-after-seconds", "3", "--heartbeat-interval-seconds", "0.2")
    with manager_cluster(postgres, managers=1, flags=flags) as cluster, BrokerStub() as stub:
        cluster.start()
        register(cluster.write, stub)
        wait_until(lambda: '"broker 1 is dead"' in cluster.write.log(), what="the broker to be dead")
        assert cluster.write.get("/broker").json()["brokers"][0]["state"] == "dead"
        answer = cluster.write.post("/topics", {"topic": "nowhere"})
        assert (answer.status_code, answer.json()["outcome"]) == (503, "not_done")
        beat = {"heartbeats": [{"type": "broker", "actor_id": 1, "age_seconds": 0}]}
        wait_until(lambda: cluster.write.post("/internal/heartbeats", beat).ok and '"broker 1 is alive"' in cluster.write.log(), what="it to be back")
        log = cluster.write.log()
        assert [log.count(f'"broker 1 is {state}"') for state in ("suspect", "dead", "alive")] == [1, 1, 1]
        cluster.stop()
