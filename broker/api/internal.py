"""Calls between nodes, by partition identity."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from flask import Blueprint, Response, jsonify, request

from broker.core import appends, seeds
from broker.core.replica import Appointment
from broker.follower import Follower
from broker.reads import Query
from broker.service import BrokerService
from db.replication import AppendReply
from myqueue.errors import BadRequestError, MyQueueError
from myqueue.protocol import routes, wire
from myqueue.protocol.limits import INT32_MAX
from myqueue.protocol.names import INT64_MAX, check_topic_name, parse_integer
from myqueue.protocol.types import Appended, Message, PartitionId

from . import bodies
from .records import rule

REASON_CHARACTERS_MAX = 500


def make_blueprint(service: BrokerService, follower: Follower, identity: Callable[[], dict[str, Any]]) -> Blueprint:
    """The routes under /internal/."""
    face = Blueprint("internal", __name__)

    @face.get(routes.I_IDENTITY)
    def tell_identity() -> Response:
        return jsonify(identity())

    @face.post(routes.I_PROMISE)
    def promise() -> Response:
        return jsonify({"results": [_promise(service, item) for item in _list(bodies.json_object(request), "promises")]})

    @face.post(routes.I_APPOINT)
    def appoint() -> Response:
        return jsonify({"results": [_appoint(service, item) for item in _list(bodies.json_object(request), "appointments")]})

    @face.post(routes.I_LEARNERS)
    def learners() -> Response:
        return jsonify({"results": [_learners(service, item) for item in _list(bodies.json_object(request), "learners")]})

    @face.post(routes.I_DAMAGED)
    def damaged() -> Response:
        return jsonify({"results": [_damaged(service, item) for item in _list(bodies.json_object(request), "replicas")]})

    @face.post(routes.I_STATUS)
    def status() -> Response:
        body = bodies.json_object(request)
        wanted = [_partition(item) for item in _list(body, "partitions")] if "partitions" in body else None
        return jsonify({"partitions": service.status(wanted)})

    @face.post(routes.I_APPEND)
    def take_appends() -> Response:
        return jsonify({"replies": [_reply(reply) for reply in follower.take(appends.decode(request.get_data(cache=False)))]})

    @face.post(routes.I_SEED)
    def take_seed() -> Response:
        return jsonify({"replies": [_reply(follower.take_seed(seeds.decode(request.get_data(cache=False))))]})

    @face.post(routes.I_DROP)
    def drop() -> Response:
        body = {"topic_ids": [], "partitions": [], **bodies.json_object(request)}
        service.drop([_integer(item, "topic_ids") for item in _list(body, "topic_ids")],
                     dict(_partition_at(item) for item in _list(body, "partitions")))
        return jsonify({})

    @face.post(routes.I_ENDS)
    def ends() -> Response:
        body = bodies.json_object(request)
        return jsonify({"ends": service.reads.ends([_partition(item) for item in _list(body, "partitions")], before_us=_time(body, "before"))})

    @face.post(routes.I_SEARCH)
    def search() -> Response:
        body = bodies.json_object(request)
        query = Query(wire.value_from_json(body, "key"), _integer(body.get("end"), "end"),
                      None if body.get("offset") is None else _integer(body["offset"], "offset"), _time(body, "since"))
        bounds = {name: _integer(body.get(name), name, minimum=1) for name in ("max_records", "max_bytes", "max_scanned")}
        found = service.reads.search(_partition(body.get("partition")), query, records_max=bounds["max_records"], bytes_max=bounds["max_bytes"],
                               scan_max=bounds["max_scanned"])
        return jsonify({"records": [wire.stored_to_json(one.offset, one.record, one.append_time) for one in found.records],
                        "next_offset": found.next_offset, "scanned": found.scanned})

    @face.post(rule(routes.I_RECORDS))
    def append(topic_id: str, partition: str) -> Response:
        found = _partition([topic_id, partition])
        sequence = bodies.sequence_headers(request.headers)
        blocks, size = bodies.produce_body(request)
        result = service.append(found, blocks, sequence, size_bytes=size)
        return jsonify(wire.appended_to_json(Appended("", found.partition, result.base_offset, result.record_count, result.append_time,
                                                      result.duplicate)))

    @face.post(rule(routes.I_DEQUEUE))
    def dequeue(topic_id: str, partition: str) -> Response:
        found, body = _partition([topic_id, partition]), bodies.json_object(request)
        stored = service.dequeue(found, bodies.consumer_key(body.get("consumer")), bodies.request_id(body.get("request_id")),
                                 known_only=body.get("known_only") is True)
        if stored is None:
            return jsonify({"empty": True})
        record = stored.record
        return jsonify(wire.message_to_json(Message("", found.partition, stored.offset, record.value, record.key, record.headers,
                                                    stored.append_time if record.timestamp_us is None else record.timestamp_us)))

    @face.post(rule(routes.I_OFFSETS))
    def offsets(topic_id: str, partition: str) -> Response:
        found, body = _partition([topic_id, partition]), bodies.json_object(request)
        consumer = bodies.consumer_key(body.get("consumer"))
        generation = None if body.get("generation") is None else _integer(body["generation"], "generation", minimum=1)
        if body.get("claim") is True:
            if generation is None or body.get("start") not in ("earliest", "latest"):
                raise BadRequestError('a claim needs a generation, and "start": "earliest" or "latest"')
            return jsonify(dataclasses.asdict(service.claim(found, consumer, generation=generation, start=body["start"])))
        if body.get("start") not in (None, "latest") or ("offset" in body) == ("start" in body):
            raise BadRequestError('either "offset": number or "start": "latest" is needed')
        offset = _integer(body["offset"], "offset") if "offset" in body else None
        handed_end = None if body.get("handed_end") is None else _integer(body["handed_end"], "handed_end")
        return jsonify({"offset": service.commit_offset(found, consumer, offset, generation=generation, handed_end=handed_end,
                                                        stamp=wire.stamp_from_json(body))})

    @face.post(routes.I_SIZES)
    def sizes() -> Response:
        body = bodies.json_object(request)
        partitions = [_partition(item) for item in _list(body, "partitions")]
        found = service.reads.positions(bodies.consumer_key(body.get("consumer")), partitions)
        return jsonify({"sizes": [position.unread for position in found], "positions": [dataclasses.asdict(position) for position in found]})

    return face


def _learners(service: BrokerService, item: Any) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise BadRequestError("a list of learners must be a JSON object")
    partition = _partition([item.get("topic_id"), item.get("partition")])
    brokers = [_integer(broker, "learners", minimum=1) for broker in _list(item, "learners")]
    epoch = _integer(item.get("epoch"), "epoch", minimum=1)

    def do() -> dict[str, Any]:
        service.set_learners(partition, epoch=epoch, learners=brokers)
        return {}
    return _result(partition, do)


def _damaged(service: BrokerService, item: Any) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise BadRequestError("a replica must be a JSON object")
    partition = _partition([item.get("topic_id"), item.get("partition")])
    epoch, reason = _integer(item.get("epoch"), "epoch", minimum=1), item.get("reason")
    if not isinstance(reason, str) or not 1 <= len(reason) <= REASON_CHARACTERS_MAX:
        raise BadRequestError(f"reason must be a text of 1 to {REASON_CHARACTERS_MAX} characters")
    return _result(partition, lambda: service.declare_damaged(partition, epoch=epoch, reason=reason))


def _reply(reply: AppendReply | MyQueueError) -> dict[str, Any]:
    return wire.error_to_json(reply) if isinstance(reply, MyQueueError) else appends.reply_to_json(reply)


def _promise(service: BrokerService, item: Any) -> dict[str, Any]:
    """One promise's result; one that is refused does not keep the others from being given."""
    partition, topic, config, epoch = _told(item, "a promise")
    return _result(partition, lambda: dataclasses.asdict(service.promise(partition, topic=topic, config=config, epoch=epoch)))


