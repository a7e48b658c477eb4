"""The older faces' contract as a table: every call with its arguments, and exactly what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.conformance.shapes import NUMBER, Shape, one_of

# Every spelling of an argument that has more than one.
ALIASES: Mapping[str, tuple[str, ...]] = {
    "topic": ("topic", "topic_name", "name"),
    "message": ("message", "log_message"),
    "partition": ("partition_id", "partition", "partition_index", "partition_number"),
    "partitions": ("partitions", "number_of_partitions"),
    "host": ("host", "broker_ip"),
    "port": ("port", "broker_port"),
    "broker_address": ("broker_addr", "broker_address"),
}
NO_NUMBERS: tuple[Any, ...] = (True, False, "abc", "", " ", 1.5, "1.5", -1, "-1", 2**63, "9" * 400, [], {}, "0x1", "١", "1e3")
NO_NAMES: tuple[Any, ...] = (1, True, "", ".", "..", "a/b", "a%2Fb", "a b", "a\x00b", "ü", "x" * 250, [], {})
NO_TEXTS: tuple[Any, ...] = (1, 1.5, True, [], {}, ["a"])
# What an argument may not be, whatever else is right.
WRONG: Mapping[str, tuple[Any, ...]] = {
    "topic": NO_NAMES, "message": NO_TEXTS, "start": (*NO_TEXTS, "somewhere"), "request_id": (*NO_TEXTS, "", "x" * 256, "a\nb"),
    "producer_id": (*NO_NUMBERS, 0, "0"), "consumer_id": (*NO_NUMBERS, 0, "0"), "broker_id": (*NO_NUMBERS, 0, "0"),
    "partition": (*NO_NUMBERS, 2**31), "partitions": (*NO_NUMBERS, 0, 2**40), "replication_factor": (*NO_NUMBERS, 0, 2**40),
    "config": (1, "x", [], {"nothing": 1}, {"retention_ms": True}), "host": (1, True, "", "a b", [], {}),
    "port": (*NO_NUMBERS, 0, 65_536), "broker_address": (1, True, "", "nonsense", "a:b", "a:0", []),
}
NUMBERS = ("producer_id", "consumer_id", "broker_id", "partition", "partitions", "replication_factor", "port")

QUEUE, PARTITION = "queue", "partition"
WORDS = {QUEUE: ("success", "failure"), PARTITION: ("Success", "Failure")}


@dataclass(frozen=True)
class Call:
    """A row of the contract.

    ``needs`` and ``takes`` name its arguments; ``answers`` is the body of a success but for its ``status``. ``makes`` says that the topic that it
    names may not be there yet, ``grows`` that it adds a partition, ``reads`` that it hands a message out, ``stores`` that it stores one.
    """

    face: str
    method: str
    path: str
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    answers: Mapping[str, Shape] | None = None
    status: int = 200
    makes: bool = False
    grows: bool = False
    reads: bool = False
    stores: bool = False

    @property
    def arguments(self) -> tuple[str, ...]:
        return self.needs + self.takes

    @property
    def success(self) -> dict[str, Shape]:
        return {"status": WORDS[self.face][0], **(self.answers or {})}

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


STATE = one_of("alive", "suspect", "dead")
MESSAGE = {"message": str, "log_message": str, "topic": str, "partition_id": int, "offset": int, "timestamp": int}
SIZES = {"size": int, "sizes": [{"partition_id": int, "partition_number": int, "size": int}]}
BROKERS = [{"broker_id": int, "host": str, "port": int, "state": STATE, "last_heartbeat": one_of(None, int), "age_seconds": one_of(None, NUMBER),
            "partitions": int, "leaders": int}]
ADDRESS = {"broker_id": int, "host": str, "port": int}
LISTED = {"count": int, "partitions": [{"topic": str, "partition": int}]}


def actors(kind: str) -> Shape:
    return [{"id": int, f"{kind}_id": int, "state": STATE, "age_seconds": NUMBER, "last_heartbeat": one_of(None, int)}]


QUEUE_FACE = (
    Call(QUEUE, "POST", "/topics", ("topic",), ("partitions", "replication_factor", "config"), {"message": str}, makes=True),
    Call(QUEUE, "GET", "/topics", answers={"topics": [str]}),
    Call(QUEUE, "POST", "/producer/register", ("topic",), (), {"producer_id": int, "message": str}),
    Call(QUEUE, "POST", "/consumer/register", ("topic",), ("start",), {"consumer_id": int, "message": str}),
    Call(QUEUE, "POST", "/producer/produce", ("topic", "producer_id", "message"), ("partition",),
         {"partition_id": int, "offset": int, "message": str}, stores=True),
    Call(QUEUE, "GET", "/consumer/consume", ("topic", "consumer_id"), ("partition", "request_id"), MESSAGE, reads=True),
    Call(QUEUE, "POST", "/consumer/consume", ("topic", "consumer_id"), ("partition", "request_id"), MESSAGE, reads=True),
    Call(QUEUE, "GET", "/size", ("topic", "consumer_id"), ("partition",), SIZES),
    Call(QUEUE, "GET", "/unread_messages", ("topic", "consumer_id"), ("partition",), {**SIZES, "message_size": int}),
    Call(QUEUE, "POST", "/broker", ("port",), ("host",), {"broker_id": int, "message": str}),
    Call(QUEUE, "GET", "/broker", answers={"brokers": BROKERS}),
    Call(QUEUE, "POST", "/partition", ("topic",), (), {"partition_id": int, "message": str}, grows=True),
    Call(QUEUE, "GET", "/health", answers={
        **{f"{kind}s": actors(kind) for kind in ("broker", "manager", "producer", "consumer")},
        "partitions": {"count": int, "leaderless": LISTED, "under_replicated": LISTED, "without_majority": LISTED}}),
)
PARTITION_FACE = (
    Call(PARTITION, "GET", "/", answers={"message": str}),
    Call(PARTITION, "GET", "/raft_status", answers={
        "self": str, "leader": one_of(None, str), "state": one_of("leader", "follower", "candidate"), "has_quorum": bool, "raft_term": int,
        "log_len": int, "commit_idx": int, "last_applied": int, "is_leader": bool, "freshness_seconds": one_of(None, NUMBER)}),
    Call(PARTITION, "POST", "/producers", ("topic",), (), {"producer_id": int}, 201),
    Call(PARTITION, "POST", "/consumers", ("topic",), ("start",), {"consumer_id": int, "partitions": [int]}, 201),
    Call(PARTITION, "POST", "/partitions", ("topic",), ("producer_id",), {"partition_id": int}, 201, grows=True),
    Call(PARTITION, "GET", "/partitions", ("topic",), ("partition",), {
        "topic": str, "partitions": [{"partition_id": int, "leader": one_of(None, ADDRESS), "replicas": [ADDRESS], "epoch": int}]}),
    *(Call(PARTITION, "POST", path, ("topic", "producer_id", "message"), ("partition",), {"partition_id": int, "offset": int}, 201, stores=True)
      for path in ("/messages", "/logs")),
    *(Call(PARTITION, "GET", path, ("topic", "consumer_id"), ("partition", "request_id"), MESSAGE, reads=True) for path in ("/messages", "/logs")),
    Call(PARTITION, "GET", "/brokers", answers={"brokers": BROKERS}),
    Call(PARTITION, "POST", "/brokers", ("port",), ("host",), {"broker_id": int}, 201),
)
# What a broker answers of the partition face, for the partitions that it leads.
BROKER = (
    Call(PARTITION, "GET", "/", answers={"message": str}),
    *(Call(PARTITION, "POST", path, ("topic", "partition", "message"), ("producer_id",), {"topic": str, "partition_id": int, "offset": int}, 201,
           stores=True) for path in ("/logs", "/messages")),
    *(Call(PARTITION, "GET", path, ("topic", "partition", "consumer_id"), ("request_id",), MESSAGE, reads=True) for path in ("/logs", "/messages")),
    Call(PARTITION, "GET", "/partitions", (), ("topic", "partition"), {"partitions": [
        {"topic": str, "topic_id": int, "partition_id": int, "is_leader": bool, "epoch": int, "start_offset": int, "end_offset": int}]}),
    Call(PARTITION, "GET", "/raft_status", ("topic", "partition"), (), {
        "topic": str, "partition_id": int, "self": int, "leader": one_of(None, int), "state": one_of("leader", "follower"), "has_quorum": bool,
        "raft_term": int, "log_len": int, "commit_idx": int, "last_applied": int, "is_leader": bool}),
    Call(PARTITION, "POST", "/consumers", ("topic",), ("start",), {"consumer_id": int, "partitions": [int]}, 201),
    Call(PARTITION, "POST", "/partitions", ("topic",), (), {"partition_id": int}, 201, grows=True),
)
# What a failure holds beside its status and message.
MAY_BE_TOLD = {"code": str, "outcome": one_of("not_done", "unknown"), "component": str}
EMPTY_OF = {
    QUEUE: (400, {"status": "failure", "message": "No messages left to retrieve", "empty": True}),
    PARTITION: (200, {"status": "Success", "message": "No unread messages found", "empty": True}),
}
