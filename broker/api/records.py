"""The native face on a broker: records and offsets of the partitions that it leads."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from flask import Blueprint, Response, jsonify, request

from broker.core import ranges
from broker.core.replica import is_leading
from broker.directory import Directory
from broker.service import BrokerService
from myqueue.errors import BadRequestError, UnknownPartitionError
from myqueue.protocol import limits, routes, wire
from myqueue.protocol.batch import ENTRIES_TYPE, Block, end_of, messages_of
from myqueue.protocol.names import check_topic_name, parse_integer
from myqueue.protocol.types import Appended, CommitStamp, OffsetRange, PartitionId, ProducerSequence
from myqueue.service.client_socket import hung_up_by

from . import bodies, stream

T = TypeVar("T")


def rule(template: str) -> str:
    """A path of the routing table as Flask spells it."""
    return template.replace("{", "<").replace("}", ">")


def append(service: BrokerService, directory: Directory, topic: str, partition: str, blocks: Sequence[Block], size_bytes: int,
           sequence: ProducerSequence | None, *, wanted_id: int | None = None, expected_end_offset: int | None = None) -> dict[str, Any]:
    """Append to a partition as it is named from outside; what is answered. Raises what ``BrokerService.append`` and ``Directory.find`` do."""
    at, result = _on(directory, topic, partition, wanted_id, lambda at: (at, service.append(
        at, blocks, sequence, size_bytes=size_bytes, expected_end_offset=expected_end_offset)))
    return wire.appended_to_json(Appended(topic, at.partition, result.base_offset, result.record_count, result.append_time, result.duplicate,
                                          at.topic_id))


def _on(directory: Directory, topic: str, partition: str, wanted_id: int | None, action: Callable[[PartitionId], T]) -> T:
    name, number = check_topic_name(topic), bodies.partition_number(partition)
    try:
        return action(directory.find(name, number, wanted_id))
    except UnknownPartitionError as error:
        if error.details:
            raise  # it comes from a manager and says how many there are
        raise directory.absent(name, number, wanted_id) from None


def make_blueprint(service: BrokerService, directory: Directory) -> Blueprint:
    """The routes of partitions, records and offsets."""
    face = Blueprint("records", __name__)

    @face.after_request
    def keep_nothing(response: Response) -> Response:
        """Nothing of this face is to be kept but what says so itself."""
        response.headers.setdefault("Cache-Control", ranges.NOT_KEPT)
        return response

    def on(topic: str, partition: str, action: Callable[[PartitionId], T]) -> T:
        return on_topic(bodies.topic_identity(request.args), topic, partition, action)

    def on_topic(wanted_id: int | None, topic: str, partition: str, action: Callable[[PartitionId], T]) -> T:
        """As ``on``, also where the request is over."""
        return _on(directory, topic, partition, wanted_id, action)

    @face.get(rule(routes.PARTITION))
    def describe(topic: str, partition: str) -> Response:
        return on(topic, partition, lambda found: jsonify(_described(topic, found, service)))

    @face.post(rule(routes.RECORDS))
    def append_records(topic: str, partition: str) -> Response:
        sequence, expected = bodies.sequence_headers(request.headers), bodies.expected_end_offset(request.args)
        blocks, size = bodies.produce_body(request)
        return jsonify(append(service, directory, topic, partition, blocks, size, sequence, wanted_id=bodies.topic_identity(request.args),
                               expected_end_offset=expected))

    @face.get(rule(routes.RECORDS))
    def read(topic: str, partition: str) -> Response:
        if stream.is_wanted(request):
            return stream.answer(topic, partition, service, functools.partial(on_topic, bodies.topic_identity(request.args)))
        packed = ENTRIES_TYPE in request.headers.get("Accept", "").lower()
        start, bounds = bodies.read_arguments(request.args)
        records_max = bodies.records_max(request.args, limits.RECORDS_MAX if packed else limits.RECORDS_DEFAULT)
        gone = hung_up_by(request.environ)
        at, (offset, found) = on(topic, partition, lambda at: (at, service.reads.read(at, start, records_max=records_max, is_gone=gone, **bounds)))
        wanted = ranges.records_wanted(records_max, offset, bounds["until_offset"])
        end, epoch = end_of(found.body)
        end = offset if end is None else end if packed else min(end, offset + wanted)
        caching = ranges.caching_of(at, ranges.Answered(offset, end, epoch, "entries" if packed else "json"), wanted=wanted,
                                    committed_end=found.end_offset, by_number=isinstance(start, int), by_identity="topic_id" in request.args)
        if caching.etag is not None and request.if_none_match.contains_weak(caching.etag):
            response = Response(status=304)
        elif packed:
            response = Response(found.body, content_type=ENTRIES_TYPE)
        else:
            response = jsonify(_rendered(topic, at.partition, OffsetRange(offset, end), found.body))
        response.headers.update({routes.OFFSET: str(offset), routes.START_OFFSET: str(found.start_offset), routes.END_OFFSET: str(found.end_offset),
                                 routes.EPOCH: str(found.epoch), "Cache-Control": caching.control, "Vary": "Accept"})
        if caching.etag is not None:
            response.set_etag(caching.etag)
        return response

    @face.get(rule(routes.OFFSETS))
    def offset(topic: str, partition: str, consumer_id: str) -> Response:
        consumer = bodies.registered_consumer(consumer_id)
        return jsonify({"consumer_id": int(consumer_id), "offset": on(topic, partition, lambda found: service.reads.offset(found, consumer))})

    @face.put(rule(routes.OFFSETS))
    def commit(topic: str, partition: str, consumer_id: str) -> Response:
        consumer, body = bodies.registered_consumer(consumer_id), bodies.json_object(request)
        if set(body) - set(CommitStamp._fields) != {"offset"}:
            raise BadRequestError('the body must be {"offset": number}, and may have "committer" and "sequence"')
        wanted, stamp = parse_integer(body["offset"], name="offset"), wire.stamp_from_json(body)
        done = on(topic, partition, lambda found: service.commit_offset(found, consumer, wanted, stamp=stamp))
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
    head = service.standing.head(found)
    return {"topic": topic, "partition": found.partition, "topic_id": found.topic_id, "start_offset": head.earliest,
            "end_offset": head.commit_offset, "epoch": head.promised_epoch, "leader": is_leading(head)}


def _rendered(topic: str, partition: int, found: OffsetRange, body: bytes) -> dict[str, Any]:
    """A read for people: exactly the records asked for, and where to go on. Of nothing else: whoever keeps it may keep it for ever."""
    messages = itertools.takewhile(lambda message: message.offset < found.end,
                                   messages_of(body, topic=topic, partition=partition, from_offset=found.start))
    return {"topic": topic, "partition": partition, "records": [wire.message_to_json(message) for message in messages], "next_offset": found.end}
