"""The native face of a manager: topics, registrations, the routing snapshot, health. JSON in, JSON or the error envelope out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Blueprint, Response, jsonify, request

from manager.api import native_partitions, native_records
from manager.api.addresses import native_address
from manager.api.bodies import body_of, integer_of, rule
from manager.api.hooks import Gate, install
from manager.batches import Batches
from manager.catalogue import Catalogue
from manager.cluster_view import ClusterView
from manager.heartbeats import HeartbeatBook
from manager.leaderships import Leaderships
from manager.members import Members
from manager.records import Records
from manager.recovery import Recovery
from manager.repairs import Repairs
from manager.replica import Replica
from manager.search import Search
from manager.service import ManagerService
from myqueue.errors import BadRequestError
from myqueue.protocol import routes
from myqueue.protocol.limits import IDS_MAX, TOPICS_MAX
from myqueue.protocol.names import check_topic_name, parse_integer
from myqueue.protocol.types import NodeAddress


def make_blueprint(service: ManagerService, replica: Replica, view: ClusterView, book: HeartbeatBook, members: Members, gate: Gate,
                   recovery: Recovery, batches: Batches, records: Records, search: Search,
                   leaderships: Leaderships, repairs: Repairs, spawn: Callable[[], NodeAddress]) -> Blueprint:
    """The native face over a manager's operations; ``spawn`` starts a broker and says where it listens."""
    blueprint = Blueprint("native", __name__)
    install(blueprint, gate=gate, replica=replica)
    native_partitions.add_views(blueprint, service, replica, leaderships, repairs)
    native_records.add_views(blueprint, batches, records, search)

    @blueprint.get(routes.CLUSTER)
    def cluster() -> Response:
        return jsonify(view.to_json(request.args.getlist("topic") or None))

    @blueprint.get(routes.HEALTH)
    def health() -> Response:
        return jsonify(service.health(forwarded=routes.FORWARDED in request.headers))

    @blueprint.get(routes.TOPICS)
    def list_topics() -> Response:
        fresh = request.args.get("fresh", "false")
        if fresh not in ("true", "false"):
            raise BadRequestError("fresh must be true or false", argument="fresh")
        if fresh == "true":
            replica.catch_up_fresh()
        return jsonify({"topics": [topic.to_json() for topic in replica.current().topics.values()]})

    @blueprint.post(routes.TOPICS)
    def create_topic() -> tuple[Response, int]:
        body = body_of("topic", "partitions", "replication_factor", "config")
        made = service.create_topic(check_topic_name(body.get("topic")), partitions=integer_of(body, "partitions", 1),
                                    replication_factor=integer_of(body, "replication_factor", None), config=body.get("config"))
        return jsonify(made), 201

    @blueprint.get(rule(routes.TOPIC))
    def describe_topic(topic: str) -> Response:
        def look(known: Catalogue) -> dict[str, Any]:
            found = known.topic(topic)
            return {**found.to_json(), "partition_list": native_partitions.partition_list(found)}

        return jsonify(replica.certain(look))

    @blueprint.patch(rule(routes.TOPIC))
    def alter_topic(topic: str) -> Response:
        return jsonify(service.alter_topic(topic, body_of("config").get("config")))

    @blueprint.delete(rule(routes.TOPIC))
    def delete_topic(topic: str) -> Response:
        return jsonify(service.delete_topic(topic))

    @blueprint.get(rule(routes.RECOVERY))
    def report_loss(topic: str) -> Response:
        return jsonify({"topic": topic, "partitions": recovery.report(topic)})

    @blueprint.post(rule(routes.RECOVERY))
    def recover(topic: str) -> Response:
        body = body_of("accept_loss", "partitions")
        partitions = body.get("partitions")
        if partitions is not None and not isinstance(partitions, list):
            raise BadRequestError("partitions must be a list of numbers", argument="partitions")
        if body.get("accept_loss") is not True:
            raise BadRequestError("say accept_loss: true; a GET of this path tells what would be lost", argument="accept_loss")
        wanted = None if partitions is None else [parse_integer(number, name="partitions") for number in partitions]
        return jsonify({"topic": topic, "partitions": recovery.force(topic, wanted)})

    @blueprint.get(routes.BROKERS)
    def list_brokers() -> Response:
        draining = service.draining_brokers()
        return jsonify({"brokers": [{**one, "draining": one["broker_id"] in draining} for one in service.broker_list()]})

    @blueprint.post(routes.BROKERS)
    def add_broker() -> tuple[Response, int]:
        address = native_address(body_of("host", "port"))
        return jsonify({"broker_id": service.start_broker(spawn) if address is None else service.add_broker(address)}), 201

    @blueprint.delete(rule(routes.BROKER))
    def remove_broker(broker_id: str) -> Response:
        service.remove_broker(parse_integer(broker_id, name="broker_id", minimum=1))
        return jsonify({"broker_id": int(broker_id), "removed": True})

    @blueprint.post(rule(routes.DRAIN))
    def drain_broker(broker_id: str) -> Response:
        draining = body_of("draining").get("draining", True)
        if not isinstance(draining, bool):
            raise BadRequestError("draining must be true or false", argument="draining")
        return jsonify(service.drain_broker(parse_integer(broker_id, name="broker_id", minimum=1), draining=draining))

    @blueprint.post(routes.PRODUCERS)
    def register_producers() -> Response:
        body = body_of("topics", "create")
        create = body.get("create", True)
        if not isinstance(create, bool):
            raise BadRequestError("create must be true or false", argument="create")
        made = service.register_producers(_names(body), create=create)
        return jsonify({"producers": {name: {"producer_id": producer_id, "producer_epoch": 0} for name, producer_id in made.items()}})

    @blueprint.post(routes.CONSUMERS)
    def register_consumers() -> Response:
        body = body_of("topics", "start")
        return jsonify({"consumers": service.register_consumers(_names(body), start=body.get("start", "earliest"))})

    @blueprint.get(routes.MANAGERS)
    def list_managers() -> Response:
        return jsonify({"managers": view.managers()})

    @blueprint.post(routes.MANAGERS)
    def add_manager() -> tuple[Response, int]:
        body = body_of("node_id", "url")
        node_id = parse_integer(body.get("node_id"), name="node_id", minimum=1)
        return jsonify(members.add(node_id, body.get("url", ""), forwarded=routes.FORWARDED in request.headers)), 201

    @blueprint.delete(rule(routes.MANAGER))
    def remove_manager(node_id: str) -> Response:
        number = parse_integer(node_id, name="node_id", minimum=1)
        members.remove(number, forwarded=routes.FORWARDED in request.headers)
        return jsonify({"node_id": number})

    @blueprint.post(routes.HEARTBEATS)
    def heartbeats() -> Response:
        body = body_of("producers", "consumers")
        for type in ("producer", "consumer"):
            for actor_id in _ids(body, f"{type}s"):
                book.heard(type, actor_id)
        return jsonify({})

    return blueprint


def _names(body: dict[str, Any]) -> list[str]:
    names = body.get("topics")
    if not isinstance(names, list) or not 1 <= len(names) <= TOPICS_MAX:
        raise BadRequestError(f"topics must be a list of 1 to {TOPICS_MAX} names", argument="topics")
    return [check_topic_name(name) for name in names]


def _ids(body: dict[str, Any], name: str) -> list[int]:
    ids = [] if body.get(name) is None else body[name]
    if not isinstance(ids, list) or len(ids) > IDS_MAX:
        raise BadRequestError(f"{name} must be a list of at most {IDS_MAX} ids", argument=name)
    return [parse_integer(value, name=name, minimum=1) for value in ids]
