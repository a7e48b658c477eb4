"""The partition face on a broker: what third-assignment clients ask a broker directly."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from flask import Blueprint, Response, jsonify, request

from broker.core.replica import is_leading
from broker.directory import Directory
from broker.managers import Managers
from broker.service import BrokerService, Self
from db.log_store import HeldPartition, LogStore
from myqueue.errors import MethodNotAllowedError, UnknownPartitionError
from myqueue.protocol import wire
from myqueue.protocol.faces import Face
from myqueue.protocol.limits import INT32_MAX
from myqueue.protocol.types import PartitionId
from myqueue.service.arguments import Arguments, arguments_of
from myqueue.service.faces import speak

from . import bodies

PASSED_ON = ("Content-Type", "Retry-After")  # of a manager's answer
PASS_ON_SECONDS = 10.0
EMPTY = {"status": "Success", "message": "No unread messages found", "empty": True}


def make_blueprint(service: BrokerService, store: LogStore, directory: Directory, managers: Managers, who: Callable[[], Self]) -> Blueprint:
    """The routes of the partition face that a broker serves."""
    face = Blueprint("partition", __name__)
    speak(face, Face.PARTITION)

    def find(arguments: Arguments) -> tuple[str, PartitionId]:
        topic, partition = arguments.topic(), arguments.needed_integer("partition", maximum=INT32_MAX)
        found = directory.find(topic, partition)
        try:
            service.standing.head(found)
        except UnknownPartitionError:
            raise directory.absent(topic, partition) from None
        return topic, found

    @face.get("/")
    def alive() -> Response:
        return jsonify({"status": "Success", "message": "alive"})

    @face.post("/logs", endpoint="append")
    @face.post("/messages", endpoint="append_alias")
    def append() -> tuple[Response, int]:
        arguments = arguments_of(request)
        arguments.integer("producer_id", minimum=1)  # whether it is registered is a manager's to say
        key = arguments.payload("key") if arguments.has("key") or arguments.has("key_base64") else None
        blocks, size = bodies.value_blocks(arguments.payload(), key)
        topic, found = find(arguments)
        result = service.append(found, blocks, None, size_bytes=size)
        return jsonify({"status": "Success", "topic": topic, "partition_id": found.partition, "offset": result.base_offset}), 201

    @face.get("/logs", endpoint="consume")
    @face.get("/messages", endpoint="consume_alias")
    def consume() -> Response:
        if request.method == "HEAD":
            raise MethodNotAllowedError(f"{request.path[:200]} does not know HEAD")  # it would hand out a message that nobody sees
        arguments = arguments_of(request)
        consumer = bodies.registered_consumer(arguments.needed_integer("consumer_id", minimum=1))
        again = bodies.request_id(arguments.get("request_id"))
        topic, found = find(arguments)
        stored = service.dequeue(found, consumer, again)
        if stored is None:
            return jsonify(EMPTY)
        value = wire.value_to_json(stored.record.value, "message")
        text = {"log_message": value["message"]} if "message" in value else {}
        return jsonify({"status": "Success", **value, **text, "topic": topic, "partition_id": found.partition, "offset": stored.offset,
                        "timestamp": stored.append_time})

    @face.get("/partitions")
    def partitions() -> Response:
        arguments = arguments_of(request)
        held = store.held(arguments.topic() if arguments.has("topic") else None)
        number = arguments.integer("partition", maximum=INT32_MAX)
        return jsonify({"status": "Success", "partitions": [_listed(one) for one in held if number in (None, one.id.partition)]})

    @face.get("/raft_status")
    def raft_status() -> Response:
        topic, found = find(arguments_of(request))
        head = service.standing.head(found)
        leading, me = is_leading(head), who().broker_id
        return jsonify({"status": "Success", "topic": topic, "partition_id": found.partition, "self": me,
                        "leader": me if leading else None, "state": "leader" if leading else "follower", "has_quorum": leading,
                        "raft_term": head.promised_epoch, "log_len": head.end.lsn - head.start_lsn, "commit_idx": head.commit_lsn,
                        "last_applied": head.applied_lsn, "is_leader": leading})

    @face.post("/partitions", endpoint="add_partition")
    @face.post("/consumers", endpoint="add_consumer")
    def pass_on() -> Response:
        """What changes the metadata is a manager's to decide; its answer is given as it is."""
        body = json.dumps(arguments_of(request).as_json()).encode()
        answer = managers.send("POST", request.path, headers={"Content-Type": bodies.JSON_TYPE}, body=body, read_timeout_seconds=PASS_ON_SECONDS)
        return Response(answer.body, answer.status, {name: answer.headers[name] for name in PASSED_ON if name in answer.headers})

    return face


def _listed(one: HeldPartition) -> dict[str, Any]:
    return {"topic": one.topic, "topic_id": one.id.topic_id, "partition_id": one.id.partition, "is_leader": is_leading(one.head),
            "epoch": one.head.promised_epoch, "start_offset": one.head.earliest, "end_offset": one.head.commit_offset}
