"""The calls between nodes: managers with each other, and brokers with managers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Blueprint, Response, jsonify, request

from manager.api.bodies import body_of
from manager.cluster import commands
from manager.heartbeats import NODES, HeartbeatBook, Liveness
from manager.lives import Lives
from manager.node import messages, snapshots
from manager.node.wal import Wal
from manager.proposer import Proposer
from manager.raft import messages as raft
from manager.raft.log import Proposal
from manager.replica import Replica
from manager.service import ManagerService
from myqueue.errors import BadRequestError
from myqueue.protocol import routes
from myqueue.protocol.names import parse_integer
from myqueue.service.arguments import json_object

ACTOR_TYPES = ("broker", "manager", "producer", "consumer", "group_member")
HEARTBEATS_MAX = 100_000
CLIENT_ID_MAX = 200


def make_blueprint(*, identity: Callable[[], dict[str, Any]], wal: Wal, proposer: Proposer, service: ManagerService,
                   replica: Replica, book: HeartbeatBook, liveness: Liveness, lives: Lives) -> Blueprint:
    """What other nodes ask of a manager. They do not pass the gate of the public faces: those wait for them."""
    blueprint = Blueprint("internal", __name__)

    @blueprint.get(routes.I_IDENTITY)
    def who() -> Response:
        return jsonify(identity())

    @blueprint.post(routes.I_RAFT_APPEND)
    def append() -> Response:
        return jsonify(messages.reply_to_json(wal.handle(messages.append_from_json(json_object(request.get_data())))))

    @blueprint.post(routes.I_RAFT_VOTE)
    def vote() -> Response:
        return jsonify(raft.vote_reply_to_json(wal.handle(raft.vote_from_json(json_object(request.get_data())))))

    @blueprint.post(routes.I_RAFT_TIMEOUT_NOW)
    def timeout_now() -> Response:
        return jsonify(raft.timeout_now_reply_to_json(wal.handle(raft.timeout_now_from_json(json_object(request.get_data())))))

    @blueprint.post(routes.I_RAFT_SNAPSHOT)
    def snapshot() -> Response:
        return jsonify(messages.reply_to_json(wal.handle(snapshots.offer_from_json(json_object(request.get_data())))))

    @blueprint.post(routes.I_PROPOSE)
    def propose() -> Response:
        body = body_of("command", "client_id", "client_seq")
        client_id = body.get("client_id")
        if not isinstance(client_id, str) or not 1 <= len(client_id) <= CLIENT_ID_MAX or not client_id.isprintable():
            raise BadRequestError("a proposal needs a client_id", argument="client_id")
        client_seq = parse_integer(body.get("client_seq"), name="client_seq", minimum=1)
        answered = proposer.execute(Proposal(commands.to_json(commands.from_json(body.get("command"))), client_id, client_seq))
        return jsonify({"index": answered.index, "reply": answered.reply})

    @blueprint.post(routes.I_BROKERS)
    def register_broker() -> Response:
        return jsonify(service.register_broker(json_object(request.get_data()), forwarded=routes.FORWARDED in request.headers))

    @blueprint.post(routes.I_HEARTBEATS)
    def heartbeats() -> Response:
        body = json_object(request.get_data())
        heard = body.get("heartbeats", [])
        if not isinstance(heard, list) or len(heard) > HEARTBEATS_MAX:
            raise BadRequestError(f"heartbeats must be a list of at most {HEARTBEATS_MAX}", argument="heartbeats")
        actors = [_heartbeat(item) for item in heard]
        if body.get("sign") is not None:
            lives.note(messages.sign_from_json(body["sign"]))
        for one in actors:
            book.heard(*one)
        version = replica.confirmed_index() if body.get("fresh") is True else replica.applied_index()
        answer: dict[str, Any] = {"version": version}
        if routes.FORWARDED in request.headers and heard:  # another manager: it learns in turn which nodes are alive
            answer["nodes"] = [{"type": row.type, "actor_id": row.actor_id, "age_seconds": row.age_seconds} for row, _ in liveness.rows(NODES)]
            sign = lives.sign()
            answer["sign"] = None if sign is None else messages.sign_to_json(sign)
        return jsonify(answer)

    return blueprint


def _heartbeat(item: Any) -> tuple[str, int, float]:
    if not isinstance(item, dict) or item.get("type") not in ACTOR_TYPES:
        raise BadRequestError(f"a heartbeat has a type ({', '.join(ACTOR_TYPES)}), an actor_id and age_seconds")
    age = item.get("age_seconds", 0)
    if isinstance(age, bool) or not isinstance(age, (int, float)) or not 0 <= age < 1e9:
        raise BadRequestError("age_seconds must be a number of seconds")
    return item["type"], parse_integer(item.get("actor_id"), name="actor_id", minimum=1), float(age)
