"""The partition face, row by row of its table: on whatever the URL names, and on the broker that leads the partition."""

from __future__ import annotations

import base64
from contextlib import suppress
from typing import Any

import pytest
import requests

from tests.conformance.conftest import ENTRANCES, SERVERS, World, Worlds, new_name
from tests.conformance.contract import BROKER, EMPTY_OF, PARTITION, Call
from tests.conformance.face import Face

EMPTY = EMPTY_OF[PARTITION][1]
MIB = 1 << 20


class Log:
    """Partition 0 of a new topic with a producer and a consumer, at an entrance or, as ``broker``, at its leader."""

    def __init__(self, world: World, server: str) -> None:
        self.topic = new_name()
        self.producer_id, self.consumer_id = world.face.both(self.topic, partitions=2)
        self.world, self.at = world, world.face
        if server == "broker":
            leader = self.described()[0]["leader"]
            self.at = Face(f"http://{leader['host']}:{leader['port']}")

    def described(self) -> list[dict[str, Any]]:
        return self.world.face.ok("GET", "/partitions", face=PARTITION, params={"topic": self.topic})["partitions"]

    def send(self, message: str, path: str = "/messages", **more: Any) -> dict[str, Any]:
        asked = {"topic": self.topic, "producer_id": self.producer_id, "partition": 0, "message": message, **more}
        return self.at.ok("POST", path, asked, face=PARTITION, status=201)

    def read(self, path: str = "/messages", **more: Any) -> dict[str, Any]:
        asked = {"topic": self.topic, "consumer_id": self.consumer_id, "partition": 0, **more}
        return self.at.ok("GET", path, face=PARTITION, params=asked)


@pytest.fixture(params=SERVERS)
def log(worlds: Worlds, request: pytest.FixtureRequest) -> Log:
    return Log(worlds[request.param], request.param)


def test_messages_and_logs_are_one_log_in_order(log: Log) -> None:
    for number, path in enumerate(("/messages", "/logs", "/messages/", "/logs/")):
        assert number == log.send(f"m{number}", path)["offset"]
    assert [f"m{number}" for number in range(4)] == [log.read(path)["message"] for path in ("/logs", "/messages/", "/logs/", "/messages")]


def test_nothing_left_is_a_success_that_says_so(log: Log) -> None:
    assert EMPTY == log.read()
    log.send("one")
    body = log.read()
    assert ("one", 0, 0) == (body["message"], body["partition_id"], body["offset"])
    assert [EMPTY, EMPTY] == [log.read(path) for path in ("/messages", "/logs")]


def test_all_faces_and_nodes_share_a_consumer_s_place(log: Log) -> None:
    for number in range(4):
        log.send(str(number))
    queue = {"topic": log.topic, "consumer_id": log.consumer_id, "partition": 0}
    seen = [log.read()["message"], log.world.face.consume(**queue)["message"], log.read("/logs")["message"]]
    assert ["0", "1", "2"] == seen
    assert 1 == log.world.face.size(**queue)


def test_texts_come_back_character_for_character(log: Log) -> None:
    for message in ("", " ", "a\x00b", "line\nline\r\n", "YWJj", "é ü 漢字 🎉", "null", "{}", "x" * 5_000, "%2F & = +"):
        log.send(message)
        body = log.read()
        assert (message, message) == (body["message"], body["log_message"])


def test_bytes_that_are_no_text_come_back_as_base64(log: Log) -> None:
    data = bytes(range(256))
    asked = {"topic": log.topic, "producer_id": log.producer_id, "partition": 0, "message_base64": base64.b64encode(data).decode()}
    log.at.ok("POST", "/messages", asked, face=PARTITION, status=201)
    body = log.read()
    assert data == base64.b64decode(body["message_base64"])
    assert not {"message", "log_message"} & body.keys()


@pytest.mark.parametrize("way", ["json", "data"])
def test_a_message_may_have_1_mib_and_not_a_byte_more(log: Log, way: str) -> None:
    asked = {"topic": log.topic, "producer_id": log.producer_id, "partition": 0}
    log.at.ok("POST", "/messages", face=PARTITION, status=201, **{way: {**asked, "message": "x" * MIB}})
    for size in (MIB + 1, 20 * MIB):
        log.at.refused("POST", "/messages", face=PARTITION, status=413, **{way: {**asked, "message": "x" * size}})
    assert MIB == len(log.read()["message"])
    assert EMPTY == log.read()


def test_a_request_id_makes_a_read_repeatable(log: Log) -> None:
    for number in range(2):
        log.send(str(number))
    first = log.read(request_id="r-1")
    assert [first, first] == [log.read(path, request_id="r-1") for path in ("/messages", "/logs")]
    assert "1" == log.read(request_id="r-2")["message"]
    assert first == log.read(request_id="r-1")


def test_looking_at_the_head_hands_nothing_out(log: Log) -> None:
    log.send("kept")
    for path in ("/messages", "/logs"):
        answer = log.at.call("HEAD", path, params={"topic": log.topic, "consumer_id": log.consumer_id, "partition": 0})
        assert (400, b"") == (answer.status_code, answer.content)
    assert "kept" == log.read()["message"]


