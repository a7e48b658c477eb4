"""The native face on a broker: records and offsets of the partitions that it leads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from flask import Blueprint, Response, jsonify, request

from broker.core.replica import is_leading
from broker.directory import Directory
from broker.service import BrokerService
from db.log_store import Slice
from myqueue.errors import BadRequestError, UnknownPartitionError
from myqueue.protocol import limits, routes, wire
from myqueue.protocol.batch import ENTRIES_TYPE, messages_of
from myqueue.protocol.names import check_topic_name, parse_integer
from myqueue.protocol.types import Appended, PartitionId

from . import bodies

T = TypeVar("T")


def rule(template: str) -> str:
    """A path of the routing table as Flask spells it."""
    return template.replace("{", "<").replace("}", ">")


def make_blueprint(service: BrokerService, directory: Directory) -> Blueprint:
    """The routes of partitions, records and offsets."""
    face = Blueprint("records", __name__)

    def on(topic: str, partition: str, action: Callable[[PartitionId], T]) -> T:
        name, number = check_topic_name(topic), bodies.partition_number(partition)
        try:
            return action(directory.find(name, number))
        except UnknownPartitionError as error:
            if error.details:
                raise  # it comes from a manager and says how many there are
            raise directory.absent(name, number) from None

    @face.get(rule(routes.PARTITION))
    def describe(topic: str, partition: str) -> Response:
        return on(topic, partition, lambda found: jsonify(_described(topic, found, service)))

    @face.post(rule(routes.RECORDS))
    def append(topic: str, partition: str) -> Response:
        sequence, expected = bodies.sequence_headers(request.headers), bodies.expected_end_offset(request.args)
        blocks, size = bodies.produce_body(request)
        result = on(topic, partition, lambda found: service.append(found, blocks, sequence, size_bytes=size, expected_end_offset=expected))
        return jsonify(wire.appended_to_json(Appended(topic, int(partition), result.base_offset, result.record_count, result.append_time,
                                                      result.duplicate)))

    @face.get(rule(routes.RECORDS))
    def read(topic: str, partition: str) -> Response:
        packed = ENTRIES_TYPE in request.headers.get("Accept", "")
        wanted, bounds = bodies.read_arguments(request.args)
        most = bodies.records_max(request.args, limits.RECORDS_MAX if packed else limits.RECORDS_DEFAULT)
        offset, found = on(topic, partition, lambda found: service.read(found, wanted, records_max=most, **bounds))
        response = Response(found.body, content_type=ENTRIES_TYPE) if packed else jsonify(_rendered(topic, int(partition), offset, found, most))
        response.headers.update({routes.START_OFFSET: str(found.start_offset), routes.END_OFFSET: str(found.end_offset),
                                 routes.EPOCH: str(found.epoch)})
        return response

    @face.get(rule(routes.OFFSETS))
    def offset(topic: str, partition: str, consumer_id: str) -> Response:
        consumer = bodies.registered_consumer(consumer_id)
        return jsonify({"consumer_id": int(consumer_id), "offset": on(topic, partition, lambda found: service.offset(found, consumer))})

    @face.put(rule(routes.OFFSETS))
    def commit(topic: str, partition: str, consumer_id: str) -> Response:
        consumer, body = bodies.registered_consumer(consumer_id), bodies.json_object(request)
        if set(body) != {"offset"}:
            raise BadRequestError('the body must be {"offset": number}')
        wanted = parse_integer(body["offset"], name="offset")
        done = on(topic, partition, lambda found: service.commit_offset(found, consumer, wanted))
        return jsonify({"consumer_id": int(consumer_id), "offset": done})

    @face.post(rule(routes.TRIM))
    def trim(topic: str, partition: str) -> Response:
        body = bodies.json_object(request)
        if set(body) != {"before_offset"}:
            raise BadRequestError('the body must be {"before_offset": number}')
        before = parse_integer(body["before_offset"], name="before_offset", minimum=0)
        start = on(topic, partition, lambda found: service.trim(found, before))
        return jsonify({"topic": topic, "partition": int(partition), "start_offset": start})

    return face


def _described(topic: str, found: PartitionId, service: BrokerService) -> dict[str, Any]:
    head = service.head(found)
    return {"topic": topic, "partition": found.partition, "topic_id": found.topic_id, "start_offset": head.earliest,
            "end_offset": head.commit_offset, "epoch": head.promised_epoch, "leader": is_leading(head)}


def _rendered(topic: str, partition: int, offset: int, found: Slice, most: int) -> dict[str, Any]:
    """A read for people: exactly the records asked for, and where to go on."""
    messages = []
    for message in messages_of(found.body, topic=topic, partition=partition, from_offset=offset):
        if len(messages) == most:
            break
        messages.append(message)
    return {"topic": topic, "partition": partition, "records": [wire.message_to_json(message) for message in messages],
            "next_offset": messages[-1].offset + 1 if messages else offset, "start_offset": found.start_offset, "end_offset": found.end_offset}
