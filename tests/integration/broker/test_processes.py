"""Broker processes that die, share a database, and speak with managers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg2
import pytest
import requests

from myqueue.protocol import routes
from tests.support.broker_process import BrokerProcess, broker_process
from tests.support.manager_stub import ManagerStub
from tests.support.waiting import wait_until

RECORDS = "/v1/topics/t/partitions/0/records"


def send(broker: BrokerProcess, value: str, seq: int | None = None, **more):
    headers = {} if seq is None else {"Producer-Id": "7", "Producer-Epoch": "0", "Producer-Seq": str(seq)}
    return broker.call("POST", RECORDS, {"value": value}, headers=headers, **more)


def stored(broker: BrokerProcess) -> list[str]:
    return [record["value"] for record in broker.call("GET", RECORDS, max_records=10_000)["records"]]


def test_everything_is_there_after_a_kill(broker_database: str, managers: ManagerStub):
    """Killed without warning and started again: messages, offsets, producers, identity, leadership."""
    with broker_process(broker_database, managers.url) as broker:
        broker.appoint("t")
        for number in range(5):
            send(broker, str(number), number)
        broker.call("POST", "/internal/partitions/1/0/dequeue", {"consumer": "#1"})
        before = broker.call("GET", routes.I_IDENTITY)
        broker.kill()
    with broker_process(broker_database, managers.url) as broker:
        after = broker.call("GET", routes.I_IDENTITY)
        assert {name: after[name] for name in after if name != "life"} == {name: before[name] for name in before if name != "life"}
        assert after["life"] >= before["life"]
        assert stored(broker) == list("01234")
        assert send(broker, "4", 4)["duplicate"] is True
        assert send(broker, "5", 5)["base_offset"] == 5
        assert broker.call("POST", "/internal/partitions/1/0/dequeue", {"consumer": "#1"})["value"] == "1"


@pytest.mark.parametrize(("fault", "kept"), [("append_before_commit", False), ("append_after_commit", True)])
def test_killed_around_the_commit(broker_database: str, managers: ManagerStub, fault: str, kept: bool):
    """Before the commit nothing is stored, after it everything; the retry with the same sequence is right either way."""
    with broker_process(broker_database, managers.url, faults=f"{fault}:3") as broker:
        broker.appoint("t")  # the marker passes the point too
        send(broker, "0", 0)
        with pytest.raises(requests.ConnectionError):
            send(broker, "1", 1)
        wait_until(lambda: _alive_again(broker), what="the worker to be replaced")
        assert stored(broker) == (["0", "1"] if kept else ["0"])
        again = send(broker, "1", 1)
        assert (again["base_offset"], again["duplicate"]) == (1, kept)
        assert stored(broker) == ["0", "1"]


def test_the_answer_to_a_commit_is_lost(broker_database: str, managers: ManagerStub):
    """The producer notices nothing and nothing is stored twice."""
    with broker_process(broker_database, managers.url, faults="append_commit_reply_lost:2") as broker:
        broker.appoint("t")
        answer = send(broker, "0", 0)
        assert (answer["base_offset"], answer["duplicate"]) == (0, False)
        assert send(broker, "1", 1)["base_offset"] == 1
        assert stored(broker) == ["0", "1"]


def test_two_worker_processes(broker_database: str, managers: ManagerStub):
    """Each request may meet either: offsets without gaps, sequences in order, messages handed out once, polls woken across."""
    with broker_process(broker_database, managers.url, arguments=("--workers", "2")) as broker:
        broker.appoint("t")

        def produce(producer: int) -> list[int]:
            with requests.Session() as http:  # a connection of its own, and with it one of the workers
                return [http.post(broker.url + RECORDS, json={"value": f"{producer}-{turn}"}, timeout=20, headers={
                    "Producer-Id": str(producer), "Producer-Epoch": "0", "Producer-Seq": str(turn)}).json()["base_offset"] for turn in range(25)]

        with ThreadPoolExecutor(8) as pool:
            offsets = list(pool.map(produce, range(1, 9)))
        assert sorted(offset for mine in offsets for offset in mine) == list(range(200))
        assert all(mine == sorted(mine) for mine in offsets)
        values = stored(broker)
        assert all(values[offset] == f"{producer}-{turn}" for producer, mine in enumerate(offsets, 1) for turn, offset in enumerate(mine))

        def consume(_: int) -> list[int]:
            with requests.Session() as http:
                answers = [http.post(broker.url + "/internal/partitions/1/0/dequeue", json={"consumer": "#1"}, timeout=20).json() for _ in range(25)]
            return [answer["offset"] for answer in answers]

        with ThreadPoolExecutor(8) as pool:
            assert sorted(offset for part in pool.map(consume, range(8)) for offset in part) == list(range(200))

        def poll(_: int) -> list:
            return requests.get(broker.url + RECORDS, params={"offset": 200, "wait_seconds": 20}, timeout=30).json()["records"]

        with ThreadPoolExecutor(6) as pool:
            polls = [pool.submit(poll, number) for number in range(6)]
            wait_until(lambda: _gauge(broker, "myqueue_long_polls") == 6, what="six reads to wait")
            send(broker, "wake")
            assert all([record["value"] for record in future.result(2)] == ["wake"] for future in polls)
        pids = {line.split()[0] for line in _sessions(broker_database)}
        assert pids == {"myqueue-broker-keeper"} | {f"myqueue-broker-{part}" for part in ("writer", "reader")}


def test_one_process_sends_the_heartbeats(broker_database: str, managers: ManagerStub):
    """Of two workers one speaks; the life number rises by one each time it is acknowledged."""
    managers.heartbeats.clear()
    with broker_process(broker_database, managers.url, arguments=("--workers", "2", "--heartbeat-interval-seconds", "0.1")):
        wait_until(lambda: len(managers.heartbeats) >= 5, what="heartbeats")
        lives = [beat["life"] for beat in managers.heartbeats[:5]]
    assert lives == list(range(lives[0], lives[0] + 5))
    assert managers.heartbeats[0]["heartbeats"] == [{"type": "broker", "actor_id": 1, "age_seconds": 0.0}]


def test_heartbeats_wait_for_a_manager(broker_database: str, managers: ManagerStub):
    """A refused heartbeat is sent again with the same life number."""
    with broker_process(broker_database, managers.url, arguments=("--heartbeat-interval-seconds", "0.1")):
        wait_until(lambda: len(managers.heartbeats) >= 2, what="heartbeats")
        managers.available = False
        try:
            wait_until(lambda: _life(broker_database) == _life(broker_database, pause=0.4), what="the life number to stand still")
            stands = _life(broker_database)
            managers.heartbeats.clear()
        finally:
            managers.available = True
        wait_until(lambda: managers.heartbeats, what="a heartbeat")
        assert managers.heartbeats[0]["life"] == stands


def test_not_ready_before_it_is_registered(broker_database: str, managers: ManagerStub):
    """Without a manager: alive, not ready, and it tries until one answers. Partitions cannot be appointed meanwhile."""
    managers.available = False
    broker = BrokerProcess(broker_database, managers.url, arguments=("--heartbeat-interval-seconds", "0.1"))
    try:
        wait_until(lambda: _alive_again(broker), what="the broker to live")
        assert broker.call("GET", routes.READYZ, status=503)["error"]["code"] == "unavailable"
        managers.available = True
        broker.wait_ready()
        assert broker.call("GET", routes.READYZ)["broker_id"] == 1
    finally:
        managers.available = True
        broker.stop()


def test_the_database_of_another_cluster_is_refused(broker_database: str, managers: ManagerStub):
    """A manager of another cluster does not get this disk, and the log says why."""
    with psycopg2.connect(broker_database) as connection, connection.cursor() as cursor:
        cursor.execute("UPDATE broker_identity SET cluster_id = 'another', broker_id = 5")
    connection.close()
    with broker_process(broker_database, managers.url, arguments=("--heartbeat-interval-seconds", "0.1")) as broker:
        wait_until(lambda: "belongs to broker 5 of cluster another" in broker.log, what="the refusal to be logged")
        assert broker.call("GET", routes.I_IDENTITY)["cluster_id"] == "another"


@pytest.mark.parametrize(("url", "code", "sentence"), [
    ("mysql://user:secret@127.0.0.1/db", 2, "only PostgreSQL"), ("postgresql://user:secret@127.0.0.1:1", 2, "names no database")])
def test_an_unusable_database_url_is_one_sentence(url: str, code: int, sentence: str):
    """At once, without a traceback, and without the password."""
    broker = BrokerProcess(url, "http://127.0.0.1:1")
    try:
        assert broker.process.wait(20) == code
        assert sentence in broker.log
        assert "Traceback" not in broker.log
        assert "secret" not in broker.log
    finally:
        broker.stop()


def test_a_database_of_another_kind_is_one_sentence(manager_database: str):
    broker = BrokerProcess(manager_database, "http://127.0.0.1:1")
    try:
        assert broker.process.wait(20) != 0
        assert "cannot start: " in broker.log
        assert "another kind" in broker.log
        assert "Traceback" not in broker.log
    finally:
        broker.stop()


def test_a_clean_stop_ends_long_polls_and_loses_nothing(broker_database: str, managers: ManagerStub):
    """SIGTERM in the middle: whoever was answered is stored, whoever waits for data is answered, and it takes seconds."""
    with broker_process(broker_database, managers.url) as broker:
        broker.appoint("t")
        with ThreadPoolExecutor(2) as pool:
            poll = pool.submit(requests.get, broker.url + RECORDS, params={"offset": "latest", "wait_seconds": 25}, timeout=30)
            wait_until(lambda: _gauge(broker, "myqueue_long_polls") == 1, what="the read to wait")
            broker.process.terminate()
            assert poll.result(5).json()["records"] == []
            assert broker.process.wait(12) == 0


def _alive_again(broker: BrokerProcess) -> bool:
    try:
        return requests.get(broker.url + routes.LIVEZ, timeout=2).status_code == 200
    except requests.RequestException:
        return False


def _gauge(broker: BrokerProcess, name: str) -> float:
    lines = broker.http.get(broker.url + routes.METRICS, timeout=5).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name) and not line.startswith("#"))


def _query(url: str, statement: str) -> list[tuple]:
    connection = psycopg2.connect(url, connect_timeout=5)
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall()
    finally:
        connection.close()


def _sessions(url: str) -> list[str]:
    return [name for name, in _query(url, "SELECT application_name FROM pg_stat_activity WHERE datname = current_database() "
                                          "AND application_name LIKE 'myqueue-broker-%'")]


def _life(url: str, pause: float = 0.0) -> int:
    return _query(url, f"SELECT life FROM broker_identity, pg_sleep({pause})")[0][0]
