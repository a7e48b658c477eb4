"""PURE: where a read starts or ends, as Kafka's options spell it: an offset or a time, for all partitions or for each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from myqueue.errors import BadRequestError
from myqueue.protocol.names import parse_integer
from myqueue.protocol.types import OffsetRange, TopicPartition

EARLIEST, LATEST = -2, -1  # as Kafka's JSON spells them
_WORDS = {"earliest": EARLIEST, "latest": LATEST}
ByPartition = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Edge:
    """One end of a read. A time for all wins over times by partition, those over offsets, offsets by partition over the default.

    Times are milliseconds since 1970 and are compared with the brokers' append time, which never falls in a partition.
    """

    option: str  # startingOffsets or endingOffsets
    default: int
    offsets: ByPartition = field(default_factory=dict)
    time_ms: int | None = None
    times_ms: ByPartition = field(default_factory=dict)
    latest_without_match: bool = True

    def time_of(self, partition: TopicPartition) -> int | None:
        """The time that bounds this partition, if one does."""
        return self.time_ms if self.time_ms is not None else self.times_ms.get(partition)

    def resolve(self, partition: TopicPartition, readable: OffsetRange, at_time: int | None, *, strict: bool) -> int:
        """The offset.

        Args:
            at_time: the first offset appended at or after ``time_of(partition)``; None where there is none, or no time was asked for.
            strict: an offset outside the log is an error, not the nearest one inside.

        Raises:
            BadRequestError: there is no such offset.
        """
        time_ms = self.time_of(partition)
        if time_ms is not None:
            if at_time is None and not self.latest_without_match:
                raise BadRequestError(f"{partition} has no message at or after {time_ms} ms: "
                                      "startingOffsetsByTimestampStrategy latest would start at its end")
            return readable.end if at_time is None else min(max(at_time, readable.start), readable.end)
        asked = self.offsets.get(partition, self.default)
        if asked in (EARLIEST, LATEST):
            return readable.start if asked == EARLIEST else readable.end
        if strict and not readable.start <= asked <= readable.end:
            raise BadRequestError(f"{self.option} {asked} of {partition} lies outside the log: it has {readable.start} to {readable.end}",
                                  earliest=readable.start, latest=readable.end)
        return min(max(asked, readable.start), readable.end)


def parse_edge(given: Mapping[str, str], side: str, *, default: str, refused: str = "") -> Edge:
    """The edge that the options (names in lower case) describe; ``side`` is starting or ending. Raises BadRequestError."""
    option, time = f"{side}Offsets", given.get(f"{side}timestamp")
    chosen, offsets = _offsets(given.get(option.lower(), default), option, default=default, refused=refused)
    times = given.get(f"{side}offsetsbytimestamp")
    strategy = given.get("startingoffsetsbytimestampstrategy", "error") if side == "starting" else "latest"
    if strategy not in ("error", "latest"):
        raise BadRequestError(f"startingOffsetsByTimestampStrategy must be error or latest, not {strategy!r}")
    return Edge(option, chosen, offsets, None if time is None else parse_integer(time, name=f"{side}Timestamp"),
                {} if times is None else _by_partition(times, f"{side}OffsetsByTimestamp", minimum=0), strategy == "latest")


def _offsets(text: str, option: str, *, default: str, refused: str) -> tuple[int, ByPartition]:
    word = text.lower()
    if word in _WORDS:
        if word == refused:
            raise BadRequestError(f"{option} {refused} makes no sense for a batch read: nothing would be read")
        return _WORDS[word], {}
    return _WORDS[default], _by_partition(text, option, minimum=EARLIEST)


def _by_partition(text: str, option: str, *, minimum: int) -> ByPartition:
    return {TopicPartition(topic, parse_integer(number, name=option)): parse_integer(value, name=option, minimum=minimum)
            for topic, partitions in json_object(text, option).items() for number, value in _object(partitions, option).items()}


def json_object(text: str, option: str) -> dict[str, Any]:
    """An option's JSON object. Raises BadRequestError."""
    try:
        return _object(json.loads(text), option)
    except ValueError:
        raise BadRequestError(f"{option} is not JSON: {text[:80]!r}") from None


def _object(value: Any, option: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRequestError(f"{option} must be a JSON object by topic")
    return value
