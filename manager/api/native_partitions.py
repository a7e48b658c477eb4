"""The native face's partitions of a topic: list them, add some, let another replica lead one, have a replica made again, move one to
named brokers."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, jsonify

from db.metadata_store import PartitionRow
from manager.api.bodies import body_of, integer_of, rule
from manager.catalogue import Topic, missing, replicas
from manager.leaderships import Leaderships
from manager.repairs import Repairs
from manager.replica import Replica
from manager.service import TWO_REPLICAS, ManagerService
from myqueue.errors import BadRequestError
from myqueue.protocol import routes
from myqueue.protocol.limits import FACTOR_MAX, INT32_MAX
from myqueue.protocol.names import check_topic_name, parse_integer


def add_views(blueprint: Blueprint, service: ManagerService, replica: Replica, leaderships: Leaderships, repairs: Repairs) -> None:
    """Give the native blueprint these paths."""

    @blueprint.get(rule(routes.PARTITIONS))
    def list_partitions(topic: str) -> Response:
        found = replica.certain(lambda known: known.topic(check_topic_name(topic)))
        return jsonify({"topic": topic, "topic_id": found.topic_id, "partitions": partition_list(found)})

    @blueprint.post(rule(routes.PARTITIONS))
    def add_partitions(topic: str) -> tuple[Response, int]:
        made = service.add_partitions(topic, integer_of(body_of("partitions"), "partitions"))
        return jsonify(made), 201 if made["added"] else 200

    @blueprint.post(rule(routes.ELECT))
    def elect(topic: str, partition: str) -> Response:
        wanted = integer_of(body_of("broker_id"), "broker_id", None)
        return jsonify(leaderships.elect(check_topic_name(topic), _partition(partition), wanted))

    @blueprint.post(rule(routes.REPAIR))
    def repair(topic: str, partition: str) -> Response:
        broker_id = integer_of(body_of("broker_id"), "broker_id")
        return jsonify(repairs.repair(check_topic_name(topic), _partition(partition), broker_id))

    @blueprint.post(rule(routes.MOVE))
    def move(topic: str, partition: str) -> Response:
        row = service.move_partition(check_topic_name(topic), _partition(partition), _brokers(body_of("brokers")))
        warning = {"warning": TWO_REPLICAS} if row.replication_factor == 2 else {}
        return jsonify({"topic": topic, **_told(row), "replication_factor": row.replication_factor, **warning})


def partition_list(topic: Topic) -> list[dict[str, Any]]:
    """A topic's partitions, each with who leads and holds it, and where it is moving to."""
    return [_told(row) for row in topic.partitions]


def _told(row: PartitionRow) -> dict[str, Any]:
    return {"partition": row.partition, "leader": row.leader, "replicas": list(replicas(row)), "epoch": row.epoch, "status": row.status,
            "wanted": None if row.wanted is None else list(row.wanted), "missing": missing(row)}


def _partition(text: str) -> int:
    return parse_integer(text, name="partition", maximum=INT32_MAX)


def _brokers(body: dict[str, Any]) -> list[int] | None:
    """The brokers to move to; None, which is to be said, stops a move."""
    brokers = body.get("brokers", "")
    if brokers is None:
        return None
    if not isinstance(brokers, list) or not 1 <= len(brokers) <= FACTOR_MAX:
        raise BadRequestError(f"brokers must be a list of 1 to {FACTOR_MAX} broker ids, or null to stop a move", argument="brokers")
    return [parse_integer(broker_id, name="brokers", minimum=1) for broker_id in brokers]
