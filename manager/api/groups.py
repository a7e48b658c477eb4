"""The native face of consumer groups: JSON in, JSON or the error envelope out."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

from flask import Blueprint, Response, jsonify, request

from manager.api.bodies import body_of, rule
from manager.api.hooks import Gate, install
from manager.groups import SESSION_TIMEOUT_SECONDS, Groups, Told
from manager.replica import Replica
from myqueue.errors import BadRequestError
from myqueue.protocol import routes
from myqueue.protocol.names import check_topic_name, parse_integer
from myqueue.protocol.types import CommitStamp, TopicPartition
from myqueue.protocol.wire import stamp_from_json

T = TypeVar("T")
TOPICS_MAX = 1_000  # of one member
PARTITIONS_MAX = 10_000  # in one call


def make_blueprint(groups: Groups, replica: Replica, gate: Gate) -> Blueprint:
    """The routes of groups and their members."""
    face = Blueprint("groups", __name__)
    install(face, gate=gate, replica=replica)

    @face.get(routes.GROUPS)
    def list_groups() -> Response:
        return jsonify({"groups": groups.all()})

    @face.get(rule(routes.GROUP))
    def describe(group: str) -> Response:
        return jsonify(groups.describe(group))

    @face.delete(rule(routes.GROUP))
    def delete(group: str) -> Response:
        return jsonify(groups.delete(group))

    @face.get(rule(routes.GROUP_OFFSETS))
    def offsets(group: str) -> Response:
        found = groups.offsets(group, [check_topic_name(name) for name in request.args.getlist("topic")])
        return jsonify({"group": group, "lag": sum(one.position.lag for one in found), "offsets": [one.to_json() for one in found]})

    @face.put(rule(routes.GROUP_OFFSETS))
    def set_offsets(group: str) -> Response:
        return jsonify({"offsets": _told(groups.set_offsets(group, _offsets(body_of("offsets"))))})

    @face.post(rule(routes.MEMBERS))
    def join(group: str) -> tuple[Response, int]:
        body = body_of("topics", "strategy", "start", "session_timeout_seconds", "instance_id")
        topics = [check_topic_name(name) for name in _list(body, "topics", most=TOPICS_MAX)]
        return jsonify(groups.join(group, topics=topics, strategy=_text(body, "strategy") or "sticky", start=_text(body, "start") or "earliest",
                                   session_timeout_seconds=_seconds(body), instance_id=_text(body, "instance_id"))), 201

    @face.delete(rule(routes.MEMBER))
    def leave(group: str, member_id: str) -> Response:
        number = _member(member_id)
        groups.leave(group, number)
        return jsonify({"group": group, "member_id": number})

    @face.post(rule(routes.MEMBER_HEARTBEAT))
    def heartbeat(group: str, member_id: str) -> Response:
        body = body_of("released")
        released = [_partition(item) for item in _list(body, "released")] if body.get("released") is not None else []
        return jsonify(groups.heartbeat(group, _member(member_id), released))

    @face.post(rule(routes.MEMBER_CLAIMS))
    def claim(group: str, member_id: str) -> Response:
        body = body_of("generation", "partitions")
        partitions = list(dict.fromkeys(_partition(item) for item in _list(body, "partitions")))
        return jsonify({"offsets": _told(groups.claim(group, _member(member_id), generation=_generation(body), partitions=partitions))})

    @face.put(rule(routes.MEMBER_OFFSETS))
    def commit(group: str, member_id: str) -> Response:
        body = body_of("generation", "offsets")
        return jsonify({"offsets": _told(groups.commit(group, _member(member_id), generation=_generation(body), offsets=_commits(body)))})

    return face


def _told(offsets: list[Told]) -> list[dict[str, Any]]:
    return [{**one._asdict(), **said} for one, said in offsets]


def _member(value: str) -> int:
    return parse_integer(value, name="member_id", minimum=1)


def _generation(body: dict[str, Any]) -> int:
    return parse_integer(body.get("generation"), name="generation", minimum=1)


def _seconds(body: dict[str, Any]) -> float:
    value = body.get("session_timeout_seconds", SESSION_TIMEOUT_SECONDS)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e6:
        raise BadRequestError("session_timeout_seconds must be a number of seconds", argument="session_timeout_seconds")
    return float(value)


def _text(body: dict[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise BadRequestError(f"{name} must be a string", argument=name)
    return value


def _list(body: dict[str, Any], name: str, most: int = PARTITIONS_MAX) -> list[Any]:
    value = body.get(name)
    if not isinstance(value, list) or len(value) > most:
        raise BadRequestError(f"{name} must be a list of at most {most}", argument=name)
    return value


def _partition(item: Any) -> TopicPartition:
    if not isinstance(item, dict) or set(item) != {"topic", "partition"}:
        raise BadRequestError('a partition is {"topic": name, "partition": number}')
    return TopicPartition(check_topic_name(item["topic"]), parse_integer(item["partition"], name="partition"))


def _offsets(body: dict[str, Any]) -> dict[TopicPartition, int | str]:
    """By partition, a number or "earliest" or "latest"."""
    def offset(item: dict[str, Any]) -> int | str:
        return item["offset"] if item["offset"] in ("earliest", "latest") else parse_integer(item["offset"], name="offset")

    return _by_partition(body, offset)


def _commits(body: dict[str, Any]) -> dict[TopicPartition, dict[str, int]]:
    """By partition, ``offset`` and, where they are said, ``handed_end`` and the stamp's fields."""
    def commit(item: dict[str, Any]) -> dict[str, int]:
        stamp = stamp_from_json(item)
        return {name: parse_integer(item[name], name=name) for name in ("offset", "handed_end") if name in item} | (stamp._asdict() if stamp else {})

    return _by_partition(body, commit, may_have={"handed_end", *CommitStamp._fields})


def _by_partition(body: dict[str, Any], value_of: Callable[[dict[str, Any]], T], *, may_have: Collection[str] = ()) -> dict[TopicPartition, T]:
    found: dict[TopicPartition, T] = {}
    for item in _list(body, "offsets"):
        if not isinstance(item, dict) or set(item) - set(may_have) != {"topic", "partition", "offset"}:
            raise BadRequestError('an offset is {"topic": name, "partition": number, "offset": number}')
        place, value = _partition({name: item[name] for name in ("topic", "partition")}), value_of(item)
        if found.setdefault(place, value) != value:
            raise BadRequestError("a partition has two offsets", argument="offsets")
    return found
