"""PURE: rows with fields → messages: which field is the key, which the value, and how a whole row is written as JSON."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, time
from typing import Any

from myqueue.errors import BadRequestError
from myqueue.protocol.types import Record


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a row that are the message's key and value. Without a key field there is no key; without a value field the row is the value."""

    key: str | None = None
    value: str | None = None

    @property
    def named(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for name in (self.key, self.value) if name is not None))


ROW = Fields()  # the whole row is the value, and there is no key


def record_of(row: Mapping[str, Any], fields: Fields, whole: bytes | None = None) -> Record:
    """The message of a row. Raises BadRequestError where its value is missing.

    Args:
        whole: the row as it is; without it, its JSON.
    """
    key = bytes_of(row.get(fields.key)) if fields.key is not None else None
    if fields.value is None:
        return Record(json_of(row) if whole is None else whole, key)
    value = bytes_of(row.get(fields.value))
    if value is None:
        raise BadRequestError(f"{fields.value} is missing or null: a message has a value, which may be empty")
    return Record(value, key)


def ndjson_record(line: bytes, fields: Fields) -> Record:
    """The message of a line that is a JSON object. Raises BadRequestError."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise BadRequestError(f"not a JSON object: {line[:80]!r}")
    return record_of(row, fields, line)


def bytes_of(value: Any) -> bytes | None:
    """A field by itself: text and bytes as they are, JSON of all else; None where it is null."""
    if value is None or isinstance(value, bytes):
        return value
    value = plain(value)
    return value.encode() if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def json_of(row: Mapping[str, Any]) -> bytes:
    """A whole row as a JSON object, its fields in their order."""
    try:
        return _ENCODER.encode(row).encode()
    except ValueError:  # a number that JSON has not got
        return _ENCODER.encode(plain(row)).encode()


def plain(value: Any) -> Any:
    """What JSON can say of a value: bytes are base64, times ISO 8601, decimals and what is no finite number text."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, date | time):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, list | tuple) else str(value)


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=plain)
