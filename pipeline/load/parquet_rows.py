"""Files of Parquet: a split is a row group. An export's columns are a message's; of other files a row is JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from myqueue.errors import BadRequestError, ConflictError
from myqueue.protocol.types import Record

from ..source.decode import CREATE_TIME
from .fields import Fields, bytes_of, record_of
from .splits import Reading, Row, Split

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

BATCH_BYTES, BATCH_ROWS = 8 << 20, 256


def row_groups(path: str) -> list[int]:
    """The row groups that have rows. Raises BadRequestError where the file is not Parquet."""
    with _opened(path) as file:
        return [group for group in range(file.num_row_groups) if file.metadata.row_group(group).num_rows]


def read_parquet(split: Split, fields: Fields) -> Reading[dict[str, Any]]:
    """The rows by column name and what makes a message of one.

    Raises:
        BadRequestError: the file is not Parquet, or its columns cannot be loaded.
        ConflictError: the file has fewer row groups than when the load was planned.
    """
    with _opened(split.path) as file:
        schema, groups = file.schema_arrow, file.num_row_groups
    if split.end > groups:
        raise ConflictError(f"{split.path} was changed while it was loaded: it has {groups} row groups, not {split.end}")
    missing = [name for name in fields.named if name not in schema.names]
    if missing:
        raise BadRequestError(f"{split.path}: there is no column {', '.join(missing)}; there are {', '.join(schema.names)}")
    if fields.value is not None:
        return parquet_rows(split, list(fields.named), _with_iso_times), partial(_row, fields=fields)
    if "value" in schema.names and _is_text(schema.field("value").type):
        columns = message_columns(schema, fields, split.path)
        return parquet_rows(split, columns, _with_microseconds), partial(_message, fields=fields)
    return parquet_rows(split, None, _with_iso_times), partial(_row, fields=fields)


def message_columns(schema: pa.Schema, fields: Fields, path: str) -> list[str]:
    """What of an export's columns a message is made of, as far as it is there. Raises BadRequestError where one is of another type."""
    import pyarrow as pa

    wanted = {"key": _is_text, "partition": pa.types.is_integer, "headers": _is_headers}
    own = [name for name in (() if fields.key is not None else ("key", "partition")) + ("headers",) if name in schema.names]
    for name in own:
        if not wanted[name](schema.field(name).type):
            raise BadRequestError(f"{path}: the column {name} is {schema.field(name).type}, not what an export has: "
                                  "name the columns by --value-field and --key-field")
    times = ("timestamp", "timestampType")
    has_times = all(name in schema.names for name in times) and pa.types.is_timestamp(schema.field("timestamp").type)
    return list(dict.fromkeys(["value", *own, *(times if has_times else ()), *fields.named]))


def parquet_rows(split: Split, columns: list[str] | None,
                 prepared: Callable[[pa.RecordBatch], pa.RecordBatch]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a row group with these columns (None: all), counted from 1 in the file, in batches that are bounded. Raises BadRequestError."""
    import pyarrow as pa

    with _opened(split.path) as file:
        sizes = [file.metadata.row_group(group) for group in range(split.end)]
        number = 1 + sum(size.num_rows for size in sizes[:-1])
        rows = max(1, min(BATCH_ROWS, BATCH_BYTES * sizes[-1].num_rows // max(1, sizes[-1].total_byte_size)))
        try:
            for batch in file.iter_batches(rows, row_groups=[split.start], columns=columns, use_threads=False):
                for row in prepared(batch).to_pylist():
                    yield number, row
                    number += 1
        except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
            raise BadRequestError(f"{split.place(number)} or a little behind it: {_first_line(error)}") from None


def _row(row: dict[str, Any], fields: Fields) -> Row:
    return record_of(row, fields), None


def _message(row: dict[str, Any], fields: Fields) -> Row:
    value = bytes_of(row["value"])
    if value is None:
        raise BadRequestError("the value is null: a message has a value, which may be empty")
    headers = tuple((header["key"], header["value"]) for header in row.get("headers") or ())
    if any(name is None for name, _ in headers):
        raise BadRequestError("a header has no name")
    is_clients = row.get("timestampType") == CREATE_TIME
    return Record(value, bytes_of(row.get(fields.key or "key")), headers, row["timestamp"] if is_clients else None), row.get("partition")


def _with_iso_times(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Times as text: Python has none before the year 1, after 9999 and in nanoseconds."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for place, field in enumerate(batch.schema):
        if pa.types.is_timestamp(field.type):
            text = pc.replace_substring(batch.column(place).cast(pa.string()), " ", "T", max_replacements=1)
            batch = batch.set_column(place, field.name, text)
    return batch


def _with_microseconds(batch: pa.RecordBatch) -> pa.RecordBatch:
    """An export's times as microseconds since 1970."""
    import pyarrow as pa

    if "timestamp" not in batch.schema.names:
        return batch
    place, zone = batch.schema.get_field_index("timestamp"), batch.schema.field("timestamp").type.tz
    return batch.set_column(place, "timestamp", batch.column(place).cast(pa.timestamp("us", zone), safe=False).cast(pa.int64()))


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow.types as types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    return any(test(kind) for test in (types.is_binary, types.is_string, types.is_large_binary, types.is_large_string, types.is_fixed_size_binary))


def _is_headers(kind: pa.DataType) -> bool:
    import pyarrow.types as types

    parts = {field.name: field.type for field in kind.value_type} if types.is_list(kind) and types.is_struct(kind.value_type) else {}
    return set(parts) == {"key", "value"} and types.is_string(parts["key"]) and types.is_binary(parts["value"])


def _opened(path: str) -> ParquetFile:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    try:
        return ParquetFile(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadRequestError(f"{path} cannot be read as Parquet: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
