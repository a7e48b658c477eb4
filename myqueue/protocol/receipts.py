"""Receipts of a producer: a line of NDJSON for each batch that was acknowledged, written by the SDK and read by whoever compares.

    {"topic":"orders","topic_id":7,"partition":0,"base_offset":120,"record_count":10,"append_time":1790000000000000}

A line is one JSON object without another one in it, so what a writer that died has left of its line is told from the whole one behind it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import BadRequestError
from .names import check_topic_name, parse_integer
from .types import Appended, TopicPartition


@dataclass(frozen=True, slots=True)
class BatchReceipt:
    """An acknowledged batch: it stands at ``base_offset`` … ``base_offset + record_count - 1``, appended at ``append_time_us``.

    Both are None where only a very late retry was answered: stored once, place no longer known. ``topic_id`` is None where a broker of the
    version before acknowledged.
    """

    topic: str
    partition: int
    record_count: int
    base_offset: int | None
    append_time_us: int | None
    topic_id: int | None = None

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def receipt_of(partition: TopicPartition, record_count: int, appended: Appended | None) -> BatchReceipt:
    """The receipt of an answer; None where the batch was stored before and its place is no longer known."""
    if appended is None:
        return BatchReceipt(*partition, record_count, None, None)
    return BatchReceipt(*partition, record_count, appended.base_offset, appended.append_time_us, appended.topic_id)


def line_of(receipt: BatchReceipt) -> bytes:
    """The receipt as a line, its LF included."""
    body = {"topic": receipt.topic, "topic_id": receipt.topic_id, "partition": receipt.partition, "base_offset": receipt.base_offset,
            "record_count": receipt.record_count, "append_time": receipt.append_time_us}
    return json.dumps(body, separators=(",", ":")).encode() + b"\n"


def receipts_in(lines: Iterable[bytes]) -> Iterator[BatchReceipt | None]:
    """The receipts of a file's lines; None for each piece of a line whose writer died in the middle of it.

    Raises:
        BadRequestError: a line, which is named, is neither a receipt nor the beginning of one.
    """
    for number, line in enumerate(lines, 1):
        line = line.strip()
        whole = line.rfind(b"{")
        if whole < 0 and line:
            raise BadRequestError(f"line {number} is no receipt: {line[:40]!r}")
        if whole > 0:
            yield None  # it was torn, and another writer went on behind it
        if line:
            yield _parsed(line[whole:], number) if line.endswith(b"}") else None


def _parsed(text: bytes, number: int) -> BatchReceipt:
    try:
        body = json.loads(text)
        placeless = body["base_offset"] is None
        return BatchReceipt(check_topic_name(body["topic"]), _whole(body, "partition"), _whole(body, "record_count", minimum=1),
                            None if placeless else _whole(body, "base_offset"), None if placeless else _whole(body, "append_time"),
                            None if body["topic_id"] is None else _whole(body, "topic_id"))
    except (KeyError, TypeError, ValueError, BadRequestError):
        raise BadRequestError(f"line {number} is no receipt: {text[:40]!r}") from None


def _whole(body: dict[str, Any], name: str, minimum: int = 0) -> int:
    return parse_integer(body[name], name=name, minimum=minimum)
