"""PURE. JSON Schemas of what the native face takes and gives, made from the encoders, names and bounds that the servers use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import BY_CODE, NOT_DONE, UNKNOWN, MyQueueError
from . import limits, topic_config, wire
from .names import INT64_MAX, TOPIC_PATTERN, TOPIC_RULE
from .types import Appended, ClusterSnapshot, NodeAddress, PartitionInfo, TopicPartition

Schema = dict[str, Any]
STATES = ("alive", "suspect", "dead")
TOPIC, GREETING = "greetings", "hello, log"  # of the examples


# --- small words ---


def integer(help: str = "", *, minimum: int = 0, maximum: int = INT64_MAX, default: int | None = None) -> Schema:
    return _said({"type": "integer", "minimum": minimum, "maximum": maximum, **({} if default is None else {"default": default})}, help)


def number(help: str = "", *, minimum: float = 0) -> Schema:
    return _said({"type": "number", "minimum": minimum}, help)


def text(help: str = "", *, length_max: int | None = None) -> Schema:
    return _said({"type": "string", **({} if length_max is None else {"minLength": 1, "maxLength": length_max})}, help)


def boolean(help: str = "", *, default: bool | None = None) -> Schema:
    return _said({"type": "boolean", **({} if default is None else {"default": default})}, help)


def one_of(*values: Any, help: str = "", default: Any = None) -> Schema:
    return _said({"enum": list(values), **({} if default is None else {"default": default})}, help)


def listed(items: Schema, help: str = "", *, least: int = 0, most: int | None = None) -> Schema:
    bounds = ({"minItems": least} if least else {}) | ({} if most is None else {"maxItems": most})
    return _said({"type": "array", "items": items, **bounds}, help)


def mapped(values: Schema, names: Schema, help: str = "") -> Schema:
    """An object whose fields are named by the data."""
    return _said({"type": "object", "additionalProperties": values, "propertyNames": names}, help)


def shape(help: str, fields: Mapping[str, Schema], *, optional: tuple[str, ...] = (), closed: bool = False) -> Schema:
    """An object: every field is needed but the optional ones; ``closed`` where a server refuses any other."""
    needed = [name for name in fields if name not in optional]
    return _said({"type": "object", "properties": dict(fields), **({"required": needed} if needed else {}),
                  **({"additionalProperties": False} if closed else {})}, help)


def shape_of(example: Mapping[str, Any], help: str, fields: Mapping[str, str | Schema], *, optional: tuple[str, ...] = ()) -> Schema:
    """The object that an encoder of ours makes: types from what it made, and a sentence, or a schema of its own, for each of its fields."""
    assert set(example) == set(fields), f"{help}: {sorted(set(example) ^ set(fields))}"
    made = {name: _kind(example[name], told) if isinstance(told, str) else told for name, told in fields.items()}
    return {**shape(help, made, optional=optional), "examples": [dict(example)]}


def nullable(schema: Schema, help: str = "") -> Schema:
    return _said({"anyOf": [schema, {"type": "null"}]}, help)


def ref(name: str) -> Schema:
    assert name in COMPONENTS, name
    return {"$ref": f"#/components/schemas/{name}"}


def error_of(codes: tuple[type[MyQueueError], ...]) -> Schema:
    """The envelope of one of these errors."""
    return {"allOf": [ref("Error"), {"properties": {"error": {"properties": {"code": {"enum": [error.code for error in codes]}}}}}]}


def _said(schema: Schema, help: str) -> Schema:
    return {**schema, "description": help} if help else schema


def _kind(value: Any, help: str) -> Schema:
    if isinstance(value, bool):
        return boolean(help)
    return integer(help) if isinstance(value, int) else text(help)


def _value(name: str, help: str, *, is_null: bool = False) -> dict[str, Schema]:
    """The two fields in which bytes travel, as wire.value_to_json writes them."""
    base64 = _said({"type": "string", "contentEncoding": "base64"}, f"{help}, where it is not UTF-8")
    return {name: nullable(text(help)) if is_null else text(help), f"{name}_base64": base64}


# --- the components, each by its name ---

_AT = "microseconds since 1970"
COMPONENTS: dict[str, Schema] = {}


def _component(name: str, schema: Schema) -> None:
    COMPONENTS[name] = schema


_component("TopicName", {"type": "string", "pattern": TOPIC_PATTERN, "description": TOPIC_RULE})
for _name, _help in (("Offset", "a message's place in its partition, from 0"), ("PartitionNumber", "a partition of its topic, from 0"),
                     ("TopicId", "the topic's identity: a topic that is created again has another one")):
    _component(_name, integer(_help, maximum=limits.INT32_MAX if _name == "PartitionNumber" else INT64_MAX))
for _name, _help in (("ProducerId", "a producer's registration"), ("ConsumerId", "a consumer's registration"),
                     ("BrokerId", "a broker"), ("NodeId", "a manager"), ("MemberId", "a member of a consumer group")):
    _component(_name, integer(_help, minimum=1))
_component("Epoch", integer("of a partition's leadership: a newer leader has a higher one"))
_component("State", one_of(*STATES, "unknown", help="by the heartbeats"))
_component("Error", {**shape("What went wrong, and whether anything was done.", {"error": shape("", {
    "code": one_of(*BY_CODE, help="the kind of error"), "message": text("a sentence for people"),
    "retriable": boolean("whether the same request may simply be sent again"),
    "outcome": one_of(NOT_DONE, UNKNOWN, help=f"{NOT_DONE}: surely nothing was done; {UNKNOWN}: perhaps it was"),
    "details": {"type": "object", "description": "what the caller needs next: leader, earliest, latest, topics, argument, …"}})}),
    "examples": [wire.error_to_json(BY_CODE["unknown_topic"]("Topic 'greetings' does not exist", topics=[TOPIC]))]})

_config = {name: integer(field.help, minimum=field.minimum, maximum=field.maximum) for name, field in topic_config.FIELDS.items()}
_component("TopicConfig", shape("How much of a topic is kept; without a field there is no bound.", _config, optional=tuple(_config), closed=True))
_component("TopicConfigChange", shape("Fields to change; null takes one out.", {name: nullable(field) for name, field in _config.items()},
                                      optional=tuple(_config)))
_component("Topic", shape("A topic.", {
    "topic": ref("TopicName"), "topic_id": ref("TopicId"), "partitions": integer("how many", minimum=1, maximum=limits.PARTITIONS_MAX),
    "replication_factor": integer("replicas of a partition that are wanted", minimum=1, maximum=limits.FACTOR_MAX),
    "config": {"type": "object", "description": "as in TopicConfig; a topic of an older version may have other fields"}}))
_component("CreatedTopic", shape("A new topic.", {
    **COMPONENTS["Topic"]["properties"], "warning": text("where its replicas survive no broker's death")}, optional=("warning",)))
_partition = wire.snapshot_to_json(ClusterSnapshot("c", 1, {1: NodeAddress("127.0.0.1", 9095)}, {
    TopicPartition(TOPIC, 0): PartitionInfo(TOPIC, 1, 0, 3, 1, (1, 2, 3), wanted=(2, 3, 4))}))
_wanted = listed(ref("BrokerId"), "the brokers that its replicas are moving to", least=1, most=limits.FACTOR_MAX)
_component("PartitionInfo", shape_of(_partition["partitions"][0], "A partition as clients route by it.", {
    "topic": ref("TopicName"), "topic_id": ref("TopicId"), "partition": ref("PartitionNumber"), "epoch": ref("Epoch"),
    "leader": nullable(ref("BrokerId")), "replicas": listed(ref("BrokerId"), "who holds a copy"),
    "status": one_of("ACTIVE", "ELECTING", help="ELECTING: it has no leader now, another one is being found"),
    "wanted": _wanted}, optional=("wanted",)))
_port = integer(minimum=1, maximum=limits.PORT_MAX)
_component("Database", shape("Where the node's PostgreSQL is; no password.", {
    "host": text(), "port": _port, "name": text(), "user": text("a login that may only read")}, optional=("host", "port", "name", "user")))
_component("Broker", shape("A broker.", {"broker_id": ref("BrokerId"), "host": text("where it listens"), "port": _port, "state": ref("State"),
                                         "database": ref("Database")}))
_role = one_of("write", "read", help="write: it orders the changes of metadata")
_component("Manager", shape("A manager, as far as it is known.", {
    "node_id": ref("NodeId"), "url": nullable(text()), "role": _role, "state": ref("State"), "database": ref("Database")}, optional=("database",)))
_component("Member", shape("A manager as a member of the group.", {
    "node_id": ref("NodeId"), "url": nullable(text()), "role": _role, "state": ref("State"),
    "voter": boolean("whether it votes"), "disk_id": nullable(text("the disk whose vote counts"))}))
_component("NewMember", shape("A manager that was added.", {
    name: field for name, field in COMPONENTS["Member"]["properties"].items() if name in ("node_id", "url", "voter", "disk_id")}))
_component("ClusterSnapshot", shape("All that a client needs for routing, as of one index of the metadata.", {
    "cluster_id": text("which cluster"), "version": integer("the metadata index that this shows"), "brokers": listed(ref("Broker")),
    "partitions": listed(ref("PartitionInfo"), "of all topics, or of those that were named and exist"),
    "term": integer("in which the write manager was elected"), "managers": listed(ref("Manager"))}))
assert set(_partition) <= set(COMPONENTS["ClusterSnapshot"]["properties"]), "what wire.snapshot_to_json writes is described"


def _actors(kind: str) -> Schema:
    fields = {"id": integer(minimum=1), f"{kind}_id": integer("the same", minimum=1), "state": one_of(*STATES),
              "age_seconds": number("since it was heard of"), "last_heartbeat": nullable(integer(_AT))}
    return listed(shape("", fields))


_placed = shape("", {"count": integer("how many"), "partitions": listed(shape("", {"topic": ref("TopicName"), "partition": ref("PartitionNumber")}),
                                                                       "the first of them")})
_component("Health", shape("Who is there, and which partitions are not as they should be.", {
    **{f"{kind}s": _actors(kind) for kind in ("broker", "manager", "producer", "consumer")},
    "partitions": shape("", {"count": integer("of all topics"), "leaderless": _placed, "under_replicated": _placed, "without_majority": _placed})}))
_described = {name: field for name, field in COMPONENTS["PartitionInfo"]["properties"].items()
              if name in ("partition", "leader", "replicas", "epoch", "status")} | {
                  "wanted": nullable(_wanted), "missing": listed(ref("BrokerId"), "whose replica counts for nothing yet: it is being made")}
_component("TopicDescription", shape("A topic with its partitions.", {
    **COMPONENTS["Topic"]["properties"],
    "partition_list": listed(shape("", _described))}))
_component("Partitions", shape("A topic's partitions.", {
    "topic": ref("TopicName"), "topic_id": ref("TopicId"), "partitions": COMPONENTS["TopicDescription"]["properties"]["partition_list"]}))
_component("AddedPartitions", shape("How many partitions a topic has.", {
    "topic": ref("TopicName"), "topic_id": ref("TopicId"), "partitions": integer("in all", minimum=1), "added": integer("of them new")}))
_component("Elected", shape("Who leads a partition now.", {
    "topic": ref("TopicName"), "partition": ref("PartitionNumber"), "leader": nullable(ref("BrokerId")), "epoch": ref("Epoch"),
    "changed": boolean("whether anything was done")}))
_component("Repairing", shape("A replica that is thrown away, and made again from the others.", {
    "topic": ref("TopicName"), "partition": ref("PartitionNumber"), "broker_id": ref("BrokerId"), "epoch": ref("Epoch"),
    "leader": ref("BrokerId"), "start_offset": integer("of what is thrown away"), "end_offset": integer("of what is thrown away, excluded")}))
_component("Moving", shape("A partition, and where it is moving to.", {
    "topic": ref("TopicName"), **_described, "replication_factor": integer("replicas that it is to have", minimum=1, maximum=limits.FACTOR_MAX),
    "warning": COMPONENTS["CreatedTopic"]["properties"]["warning"]}, optional=("warning",)))
_component("BrokerLoad", shape("A broker, and how much it holds.", {
    "broker_id": ref("BrokerId"), "host": text("where it listens"), "port": _port, "state": one_of(*STATES),
    "last_heartbeat": nullable(integer(_AT)), "age_seconds": nullable(number("since it was heard of")),
    "partitions": integer("that it has a replica of"), "leaders": integer("that it leads"), "draining": boolean("whether they are to move away")}))
_component("LossReport", shape("A partition that has no majority of its replicas any more.", {
    "partition": ref("PartitionNumber"), "epoch": ref("Epoch"), "survivors": listed(ref("BrokerId"), "brokers with a replica that answer"),
    "gone": listed(ref("BrokerId"), "brokers with a replica that do not"), "kept_to_offset": nullable(integer("what lies below it survives")),
    "loss": text("a sentence: what would be lost")}))
_component("AlteredTopic", shape("A topic with its config as it is now.", {
    name: COMPONENTS["Topic"]["properties"][name] for name in ("topic", "topic_id", "config")}))
_component("DeletedTopic", shape("What was deleted.", {name: COMPONENTS["Topic"]["properties"][name] for name in ("topic", "topic_id")}))
_component("Losses", shape("Partitions without a majority.", {"topic": ref("TopicName"), "partitions": listed(ref("LossReport"))}))
_component("Draining", shape("Whether a broker is being drained.", {"broker_id": ref("BrokerId"), "draining": boolean()}))
_component("Removed", shape("The broker is removed.", {"broker_id": ref("BrokerId"), "removed": one_of(True)}))
_component("Producers", shape("A registration for each topic.", {"producers": mapped(shape("", {
    "producer_id": ref("ProducerId"), "producer_epoch": integer("to begin with")}), ref("TopicName"))}))
_component("Consumers", shape("A registration for each topic.", {"consumers": mapped(shape("", {
    "consumer_id": ref("ConsumerId"), "partitions": integer("of the topic", minimum=1)}), ref("TopicName"))}))

# --- consumer groups ---

_component("GroupName", {"type": "string", "pattern": TOPIC_PATTERN, "description": "as a topic name"})
_generation = integer("rises whenever members, or what they read, change", minimum=1)
_component("GroupPartition", shape("A partition.", {"topic": ref("TopicName"), "partition": ref("PartitionNumber")}, closed=True))
_component("Group", shape("A consumer group.", {
    "group": ref("GroupName"), "group_id": integer("a group of the same name that is made anew has another one", minimum=1),
    "generation": _generation, "strategy": one_of("sticky", "range", "round_robin"), "start": one_of("earliest", "latest"),
    "members": integer("how many")}))
_component("Membership", shape("A member, and what it is to read.", {
    "group": ref("GroupName"), "group_id": integer(minimum=1), "member_id": ref("MemberId"), "instance_id": text(), "generation": _generation,
    "topics": listed(ref("TopicName")), "session_timeout_seconds": number(), "heartbeat_interval_seconds": number("send one so often"),
    "partitions": listed(shape("", {"topic": ref("TopicName"), "partition": ref("PartitionNumber"),
                                    "generation": integer("in which it got it", minimum=1)})),
    "releasing": listed(ref("GroupPartition"), "stop reading these, commit, and name them in the next heartbeat as `released`")}))
_component("GroupDescription", shape("A group with its members.", {**COMPONENTS["Group"]["properties"], "member_list": listed(ref("Membership"))}))
_component("DeletedGroup", shape("What was forgotten.", {name: COMPONENTS["Group"]["properties"][name] for name in ("group", "group_id")}))
_component("Offsets", shape("Offsets by partition.", {"offsets": listed(shape("", {
    "topic": ref("TopicName"), "partition": ref("PartitionNumber"), "offset": ref("Offset"),
    "handed_end": integer("of a claim: messages below may have been in the hands of a member that died; 0: nobody said so"),
    "deaths": integer("of a claim: how many members died with the message at the offset alone in their hands")},
    optional=("handed_end", "deaths")))}))
_component("GroupOffsets", shape("Where a group stands.", {
    "group": ref("GroupName"), "lag": integer("messages that it has not committed, in all"), "offsets": listed(shape("", {
        "topic": ref("TopicName"), "partition": ref("PartitionNumber"), "offset": nullable(ref("Offset"), "null: it has committed nothing"),
        "start_offset": integer(), "end_offset": integer(), "lag": integer(), "member_id": nullable(ref("MemberId"), "who reads it now")}))}))

# --- records ---

_component("Record", shape("What a producer hands over: value or value_base64 is needed.", {
    **_value("value", "the message"), **_value("key", "orders what belongs together", is_null=True),
    "headers": nullable({"type": "object", "additionalProperties": text()}, "text by name"),
    "timestamp": nullable(integer(), f"the producer's own time: {_AT}")},
    optional=("value", "value_base64", "key", "key_base64", "headers", "timestamp"), closed=True) | {
        "oneOf": [{"required": ["value"]}, {"required": ["value_base64"]}], "examples": [{"value": GREETING}]})
_component("Batch", {**shape("Records, stored all or nothing.", {"records": listed(ref("Record"), least=1)}, closed=True),
                     "examples": [{"records": [{"value": GREETING, "key": "a"}]}]})
_component("AddressedRecord", {**COMPONENTS["Record"], "description": "A record, and the partition that it is for.", "properties": {
    **COMPONENTS["Record"]["properties"], "partition": nullable(ref("PartitionNumber"))}})
_component("Spread", shape("Where records stand.", {
    "topic": ref("TopicName"), "record_count": integer("all of them", minimum=1), "partitions": listed(shape("", {
        "partition": ref("PartitionNumber"), "base_offset": integer("of the first"), "record_count": integer(minimum=1),
        "records": listed(integer(), "their places in the request, from 0")}))}))
_component("Appended", shape_of(wire.appended_to_json(Appended(TOPIC, 0, 41, 2, 1_790_000_000_000_000, topic_id=7)), "Where the records stand.", {
    "topic": ref("TopicName"), "partition": ref("PartitionNumber"), "base_offset": integer("of the first record"),
    "record_count": integer("how many, at offsets that follow one another", minimum=1), "append_time": f"when it was stored: {_AT}",
    "duplicate": "the same sequence was stored before: this is the answer of that time",
    "topic_id": integer("the topic's identity, which one that is created again does not share")}, optional=("topic_id",)))
_component("Message", shape("A record at its place. A key and headers are there where the record has them.", {
    "offset": ref("Offset"), "timestamp": integer(f"the producer's time where it gave one, else the broker's: {_AT}"),
    **_value("value", "the message"), **_value("key", "the key"),
    "headers": listed(shape("", {"name": text(), **_value("value", "its value", is_null=True)}, optional=("value", "value_base64")))},
    optional=("value", "value_base64", "key", "key_base64", "headers")))
_component("FoundMessage", shape("A message that was searched for.", {
    "partition": ref("PartitionNumber"), **COMPONENTS["Message"]["properties"], "append_time": integer(f"when it was stored: {_AT}")},
    optional=("value", "value_base64", "key", "key_base64", "headers")))
_component("Found", shape("A page of a search.", {
    "topic": ref("TopicName"), "records": listed(ref("FoundMessage")), "cut": listed(integer(), "where each partition ends for this search"),
    "cursor": nullable(text("ask again with it"))}))
_component("Lag", shape("How far a consumer is.", {
    "topic": ref("TopicName"), "consumer_id": ref("ConsumerId"), "lag": integer("messages that it has not committed, in all"),
    "partitions": listed(shape("", {"partition": ref("PartitionNumber"), "offset": nullable(ref("Offset"), "null: it has committed nothing"),
                                    "start_offset": integer(), "end_offset": integer(), "lag": integer()}))}))
_bounds = {"start_offset": integer("the first offset that is left"), "end_offset": integer("the offset that the next message will have")}
_component("Read", shape("Messages in order.", {
    "topic": ref("TopicName"), "partition": ref("PartitionNumber"), "records": listed(ref("Message")),
    "next_offset": integer("where to go on")}))
_component("PartitionState", shape("A partition as its broker has it.", {
    "topic": ref("TopicName"), "partition": ref("PartitionNumber"), "topic_id": ref("TopicId"), **_bounds, "epoch": ref("Epoch"),
    "leader": boolean("whether this broker leads it")}))
_component("ConsumerOffset", shape("Where a consumer stands.", {
    "consumer_id": ref("ConsumerId"), "offset": nullable(integer(), "of the next message to read; null where it has none in this partition yet")}))
_component("Trimmed", shape("What is left.", {
    "topic": ref("TopicName"), "partition": ref("PartitionNumber"), "start_offset": _bounds["start_offset"]}))
_component("Alive", shape("The process answers.", {"status": one_of("alive"), "node": text("which node answered")}))
_component("Ready", shape("The node does its part; what else it says depends on its kind.", {
    "status": one_of("ready"), "node": text("which node answered")}))
