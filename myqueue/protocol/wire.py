"""Types ⇄ JSON, error ⇄ envelope. Both ends of every call use these, so that they are tested as round trips."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import BY_CODE, BadRequestError, InternalError, MyQueueError, OutcomeUnknownError, TooLargeError, UnavailableError
from .batch import check_record
from .names import parse_integer
from .types import Appended, ClusterSnapshot, CommitStamp, Message, NodeAddress, PartitionInfo, Record, TopicPartition

RETRY_AFTER_SECONDS = 1


def error_to_json(error: MyQueueError) -> dict[str, Any]:
    """The native face's envelope. ``outcome`` says whether anything was done."""
    return {"error": {"code": error.code, "message": error.message, "retriable": error.retriable,
                      "outcome": error.outcome, "details": error.details}}


def error_from_json(body: object, status: int) -> MyQueueError:
    """The error that an envelope stands for; of a code that is not known here, one that fits the status."""
    envelope = body.get("error") if isinstance(body, dict) else None
    if not isinstance(envelope, dict):
        return _by_status(status)(f"status {status} without an error envelope")
    cls = BY_CODE.get(str(envelope.get("code"))) or _by_status(status)
    details = envelope.get("details")
    error = cls(str(envelope.get("message") or "") or None)
    error.details = dict(details) if isinstance(details, dict) else {}
    return error


def _by_status(status: int) -> type[MyQueueError]:
    if status in (502, 504):
        return OutcomeUnknownError  # of a foreign gateway, which may have passed the request on
    return UnavailableError if status in (429, 503) else BadRequestError if 400 <= status < 500 else InternalError


def retry_after(error: MyQueueError) -> dict[str, str]:
    """The header that says in how many seconds, 1 or more, to try again; none where that makes no sense."""
    if error.status not in (429, 503):
        return {}
    return {"Retry-After": str(max(RETRY_AFTER_SECONDS, math.ceil(wait_seconds_of(error))))}


def wait_seconds_of(error: MyQueueError) -> float:
    """How long the server asks to wait; 0 where it does not say."""
    told = error.details.get("wait_seconds")
    return float(told) if isinstance(told, (int, float)) and math.isfinite(told) else 0.0


def value_to_json(value: bytes | None, name: str = "value") -> dict[str, Any]:
    """``{"value": text}`` where the bytes are UTF-8, else ``{"value_base64": …}``."""
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def value_from_json(body: Mapping[str, Any], name: str = "value") -> bytes | None:
    """The bytes of ``name`` (text) or ``name_base64``; None where neither is given or it is null. Raises BadRequestError."""
    text, encoded = body.get(name), body.get(f"{name}_base64")
    if text is not None and encoded is not None:
        raise BadRequestError(f"{name} and {name}_base64 are both given")
    if encoded is not None:
        if not isinstance(encoded, str):
            raise BadRequestError(f"{name}_base64 must be a string")
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            raise BadRequestError(f"{name}_base64 is not base64") from None
    if text is None:
        return None
    return text_to_bytes(text, name)


def text_to_bytes(text: object, name: str) -> bytes:
    """A JSON string as UTF-8. Raises BadRequestError for another type or a lone surrogate."""
    if not isinstance(text, str):
        raise BadRequestError(f"{name} must be a string")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadRequestError(f"{name} holds a lone surrogate, which has no UTF-8 form") from None


def record_from_json(body: object) -> Record:
    """A record of a JSON produce: value or value_base64, [key], [headers: {name: text}], [timestamp: microseconds]."""
    if not isinstance(body, dict):
        raise BadRequestError("a record must be a JSON object")
    unknown = set(body) - {"value", "value_base64", "key", "key_base64", "headers", "timestamp"}
    if unknown:
        raise BadRequestError(f"a record has no field {', '.join(sorted(unknown))}")
    value = value_from_json(body)
    if value is None:
        raise BadRequestError("a record needs value or value_base64")
    headers = {} if body.get("headers") is None else body["headers"]
    if not isinstance(headers, dict):
        raise BadRequestError("headers must be a JSON object of strings")
    timestamp = body.get("timestamp")
    if timestamp is not None and (isinstance(timestamp, bool) or not isinstance(timestamp, int) or not 0 <= timestamp < 2**63):
        raise BadRequestError("timestamp must be a whole number of microseconds since 1970")
    pairs = tuple((text_to_bytes(name, "a header name").decode(), text_to_bytes(text, f"header {name}")) for name, text in headers.items())
    return Record(value, value_from_json(body, "key"), pairs, timestamp)


