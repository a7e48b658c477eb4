"""PURE: blocks as PostgreSQL sends them (a row is a block, its columns are lists) → one Arrow row per message.

All of it is Arrow's own compute: no loop over records except over headers, where there are any.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from myqueue.protocol.batch import decode_headers

CREATE_TIME, APPEND_TIME = 0, 1  # timestampType
_UTC_MICROSECONDS = pa.timestamp("us", tz="UTC")


def explode(batch: pa.RecordBatch, *, topic: str, partition: int, start: int, end: int, schema: pa.Schema) -> pa.RecordBatch:
    """The messages of a batch of blocks with start <= offset < end, as the columns of ``schema``, in the batch's order."""
    values = batch.column("values")
    parents = pc.list_parent_indices(values)
    count = len(parents)
    offsets = pc.add(batch.column("base_offset").take(parents), _places(values, parents))
    client_times = _column(batch.column("timestamps"), parents)
    appended = batch.column("append_time").take(parents)
    columns: dict[str, Any] = {
        "key": lambda: _column(batch.column("keys"), parents),
        "value": lambda: pc.list_flatten(values),
        "topic": lambda: pa.repeat(pa.scalar(topic), count),
        "partition": lambda: pa.repeat(pa.scalar(partition, pa.int32()), count),
        "offset": lambda: offsets,
        "timestamp": lambda: pc.coalesce(client_times, appended).cast(_UTC_MICROSECONDS),
        "timestampType": lambda: pc.if_else(client_times.is_valid(), pa.scalar(CREATE_TIME, pa.int32()), pa.scalar(APPEND_TIME, pa.int32())),
        "appendTime": lambda: appended.cast(_UTC_MICROSECONDS),
        "headers": lambda: _headers(_column(batch.column("headers"), parents), schema.field("headers").type),
    }
    whole = pa.RecordBatch.from_arrays([columns[field.name]().cast(field.type) for field in schema], schema=schema)
    return _clip(whole, offsets, start, end)


def _places(lists: pa.ListArray, parents: pa.Array) -> pa.Array:
    """Each element's place in its own list, from 0."""
    starts = lists.offsets.slice(0, len(lists))
    return pc.subtract(pc.add(_count_up(len(parents)), lists.offsets[0]), starts.take(parents))


def _count_up(count: int) -> pa.Array:
    """0, 1, … count - 1."""
    return pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count)), pa.scalar(1, pa.int64()))


def _column(lists: pa.ListArray, parents: pa.Array) -> pa.Array:
    """An optional column's elements, one per record: NULL for the records of a block that has not got the column."""
    flat = pc.list_flatten(lists)
    if lists.null_count == 0:
        return flat
    if len(flat) == 0:
        return pa.nulls(len(parents), lists.type.value_type)
    here = lists.is_valid().take(parents)
    upto = pc.cumulative_sum(here.cast(pa.int64()))
    return flat.take(pc.if_else(here, pc.subtract(upto, pa.scalar(1, pa.int64())), pa.scalar(None, pa.int64())))


def _headers(encoded: pa.Array, kind: pa.DataType) -> pa.Array:
    if encoded.null_count == len(encoded):
        return pa.nulls(len(encoded), kind)
    return pa.array([None if raw is None else [{"key": name, "value": value} for name, value in decode_headers(raw)]
                     for raw in encoded.to_pylist()], kind)


def _clip(batch: pa.RecordBatch, offsets: pa.Array, start: int, end: int) -> pa.RecordBatch:
    if len(offsets) == 0:
        return batch
    ends = pc.min_max(offsets).as_py()
    if start <= ends["min"] and ends["max"] < end:
        return batch
    return batch.filter(pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end)))
