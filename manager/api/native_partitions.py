"""The native face's partitions of a topic: list them, add some, let another replica lead one."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, jsonify

from manager.api.bodies import body_of, integer_of, rule
from manager.catalogue import Topic, replicas
from manager.leaderships import Leaderships
from manager.replica import Replica
from manager.service import ManagerService
from myqueue.protocol import routes
from myqueue.protocol.limits import INT32_MAX
from myqueue.protocol.names import check_topic_name, parse_integer


def add_views(blueprint: Blueprint, service: ManagerService, replica: Replica, leaderships: Leaderships) -> None:
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
        return jsonify(leaderships.elect(check_topic_name(topic), parse_integer(partition, name="partition", maximum=INT32_MAX), wanted))


def partition_list(topic: Topic) -> list[dict[str, Any]]:
    """A topic's partitions, each with who leads and holds it."""
    return [{"partition": row.partition, "leader": row.leader, "replicas": list(replicas(row)), "epoch": row.epoch, "status": row.status}
            for row in topic.partitions]