@pytest.mark.parametrize("server", SERVERS)
def test_a_method_that_is_not_there_is_told_in_the_face_s_form(at: Face) -> None:
    for method, path in (("PUT", "/messages"), ("DELETE", "/logs"), ("PATCH", "/partitions"), ("POST", "/raft_status"), ("DELETE", "/"),
                         ("BREW", "/logs"), ("GET", "/consumers")):
        answer = at.call(method, path)
        assert (405, "Failure") == (answer.status_code, answer.json()["status"])
        assert answer.json()["reason"] == answer.json()["message"] != ""


@pytest.mark.parametrize("server", ENTRANCES)
def test_partitions_are_listed_with_their_brokers(world: World, topic: str) -> None:
    world.face.ok("POST", "/topics", {"topic": topic, "partitions": 3})
    body = world.face.ok("GET", "/partitions", face=PARTITION, params={"topic": topic})
    assert (topic, [0, 1, 2]) == (body["topic"], [one["partition_id"] for one in body["partitions"]])
    known = {broker["broker_id"]: (broker["host"], broker["port"]) for broker in world.face.ok("GET", "/brokers", face=PARTITION)["brokers"]}
    for one in body["partitions"]:
        assert one["leader"] in one["replicas"]
        assert all(known[replica["broker_id"]] == (replica["host"], replica["port"]) for replica in one["replicas"])
    [second] = world.face.ok("GET", "/partitions", face=PARTITION, params={"topic": topic, "partition": 1})["partitions"]
    assert 1 == second["partition_id"]


def test_a_partition_that_was_added_takes_messages(log: Log) -> None:
    asked = {"topic": log.topic, "producer_id": log.producer_id, "replica_id": 1, "raft_host": "127.0.0.1", "raft_partners": ["a:1", "b:2"]}
    assert 2 == log.at.ok("POST", "/partitions", asked, face=PARTITION, status=201)["partition_id"]
    at = log.world.face
    to = {"topic": log.topic, "partition": 2}
    assert 2 == at.ok("POST", "/messages", {**to, "producer_id": log.producer_id, "message": "m"}, face=PARTITION, status=201)["partition_id"]
    assert "m" == at.ok("GET", "/logs", face=PARTITION, params={**to, "consumer_id": log.consumer_id})["message"]


def test_a_consumer_is_told_its_partitions(log: Log) -> None:
    body = log.at.ok("POST", "/consumers", {"topic": log.topic}, face=PARTITION, status=201)
    assert [0, 1] == body["partitions"]
    assert EMPTY == log.read(consumer_id=body["consumer_id"])
    log.at.refused("POST", "/consumers", {"topic": new_name()}, face=PARTITION, says="conformance-")


@pytest.mark.parametrize("server", ENTRANCES)
def test_of_all_brokers_one_leads_a_partition(world: World) -> None:
    """Each that holds it says so of itself; the leader has the log that the others get. Who is down says nothing and leads nothing."""
    [one] = world.face.ok("GET", "/partitions", face=PARTITION, params={"topic": world.topic, "partition": 0})["partitions"]
    said = {}
    for replica in one["replicas"]:
        with Face(f"http://{replica['host']}:{replica['port']}") as broker, suppress(requests.ConnectionError):
            said[replica["broker_id"]] = broker.ok("GET", "/raft_status", face=PARTITION, params={"topic": world.topic, "partition": 0})
    assert 2 * len(said) > len(one["replicas"])
    assert [one["leader"]["broker_id"]] == [broker_id for broker_id, status in said.items() if status["is_leader"]]
    assert all(broker_id == status["self"] for broker_id, status in said.items())
    leader = said[one["leader"]["broker_id"]]
    assert (True, "leader", leader["self"]) == (leader["has_quorum"], leader["state"], leader["leader"])
    assert leader["commit_idx"] >= max(status["commit_idx"] for status in said.values())


def test_a_manager_says_who_leads(face: Face) -> None:
    status = face.ok("GET", "/raft_status", face=PARTITION)
    assert (True, status["self"] == status["leader"]) == (status["has_quorum"], status["is_leader"])
    assert status["last_applied"] <= status["commit_idx"]


@pytest.mark.parametrize("server", ENTRANCES)
def test_brokers_are_registered_again_and_wrong_addresses_are_not(world: World) -> None:
    before = world.face.ok("GET", "/brokers", face=PARTITION)["brokers"]
    at = f"{world.broker['host']}:{world.broker['port']}"
    for address in ({"broker_addr": at}, {"broker_address": at}, {"broker_address": f"http://{at}/"}):
        again = world.face.ok("POST", "/brokers", address, face=PARTITION, status=201)
        assert world.broker["broker_id"] == again["broker_id"]
    wrong = ({"host": "127.0.0.1"}, {"host": "127.0.0.1", "port": 1}, {"port": 1}, {"broker_addr": "nonsense"}, {"broker_addr": at, "port": 1})
    for address in wrong:
        world.face.refused("POST", "/brokers", address, face=PARTITION)
    assert [one["broker_id"] for one in before] == [one["broker_id"] for one in world.face.ok("GET", "/brokers", face=PARTITION)["brokers"]]


@pytest.mark.parametrize("server", ENTRANCES)
@pytest.mark.parametrize("call", BROKER, ids=str)
def test_who_was_written_for_a_broker_may_speak_to_the_balancer(world: World, call: Call) -> None:
    """The same request succeeds there in the same way, so that such a client runs with the balancer's address in place of the broker's."""
    world.face.ok(call.method, call.path, world.arguments(call), face=PARTITION, status=call.status)
