"""A manager killed at the three places where it matters: its command is applied zero times, once, and once."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg2
import pytest

from manager.cluster import commands as c
from tests.support.broker_stub import BrokerStub
from tests.support.managers import ManagerCluster, ManagerProcess, manager_cluster, register
from tests.support.waiting import wait_until


@pytest.fixture
def cluster(postgres) -> Iterator[ManagerCluster]:
    with manager_cluster(postgres) as cluster:
        yield cluster


def query(manager: ManagerProcess, statement: str) -> list[tuple]:
    connection = psycopg2.connect(manager.database_url)
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall()
    finally:
        connection.close()


def log_of(manager: ManagerProcess) -> list[tuple]:
    return query(manager, "SELECT index, command->>'type', command->>'topic', encode(chain, 'hex') FROM wal ORDER BY index")


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("fault", "times"), [("wal_before_commit", 0), ("wal_after_commit", 1), ("apply_after_commit", 1)])
def test_killed_write_manager(cluster: ManagerCluster, fault: str, times: int):
    """After the restart the command is there zero or one times, the same on every manager, and asking again under its name adds none."""
    with BrokerStub() as stub:
        cluster.start()
        register(cluster.write, stub)
        applied = cluster.write.applied_index()
        cluster.write.stop()
        cluster.write.start(faults=fault)
        wait_until(cluster.write.ready, what="the write manager to be back")
        before = query(cluster.write, "SELECT broker_id, disk_id::text, port FROM broker")
        body = {"command": c.to_json(c.CreateTopic("made-once", created_at=1, live_brokers=(1,))), "client_id": "crash-test", "client_seq": 1}
        with pytest.raises(OSError):  # as requests says it: no answer comes from the dead
            cluster.write.post("/internal/propose", body)
        cluster.write.wait_dead()
        assert len([row for row in log_of(cluster.write) if row[2] == "made-once"]) == times

        cluster.write.start()
        cluster.wait_ready()
        wait_until(lambda: query(cluster.write, "SELECT applied_index = (SELECT max(index) FROM wal) FROM raft_state") == [(True,)],
                   what="recovery to apply all of the log")
        assert query(cluster.write, "SELECT count(*) FROM topic WHERE name = 'made-once'") == [(times,)]
        assert query(cluster.write, "SELECT broker_id, disk_id::text, port FROM broker") == before
        answer = cluster.write.post("/internal/propose", body).json()
        assert answer["reply"]["result"]["topic_id"] == 1
        assert answer["index"] == applied + 1
        for manager in cluster.managers:
            wait_until(lambda manager=manager: manager.applied_index() >= answer["index"], what="every manager to apply it")
            assert log_of(manager) == log_of(cluster.write)
            assert query(manager, "SELECT name FROM topic") == [("made-once",)]
        cluster.stop()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("fault", ["wal_before_commit", "apply_after_commit"])
def test_killed_read_manager(cluster: ManagerCluster, fault: str):
    """The others go on without it; when it is back it has the same log and tables."""
    reader = cluster.reads[0]
    with BrokerStub() as stub:
        cluster.start()
        register(cluster.write, stub)
        reader.stop()
        reader.start(faults=fault)
        assert cluster.write.post("/topics", {"topic": "a"}).status_code == 200
        reader.wait_dead()
        assert cluster.write.post("/topics", {"topic": "b"}).status_code == 200
        reader.start()
        cluster.wait_ready()
        index = cluster.write.applied_index()
        wait_until(lambda: reader.applied_index() >= index, what="the read manager to catch up")
        assert log_of(reader) == log_of(cluster.write)
        assert query(reader, "SELECT name FROM topic ORDER BY name") == [("a",), ("b",)]
        cluster.stop()
