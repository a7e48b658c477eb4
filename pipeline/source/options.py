"""The options of ``spark.read.format("myqueue")``: Kafka's names and meanings where they exist."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from myqueue.errors import BadRequestError
from myqueue.protocol.names import check_topic_name, parse_integer
from myqueue.protocol.types import OffsetRange, TopicPartition

from .cuts import Cut, cut_from_json

BOOTSTRAP = "myqueue.bootstrap.servers"
EARLIEST, LATEST = -2, -1  # as Kafka's JSON spells them
RANGE_BYTES, BATCH_BYTES = 64 << 20, 4 << 20
KNOWN = {name.lower(): name for name in (
    BOOTSTRAP, "subscribe", "subscribePattern", "assign", "startingOffsets", "endingOffsets", "minPartitions", "includeHeaders",
    "failOnDataLoss", "cut", "rangeBytes", "batchBytes", "requestTimeoutSeconds", "statementTimeoutSeconds")}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """A read, as it was asked for. Offsets: one for all (EARLIEST, LATEST) and those given per partition, which win."""

    bootstrap: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()
    starting: int = EARLIEST
    starting_at: Mapping[TopicPartition, int] | None = None
    ending: int = LATEST
    ending_at: Mapping[TopicPartition, int] | None = None
    min_partitions: int = 1
    include_headers: bool = False
    fail_on_data_loss: bool = True
    cut: Cut | None = None
    range_bytes: int = RANGE_BYTES
    batch_bytes: int = BATCH_BYTES
    request_timeout_seconds: int = 10
    statement_timeout_seconds: int = 120

    def wants(self, partition: TopicPartition) -> bool:
        """Whether this partition is to be read."""
        if self.assigned:
            return partition in self.assigned
        if self.pattern is not None:
            return re.fullmatch(self.pattern, partition.topic) is not None
        return partition.topic in self.topics

    def offsets(self, partition: TopicPartition, readable: OffsetRange) -> OffsetRange:
        """What to read of a partition, given what is readable.

        Raises:
            BadRequestError: an offset that was asked for lies outside the log, and ``failOnDataLoss`` is on.
        """
        start = self._resolve("startingOffsets", (self.starting_at or {}).get(partition, self.starting), partition, readable)
        end = self._resolve("endingOffsets", (self.ending_at or {}).get(partition, self.ending), partition, readable)
        return OffsetRange(start, max(start, end))

    def _resolve(self, option: str, asked: int, partition: TopicPartition, readable: OffsetRange) -> int:
        if asked in (EARLIEST, LATEST):
            return readable.start if asked == EARLIEST else readable.end
        if self.fail_on_data_loss and not readable.start <= asked <= readable.end:
            raise BadRequestError(f"{option} {asked} of {partition} lies outside the log: it has {readable.start} to {readable.end}",
                                  earliest=readable.start, latest=readable.end)
        return min(max(asked, readable.start), readable.end)


def parse_options(options: Mapping[str, str]) -> ReadOptions:
    """Read Spark's options (their case does not matter). Raises BadRequestError with a sentence that names the option."""
    given = {name.lower(): value for name, value in options.items() if value is not None}
    unknown = sorted(set(given) - set(KNOWN) - {"path"})
    if unknown:
        raise BadRequestError(f"the myqueue source has no option {', '.join(unknown)}; it has {', '.join(sorted(KNOWN.values()))}")
    if not given.get(BOOTSTRAP):
        raise BadRequestError(f"the option {BOOTSTRAP} is needed: HOST:PORT of a load balancer or manager")
    starting, starting_at = _offsets(given.get("startingoffsets", "earliest"), "startingOffsets", refused="latest")
    ending, ending_at = _offsets(given.get("endingoffsets", "latest"), "endingOffsets", refused="earliest")
    return ReadOptions(
        bootstrap=given[BOOTSTRAP], **_choice(given), starting=starting, starting_at=starting_at, ending=ending, ending_at=ending_at,
        min_partitions=_number(given, "minPartitions", 1, 1, 100_000), include_headers=_boolean(given, "includeHeaders", False),
        fail_on_data_loss=_boolean(given, "failOnDataLoss", True), cut=cut_from_json(given["cut"]) if "cut" in given else None,
        range_bytes=_number(given, "rangeBytes", RANGE_BYTES, 1 << 16, 1 << 40),
        batch_bytes=_number(given, "batchBytes", BATCH_BYTES, 1 << 12, 1 << 28),
        request_timeout_seconds=_number(given, "requestTimeoutSeconds", 10, 1, 3600),
        statement_timeout_seconds=_number(given, "statementTimeoutSeconds", 120, 1, 86_400))


def _choice(given: Mapping[str, str]) -> dict[str, Any]:
    chosen = [name for name in ("subscribe", "subscribepattern", "assign") if given.get(name)]
    if len(chosen) != 1:
        raise BadRequestError("exactly one of subscribe, subscribePattern and assign is needed")
    text = given[chosen[0]]
    if chosen[0] == "subscribe":
        return {"topics": tuple(check_topic_name(name.strip()) for name in text.split(","))}
    if chosen[0] == "subscribepattern":
        try:
            re.compile(text)
        except re.error as error:
            raise BadRequestError(f"subscribePattern is no regular expression: {error}") from None
        return {"pattern": text}
    numbers = _json_object(text, "assign")
    return {"assigned": tuple(TopicPartition(check_topic_name(topic), parse_integer(number, name="assign"))
                              for topic, partitions in numbers.items() for number in _list(partitions))}


def _offsets(text: str, option: str, *, refused: str) -> tuple[int, dict[TopicPartition, int] | None]:
    default = EARLIEST if option == "startingOffsets" else LATEST
    if text.lower() in ("earliest", "latest"):
        if text.lower() == refused:
            raise BadRequestError(f"{option} {refused} makes no sense for a batch read: nothing would be read")
        return default, None
    topics = _json_object(text, option)
    return default, {TopicPartition(topic, parse_integer(number, name=option)): parse_integer(offset, name=option, minimum=EARLIEST)
                     for topic, partitions in topics.items() for number, offset in _object(partitions, option).items()}


def _json_object(text: str, option: str) -> dict[str, Any]:
    try:
        return _object(json.loads(text), option)
    except ValueError:
        raise BadRequestError(f"{option} is not JSON: {text[:80]!r}") from None


def _object(value: Any, option: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRequestError(f"{option} must be a JSON object by topic")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise BadRequestError("assign must be a JSON object of lists of partitions by topic")
    return value


def _number(given: Mapping[str, str], name: str, default: int, minimum: int, maximum: int) -> int:
    return parse_integer(given.get(name.lower(), default), name=name, minimum=minimum, maximum=maximum)


def _boolean(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise BadRequestError(f"{name} must be true or false, not {text!r}")
    return text == "true"
