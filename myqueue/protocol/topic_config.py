"""PURE. What a topic's config may say: the fields, their units and bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import BadRequestError
from .limits import PARTITIONS_MAX

NUMBER_MAX = 2**53 - 1  # exact in every JSON reader
PRODUCE_BYTES_PER_SECOND = "produce_bytes_per_second"


@dataclass(frozen=True, slots=True)
class Field:
    """One field: a whole number."""

    help: str
    minimum: int = 1
    maximum: int = NUMBER_MAX


FIELDS: Mapping[str, Field] = {
    "retention_ms": Field("messages are kept for so many milliseconds after they were appended, and dropped soon after"),
    "retention_bytes": Field("so many bytes of each partition are kept at least, as they are stored; the oldest beyond are dropped"),
    "grow_at_messages": Field("a partition is added, one at a time, while a topic holds more messages than this for each of its partitions; needs "
                              "partitions_max; for messages without keys: keys map anew each time"),
    "partitions_max": Field("the topic does not grow by itself beyond so many partitions", maximum=PARTITIONS_MAX),
    PRODUCE_BYTES_PER_SECOND: Field("so many bytes a second are taken by each partition, as they are sent, and a second's worth at once; what comes "
                                    "beyond is refused with 429 and may be sent again"),
}


@dataclass(frozen=True, slots=True)
class Kept:
    """How much of a partition is kept; None where there is no bound."""

    milliseconds: int | None = None
    size_bytes: int | None = None

    def __bool__(self) -> bool:
        return self.milliseconds is not None or self.size_bytes is not None


def check_config(config: Any, *, removals: bool = False) -> dict[str, int | None]:
    """A topic's config, or with ``removals`` a change of it, in which None takes a field out. Raises BadRequestError."""
    if config is None:
        return {}
    if not isinstance(config, dict):
        raise BadRequestError("config must be an object", argument="config")
    for name, value in config.items():
        field = FIELDS.get(name)
        if value is None and removals:  # also of a field that only an older version let pass
            continue
        if field is None:
            raise BadRequestError(f"config: there is no field {str(name)[:80]!r}; there are {', '.join(sorted(FIELDS))}", argument="config")
        if isinstance(value, bool) or not isinstance(value, int) or not field.minimum <= value <= field.maximum:
            raise BadRequestError(f"config: {name} must be a whole number from {field.minimum} to {field.maximum}", argument="config")
    return dict(config)


def kept_of(config: Mapping[str, Any]) -> Kept:
    """What a stored config says about retention. A field of another version, or without a meaning here, is no bound."""
    return Kept(number_in(config, "retention_ms"), number_in(config, "retention_bytes"))


def number_in(config: Mapping[str, Any], name: str) -> int | None:
    """A field of a stored config; None where it is not there, or has no meaning here."""
    value = config.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= FIELDS[name].minimum else None
