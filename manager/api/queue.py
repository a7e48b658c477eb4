"""The queue face: the calls of the first and second assignments. Parse → call → render; The rules that the faces share are in the parser."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, jsonify, request

from manager.api.addresses import broker_address
from manager.api.hooks import Gate, install
from manager.records import Consumed, Records
from manager.replica import Replica
from manager.service import ManagerService
from myqueue.errors import BadRequestError
from myqueue.protocol.faces import Face
from myqueue.protocol.limits import INT32_MAX
from myqueue.service.arguments import Arguments, arguments_of
from myqueue.service.faces import speak

REQUEST_ID_MAX = 128
NOTHING_LEFT = "No messages left to retrieve"


def make_blueprint(service: ManagerService, records: Records, replica: Replica, gate: Gate) -> Blueprint:
    """The queue face over a manager's operations."""
    blueprint = Blueprint("queue", __name__)
    install(blueprint, gate=gate, replica=replica)
    speak(blueprint, Face.QUEUE)

    @blueprint.post("/topics")
    def create_topic() -> Response:
        arguments = arguments_of(request)
        topic = arguments.topic()
        service.create_topic(topic, partitions=arguments.needed_integer("partitions", minimum=1) if arguments.has("partitions") else 1,
                             replication_factor=arguments.integer("replication_factor", minimum=1),
                             config=arguments.get("config"))
        return success(message=f"Topic '{topic}' created successfully")

    @blueprint.get("/topics")
    def list_topics() -> Response:
        return success(topics=sorted(replica.current().topics))

    @blueprint.post("/producer/register")
    def register_producer() -> Response:
        topic = arguments_of(request).topic()
        producer_id = service.register_producers([topic])[topic]
        return success(producer_id=producer_id, message=f"Producer ID {producer_id} registered for topic {topic}")

    @blueprint.post("/consumer/register")
    def register_consumer() -> Response:
        arguments = arguments_of(request)
        topic = arguments.topic()
        start = arguments.text("start", "earliest") or "earliest"
        consumer_id = service.register_consumers([topic], start=start)[topic]["consumer_id"]
        return success(consumer_id=consumer_id, message=f"Consumer ID {consumer_id} subscribed to topic {topic}")

    @blueprint.post("/producer/produce")
    def produce() -> Response:
        arguments = arguments_of(request)
        made = records.produce(producer_id=arguments.needed_integer("producer_id", minimum=1), topic_name=arguments.topic(),
                               value=arguments.payload(), key=key_of(arguments), partition=partition_of(arguments))
        return success(partition_id=made.partition, offset=made.offset, message="Message produced successfully")

    @blueprint.route("/consumer/consume", methods=["GET", "POST"])
    def consume() -> Response | tuple[Response, int]:
        arguments = arguments_of(request)
        found = records.consume(consumer_id=arguments.needed_integer("consumer_id", minimum=1), topic_name=arguments.topic(),
                                partition=partition_of(arguments), request_id=request_id_of(arguments))
        if found is None:
            return jsonify({"status": "failure", "message": NOTHING_LEFT, "empty": True}), 400
        return success(**message_fields(found))

    @blueprint.get("/size")
    def size() -> Response:
        return success(**sizes_of(arguments_of(request)))

    @blueprint.get("/unread_messages")
    def unread_messages() -> Response:
        found = sizes_of(arguments_of(request))
        return success(**found, message_size=found["size"])

    @blueprint.post("/broker")
    def add_broker() -> Response:
        broker_id = service.add_broker(broker_address(arguments_of(request), request.remote_addr or "127.0.0.1"))
        return success(broker_id=broker_id, message=f"Broker ID {broker_id} registered")

    @blueprint.get("/broker")
    def list_brokers() -> Response:
        return success(brokers=service.broker_list())

    @blueprint.delete("/broker/remove")
    def remove_broker() -> Response:
        broker_id = arguments_of(request).needed_integer("broker_id", minimum=1)
        service.remove_broker(broker_id)
        return success(message=f"Broker ID {broker_id} removed")

    @blueprint.post("/partition")
    def add_partition() -> Response:
        topic = arguments_of(request).topic()
        partition = service.add_partition(topic)
        return success(partition_id=partition, message=f"Partition {partition} added to topic {topic}")

    @blueprint.get("/health")
    def health() -> Response:
        return success(**service.health())

    def sizes_of(arguments: Arguments) -> dict[str, Any]:
        found = records.sizes(consumer_id=arguments.needed_integer("consumer_id", minimum=1), topic_name=arguments.topic(),
                              partition=partition_of(arguments))
        return {"size": sum(size for _, size in found),
                "sizes": [{"partition_id": number, "partition_number": number, "size": size} for number, size in found]}

    return blueprint


def success(**fields: Any) -> Response:
    return jsonify({"status": "success", **fields})


def message_fields(found: Consumed) -> dict[str, Any]:
    """A consumed message: its text twice, as both assignments name it, or its bytes as base64."""
    text = {"message": found.value["value"], "log_message": found.value["value"]} if "value" in found.value else {
        "message_base64": found.value["value_base64"]}
    return {**text, "topic": found.topic, "partition_id": found.partition, "offset": found.offset, "timestamp": found.timestamp}


def partition_of(arguments: Arguments) -> int | None:
    return arguments.integer("partition", maximum=INT32_MAX)


def key_of(arguments: Arguments) -> bytes | None:
    return arguments.payload("key") if arguments.has("key") or arguments.has("key_base64") else None


def request_id_of(arguments: Arguments) -> str | None:
    """Raises BadRequestError where it is not a printable text of moderate length."""
    request_id = arguments.text("request_id")
    if request_id is not None and not (1 <= len(request_id) <= REQUEST_ID_MAX and request_id.isprintable()):
        raise BadRequestError(f"request_id must be from 1 to {REQUEST_ID_MAX} printable characters", argument="request_id")
    return request_id
