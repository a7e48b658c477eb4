"""Arrow's way through packed blocks against a naive one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from myqueue.protocol.batch import _encode_headers
from myqueue.protocol.types import Record
from pipeline.schemas import READABLE
from pipeline.source.decode import explode

SCHEMA = to_arrow_schema(READABLE, timezone="UTC")
BLOCKS = pa.schema([("base_offset", pa.int64()), ("append_time", pa.int64()), ("keys", pa.list_(pa.binary())), ("values", pa.list_(pa.binary())),
                    ("headers", pa.list_(pa.binary())), ("timestamps", pa.list_(pa.int64()))])
BYTES = st.binary(max_size=6)
HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | BYTES), max_size=2).map(tuple)
RECORDS = st.builds(Record, BYTES, st.none() | BYTES, HEADERS, st.none() | st.integers(0, 10**15))
LOGS = st.lists(st.lists(RECORDS, min_size=1, max_size=4), max_size=6)
FIRST, APPENDED = 100, 1_700_000_000_000_000


def _time(microseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)


def _row(block: list[Record], offset: int) -> dict[str, Any]:
    """A block as PostgreSQL sends it: a column that no record uses is NULL."""
    columns = {"keys": [record.key for record in block], "headers": [_encode_headers(record.headers) if record.headers else None for record in block],
               "timestamps": [record.timestamp_us for record in block]}
    used = {name: values if any(value is not None for value in values) else None for name, values in columns.items()}
    return {"base_offset": offset, "append_time": APPENDED + offset, "values": [record.value for record in block], **used}


def _message(record: Record, offset: int, base: int) -> dict[str, Any]:
    headers = [{"key": name, "value": value} for name, value in record.headers] or None
    client = record.timestamp_us is not None
    return {"key": record.key, "value": record.value, "topic": "t", "partition": 3, "offset": offset,
            "timestamp": _time(record.timestamp_us if client else APPENDED + base), "timestampType": 0 if client else 1, "headers": headers,
            "appendTime": _time(APPENDED + base)}


@settings(max_examples=300, deadline=None)
@given(LOGS, st.integers(0, 3), st.integers(FIRST - 2, FIRST + 26), st.integers(FIRST - 2, FIRST + 26))
def test_every_message_in_the_range_comes_out_as_it_went_in(log: list[list[Record]], skipped: int, start: int, end: int) -> None:
    """Whatever columns the blocks have, also in a slice of a batch; nothing outside the offsets asked for."""
    rows, messages, offset = [], [], FIRST
    for number, block in enumerate(log):
        rows.append(_row(block, offset))
        if number >= skipped:
            messages += [_message(record, offset + place, offset) for place, record in enumerate(block)]
        offset += len(block)
    batch = pa.RecordBatch.from_pylist(rows, schema=BLOCKS).slice(skipped)
    exploded = explode(batch, topic="t", partition=3, start=start, end=end, schema=SCHEMA)
    assert exploded.schema == SCHEMA
    assert [message for message in messages if start <= message["offset"] < end] == exploded.to_pylist()
