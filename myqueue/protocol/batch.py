"""The batch format, version 1: what the SDK packs is what the broker stores.

    batch    := "MQB1" ‖ block+                                   application/vnd.myqueue.batch.v1, the body of a produce
    entries  := "MQE1" ‖ (base_offset:int64 ‖ append_time:int64 ‖ epoch:int64 ‖ block)*
                                                                  application/vnd.myqueue.entries.v1, the body of a read
    block    := count:int32 ‖ columns:int32 ‖ length:int32 ‖ column+      ``length`` counts the bytes behind it
    column   := length:int32 ‖ element × count                    keys, values, headers, timestamps: those in ``columns``
    element  := size:int32 ‖ bytes                                size -1: NULL (not in values)

Integers are big-endian. ``columns`` is a bit set: 1 keys, 2 values (always there), 4 headers, 8 timestamps. A header
element is a list of (name, value), each an int32 length and the bytes, value length -1 for none. A timestamp element
is an int64, microseconds since 1970. A column's elements are the binary form of a PostgreSQL ``bytea[]`` (``bigint[]``)
without its 20-byte header, so that the broker streams them into COPY without looking at a record.

A block of several records ends before its stored size passes BLOCK_BYTES_MAX, so that its row stays inside a page; a
larger record has a block of its own. Golden vectors: tests/data/batch.json. Specified in db/DESIGN.md.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ..errors import CorruptBatchError, TooLargeError
from .types import Header, Message, Record

BATCH_TYPE = "application/vnd.myqueue.batch.v1"
ENTRIES_TYPE = "application/vnd.myqueue.entries.v1"
NDJSON_TYPES = ("application/x-ndjson", "application/jsonl")  # the same records, one a line
BATCH_MAGIC = b"MQB1"
ENTRIES_MAGIC = b"MQE1"

KEYS, VALUES, HEADERS, TIMESTAMPS = 1, 2, 4, 8
ALL_COLUMNS = KEYS | VALUES | HEADERS | TIMESTAMPS

BLOCK_BYTES_MAX = 7_900  # stored bytes of a block of several records
RECORD_BYTES_MAX = 1 << 20  # value + key + encoded headers of one record
REQUEST_BYTES_MAX = 8 << 20  # body of one produce request

_I4 = struct.Struct(">i")
_BLOCK = struct.Struct(">iii")
_ENTRY = struct.Struct(">qqq")
_pack_i4 = _I4.pack
_TIMESTAMP = struct.Struct(">iq").pack
_NULL = _pack_i4(-1)
BLOCK_HEAD_BYTES = _BLOCK.size
ENTRY_HEAD_BYTES = _ENTRY.size
pack_block_head = _BLOCK.pack
pack_entry_head = _ENTRY.pack


class Block(NamedTuple):
    """A block whose framing was checked: its record count and the elements of each column it has."""

    count: int
    keys: memoryview | None
    values: memoryview
    headers: memoryview | None
    timestamps: memoryview | None


def _stored(size: int) -> int:
    return 4 + ((size + 3) & ~3)  # PostgreSQL keeps an int32 length and pads to 4 bytes


def _encode_headers(headers: Sequence[Header]) -> bytes:
    out = []
    for name, value in headers:
        raw = name.encode()
        out += (_pack_i4(len(raw)), raw, _NULL if value is None else _pack_i4(len(value)), value or b"")
    return b"".join(out)


def decode_headers(raw: bytes | memoryview) -> tuple[Header, ...]:
    """The headers of one record. Raises CorruptBatchError."""
    raw, at, headers = bytes(raw), 0, []
    while at < len(raw):
        name, at = _sized(raw, at)
        value, at = _sized(raw, at)
        if name is None:
            raise CorruptBatchError("a header without a name")
        try:
            headers.append((name.decode(), value))
        except UnicodeDecodeError:
            raise CorruptBatchError("a header name is not UTF-8") from None
    return tuple(headers)


def _sized(raw: bytes, at: int) -> tuple[bytes | None, int]:
    if at + 4 > len(raw):
        raise CorruptBatchError("a header ends in the middle")
    size = _I4.unpack_from(raw, at)[0]
    at += 4
    if size < -1 or at + max(size, 0) > len(raw):
        raise CorruptBatchError("a header's length does not fit")
    return (None, at) if size == -1 else (raw[at : at + size], at + size)


def record_bytes(record: Record) -> int:
    """What counts towards RECORD_BYTES_MAX: the bytes of value, key and encoded headers (8 bytes more a header)."""
    return len(record.value) + len(record.key or b"") + (len(_encode_headers(record.headers)) if record.headers else 0)


def check_record(record: Record) -> None:
    """Raises TooLargeError where the record is over RECORD_BYTES_MAX."""
    size = record_bytes(record)
    if size > RECORD_BYTES_MAX:
        raise TooLargeError(f"the record has {size} bytes, the most is {RECORD_BYTES_MAX}", size=size, maximum=RECORD_BYTES_MAX)


def pack_values(values: Sequence[bytes]) -> bytes:
    """A batch of records that have a value only: the fast path. Raises nothing; sizes are the caller's to check."""
    out: list[bytes] = [BATCH_MAGIC]
    block: list[bytes] = []
    size, stored = 0, 24
    for value in values:
        length = len(value)
        stored += 4 + ((length + 3) & ~3)
        if block and stored > BLOCK_BYTES_MAX:
            out.append(_BLOCK.pack(len(block) >> 1, VALUES, size + 4) + _pack_i4(size))
            out += block
            block, size, stored = [], 0, 24 + 4 + ((length + 3) & ~3)
        block += (_pack_i4(length), value)
        size += length + 4
    if block:
        out.append(_BLOCK.pack(len(block) >> 1, VALUES, size + 4) + _pack_i4(size))
        out += block
    return b"".join(out)