def _appoint(service: BrokerService, item: Any) -> dict[str, Any]:
    """One appointment's result; one that is refused does not keep the others from being done."""
    partition, topic, config, epoch = _told(item, "an appointment")
    learners = [_integer(broker, "learners", minimum=1) for broker in _list({"learners": [], **item}, "learners")]
    appointment = Appointment(epoch, _voters(item.get("voters")),
                              _integer(item.get("replication_factor", 1), "replication_factor", minimum=1, maximum=INT32_MAX), learners)
    return _result(partition, lambda: {"promised_epoch": service.appoint(partition, topic=topic, config=config, appointment=appointment)})


def _told(item: Any, what: str) -> tuple[PartitionId, str, dict[str, Any], int]:
    """What a promise and an appointment have in common: partition, topic, config, epoch."""
    if not isinstance(item, dict):
        raise BadRequestError(f"{what} must be a JSON object")
    config = item.get("config") or {}
    if not isinstance(config, dict):
        raise BadRequestError("config must be a JSON object")
    partition = _partition([item.get("topic_id"), item.get("partition")])
    return partition, check_topic_name(item.get("topic")), config, _integer(item.get("epoch"), "epoch", minimum=1)


def _result(partition: PartitionId, do: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    answer: dict[str, Any] = {"topic_id": partition.topic_id, "partition": partition.partition}
    try:
        return {**answer, "ok": True, **do()}
    except MyQueueError as error:
        return {**answer, "ok": False, **wire.error_to_json(error)}


def _voters(value: Any) -> dict[int, str | None]:
    if not isinstance(value, dict) or not all(disk is None or isinstance(disk, str) for disk in value.values()):
        raise BadRequestError("voters must be a JSON object of broker ids and disk ids")
    return {parse_integer(broker, name="voters", minimum=1): disk for broker, disk in value.items()}


def _partition(pair: Any) -> PartitionId:
    if not isinstance(pair, list) or len(pair) != 2:
        raise BadRequestError("a partition is [topic_id, partition]")
    return PartitionId(_integer(pair[0], "topic_id"), bodies.partition_number(pair[1]))


def _partition_at(item: Any) -> tuple[PartitionId, int]:
    if not isinstance(item, list) or len(item) != 3:
        raise BadRequestError("a partition to drop is [topic_id, partition, epoch]")
    return _partition(item[:2]), _integer(item[2], "epoch", minimum=1)


def _time(body: dict[str, Any], name: str) -> int | None:
    return None if body.get(name) is None else _integer(body[name], name)


def _integer(value: Any, name: str, minimum: int = 0, maximum: int = INT64_MAX) -> int:
    return parse_integer(value, name=name, minimum=minimum, maximum=maximum)


def _list(body: dict[str, Any], name: str) -> list[Any]:
    value = body.get(name)
    if not isinstance(value, list):
        raise BadRequestError(f"{name} must be a list")
    return value
