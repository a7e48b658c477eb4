"""Produce, consume and size where brokers fail, refuse or are slow: what is answered, and what is never tried."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from zlib import crc32

import pytest
import requests

from myqueue.errors import NotLeaderError, OutcomeUnknownError, OverloadedError, QuotaExceededError, TooLargeError
from tests.support.broker_stub import BrokerStub
from tests.support.managers import ManagerCluster


@pytest.fixture
def queue(cluster: ManagerCluster, stub: BrokerStub, new_topic: Callable[[], str]) -> dict:
    """A topic of three partitions with a producer and a consumer."""
    name = new_topic()
    assert cluster.write.post("/topics", {"topic": name, "partitions": 3}).status_code == 200
    producer_id = cluster.write.post("/producer/register", {"topic": name}).json()["producer_id"]
    consumer_id = cluster.reads[0].post("/consumer/register", {"topic": name}).json()["consumer_id"]
    stub.calls.clear()
    return {"topic": name, "producer_id": producer_id, "consumer_id": consumer_id}


def produce(cluster: ManagerCluster, queue: dict, message: str, **more: object) -> requests.Response:
    return cluster.write.post("/producer/produce", {"topic": queue["topic"], "producer_id": queue["producer_id"], "message": message, **more})


def consume(cluster: ManagerCluster, queue: dict, **more: object) -> requests.Response:
    return cluster.reads[0].post("/consumer/consume", {"topic": queue["topic"], "consumer_id": queue["consumer_id"], **more})


def test_empty_partitions_are_skipped_and_each_message_comes_once(cluster: ManagerCluster, stub: BrokerStub, queue: dict):
    for number in range(7):
        assert produce(cluster, queue, f"m{number}", partition=2 if number % 2 else 0).status_code == 200
    answers = [consume(cluster, queue) for _ in range(8)]
    assert sorted(answer.json()["message"] for answer in answers[:7]) == [f"m{number}" for number in range(7)]
    assert (answers[7].status_code, answers[7].json()) == (400, {"status": "failure", "message": "No messages left to retrieve", "empty": True})


def test_without_key_and_partition_the_partitions_take_turns(cluster: ManagerCluster, stub: BrokerStub, queue: dict):
    places = [produce(cluster, queue, "m").json()["partition_id"] for _ in range(30)]
    assert [places.count(number) for number in range(3)] == [10, 10, 10]


def test_one_key_is_one_partition_whoever_is_asked(cluster: ManagerCluster, stub: BrokerStub, queue: dict):
    """crc32(key) % partitions, on every manager."""
    body = {"topic": queue["topic"], "producer_id": queue["producer_id"], "message": "m", "key": "k"}
    assert {manager.post("/producer/produce", body).json()["partition_id"] for manager in cluster.managers} == {crc32(b"k") % 3}


def test_an_unknown_outcome_ends_the_search(cluster: ManagerCluster, stub: BrokerStub, queue: dict):
    """After *unknown* from one partition no other is asked: a message may have been handed out."""
    produce(cluster, queue, "m")
    stub.calls.clear()
    stub.failing["dequeue"] = OutcomeUnknownError("who knows")
    answer = consume(cluster, queue)
    assert (answer.status_code, answer.json()["outcome"], answer.json()["component"]) == (503, "unknown", "broker-1")
    assert stub.calls.count("dequeue") == 1


def test_what_is_unavailable_is_never_called_empty(cluster: ManagerCluster, stub: BrokerStub, queue: dict):
    for error in (NotLeaderError("no"), OverloadedError("busy")):
        stub.failing["dequeue"] = error
        answer = consume(cluster, queue)
        assert (answer.status_code, answer.json()["outcome"], answer.headers["Retry-After"]) == (503, "not_done", "1")
    stub.failing = {"sizes": NotLeaderError("no")}
    assert consume(cluster, queue).status_code == 503
    assert cluster.reads[0].get("/size", {"topic": queue["topic"], "consumer_id": queue["consumer_id"]}).status_code == 503


def test_a_quota_is_told_at_once_in_the_face_s_form(cluster: ManagerCluster, stub: BrokerStub, queue: dict):
    """429 with the broker's time to wait, by all three faces; the leader is asked once."""
    told = {"topic": queue["topic"], "partition": 0, "quota": 10, "wait_seconds": 4.5}
    stub.failing["records"] = QuotaExceededError("partition 0 takes 10 bytes a second", **told)
    body = {"topic": queue["topic"], "producer_id": queue["producer_id"], "message": "m", "partition": 0}
    for path, word in (("/producer/produce", "failure"), ("/messages", "Failure")):
        stub.calls.clear()
        answer = cluster.write.post(path, body)
        found = answer.json()
        assert (answer.status_code, found["status"], found["code"], found["outcome"]) == (429, word, "quota_exceeded", "not_done"), answer.text
        assert ("5", "broker-1", 1) == (answer.headers["Retry-After"], found["component"], stub.calls.count("records"))
    native = cluster.write.post(f"/v1/topics/{queue['topic']}/records", {"value": "m", "partition": 0})
    assert (429, "5") == (native.status_code, native.headers["Retry-After"])
    assert told.items() <= native.json()["error"]["details"].items()