def pack(records: Sequence[Record]) -> bytes:
    """A batch of records with all their columns. A column that no record of a block uses is left out of it."""
    out: list[bytes] = [BATCH_MAGIC]
    block: list[tuple[Record, bytes]] = []
    stored = 0
    for record in records:
        headers = _encode_headers(record.headers) if record.headers else b""
        size = 12 + _stored(len(record.value)) + _stored(len(record.key or b"")) + _stored(len(headers))
        if block and stored + size > BLOCK_BYTES_MAX:
            out.append(_pack_block(block))
            block, stored = [], 0
        if not block:
            # array headers of four columns, and the null bitmaps of three in a block as full as it can be
            stored = 4 * 24 + 3 * (BLOCK_BYTES_MAX // 24 // 8)
        block.append((record, headers))
        stored += size
    if block:
        out.append(_pack_block(block))
    return b"".join(out)


def _pack_block(block: list[tuple[Record, bytes]]) -> bytes:
    columns, parts = VALUES, []
    if any(record.key is not None for record, _ in block):
        columns |= KEYS
        parts.append(_elements(record.key for record, _ in block))
    parts.append(_elements(record.value for record, _ in block))
    if any(headers for _, headers in block):
        columns |= HEADERS
        parts.append(_elements(headers or None for _, headers in block))
    if any(record.timestamp_us is not None for record, _ in block):
        columns |= TIMESTAMPS
        parts.append(b"".join(_NULL if record.timestamp_us is None else _TIMESTAMP(8, record.timestamp_us) for record, _ in block))
    payload = b"".join(_pack_i4(len(part)) + part for part in parts)
    return _BLOCK.pack(len(block), columns, len(payload)) + payload


def _elements(items: Iterable[bytes | None]) -> bytes:
    return b"".join([_NULL if item is None else _pack_i4(len(item)) + item for item in items])


def blocks_of(body: bytes | bytearray) -> list[Block]:
    """Check the framing of a batch and cut it into blocks, never looking at a record unless a NULL may be there.

    Raises:
        CorruptBatchError: nothing of the batch may be used; ``block`` says which is the first bad one, from 0.
        TooLargeError: a record is over RECORD_BYTES_MAX.
    """
    if body[:4] != BATCH_MAGIC:
        raise CorruptBatchError(f"a batch begins with {BATCH_MAGIC.decode()}")
    view, at, end, blocks, may_hold_null = memoryview(body), 4, len(body), list[Block](), _may_hold_null(body)
    while at < end:
        try:
            block, at = _read_block(view, at, end, may_hold_null)
        except (CorruptBatchError, TooLargeError) as error:
            raise error.at(block=len(blocks)) from None
        blocks.append(block)
    if not blocks:
        raise CorruptBatchError("a batch has at least one block")
    return blocks


def _may_hold_null(body: bytes | bytearray) -> bool:
    """False where there is surely no NULL: one look over all of it for a byte of one, which is many times as fast as looking for four."""
    return _NULL[:1] in body


def _read_block(view: memoryview, at: int, end: int, may_hold_null: bool) -> tuple[Block, int]:
    if end - at < BLOCK_HEAD_BYTES:
        raise CorruptBatchError("a block's head is cut off")
    count, columns, length = _BLOCK.unpack_from(view, at)
    at += BLOCK_HEAD_BYTES
    if columns & ~ALL_COLUMNS or not columns & VALUES:
        raise CorruptBatchError(f"a block has unknown columns ({columns})")
    if not 0 <= length <= end - at:
        raise CorruptBatchError("a block's length passes the end of the batch")
    block_end, found = at + length, []
    for bit in (KEYS, VALUES, HEADERS, TIMESTAMPS):
        if not columns & bit:
            found.append(None)
            continue
        if block_end - at < 4:
            raise CorruptBatchError("a column's head is cut off")
        size = _I4.unpack_from(view, at)[0]
        at += 4
        if not 0 <= size <= block_end - at or not 1 <= count <= size // 4:
            raise CorruptBatchError("a column's length does not fit its block")
        found.append(view[at : at + size])
        at += size
    if at != block_end:
        raise CorruptBatchError("a block holds bytes behind its last column")
    block = Block(count, *found)
    if count > 1 and length > BLOCK_BYTES_MAX:
        raise CorruptBatchError(f"a block of several records has {length} bytes, the most is {BLOCK_BYTES_MAX}")
    if length > RECORD_BYTES_MAX:
        size = sum(max(0, len(column) - 4) for column in (block.keys, block.values, block.headers) if column is not None)
        if size > RECORD_BYTES_MAX:
            raise TooLargeError(f"a record has {size} bytes, the most is {RECORD_BYTES_MAX}", size=size, maximum=RECORD_BYTES_MAX)
    if may_hold_null and _NULL in bytes(block.values) and None in elements(block.values, count):
        raise CorruptBatchError("a value is NULL")
    return block, block_end


def elements(column: memoryview | bytes, count: int) -> list[bytes | None]:
    """The elements of a column. Raises CorruptBatchError where they do not fill it exactly."""
    raw, at, found = bytes(column), 0, list[bytes | None]()
    add, size_at = found.append, _I4.unpack_from
    try:
        for _ in range(count):
            size = size_at(raw, at)[0]
            at += 4
            if size >= 0:
                add(raw[at : (at := at + size)])
            elif size == -1:
                add(None)
            else:
                raise CorruptBatchError("an element's length does not fit its column")
    except struct.error:
        raise CorruptBatchError("a column has fewer elements than its block says" if at <= len(raw)
                                else "an element's length does not fit its column") from None
    if at != len(raw):  # so none was cut off either
        raise CorruptBatchError("a column has more elements than its block says" if at < len(raw) else "an element's length does not fit its column")
    return found


def encode_block(block: Block) -> bytes:
    """A block's bytes again, as they stand in a batch or in entries."""
    columns = sum(bit for bit, column in zip((KEYS, VALUES, HEADERS, TIMESTAMPS), block[1:], strict=True) if column is not None)
    parts = [part for column in block[1:] if column is not None for part in (_pack_i4(len(column)), bytes(column))]
    return _BLOCK.pack(block.count, columns, sum(map(len, parts))) + b"".join(parts)


def records_of(block: Block) -> list[Record]:
    """A block's records. Raises CorruptBatchError."""
    return _records(block, elements(block.values, block.count))


def _records(block: Block, values: list[bytes | None]) -> list[Record]:
    nothing = [None] * block.count
    keys = nothing if block.keys is None else elements(block.keys, block.count)
    headers = nothing if block.headers is None else elements(block.headers, block.count)
    times = nothing if block.timestamps is None else elements(block.timestamps, block.count)
    return [Record(value, key, decode_headers(head) if head else (), int.from_bytes(when, "big", signed=True) if when is not None else None)  # type: ignore[arg-type]
            for value, key, head, when in zip(values, keys, headers, times, strict=True)]


def end_offset_of(body: bytes) -> int | None:
    """The offset behind the last record of an ``entries`` body, None where it is empty; reads the heads only. Raises CorruptBatchError."""
    return end_of(body)[0]


def end_of(body: bytes) -> tuple[int | None, int]:
    """As :func:`end_offset_of`, and the epoch in which the last record was appended, 0 without one. Raises CorruptBatchError."""
    if body[:4] != ENTRIES_MAGIC:
        raise CorruptBatchError(f"entries begin with {ENTRIES_MAGIC.decode()}")
    at, end, offset, epoch = 4, len(body), None, 0
    while at < end:
        if end - at < ENTRY_HEAD_BYTES + BLOCK_HEAD_BYTES:
            raise CorruptBatchError("an entry's head is cut off")
        base_offset, _append_time, epoch = _ENTRY.unpack_from(body, at)
        count, _columns, length = _BLOCK.unpack_from(body, at + ENTRY_HEAD_BYTES)
        at += ENTRY_HEAD_BYTES + BLOCK_HEAD_BYTES
        if count < 1 or not 0 <= length <= end - at:
            raise CorruptBatchError("an entry's block passes the end of the body")
        at, offset = at + length, base_offset + count
    return offset, epoch


def messages_of(body: bytes, *, topic: str, partition: int, from_offset: int = 0) -> Iterator[Message]:
    """The messages of an ``entries`` body at or after ``from_offset``, lazily. Raises CorruptBatchError."""
    return itertools.chain.from_iterable(_messages_by_block(body, topic, partition, from_offset))


def _messages_by_block(body: bytes, topic: str, partition: int, from_offset: int) -> Iterator[list[Message]]:
    if body[:4] != ENTRIES_MAGIC:
        raise CorruptBatchError(f"entries begin with {ENTRIES_MAGIC.decode()}")
    view, at, end = memoryview(body), 4, len(body)
    topics, partitions, nothing, no_headers = itertools.repeat(topic), itertools.repeat(partition), itertools.repeat(None), itertools.repeat(())
    while at < end:
        if end - at < ENTRY_HEAD_BYTES:
            raise CorruptBatchError("an entry's head is cut off")
        base_offset, append_time, _epoch = _ENTRY.unpack_from(view, at)
        block, at = _read_block(view, at + ENTRY_HEAD_BYTES, end, False)
        if base_offset + block.count <= from_offset:
            continue
        values = elements(block.values, block.count)
        if None in values:
            raise CorruptBatchError("a value is NULL")
        if block.keys is None and block.headers is None and block.timestamps is None:  # not a line of Python a message
            fields = zip(topics, partitions, itertools.count(base_offset), values, nothing, no_headers, itertools.repeat(append_time))
            messages = list(map(tuple.__new__, itertools.repeat(Message), fields))
        else:
            messages = [Message(topic, partition, offset, record.value, record.key, record.headers,
                                append_time if record.timestamp_us is None else record.timestamp_us)
                        for offset, record in enumerate(_records(block, values), base_offset)]
        yield messages[from_offset - base_offset:] if from_offset > base_offset else messages
