"""PURE: the options of ``df.write`` and ``df.writeStream.format("myqueue")``, and the columns they take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType

from myqueue.errors import BadRequestError
from myqueue.protocol.names import check_topic_name

from ..schemas import HEADERS
from ..source.options import BOOTSTRAP, boolean, bootstrap_of, check_names, number

COMMON = (BOOTSTRAP, "topic", "includeHeaders", "requestTimeoutSeconds", "retryTimeoutSeconds")
WRITE_ID_CHARACTERS_MAX = 200
# Kafka's columns of a sink. What else a DataFrame has (offset, timestamp, … of one that was read) is passed over, as Kafka's sink does.
COLUMNS: Mapping[str, tuple[DataType, ...]] = {
    "value": (BinaryType(), StringType()), "key": (BinaryType(), StringType()), "topic": (StringType(),), "partition": (IntegerType(),),
    "headers": (HEADERS,)}


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """A write, as it was asked for. ``write_id`` names a batch write, so that writing it again adds nothing."""

    bootstrap: str
    topic: str | None = None
    include_headers: bool = False
    write_id: str | None = None
    request_timeout_seconds: int = 30
    retry_timeout_seconds: int = 120


def parse_write_options(options: Mapping[str, str], *, stream: bool) -> WriteOptions:
    """Raises BadRequestError with a sentence that names the option."""
    given = {name.lower(): value for name, value in options.items() if value is not None}
    check_names(given, COMMON if stream else (*COMMON, "writeId"), "a stream into myqueue" if stream else "a write into myqueue")
    write_id = given.get("writeid")
    if write_id is not None and not 1 <= len(write_id) <= WRITE_ID_CHARACTERS_MAX:
        raise BadRequestError(f"writeId must have 1 to {WRITE_ID_CHARACTERS_MAX} characters")
    return WriteOptions(
        bootstrap_of(given), check_topic_name(given["topic"]) if "topic" in given else None, boolean(given, "includeHeaders", False), write_id,
        number(given, "requestTimeoutSeconds", 30, 1, 3600), number(given, "retryTimeoutSeconds", 120, 1, 86_400))


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Raises BadRequestError where the DataFrame's columns cannot be written."""
    given = {field.name: field.dataType for field in schema}
    for name, types in COLUMNS.items():
        names = [kind.simpleString() for kind in types]  # which may be NULL is not asked: rows tell
        if name in given and given[name].simpleString() not in names:
            wanted = " or ".join(names)
            raise BadRequestError(f"the column {name} must be {wanted}, not {given[name].simpleString()}")
    if "value" not in given:
        raise BadRequestError(f"a column value is needed; there are {', '.join(given)}")
    if options.topic is None and "topic" not in given:
        raise BadRequestError("the option topic or a column topic is needed")