def test_a_consume_is_never_repeated(cluster: ManagerCluster, stub: BrokerStub, queue: dict):
    stub.failing["dequeue"] = OutcomeUnknownError("lost")
    consume(cluster, queue, partition=1)
    assert stub.calls == ["dequeue"]


def test_a_request_id_gives_the_same_message_again_without_a_partition(cluster: ManagerCluster, stub: BrokerStub, queue: dict):
    """All leaders are asked for it first; another request gets another message; a silent leader makes it 503."""
    for number in range(6):
        produce(cluster, queue, f"m{number}")
    first = consume(cluster, queue, request_id="r-1").json()
    assert [consume(cluster, queue, request_id="r-1").json() for _ in range(4)] == [first] * 4
    second = consume(cluster, queue, request_id="r-2").json()
    assert (second["partition_id"], second["offset"]) != (first["partition_id"], first["offset"])
    left = [consume(cluster, queue) for _ in range(5)]
    assert [answer.status_code for answer in left] == [200] * 4 + [400]
    stub.failing["dequeue"] = NotLeaderError("silent")
    answer = consume(cluster, queue, request_id="r-3")
    assert (answer.status_code, answer.json()["outcome"]) == (503, "not_done")


def test_latest_begins_at_the_end_of_the_registration(cluster: ManagerCluster, stub: BrokerStub, queue: dict):
    for number in range(3):
        produce(cluster, queue, f"old{number}")
    late = cluster.reads[1].post("/consumer/register", {"topic": queue["topic"], "start": "latest"}).json()["consumer_id"]
    produce(cluster, queue, "new")
    body = {"topic": queue["topic"], "consumer_id": late}
    assert cluster.reads[0].post("/consumer/consume", body).json()["message"] == "new"
    assert cluster.reads[0].post("/consumer/consume", body).status_code == 400
    stub.failing["offsets"] = NotLeaderError("down")
    answer = cluster.write.post("/consumer/register", {"topic": queue["topic"], "start": "latest"})
    assert (answer.status_code, answer.json()["outcome"]) == (503, "unknown")


def test_sizes_by_partition(cluster: ManagerCluster, stub: BrokerStub, queue: dict):
    for partition in (0, 2, 2):
        produce(cluster, queue, "m", partition=partition)
    body = {"topic": queue["topic"], "consumer_id": queue["consumer_id"]}
    answer = cluster.reads[0].get("/unread_messages", body).json()
    assert answer == {"status": "success", "size": 3, "message_size": 3, "sizes": [
        {"partition_id": number, "partition_number": number, "size": size} for number, size in enumerate((1, 0, 2))]}
    assert cluster.reads[1].get("/size", {**body, "partition": 2}).json()["size"] == 2