def record_items(body: object) -> list[Any]:
    """What stands for records in the JSON body of a produce: ``{"records": [record, …]}``, or one record alone. Raises BadRequestError."""
    if not isinstance(body, dict) or "records" not in body:
        return [body]
    if len(body) > 1:
        raise BadRequestError("beside records there is nothing else in a batch")
    if not isinstance(body["records"], list) or not body["records"]:
        raise BadRequestError("records must be a list of one record or more")
    return body["records"]


def records_of_json(body: object) -> list[Record]:
    """The records of a JSON produce. Raises BadRequestError, TooLargeError: ``record`` says which of several is bad, from 0."""
    items = record_items(body)
    return [checked_record(body)] if items[0] is body else records_from_json(items)


def records_from_json(items: Iterable[object]) -> list[Record]:
    """Records of a batch, each within its size. Raises BadRequestError, TooLargeError: ``record`` says which, from 0."""
    return [checked_record(item, record=number) for number, item in enumerate(items)]


def checked_record(item: object, **place: int) -> Record:
    """A record that may be stored; where it is none, the error says in which place."""
    try:
        record = record_from_json(item)
        check_record(record)
    except (BadRequestError, TooLargeError) as error:
        raise error.at(**place) from None
    return record


def message_to_json(message: Message) -> dict[str, Any]:
    body: dict[str, Any] = {"offset": message.offset, "timestamp": message.timestamp, **value_to_json(message.value)}
    if message.key is not None:
        body |= value_to_json(message.key, "key")
    if message.headers:
        body["headers"] = [{"name": name, **value_to_json(value)} for name, value in message.headers]
    return body


def stored_to_json(offset: int, record: Record, append_time: int) -> dict[str, Any]:
    """A record at its place, with the time at which it was appended beside the one that it tells."""
    timestamp = append_time if record.timestamp_us is None else record.timestamp_us
    return {**message_to_json(Message("", 0, offset, record.value, record.key, record.headers, timestamp)), "append_time": append_time}


def message_from_json(body: Mapping[str, Any], *, topic: str, partition: int) -> Message:
    """The message that ``message_to_json`` tells."""
    headers = tuple((one["name"], value_from_json(one)) for one in body.get("headers", ()))
    return Message(topic, partition, body["offset"], value_from_json(body) or b"", value_from_json(body, "key"), headers, body["timestamp"])


def appended_to_json(appended: Appended) -> dict[str, Any]:
    body = {"topic": appended.topic, "partition": appended.partition, "base_offset": appended.base_offset,
            "record_count": appended.record_count, "append_time": appended.append_time_us, "duplicate": appended.duplicate}
    return body if appended.topic_id is None else {**body, "topic_id": appended.topic_id}


def appended_from_json(body: Mapping[str, Any]) -> Appended:
    return Appended(body["topic"], body["partition"], body["base_offset"], body["record_count"], body["append_time"], body["duplicate"],
                    body.get("topic_id"))


def stamp_from_json(body: Mapping[str, Any]) -> CommitStamp | None:
    """The stamp of a commit: both of its fields, or none. Raises BadRequestError."""
    given = [name for name in CommitStamp._fields if body.get(name) is not None]
    if not given:
        return None
    if len(given) < len(CommitStamp._fields):
        raise BadRequestError(f"{' and '.join(CommitStamp._fields)} go together", argument=given[0])
    return CommitStamp(*(parse_integer(body[name], name=name, minimum=1) for name in CommitStamp._fields))


def snapshot_to_json(snapshot: ClusterSnapshot) -> dict[str, Any]:
    return {
        "cluster_id": snapshot.cluster_id,
        "version": snapshot.version,
        "brokers": [{"broker_id": broker_id, "host": at.host, "port": at.port} for broker_id, at in sorted(snapshot.brokers.items())],
        "partitions": [{"topic": p.topic, "topic_id": p.topic_id, "partition": p.partition, "epoch": p.epoch, "leader": p.leader,
                        "replicas": list(p.replicas), "status": p.status, **_moving(p)} for _, p in sorted(snapshot.partitions.items())],
    }


def _moving(partition: PartitionInfo) -> dict[str, Any]:
    """Left out where nothing moves, which is nearly everywhere and nearly always."""
    return {} if partition.wanted is None else {"wanted": list(partition.wanted)}


def snapshot_from_json(body: Mapping[str, Any]) -> ClusterSnapshot:
    partitions = [PartitionInfo(p["topic"], p["topic_id"], p["partition"], p["epoch"], p["leader"], tuple(p["replicas"]), p["status"],
                                None if p.get("wanted") is None else tuple(p["wanted"]))
                  for p in body["partitions"]]
    return ClusterSnapshot(body["cluster_id"], body["version"],
                           {b["broker_id"]: NodeAddress(b["host"], b["port"]) for b in body["brokers"]},
                           {TopicPartition(p.topic, p.partition): p for p in partitions})
