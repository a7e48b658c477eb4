"""Topics that grow by themselves, on real managers that look often."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from myqueue.errors import NotLeaderError
from tests.support.broker_stub import BrokerStub
from tests.support.managers import ManagerCluster, manager_cluster, register
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def growing(postgres) -> Iterator[tuple[ManagerCluster, BrokerStub]]:
    with manager_cluster(postgres, flags=("--growth-check-seconds", "0.2")) as cluster, BrokerStub() as stub:
        cluster.start()
        register(cluster.write, stub)
        stub.beat_to([manager.url for manager in cluster.managers])
        yield cluster, stub


def create(cluster: ManagerCluster, topic: str, **config: int) -> None:
    answer = cluster.write.post("/v1/topics", {"topic": topic, "config": config})
    assert answer.status_code == 201, answer.text


def produce(cluster: ManagerCluster, topic: str, count: int) -> None:
    for _ in range(count):
        assert cluster.write.post(f"/v1/topics/{topic}/records", {"value": "v"}).status_code == 200


def partitions(cluster: ManagerCluster, topic: str) -> int:
    return cluster.write.get(f"/v1/topics/{topic}").json()["partitions"]


def looks(stub: BrokerStub, count: int) -> None:
    """Wait until the write manager has looked so many times more."""
    before = stub.calls.count("sizes")
    wait_until(lambda: stub.calls.count("sizes") >= before + count, what="the write manager to look")


def test_a_topic_grows_by_one_at_a_time_up_to_its_bound_and_takes_records(growing):
    cluster, stub = growing
    create(cluster, "g", grow_at_messages=10, partitions_max=3)
    produce(cluster, "g", 10)
    looks(stub, 3)
    assert partitions(cluster, "g") == 1
    produce(cluster, "g", 1)
    wait_until(lambda: partitions(cluster, "g") == 2, what="the second partition")
    looks(stub, 3)
    assert partitions(cluster, "g") == 2
    produce(cluster, "g", 30)
    wait_until(lambda: partitions(cluster, "g") == 3, what="the third partition")
    produce(cluster, "g", 30)
    topic_id = cluster.write.get("/v1/topics/g").json()["topic_id"]
    assert sum(len(stub.logs[topic_id, number]) for number in range(3)) == 71
    assert stub.logs[topic_id, 2]
    assert partitions(cluster, "g") == 3


def test_a_topic_stays_as_it_is_without_both_fields_or_while_a_leader_is_silent(growing):
    cluster, stub = growing
    create(cluster, "none")
    create(cluster, "half", grow_at_messages=1)
    create(cluster, "silent", grow_at_messages=1, partitions_max=2)
    stub.failing["sizes"] = NotLeaderError("moved")
    for topic in ("none", "half", "silent"):
        produce(cluster, topic, 5)
    looks(stub, 4)
    assert [partitions(cluster, topic) for topic in ("none", "half", "silent")] == [1, 1, 1]
    stub.failing.clear()
    wait_until(lambda: partitions(cluster, "silent") == 2, what="the second partition")
    assert [partitions(cluster, topic) for topic in ("none", "half")] == [1, 1]
    assert cluster.write.call("PATCH", "/v1/topics/half", {"config": {"partitions_max": 2}}).status_code == 200
    wait_until(lambda: partitions(cluster, "half") == 2, what="a topic that may grow now to grow")


def test_fields_that_make_no_sense_are_refused(growing):
    cluster, _ = growing
    for config in ({"grow_at_messages": 0}, {"partitions_max": 10_001}, {"partitions_max": "3"}):
        answer = cluster.write.post("/v1/topics", {"topic": "bad", "config": config})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_request")
