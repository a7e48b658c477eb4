"""Requests' bodies and arguments into values: everything wrong with them is a 4xx here, before anything waits for anything."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from flask import Request

from broker.core.admission import admit
from broker.core.offsets import Since
from myqueue.errors import BadRequestError, TooLargeError, UnsupportedMediaTypeError
from myqueue.protocol import routes, wire
from myqueue.protocol.batch import BATCH_TYPE, NDJSON_TYPES, REQUEST_BYTES_MAX, Block, check_record, pack
from myqueue.protocol.limits import BYTES_DEFAULT, BYTES_MAX, INT32_MAX, RECORDS_MAX, WAIT_SECONDS_MAX
from myqueue.protocol.names import INT64_MAX, parse_integer
from myqueue.protocol.types import ProducerSequence, Record

JSON_TYPE = "application/json"
PRODUCE_TYPES = (BATCH_TYPE, JSON_TYPE, *NDJSON_TYPES)
CONSUMER_MAX = 255


def json_object(request: Request) -> dict[str, Any]:
    """The body as a JSON object. Raises BadRequestError."""
    body = parse_json(request.get_data(cache=False))
    if not isinstance(body, dict):
        raise BadRequestError("the body must be a JSON object")
    return body


def parse_json(raw: bytes, what: str = "the body") -> Any:
    """Raises BadRequestError for what is not JSON, however deep or odd."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"{what} is not JSON: {str(error)[:200]}") from None


def produce_body(request: Request) -> tuple[list[Block], int]:
    """The blocks of a produce request in any of its content types, and their size in bytes.

    Raises:
        UnsupportedMediaTypeError: names the types that are read.
        BadRequestError, CorruptBatchError, TooLargeError: nothing of it may be stored; ``record`` (from 0), ``line`` (from 1) or ``block`` (from 0)
            says where the first mistake is.
    """
    kind = request.mimetype or JSON_TYPE  # without parameters, in small letters
    if kind not in PRODUCE_TYPES:
        raise UnsupportedMediaTypeError(f"{kind[:100]} is not read here; good types are {', '.join(PRODUCE_TYPES)}", supported=list(PRODUCE_TYPES))
    raw = request.get_data(cache=False)
    if kind != BATCH_TYPE:
        raw = pack(records_of_lines(raw) if kind in NDJSON_TYPES else wire.records_of_json(parse_json(raw)))
    return packed_body(raw)


def packed_body(raw: bytes | bytearray) -> tuple[list[Block], int]:
    """The same of a packed batch."""
    return admit(raw), len(raw)


def records_of_lines(raw: bytes) -> list[Record]:
    """The records of NDJSON, one a line; lines without anything in them do not count. Raises BadRequestError, TooLargeError."""
    records = [_record_of_line(line, number) for number, line in enumerate(raw.split(b"\n"), 1) if line.strip()]
    if not records:
        raise BadRequestError("there is no record in the body: each line holds one, as a JSON object")
    return records


def _record_of_line(line: bytes, number: int) -> Record:
    try:
        item = parse_json(line, "it")
    except BadRequestError as error:
        raise error.at(line=number) from None
    return wire.checked_record(item, line=number)


def value_blocks(value: bytes, key: bytes | None = None) -> tuple[list[Block], int]:
    """One message as blocks, and its size. Raises TooLargeError."""
    record = Record(value, key)
    check_record(record)
    raw = pack([record])
    if len(raw) > REQUEST_BYTES_MAX:
        raise TooLargeError()
    return packed_body(raw)


def sequence_headers(headers: Mapping[str, str]) -> ProducerSequence | None:
    """The producer's headers: all of them or none. Raises BadRequestError."""
    names = (routes.PRODUCER_ID, routes.PRODUCER_EPOCH, routes.PRODUCER_SEQ)
    given = [headers.get(name) for name in names]
    if all(value is None for value in given):
        return None
    if None in given:
        raise BadRequestError(f"{', '.join(names)} go together")
    limits = ((1, INT64_MAX), (0, INT32_MAX), (0, INT64_MAX))
    return ProducerSequence(*(parse_integer(value, name=name, minimum=low, maximum=high)
                              for value, name, (low, high) in zip(given, names, limits, strict=True)))


def expected_end_offset(arguments: Mapping[str, str]) -> int | None:
    """Where a conditional append expects the partition to end; None for an ordinary one. Raises BadRequestError."""
    given = arguments.get("expected_end_offset")
    return None if given is None else parse_integer(given, name="expected_end_offset")


def topic_identity(arguments: Mapping[str, str]) -> int | None:
    """Which topic of this name is meant; None for whichever it is. Raises BadRequestError."""
    given = arguments.get("topic_id")
    return None if given is None else parse_integer(given, name="topic_id")


def read_arguments(arguments: Mapping[str, str]) -> tuple[int | str | Since, dict[str, Any]]:
    """Where a read begins, by ``offset`` or ``timestamp``, and its bounds. Raises BadRequestError."""
    if "offset" in arguments and "timestamp" in arguments:
        raise BadRequestError("offset and timestamp are both given: either says where to begin", argument="timestamp")
    start = _since(arguments["timestamp"]) if "timestamp" in arguments else _offset(arguments.get("offset", "earliest"))
    until = parse_integer(arguments["until_offset"], name="until_offset") if "until_offset" in arguments else None
    if until is not None and isinstance(start, int) and until < start:
        raise BadRequestError(f"until_offset {until} lies below offset {start}", argument="until_offset")
    return start, {
        "until_offset": until,
        "bytes_max": min(BYTES_MAX, parse_integer(arguments.get("max_bytes", BYTES_DEFAULT), name="max_bytes", minimum=1)),
        "wait_seconds": min(WAIT_SECONDS_MAX, _seconds(arguments.get("wait_seconds", "0"))),
    }


def _offset(text: str) -> int | str:
    if text in ("earliest", "latest"):
        return text
    try:
        return parse_integer(text, name="offset", minimum=-INT64_MAX - 1)
    except BadRequestError as error:
        raise BadRequestError(f"{error.message}; or earliest or latest", argument="offset") from None


def _since(text: str) -> Since:
    try:
        return Since(parse_integer(text, name="timestamp"))
    except BadRequestError as error:
        raise BadRequestError(f"{error.message}; it counts microseconds since 1970", argument="timestamp") from None


def records_max(arguments: Mapping[str, str], default: int) -> int:
    return min(RECORDS_MAX, parse_integer(arguments.get("max_records", default), name="max_records", minimum=1))


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise BadRequestError(f"wait_seconds must be a number of seconds from 0, not {text[:40]!r}", argument="wait_seconds")
    return seconds


def partition_number(value: object) -> int:
    """A partition as it is named from outside, from 0. Raises BadRequestError."""
    return parse_integer(value, name="partition", minimum=0, maximum=INT32_MAX)


def consumer_key(value: object) -> str:
    """A consumer as the log knows it. Raises BadRequestError."""
    if not isinstance(value, str) or not 1 <= len(value) <= CONSUMER_MAX or "\0" in value or not value.isprintable():
        raise BadRequestError(f"consumer must be 1 to {CONSUMER_MAX} printable characters")
    return value


def registered_consumer(value: object) -> str:
    """The key of a registered consumer, by its id. Raises BadRequestError."""
    return f"#{parse_integer(value, name='consumer_id', minimum=1)}"


def request_id(value: object) -> str | None:
    """Raises BadRequestError."""
    if value is None:
        return None
    if not isinstance(value, str) or not 1 <= len(value) <= 255 or not value.isprintable():
        raise BadRequestError("request_id must be 1 to 255 printable characters")
    return value
