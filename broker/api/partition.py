"""The partition face on a broker: what third-assignment clients ask a broker directly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Blueprint, Response, jsonify, request

from broker.core.replica import is_leading
from broker.directory import Directory
from broker.managers import Managers
from broker.service import BrokerService, Self
from db.log_store import HeldPartition, LogStore
from myqueue.errors import BadRequestError, MyQueueError, UnknownPartitionError
from myqueue.protocol import wire
from myqueue.protocol.names import check_topic_name, parse_integer
from myqueue.protocol.types import PartitionId

from . import bodies

ALIASES = {
    "topic": ("topic", "topic_name", "name"),
    "message": ("message", "log_message"),
    "partition": ("partition", "partition_id", "partition_index", "partition_number"),
}
EMPTY = {"status": "Success", "message": "No unread messages found", "empty": True}


def make_blueprint(service: BrokerService, store: LogStore, directory: Directory, managers: Managers, who: Callable[[], Self]) -> Blueprint:
    """The routes of the partition face that a broker serves."""
    face = Blueprint("partition", __name__)
    face.register_error_handler(MyQueueError, failure)

    def find(arguments: dict[str, Any]) -> tuple[str, PartitionId]:
        topic, partition = check_topic_name(_needed(arguments, "topic")), bodies.partition_number(_needed(arguments, "partition"))
        found = directory.find(topic, partition)
        try:
            service.head(found)
        except UnknownPartitionError:
            raise directory.absent(topic, partition) from None
        return topic, found

    @face.get("/")
    def alive() -> Response:
        return jsonify({"status": "Success", "message": "alive"})

    @face.post("/logs", endpoint="append")
    @face.post("/messages", endpoint="append_alias")
    def append() -> tuple[Response, int]:
        arguments = merged()
        value = wire.text_to_bytes(_needed(arguments, "message"), "message")
        if arguments.get("producer_id") is not None:
            parse_integer(arguments["producer_id"], name="producer_id", minimum=1)
        blocks, size = bodies.value_blocks(value)
        topic, found = find(arguments)
        result = service.append(found, blocks, None, size_bytes=size)
        return jsonify({"status": "Success", "topic": topic, "partition_id": found.partition, "offset": result.base_offset}), 201

    @face.get("/logs", endpoint="consume")
    @face.get("/messages", endpoint="consume_alias")
    def consume() -> Response:
        arguments = merged()
        consumer = bodies.registered_consumer(_needed(arguments, "consumer_id"))
        again = bodies.request_id(arguments.get("request_id"))
        topic, found = find(arguments)
        stored = service.dequeue(found, consumer, again)
        if stored is None:
            return jsonify(EMPTY)
        return jsonify({"status": "Success", **wire.value_to_json(stored.record.value, "message"), "topic": topic, "partition_id": found.partition,
                        "offset": stored.offset, "timestamp": stored.append_time})

    @face.get("/partitions")
    def partitions() -> Response:
        arguments = merged()
        held = store.held(None if arguments.get("topic") is None else check_topic_name(arguments["topic"]))
        if arguments.get("partition") is not None:
            number = bodies.partition_number(arguments["partition"])
            held = [one for one in held if one.id.partition == number]
        return jsonify({"status": "Success", "partitions": [_listed(one) for one in held]})

    @face.get("/raft_status")
    def raft_status() -> Response:
        topic, found = find(merged())
        head = service.head(found)
        leading, me = is_leading(head), who().broker_id
        return jsonify({"status": "Success", "topic": topic, "partition_id": found.partition, "self": me,
                        "leader": me if leading else None, "state": "leader" if leading else "follower", "has_quorum": leading,
                        "raft_term": head.promised_epoch, "log_len": head.end.lsn - head.start_lsn, "commit_idx": head.commit_lsn,
                        "last_applied": head.applied_lsn, "is_leader": leading})

    @face.post("/partitions", endpoint="add_partition")
    @face.post("/consumers", endpoint="add_consumer")
    def pass_on() -> Response:
        """What changes the metadata is a manager's to decide; its answer is given as it is."""
        answer = managers.send("POST", request.path, params=request.args, headers={"Content-Type": request.content_type or bodies.JSON_TYPE},
                               body=request.get_data(cache=False), read_timeout_seconds=10.0)
        return Response(answer.body, answer.status, content_type=answer.headers.get("Content-Type"))

    return face


def merged() -> dict[str, Any]:
    """The arguments of query, form and JSON body together, whatever the method and content type, by their first name.

    Raises:
        BadRequestError: the body is not a JSON object, or one argument is given twice with different values.
    """
    sources: list[dict[str, Any]] = [dict(request.args.items()), dict(request.form.items())]
    raw = request.get_data(cache=True)
    if raw.strip() and not (request.form or request.files):
        body = bodies.parse_json(raw)
        if not isinstance(body, dict):
            raise BadRequestError("the body must be a JSON object")
        sources.append(body)
    first_names = {alias: name for name, aliases in ALIASES.items() for alias in aliases}
    arguments: dict[str, Any] = {}
    for source in sources:
        for given, value in source.items():
            name = first_names.get(given, given)
            if name in arguments and not _same(arguments[name], value):
                raise BadRequestError(f"{name} is given twice with different values", argument=name)
            arguments[name] = value
    return arguments


def _same(one: Any, other: Any) -> bool:
    """The number 1 and its decimal string are the same argument; a boolean is like nothing else."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return str(one) == str(other)


def _needed(arguments: dict[str, Any], name: str) -> Any:
    value = arguments.get(name)
    if value is None or value == "":
        if name == "message" and value == "":
            return value
        raise BadRequestError(f"{name} is needed", argument=name)
    return value


def _listed(one: HeldPartition) -> dict[str, Any]:
    return {"topic": one.topic, "topic_id": one.id.topic_id, "partition_id": one.id.partition, "is_leader": is_leading(one.head),
            "epoch": one.head.promised_epoch, "start_offset": one.head.earliest, "end_offset": one.head.commit_offset}


def failure(error: MyQueueError) -> Response:
    """A mistake is 400 (413 where it is too large), what cannot be done now 503."""
    status = error.status if error.status >= 500 or error.status == 413 else 400
    response = jsonify({"status": "Failure", "reason": error.message, "message": error.message,
                        **({"outcome": error.outcome} if status >= 500 else {})})
    response.status_code = status
    if status == 503:
        response.headers["Retry-After"] = str(wire.RETRY_AFTER_SECONDS)
    return response
