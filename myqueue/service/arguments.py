"""The arguments of the queue and partition faces, and how those faces say that something failed.

An argument may stand in the query string, a form body or a JSON body, on every method; the JSON body is read whatever
the content type says. Several spellings are one argument. The same argument given twice with different values is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from flask import Request

from ..errors import BadRequestError, MyQueueError
from ..protocol import wire
from ..protocol.names import INT64_MAX, check_topic_name, parse_integer

FIELDS_MAX = 100
FORM_TYPES = ("application/x-www-form-urlencoded", "multipart/form-data")
ALIASES: dict[str, tuple[str, ...]] = {
    "topic": ("topic", "topic_name", "name"),
    "message": ("message", "log_message"),
    "partition": ("partition_id", "partition", "partition_index", "partition_number"),
    "partitions": ("partitions", "number_of_partitions"),
    "broker_address": ("broker_addr", "broker_address"),
    "host": ("host", "broker_ip"),
    "port": ("port", "broker_port"),
}
_CANONICAL = {alias: name for name, aliases in ALIASES.items() for alias in aliases}


class Arguments:
    """Arguments by their one name, read with the type that is due. What is null counts as not given."""

    def __init__(self, pairs: Iterable[tuple[str, Any]]) -> None:
        """Raises BadRequestError where one argument has two values."""
        self._values: dict[str, Any] = {}
        self._spelt: dict[str, str] = {}
        for spelling, value in pairs:
            name = _CANONICAL.get(spelling, spelling)
            if value is None:
                continue
            if name in self._values and not _same(self._values[name], value):
                given = self._spelt[name] if self._spelt[name] == spelling else f"{self._spelt[name]} and {spelling}"
                raise BadRequestError(f"{given} given twice with different values", argument=name)
            self._values.setdefault(name, value)
            self._spelt.setdefault(name, spelling)

    def has(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str, default: Any = None) -> Any:
        """The value as it came, of any type."""
        return self._values.get(name, default)

    def as_json(self) -> dict[str, Any]:
        """All of them as they came, each by its one name: what another node may be sent in their place."""
        return dict(self._values)

    def topic(self) -> str:
        """The topic's name, checked. Raises BadRequestError, InvalidNameError."""
        return check_topic_name(self._needed("topic"))

    def text(self, name: str, default: str | None = None) -> str | None:
        """A string. Raises BadRequestError for any other type."""
        value = self._values.get(name, default)
        if value is not None and not isinstance(value, str):
            raise BadRequestError(f"{self._spelt[name]} must be a string", argument=name)
        return value

    def needed_integer(self, name: str, *, minimum: int = 0, maximum: int = INT64_MAX) -> int:
        """A whole number or its decimal form. Raises BadRequestError where it is missing, something else, or out of bounds."""
        return parse_integer(self._needed(name), name=self._spelt.get(name, name), minimum=minimum, maximum=maximum)

    def integer(self, name: str, *, default: int | None = None, minimum: int = 0, maximum: int = INT64_MAX) -> int | None:
        """Like ``needed_integer``, but it may be left out. 0 is a value."""
        return default if name not in self._values else self.needed_integer(name, minimum=minimum, maximum=maximum)

    def payload(self, name: str = "message") -> bytes:
        """A text as UTF-8, or the bytes of ``<name>_base64``. Raises BadRequestError where it is missing or neither."""
        value = wire.value_from_json(self._values, name)
        if value is None:
            raise BadRequestError(f"{name} is missing", argument=name)
        return value

    def _needed(self, name: str) -> Any:
        if name not in self._values:
            raise BadRequestError(f"{name} is missing", argument=name)
        return self._values[name]


def _same(one: Any, other: Any) -> bool:
    """Whether two values of one argument agree: equal, or a number and its decimal form."""
    if type(one) is type(other):
        return bool(one == other)
    kinds = {type(one), type(other)}
    return kinds == {int, str} and str(one) == str(other)


def arguments_of(request: Request) -> Arguments:
    """All arguments of a request.

    Raises:
        BadRequestError: a body that cannot be read, one that is not a JSON object, or two values for one argument.
    """
    return Arguments([*_decoded(request.query_string), *_from_body(request)])


def json_object(data: bytes, charset: str = "utf-8") -> dict[str, Any]:
    """A body as a JSON object. Raises BadRequestError where it is none, or names a field twice with different values."""
    try:
        value = json.loads(data.decode(charset), object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except BadRequestError:
        raise
    except LookupError:
        raise BadRequestError(f"the charset {charset[:40]!r} is not known") from None
    except (ValueError, RecursionError):
        raise BadRequestError("the body is not a JSON object") from None
    if not isinstance(value, dict):
        raise BadRequestError("the body must be a JSON object")
    return value


def _from_body(request: Request) -> list[tuple[str, Any]]:
    data = request.get_data(cache=True)
    if not data.strip():
        return []
    is_form = request.mimetype in FORM_TYPES
    if data.lstrip()[:1] == b"{" or not is_form:
        return list(json_object(data, request.mimetype_params.get("charset", "utf-8")).items())
    if request.mimetype == FORM_TYPES[0]:
        return _decoded(data.strip())
    if request.files:
        raise BadRequestError("files are not read here; send the message as a field")
    return list(request.form.items(multi=True))


def _decoded(text: bytes) -> list[tuple[str, Any]]:
    try:
        return list(parse_qsl(text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX))
    except ValueError:
        raise BadRequestError(f"the arguments must be percent-encoded UTF-8, at most {FIELDS_MAX} of them") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found and not _same(found[name], value):
            raise BadRequestError(f"{name} given twice with different values", argument=name)
        found[name] = value
    return found


def _refuse_constant(text: str) -> Any:
    raise BadRequestError(f"{text} is not JSON")


# --- how the two older faces say that something failed ---


def face_status(error: MyQueueError) -> int:
    """A caller's mistake is 400 (413 and 429 keep their status), what cannot be done now 503."""
    return 400 if 400 <= error.status < 500 and error.status not in (401, 403, 413, 429) else error.status


def queue_failure(error: MyQueueError) -> tuple[dict[str, Any], int, dict[str, str]]:
    """Body, status and headers of the queue face for an error."""
    return _failure({"status": "failure", "message": error.message}, error)


def partition_failure(error: MyQueueError) -> tuple[dict[str, Any], int, dict[str, str]]:
    """Body, status and headers of the partition face for an error: the same text as reason and as message."""
    return _failure({"status": "Failure", "reason": error.message, "message": error.message}, error)


def _failure(body: Mapping[str, Any], error: MyQueueError) -> tuple[dict[str, Any], int, dict[str, str]]:
    status = face_status(error)
    told = {**body, "code": error.code}
    if status >= 429:
        told["outcome"] = error.outcome
    if "component" in error.details:
        told["component"] = error.details["component"]
    return told, status, wire.retry_after(error)
