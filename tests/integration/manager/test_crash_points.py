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
@pytest.mark.parametrize(("fault", "on_disk", "applied"), [
    ("wal_before_commit", 0, {0}), ("wal_after_commit", 1, {0, 1}), ("apply_after_commit", 1, {1})])
def test_killed_leader(cluster: ManagerCluster, fault: str, on_disk: int, applied: set[int]):
    """The next leader has the command or not, the same on every manager; asking again under its name does it once."""
    victim = cluster.managers[0]  # it founds the group, and is the first to lead
    with BrokerStub() as stub:
        victim.start(faults=f"{fault}:2")  # the first one is the broker's registration
        for manager in cluster.managers[1:]:
            manager.start()
        cluster.wait_ready()
        assert cluster.write is victim
        register(victim, stub)
        before = query(victim, "SELECT broker_id, disk_id::text, port FROM broker")
        body = {"command": c.to_json(c.CreateTopic("made-once", created_at=1, live_brokers=(1,))), "client_id": "crash-test", "client_seq": 1}
        with pytest.raises(OSError):  # as requests says it: no answer comes from the dead
            victim.post("/internal/propose", body)
        victim.wait_dead()
        assert len([row for row in log_of(victim) if row[2] == "made-once"]) == on_disk
        assert cluster.write is not victim
        victim.start()
        cluster.wait_ready()
        same_everywhere(cluster)
        assert query(victim, "SELECT count(*) FROM topic WHERE name = 'made-once'")[0][0] in applied
        assert cluster.write.post("/internal/propose", body).json()["reply"]["result"]["topic_id"] == 1
        same_everywhere(cluster)
        for manager in cluster.managers:
            assert query(manager, "SELECT name FROM topic") == [("made-once",)]
            assert query(manager, "SELECT broker_id, disk_id::text, port FROM broker") == before
        cluster.stop()


def same_everywhere(cluster: ManagerCluster) -> None:
    """Wait until every manager has applied all, and it is the same log."""
    applied = "SELECT applied_index, (SELECT max(index) FROM wal) FROM raft_state"

    def settled() -> bool:
        found = [query(manager, applied)[0] for manager in cluster.managers]
        return len(set(found)) == 1 and found[0][0] == found[0][1]

    wait_until(settled, what="every manager to apply all of the log")
    assert all(log_of(manager) == log_of(cluster.managers[0]) for manager in cluster.managers)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("fault", ["wal_before_commit", "apply_after_commit"])
def test_killed_follower(cluster: ManagerCluster, fault: str):
    """The others go on without it; when it is back it has the same log and tables."""
    with BrokerStub() as stub:
        cluster.start()
        reader = cluster.reads[0]
        register(cluster.write, stub)
        reader.stop()
        reader.start(faults=fault)
        wait_until(reader.ready, what="the follower to be back")
        assert cluster.write.post("/topics", {"topic": "a"}).status_code == 200
        reader.wait_dead()
        assert cluster.write.post("/topics", {"topic": "b"}).status_code == 200
        reader.start()
        cluster.wait_ready()
        same_everywhere(cluster)
        assert query(reader, "SELECT name FROM topic ORDER BY name") == [("a",), ("b",)]
        cluster.stop()
