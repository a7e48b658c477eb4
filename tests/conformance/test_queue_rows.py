"""The queue face, row by row of its table."""

from __future__ import annotations

import re
import time

import pytest

from tests.conformance.face import Face


def test_create_topic(face: Face, topic: str) -> None:
    assert f"Topic '{topic}' created successfully" == face.ok("POST", "/topics", {"topic": topic})["message"]
    face.sees(topic)


def test_create_a_topic_that_is_there(face: Face, topic: str) -> None:
    face.ok("POST", "/topics", {"topic": topic, "partitions": 2})
    face.refused("POST", "/topics", {"topic": topic}, says=topic)
    face.refused("POST", "/topics", {"topic": topic, "partitions": 5}, says=topic)
    consumer = face.consumer(topic)
    assert 2 == len(face.ok("GET", "/size", {"topic": topic, "consumer_id": consumer})["sizes"]), "the refused creation changed it"


def test_list_topics_is_a_list_of_names(face: Face, topic: str) -> None:
    before = face.ok("GET", "/topics")
    assert {"status", "topics"} == before.keys()
    assert all(isinstance(name, str) for name in before["topics"])
    assert topic not in before["topics"]


def test_register_a_producer_creates_the_topic(face: Face, topic: str) -> None:
    body = face.ok("POST", "/producer/register", {"topic": topic})
    assert f"Producer ID {body['producer_id']} registered for topic {topic}" == body["message"]
    assert body["producer_id"] == int(re.search(r"ID (\d+)", body["message"])[1])
    face.sees(topic)


def test_register_a_producer_for_a_topic_that_is_there_keeps_it(face: Face, topic: str) -> None:
    face.ok("POST", "/topics", {"topic": topic, "partitions": 3})
    first, second = face.producer(topic), face.producer(topic)
    assert first != second
    consumer = face.consumer(topic)
    assert 3 == len(face.ok("GET", "/size", {"topic": topic, "consumer_id": consumer})["sizes"])


def test_register_a_consumer(face: Face, topic: str) -> None:
    face.ok("POST", "/topics", {"topic": topic})
    body = face.ok("POST", "/consumer/register", {"topic": topic})
    assert f"Consumer ID {body['consumer_id']} subscribed to topic {topic}" == body["message"]


def test_register_a_consumer_of_an_unknown_topic_creates_nothing(face: Face, topic: str) -> None:
    face.refused("POST", "/consumer/register", {"topic": topic}, says=topic)
    assert topic not in face.ok("GET", "/topics")["topics"]


def test_produce_says_where_the_message_is(face: Face, topic: str) -> None:
    producer, _ = face.both(topic)
    for offset in range(3):
        body = face.produce(topic, producer, f"m{offset}")
        assert (0, offset) == (body["partition_id"], body["offset"])


def test_produce_to_an_unknown_topic_stores_nothing(face: Face, topic: str) -> None:
    producer = face.producer(topic)
    face.refused("POST", "/producer/produce", {"topic": topic + "x", "producer_id": producer, "message": "m"}, says=topic + "x")
    assert topic + "x" not in face.ok("GET", "/topics")["topics"]


def test_produce_to_an_unknown_partition_names_the_count_at_once(face: Face, topic: str) -> None:
    producer, consumer = face.both(topic, partitions=2)
    began = time.monotonic()
    for partition in (2, 7, 2**31 - 1):
        asked = {"topic": topic, "producer_id": producer, "message": "m", "partition": partition}
        face.refused("POST", "/producer/produce", asked, says="2 partition")
    assert time.monotonic() - began < 3
    assert 0 == face.size(topic, consumer)


def test_produce_by_somebody_who_is_not_registered_for_the_topic(face: Face, topic: str) -> None:
    _, consumer = face.both(topic)
    other = face.producer(topic + "-other")
    for producer in (other, 999_999_999):
        face.refused("POST", "/producer/produce", {"topic": topic, "producer_id": producer, "message": "m"}, says=str(producer))
    assert 0 == face.size(topic, consumer)


def test_produce_without_a_message(face: Face, topic: str) -> None:
    producer, consumer = face.both(topic)
    face.refused("POST", "/producer/produce", {"topic": topic, "producer_id": producer}, says="message")
    assert 0 == face.size(topic, consumer)


def test_a_message_may_have_1_mib_and_not_a_byte_more(face: Face, topic: str) -> None:
    producer, consumer = face.both(topic)
    for size in ((1 << 20) - 1, 1 << 20):
        face.produce(topic, producer, "x" * size)
    for size in ((1 << 20) + 1, 20 << 20):
        face.refused("POST", "/producer/produce", {"topic": topic, "producer_id": producer, "message": "x" * size}, status=413)
    assert 2 == face.size(topic, consumer)
    assert [(1 << 20) - 1, 1 << 20] == [len(face.consume(topic, consumer)["message"]) for _ in range(2)]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_consume_has_all_its_fields(face: Face, topic: str, method: str) -> None:
    producer, consumer = face.both(topic)
    face.produce(topic, producer, "hello")
    body = face.ok(method, "/consumer/consume", {"topic": topic, "consumer_id": consumer})
    timestamp = body.pop("timestamp")
    assert {"status": "success", "message": "hello", "log_message": "hello", "topic": topic, "partition_id": 0, "offset": 0} == body
    assert isinstance(timestamp, int)
    assert abs(timestamp / 1e6 - time.time()) < 3_600, "microseconds since 1970"


