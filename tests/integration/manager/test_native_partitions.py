"""The native face's partitions: listed and added, through any manager, while others do the same."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.broker_stub import BrokerStub
from tests.support.managers import ManagerCluster
from tests.support.waiting import wait_until


@pytest.fixture
def topic(cluster: ManagerCluster, stub: BrokerStub, new_topic: Callable[[], str]) -> str:
    """A topic of two partitions."""
    name = new_topic()
    assert cluster.write.post("/v1/topics", {"topic": name, "partitions": 2}).status_code == 201
    return name


def numbers(cluster: ManagerCluster, topic: str) -> list[int]:
    answer = cluster.reads[0].get(f"/v1/topics/{topic}/partitions", headers={"MyQueue-Prefer-Index": str(cluster.write.applied_index())})
    assert answer.status_code == 200, answer.text
    return [one["partition"] for one in answer.json()["partitions"]]


def test_partitions_are_added_up_to_a_total_and_take_records_at_once(cluster: ManagerCluster, topic: str):
    """The new ones have leaders when the answer comes; the same total again is a success that changes nothing."""
    path = f"/v1/topics/{topic}/partitions"
    first = cluster.reads[0].post(path, {"partitions": 5})
    assert (first.status_code, first.json()["partitions"], first.json()["added"]) == (201, 5, 3)
    producer_id = cluster.write.post("/producer/register", {"topic": topic}).json()["producer_id"]
    made = cluster.write.post("/producer/produce", {"topic": topic, "producer_id": producer_id, "message": "m", "partition": 4})
    assert made.status_code == 200, made.text
    index = cluster.write.applied_index()
    again = cluster.reads[1].post(path, {"partitions": "5"})
    assert (again.status_code, again.json()["partitions"], again.json()["added"]) == (200, 5, 0)
    assert cluster.write.applied_index() >= index
    assert numbers(cluster, topic) == [0, 1, 2, 3, 4]
    listed = cluster.write.get(path).json()["partitions"]
    assert [sorted(one) for one in listed] == [["epoch", "leader", "missing", "partition", "replicas", "status", "wanted"]] * 5
    assert {one["leader"] for one in listed} == {1}


def test_many_who_ask_for_the_same_total_add_it_once(cluster: ManagerCluster, topic: str):
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda number: cluster.managers[number % 3].post(f"/v1/topics/{topic}/partitions", {"partitions": 4}), range(12)))
    assert sorted((answer.status_code, answer.json()["added"]) for answer in answers) == [(200, 0)] * 11 + [(201, 2)]
    assert numbers(cluster, topic) == [0, 1, 2, 3]


@pytest.mark.parametrize(("body", "word"), [
    ({"partitions": 1}, "2 or more"), ({"partitions": 10_001}, "10000"), ({"partitions": 0}, "partitions"), ({"partitions": True}, "whole number"),
    ({"partitions": "many"}, "whole number"), ({"partitions": 2**63}, "from 1"), ({}, "needed"), ({"partition": 3}, "no field partition")])
def test_what_cannot_be_asked_for_is_a_400_and_changes_nothing(cluster: ManagerCluster, topic: str, body: dict, word: str):
    answer = cluster.reads[0].post(f"/v1/topics/{topic}/partitions", body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_request")
    assert word in answer.json()["error"]["message"]
    assert numbers(cluster, topic) == [0, 1]


@pytest.mark.parametrize(("name", "status"), [("nowhere", 404), ("no%20name", 400)])
def test_a_topic_that_is_not_there(cluster: ManagerCluster, stub: BrokerStub, name: str, status: int):
    for answer in (cluster.write.get(f"/v1/topics/{name}/partitions"), cluster.write.post(f"/v1/topics/{name}/partitions", {"partitions": 3})):
        assert answer.status_code == status, answer.text


def test_where_a_leader_does_not_take_them_the_outcome_is_unknown_and_they_are_there(cluster: ManagerCluster, stub: BrokerStub, topic: str):
    stub.refusing = True
    answer = cluster.write.post(f"/v1/topics/{topic}/partitions", {"partitions": 3})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "outcome_unknown")
    stub.refusing = False
    assert cluster.write.post(f"/v1/topics/{topic}/partitions", {"partitions": 3}).json()["added"] == 0


def test_the_only_replica_leads_and_stays_leader(cluster: ManagerCluster, topic: str):
    """Nothing is done, and that is said; nobody else can lead."""
    path = f"/v1/topics/{topic}/partitions/1/elect"
    for body in (None, {}, {"broker_id": 1}, {"broker_id": "1"}):
        answer = cluster.reads[0].post(path, body)
        assert answer.status_code == 200, answer.text
        assert answer.json() == {"topic": topic, "partition": 1, "leader": 1, "epoch": 1, "changed": False}
    answer = cluster.write.post(path, {"broker_id": 2})
    assert (answer.status_code, "1" in answer.json()["error"]["message"]) == (400, True)


def test_a_partition_that_is_where_it_is_wanted_does_not_move(cluster: ManagerCluster, topic: str):
    """Asked for at a read manager; its replication factor is said. Stopping what does not move is no error."""
    path = f"/v1/topics/{topic}/partitions/1/move"
    told = {"topic": topic, "partition": 1, "leader": 1, "replicas": [1], "epoch": 1, "status": "ACTIVE", "wanted": None, "missing": [],
            "replication_factor": 1}
    for body in ({"brokers": [1]}, {"brokers": ["1"]}, {"brokers": None}):
        answer = cluster.reads[0].post(path, body)
        assert (answer.status_code, answer.json()) == (200, told), answer.text


@pytest.mark.parametrize(("body", "status", "word"), [
    ({}, 400, "or null"), ({"brokers": []}, 400, "1 to 7"), ({"brokers": list(range(1, 9))}, 400, "1 to 7"), ({"brokers": 1}, 400, "a list"),
    ({"brokers": "1"}, 400, "a list"), ({"brokers": {"1": 1}}, 400, "a list"), ({"brokers": [True]}, 400, "whole number"),
    ({"brokers": [None]}, 400, "whole number"), ({"brokers": [1.5]}, 400, "whole number"), ({"brokers": [0]}, 400, "from 1"),
    ({"brokers": [1, 1]}, 400, "different"), ({"brokers": [1, 99]}, 404, "no broker 99"), ({"broker_ids": [1]}, 400, "no field")])
def test_where_a_partition_cannot_move_is_a_sentence_and_changes_nothing(cluster: ManagerCluster, topic: str, body: dict, status: int, word: str):
    answer = cluster.reads[0].post(f"/v1/topics/{topic}/partitions/0/move", body)
    assert (answer.status_code, word in answer.json()["error"]["message"]) == (status, True), answer.text
    [at, _] = cluster.write.get(f"/v1/topics/{topic}/partitions").json()["partitions"]
    assert (at["wanted"], at["replicas"]) == (None, [1])


def test_a_partition_that_is_not_there_cannot_move(cluster: ManagerCluster, topic: str):
    path = f"/v1/topics/{topic}/partitions"
    for place, status in ((f"{path}/2", 404), (f"{path}/x", 400), ("/v1/topics/nowhere/partitions/0", 404), ("/v1/topics/a%20b/partitions/0", 400)):
        assert cluster.write.post(f"{place}/move", {"brokers": [1]}).status_code == status, place


def test_brokers_are_listed_and_registered(cluster: ManagerCluster, stub: BrokerStub):
    [one] = wait_until(lambda: cluster.reads[0].get("/v1/brokers").json()["brokers"], what="the read manager to know the broker")
    assert (one["broker_id"], one["port"], one["state"], one["draining"]) == (1, stub.port, "alive", False)
    answer = cluster.reads[1].post("/v1/brokers", {"host": "127.0.0.1", "port": stub.port})
    assert (answer.status_code, answer.json()) == (201, {"broker_id": 1})
    answer = cluster.write.post("/v1/brokers", {})
    assert (answer.status_code, "supervisor" in answer.json()["error"]["message"]) == (400, True)
