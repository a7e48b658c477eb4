"""The partition face: the third assignment's calls, as far as they are not the queue face's. Creation is 201, a read 200."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Blueprint, Response, jsonify, request

from manager.api.addresses import broker_address, has_address
from manager.api.hooks import Gate, install
from manager.api.queue import key_of, message_fields, partition_of, request_id_of
from manager.catalogue import Catalogue, Topic, replicas
from manager.records import Records
from manager.replica import Replica
from manager.service import ManagerService
from myqueue.protocol.faces import Face
from myqueue.protocol.types import NodeAddress
from myqueue.service.arguments import arguments_of
from myqueue.service.faces import speak

NOTHING_LEFT = "No unread messages found"


def make_blueprint(service: ManagerService, records: Records, replica: Replica, gate: Gate, raft_status: Callable[[], dict[str, Any]],
                   spawn: Callable[[], NodeAddress]) -> Blueprint:
    """The partition face over a manager's operations; ``spawn`` starts a broker and says where it listens."""
    blueprint = Blueprint("partition", __name__)
    install(blueprint, gate=gate, replica=replica)
    speak(blueprint, Face.PARTITION)

    @blueprint.get("/")
    def alive() -> tuple[Response, int]:
        return success(200, message="alive")

    @blueprint.get("/raft_status")
    def status() -> tuple[Response, int]:
        return success(200, **raft_status())

    @blueprint.post("/producers")
    def register_producer() -> tuple[Response, int]:
        topic = arguments_of(request).topic()
        return success(201, producer_id=service.register_producers([topic])[topic])

    @blueprint.post("/consumers")
    def register_consumer() -> tuple[Response, int]:
        arguments = arguments_of(request)
        topic = arguments.topic()
        made = service.register_consumers([topic], start=arguments.text("start", "earliest") or "earliest")[topic]
        return success(201, consumer_id=made["consumer_id"], partitions=list(range(made["partitions"])))

    @blueprint.post("/partitions")
    def add_partition() -> tuple[Response, int]:
        arguments = arguments_of(request)
        name, producer_id = arguments.topic(), arguments.integer("producer_id", minimum=1)
        topic = replica.certain(lambda known: known.topic(name))
        if producer_id is not None:
            replica.certain(lambda _: replica.check_producer(producer_id, topic.topic_id, name))
        return success(201, partition_id=service.add_partition(name))

    @blueprint.get("/partitions")
    def describe_partitions() -> tuple[Response, int]:
        arguments = arguments_of(request)
        name, number = arguments.topic(), partition_of(arguments)

        def look(known: Catalogue) -> list[dict[str, Any]]:
            topic = known.topic(name)
            rows = topic.partitions if number is None else (topic.partition(number),)
            return [_described(known, topic, row.partition) for row in rows]

        return success(200, topic=name, partitions=replica.certain(look))

    def produce() -> tuple[Response, int]:
        arguments = arguments_of(request)
        made = records.produce(producer_id=arguments.needed_integer("producer_id", minimum=1), topic_name=arguments.topic(),
                               value=arguments.payload(), key=key_of(arguments), partition=partition_of(arguments))
        return success(201, partition_id=made.partition, offset=made.offset)

    def consume() -> tuple[Response, int]:
        arguments = arguments_of(request)
        consumer_id, topic = arguments.needed_integer("consumer_id", minimum=1), arguments.topic()
        found = records.consume(consumer_id=consumer_id, topic_name=topic, partition=partition_of(arguments), request_id=request_id_of(arguments))
        if found is None:
            return success(200, message=NOTHING_LEFT, empty=True)
        return success(200, **message_fields(found))

    def messages() -> tuple[Response, int]:
        return produce() if request.method == "POST" else consume()

    blueprint.add_url_rule("/messages", "messages", messages, methods=["GET", "POST"])
    blueprint.add_url_rule("/logs", "logs", messages, methods=["GET", "POST"])

    @blueprint.get("/brokers")
    def list_brokers() -> tuple[Response, int]:
        return success(200, brokers=service.broker_list())

    @blueprint.post("/brokers")
    def add_broker() -> tuple[Response, int]:
        arguments = arguments_of(request)
        if not has_address(arguments):
            return success(201, broker_id=service.start_broker(spawn))
        return success(201, broker_id=service.add_broker(broker_address(arguments, request.remote_addr or "127.0.0.1")))

    return blueprint


def success(status: int, **fields: Any) -> tuple[Response, int]:
    return jsonify({"status": "Success", **fields}), status


def _described(known: Catalogue, topic: Topic, number: int) -> dict[str, Any]:
    row = topic.partition(number)

    def broker(broker_id: int) -> dict[str, Any]:
        at = known.brokers.get(broker_id)
        return {"broker_id": broker_id, "host": at.host if at else None, "port": at.port if at else None}

    return {"partition_id": number, "leader": None if row.leader is None else broker(row.leader),
            "replicas": [broker(broker_id) for broker_id in replicas(row)], "epoch": row.epoch}
