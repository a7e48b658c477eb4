"""PURE: the options of ``spark.read`` and ``spark.readStream.format("myqueue")``: Kafka's names and meanings where they exist."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from myqueue.errors import BadRequestError
from myqueue.protocol.names import check_topic_name, parse_integer
from myqueue.protocol.types import TopicPartition

from .cuts import Cut, cut_from_json
from .edges import EARLIEST, LATEST, Edge, json_object, parse_edge

BOOTSTRAP = "myqueue.bootstrap.servers"
RANGE_BYTES, BATCH_BYTES = 64 << 20, 4 << 20
COMMON = (
    BOOTSTRAP, "subscribe", "subscribePattern", "assign", "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy", "minPartitions", "maxRecordsPerPartition", "includeHeaders", "failOnDataLoss", "readFrom",
    "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "batchBytes", "requestTimeoutSeconds", "statementTimeoutSeconds")
BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "cut", "rangeBytes", "fileBytes", "pushFilters")
STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "consumers")
LEADER, FOLLOWER = "leader", "follower"
FROM_EARLIEST, TO_LATEST = Edge("startingOffsets", EARLIEST), Edge("endingOffsets", LATEST)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """A read, as it was asked for."""

    bootstrap: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()
    starting: Edge = FROM_EARLIEST
    ending: Edge = TO_LATEST
    min_partitions: int = 1
    max_records_per_partition: int | None = None
    include_headers: bool = False
    fail_on_data_loss: bool = True
    read_from: str | int = LEADER  # or FOLLOWER, or a broker's id
    push_filters: bool = False
    cut: Cut | None = None
    range_bytes: int = RANGE_BYTES
    file_bytes: int | None = None  # tasks by topic and day, each about so large
    batch_bytes: int = BATCH_BYTES
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_seconds: float = 900.0
    consumers: Mapping[str, int] | None = None  # by topic: whose progress a stream publishes
    offset_retries: int = 3
    offset_retry_interval_seconds: float = 1.0
    request_timeout_seconds: int = 10
    statement_timeout_seconds: int = 120

    def wants(self, partition: TopicPartition) -> bool:
        """Whether this partition is to be read."""
        if self.assigned:
            return partition in self.assigned
        if self.pattern is not None:
            return re.fullmatch(self.pattern, partition.topic) is not None
        return partition.topic in self.topics


def parse_options(options: Mapping[str, str], *, stream: bool = False) -> ReadOptions:
    """Read Spark's options (their case does not matter). Raises BadRequestError with a sentence that names the option."""
    given = {name.lower(): value for name, value in options.items() if value is not None}
    check_names(given, (*COMMON, *(STREAM_ONLY if stream else BATCH_ONLY)), "a stream of the myqueue source" if stream else "the myqueue source")
    retry_ms = number(given, "fetchOffset.retryIntervalMs", 1000, 1, 600_000)
    return ReadOptions(
        bootstrap=bootstrap_of(given), **_choice(given),
        starting=parse_edge(given, "starting", default="latest" if stream else "earliest", refused="" if stream else "latest"),
        ending=parse_edge(given, "ending", default="latest", refused="earliest"),
        min_partitions=number(given, "minPartitions", 1, 1, 100_000),
        max_records_per_partition=_optional(given, "maxRecordsPerPartition"), include_headers=boolean(given, "includeHeaders", False),
        fail_on_data_loss=boolean(given, "failOnDataLoss", True), read_from=_read_from(given.get("readfrom", LEADER)),
        push_filters=boolean(given, "pushFilters", False), cut=cut_from_json(given["cut"]) if "cut" in given else None,
        range_bytes=number(given, "rangeBytes", RANGE_BYTES, 1 << 16, 1 << 40),
        file_bytes=number(given, "fileBytes", 0, 1 << 16, 1 << 40) if "filebytes" in given else None,
        batch_bytes=number(given, "batchBytes", BATCH_BYTES, 1 << 12, 1 << 28),
        max_offsets_per_trigger=_optional(given, "maxOffsetsPerTrigger"), min_offsets_per_trigger=_optional(given, "minOffsetsPerTrigger"),
        max_trigger_delay_seconds=_duration(given.get("maxtriggerdelay", "15m")), consumers=_consumers(given.get("consumers")),
        offset_retries=number(given, "fetchOffset.numRetries", 3, 0, 1000), offset_retry_interval_seconds=retry_ms / 1000,
        request_timeout_seconds=number(given, "requestTimeoutSeconds", 10, 1, 3600),
        statement_timeout_seconds=number(given, "statementTimeoutSeconds", 120, 1, 86_400))


def check_names(given: Mapping[str, str], known: tuple[str, ...], who: str) -> None:
    """Raises BadRequestError naming the options that ``who`` has not got. (``path`` and the checkpoint's place are Spark's own.)"""
    unknown = sorted(set(given) - {name.lower() for name in known} - {"path", "checkpointlocation"})
    if unknown:
        raise BadRequestError(f"{who} has no option {', '.join(unknown)}; it has {', '.join(sorted(known))}")


def bootstrap_of(given: Mapping[str, str]) -> str:
    """Raises BadRequestError where no address is given."""
    if not given.get(BOOTSTRAP):
        raise BadRequestError(f"the option {BOOTSTRAP} is needed: HOST:PORT of a load balancer or manager")
    return given[BOOTSTRAP]


def _read_from(text: str) -> str | int:
    if text in (LEADER, FOLLOWER):
        return text
    if not text.startswith("replica="):
        raise BadRequestError(f"readFrom must be leader, follower or replica=BROKER_ID, not {text!r}")
    return parse_integer(text.removeprefix("replica="), name="readFrom replica", minimum=1)


def _consumers(text: str | None) -> dict[str, int] | None:
    if text is None:
        return None
    return {check_topic_name(topic): parse_integer(value, name="consumers", minimum=1) for topic, value in json_object(text, "consumers").items()}


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
    numbers = json_object(text, "assign")
    return {"assigned": tuple(TopicPartition(check_topic_name(topic), parse_integer(number, name="assign"))
                              for topic, partitions in numbers.items() for number in _list(partitions))}


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise BadRequestError("assign must be a JSON object of lists of partitions by topic")
    return value


def number(given: Mapping[str, str], name: str, default: int, minimum: int, maximum: int) -> int:
    """A whole number. Raises BadRequestError naming the option."""
    return parse_integer(given.get(name.lower(), default), name=name, minimum=minimum, maximum=maximum)


def _optional(given: Mapping[str, str], name: str) -> int | None:
    return parse_integer(given[name.lower()], name=name, minimum=1) if name.lower() in given else None


def _duration(text: str) -> float:
    """Seconds, of what Spark writes as ``15m``. Raises BadRequestError."""
    found = re.fullmatch(r"(\d{1,9}) ?(ms|s|m|h)", text.strip().lower())
    if not found:
        raise BadRequestError(f"maxTriggerDelay must be a number with ms, s, m or h behind it, not {text[:40]!r}")
    return int(found[1]) * {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}[found[2]]


def boolean(given: Mapping[str, str], name: str, default: bool) -> bool:
    """true or false. Raises BadRequestError naming the option."""
    text = given.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise BadRequestError(f"{name} must be true or false, not {text!r}")
    return text == "true"