def test_what_a_broker_refuses_keeps_its_reason(cluster: ManagerCluster, stub: BrokerStub, queue: dict):
    assert produce(cluster, queue, "x" * (1 << 20)).status_code == 200
    assert produce(cluster, queue, "x" * ((1 << 20) + 1)).status_code == 413
    assert "records" in stub.calls
    stub.failing["records"] = TooLargeError("no room")
    assert (produce(cluster, queue, "m").status_code, produce(cluster, queue, "m").json()["message"]) == (413, "broker-1: no room")


@pytest.mark.parametrize("partition", [-1, 3, 7, 2**31, 2**63, "abc", "", 1.5, True, [0]])
def test_a_partition_that_is_not_there_is_refused_at_once(cluster: ManagerCluster, stub: BrokerStub, queue: dict, partition: object):
    for answer in (produce(cluster, queue, "m", partition=partition), consume(cluster, queue, partition=partition)):
        assert (answer.status_code, answer.json()["status"]) == (400, "failure")
        if partition in (3, 7):
            assert "it has 3 partitions" in answer.json()["message"]
    assert stub.calls == []


def test_a_broker_that_hangs_delays_nobody_who_does_not_need_it(cluster: ManagerCluster, stub: BrokerStub, queue: dict):
    """Ten consumes wait for a broker that holds its breath; metadata and heartbeats go on beside them."""
    with stub.held(), ThreadPoolExecutor(10) as pool:
        slow = [pool.submit(consume, cluster, queue, partition=0) for _ in range(10)]
        began = time.monotonic()
        for _ in range(10):
            assert cluster.reads[0].get("/topics").status_code == 200
            assert cluster.reads[0].get("/livez").status_code == 200
        assert time.monotonic() - began < 3
        assert {future.result().status_code for future in slow} <= {400, 503}


@pytest.mark.parametrize(("arguments", "status"), [
    ({}, 400), ({"host": "127.0.0.1"}, 400), ({"port": 1}, 400), ({"port": "x"}, 400), ({"broker_addr": "127.0.0.1:1"}, 400),
    ({"broker_addr": "no port"}, 400), ({"host": "bad host", "port": 80}, 400), ({"broker_addr": "127.0.0.1:1", "port": 2}, 400)])
def test_a_broker_address_that_does_not_work_is_a_400(cluster: ManagerCluster, stub: BrokerStub, arguments: dict, status: int):
    for path in ("/broker", "/brokers"):
        assert cluster.write.post(path, arguments).status_code == status


def test_every_spelling_of_a_broker_address(cluster: ManagerCluster, stub: BrokerStub):
    for arguments in ({"host": "127.0.0.1", "port": stub.port}, {"port": str(stub.port)}, {"broker_ip": "127.0.0.1", "broker_port": stub.port},
                      {"broker_address": f"127.0.0.1:{stub.port}"}, {"broker_addr": f"http://127.0.0.1:{stub.port}/"}):
        assert cluster.write.post("/broker", arguments).json()["broker_id"] == 1
    assert cluster.reads[0].post("/brokers", {"port": stub.port}).status_code == 201
    manager = cluster.write.url.rsplit(":", 1)[1]
    assert "not a broker" in cluster.write.post("/broker", {"port": manager}).json()["message"]


def test_a_broker_that_holds_partitions_is_not_removed(cluster: ManagerCluster, stub: BrokerStub, queue: dict):
    answer = cluster.write.call("DELETE", "/broker/remove?broker_id=1")
    assert (answer.status_code, "would lose" in answer.json()["message"]) == (400, True)
    assert cluster.write.call("DELETE", "/broker/remove", {"broker_id": 99}).status_code == 400


def test_head_never_consumes(cluster: ManagerCluster, stub: BrokerStub, queue: dict):
    produce(cluster, queue, "m", partition=0)
    stub.calls.clear()
    for path in ("/consumer/consume", "/messages", "/logs"):
        query = f"?topic={queue['topic']}&consumer_id={queue['consumer_id']}&partition=0"
        assert cluster.reads[0].call("HEAD", path + query).status_code in (400, 405)
    assert stub.calls == []
