"""The schemas say what the encoders write and what the decoders take."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest

from myqueue.errors import BY_CODE, BadRequestError, MyQueueError
from myqueue.protocol import topic_config, wire
from myqueue.protocol.names import check_topic_name
from myqueue.protocol.schemas import COMPONENTS, error_of, ref
from myqueue.protocol.types import Appended, ClusterSnapshot, Message, NodeAddress, PartitionInfo, TopicPartition


def closed(value: Any) -> Any:
    """The schema with no room for a field that it does not name."""
    if isinstance(value, dict):
        made = {name: closed(inner) for name, inner in value.items()}
        return {**made, "additionalProperties": False} if "properties" in made and "additionalProperties" not in made else made
    return [closed(inner) for inner in value] if isinstance(value, list) else value


def validator(name: str) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator({**ref(name), "components": {"schemas": closed(COMPONENTS)}})


@pytest.mark.parametrize("message", [
    Message("t", 0, 0, b"text"), Message("t", 0, 2**62, b"\xff", key=b"k", timestamp=2**62),
    Message("t", 0, 1, b"", key=b"\xfe", headers=(("a", b"1"), ("b", None), ("c", b"\xfd"))),
])
def test_a_message_is_as_described(message: Message) -> None:
    validator("Message").validate(wire.message_to_json(message))


def test_an_append_s_answer_is_as_described() -> None:
    validator("Appended").validate(wire.appended_to_json(Appended("t", 0, 0, 1, 1, True)))


@pytest.mark.parametrize("leader", [None, 1])
def test_the_routing_table_is_as_described(leader: int | None) -> None:
    snapshot = ClusterSnapshot("c", 7, {1: NodeAddress("h", 1)}, {TopicPartition("t", 0): PartitionInfo("t", 1, 0, 1, leader, (1, 2), "ELECTING")})
    told = wire.snapshot_to_json(snapshot)
    for partition in told["partitions"]:
        validator("PartitionInfo").validate(partition)
    assert set(told) <= set(COMPONENTS["ClusterSnapshot"]["properties"])
    assert all(set(one) <= set(COMPONENTS["Broker"]["properties"]) for one in told["brokers"])


@pytest.mark.parametrize("cls", sorted(BY_CODE.values(), key=lambda cls: cls.code))
def test_every_error_is_as_described(cls: type[MyQueueError]) -> None:
    told = wire.error_to_json(cls())
    validator("Error").validate(told)
    own = jsonschema_rs.Draft202012Validator({**error_of((cls,)), "components": {"schemas": COMPONENTS}})
    own.validate(told)
    assert not own.is_valid(wire.error_to_json(next(other for other in BY_CODE.values() if other is not cls)()))


@pytest.mark.parametrize("body", [
    {"value": "x"}, {"value_base64": "/w=="}, {"value": "", "key": None}, {"value": "x", "key": "k", "headers": {"a": "b"}, "timestamp": 2**63 - 1},
    {}, {"value": None}, {"value": 1}, {"value": "x", "value_base64": "eA=="}, {"value": "x", "timestamp": -1}, {"value": "x", "timestamp": True},
    {"value": "x", "timestamp": 2**63}, {"value": "x", "headers": []},
    {"value": "x", "headers": 0}, {"value": "x", "headers": ""}, {"value": "x", "key": 0}, {"value": "x", "headers": None},
    {"value": "x", "headers": {"a": 1}}, {"value": "x", "more": 1}, [], "x",
])
def test_a_record_that_is_taken_is_one_by_the_schema_and_the_other_way_round(body: Any) -> None:
    try:
        wire.record_from_json(body)
        taken = True
    except BadRequestError:
        taken = False
    assert taken is validator("Record").is_valid(body)


@pytest.mark.parametrize("name", ["a", ".a", "a.", "...", "..a", "A-Z_0.9", "x" * 249,
                                  "", ".", "..", "x" * 250, "a/b", "ä", "a b", "a\n", "a\0", "٣"])
def test_a_topic_name_that_is_taken_is_one_by_the_schema_and_the_other_way_round(name: str) -> None:
    try:
        check_topic_name(name)
        taken = True
    except BadRequestError:
        taken = False
    assert taken is validator("TopicName").is_valid(name)


@pytest.mark.parametrize("config", [
    {}, {"retention_ms": 1}, {"retention_bytes": topic_config.NUMBER_MAX}, {"retention_ms": 0}, {"retention_ms": topic_config.NUMBER_MAX + 1},
    {"retention_ms": True}, {"retention_ms": "1"}, {"retention_ms": None}, {"other": 1}, [], "x",
    {"produce_bytes_per_second": 1}, {"produce_bytes_per_second": 0}, {"produce_bytes_per_second": 1.5},
])
def test_a_config_that_is_taken_is_one_by_the_schema_and_the_other_way_round(config: Any) -> None:
    try:
        topic_config.check_config(config)
        taken = True
    except BadRequestError:
        taken = False
    assert taken is validator("TopicConfig").is_valid(config)