def test_consume_with_nothing_left(face: Face, topic: str) -> None:
    producer, consumer = face.both(topic)
    face.nothing_left(topic, consumer)
    face.produce(topic, producer, "one")
    face.consume(topic, consumer)
    face.nothing_left(topic, consumer)


def test_consume_of_an_unknown_topic_or_by_an_unknown_consumer_is_no_empty_answer(face: Face, topic: str) -> None:
    producer, _ = face.both(topic)
    face.produce(topic, producer, "kept")
    other = face.consumer(_other(face, topic))
    for asked, consumer in ((topic + "x", other), (topic, 999_999_999), (topic, other)):
        assert "empty" not in face.refused("GET", "/consumer/consume", {"topic": asked, "consumer_id": consumer})


def test_size_counts_what_this_consumer_has_not_read(face: Face, topic: str) -> None:
    producer, first = face.both(topic, partitions=2)
    second = face.consumer(topic)
    for partition, count in ((0, 3), (1, 2)):
        for number in range(count):
            face.produce(topic, producer, f"{partition}.{number}", partition=partition)
    face.consume(topic, first, partition=0)
    body = face.ok("GET", "/size", {"topic": topic, "consumer_id": first})
    rows = [{"partition_id": 0, "partition_number": 0, "size": 2}, {"partition_id": 1, "partition_number": 1, "size": 2}]
    assert {"status": "success", "size": 4, "sizes": rows} == body
    assert 5 == face.size(topic, second)
    assert (2, 2) == (face.size(topic, first, partition=0), face.size(topic, first, partition=1))


def test_unread_messages_is_size_by_another_name(face: Face, topic: str) -> None:
    producer, consumer = face.both(topic)
    face.produce(topic, producer, "m")
    body = face.ok("GET", "/unread_messages", {"topic": topic, "consumer_id": consumer})
    assert (1, 1, 1) == (body["message_size"], body["size"], len(body["sizes"]))


def test_size_of_an_unknown_topic_or_consumer(face: Face, topic: str) -> None:
    _, consumer = face.both(topic)
    face.refused("GET", "/size", {"topic": topic + "x", "consumer_id": consumer})
    face.refused("GET", "/size", {"topic": topic, "consumer_id": 999_999_999})


def test_list_brokers(face: Face) -> None:
    brokers = face.ok("GET", "/broker")["brokers"]
    assert brokers
    for broker in brokers:
        assert {"broker_id", "host", "port", "state", "last_heartbeat", "partitions", "leaders"} <= broker.keys()
        assert broker["state"] in ("alive", "suspect", "dead")
    assert "alive" in {broker["state"] for broker in brokers}


@pytest.mark.parametrize("address", [
    {"host": "127.0.0.1", "port": 1}, {"port": 1}, {"broker_addr": "127.0.0.1:1"}, {"broker_address": "127.0.0.1:1"},
    {"broker_ip": "127.0.0.1", "broker_port": "1"},
])
def test_an_unreachable_broker_is_not_registered(face: Face, address: dict) -> None:
    before = {broker["broker_id"] for broker in face.ok("GET", "/broker")["brokers"]}
    face.refused("POST", "/broker", address)
    assert before == {broker["broker_id"] for broker in face.ok("GET", "/broker")["brokers"]}


def test_a_broker_that_is_there_may_be_registered_again_and_keeps_its_id(face: Face) -> None:
    broker = next(broker for broker in face.ok("GET", "/broker")["brokers"] if broker["state"] == "alive")
    assert broker["broker_id"] == face.ok("POST", "/broker", {"host": broker["host"], "port": broker["port"]})["broker_id"]


def test_an_address_that_is_none_is_refused(face: Face) -> None:
    for address in ({}, {"host": "127.0.0.1"}, {"port": 0}, {"port": 65_536}, {"port": "x"}, {"broker_addr": "nonsense"}):
        face.refused("POST", "/broker", address)


def test_an_unknown_broker_cannot_be_removed(face: Face) -> None:
    face.refused("DELETE", "/broker/remove", {"broker_id": 999_999_999})


def test_add_a_partition(face: Face, topic: str) -> None:
    producer, consumer = face.both(topic)
    assert 1 == face.ok("POST", "/partition", {"topic": topic})["partition_id"]
    assert 1 == face.produce(topic, producer, "there", partition=1)["partition_id"]
    assert "there" == face.consume(topic, consumer, partition=1)["message"]
    face.refused("POST", "/partition", {"topic": topic + "x"}, says=topic + "x")


def test_health_knows_every_kind_of_actor(face: Face, topic: str) -> None:
    producer, consumer = face.both(topic)
    face.produce(topic, producer, "m")
    face.consume(topic, consumer)
    deadline = time.monotonic() + 10
    while True:  # heartbeats are written and shared about once a second
        body = face.ok("GET", "/health")
        ids = {kind: {actor["id"]: actor for actor in body[kind]} for kind in ("brokers", "managers", "producers", "consumers")}
        if (producer in ids["producers"] and consumer in ids["consumers"]) or time.monotonic() > deadline:
            break
    assert "alive" == ids["producers"][producer]["state"]
    assert "alive" == ids["consumers"][consumer]["state"]
    for actors in ids.values():
        assert actors
        for actor in actors.values():
            assert actor["state"] in ("alive", "suspect", "dead")
            assert actor["age_seconds"] >= 0


def _other(face: Face, topic: str) -> str:
    face.ok("POST", "/topics", {"topic": topic + "-other"})
    return topic + "-other"
