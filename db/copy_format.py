"""Log entries ⇄ PostgreSQL's binary COPY rows. Pure; costs per block, never per record.

The binary form of an array is a 20-byte header (dimensions, null flag, element type, count, lower bound) and the
elements as they stand in a batch, so that a column is passed on untouched in both directions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from myqueue.protocol.batch import ENTRIES_MAGIC, HEADERS, KEYS, TIMESTAMPS, VALUES, pack_block_head, pack_entry_head
from myqueue.protocol.chain import CHAIN_BYTES, Bytes, EntryHead
from myqueue.protocol.entry import LogEntry

ENTRY_COLUMNS = ("topic_id", "partition", "lsn", "epoch", "kind", "base_offset", "record_count", "append_time", "producer_id", "producer_epoch",
                 "producer_seq", "request_index", "request_count", "chain", "keys", "values", "headers", "timestamps", "body")
READ_COLUMNS = ("base_offset", "append_time", "epoch", "record_count", "keys", "values", "headers", "timestamps")

PIECE_BYTES = 1 << 17

_SIGNATURE = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
_TRAILER = struct.pack(">h", -1)
_ROW = struct.Struct(">h iq ii iq iq ih iq ii iq iq ii iq ii ii i")  # column count, then size and value of each number, then the chain's size
_ARRAY = struct.Struct(">i iiiii")  # size, dimensions, null flag, element type, count, lower bound
_ARRAY_HEADER_BYTES = 20
_INT4 = struct.Struct(">i")
_NULL = _INT4.pack(-1)
_BYTEA, _BIGINT = 17, 20  # type oids
_READ_ROW = struct.Struct(">h iq iq iq ii")


def encode_rows(entries: Iterable[LogEntry], piece_bytes: int = PIECE_BYTES) -> Iterator[bytes]:
    """The input of ``COPY … (ENTRY_COLUMNS) FROM STDIN (FORMAT binary)``, in pieces of some ``piece_bytes`` of columns, or one longer column."""
    out: list[Bytes] = [_SIGNATURE]
    add, size = out.append, 0
    for head, chain, keys, values, headers, timestamps, body in entries:
        (topic_id, partition, lsn, epoch, kind, base_offset, record_count, append_time,
         producer_id, producer_epoch, producer_seq, request_index, request_count) = head
        add(_ROW.pack(len(ENTRY_COLUMNS), 8, topic_id, 4, partition, 8, lsn, 8, epoch, 2, kind, 8, base_offset, 4, record_count, 8, append_time,
                      8, producer_id, 4, producer_epoch, 8, producer_seq, 4, request_index, 4, request_count, CHAIN_BYTES))
        add(chain)
        for column, element_type in ((keys, _BYTEA), (values, _BYTEA), (headers, _BYTEA), (timestamps, _BIGINT)):
            if column is None:
                add(_NULL)
            else:
                add(_ARRAY.pack(_ARRAY_HEADER_BYTES + len(column), 1, 0, element_type, record_count, 1))
                add(column)
                size += len(column)
        if body is None:
            add(_NULL)
        else:
            add(_INT4.pack(len(body)))
            add(body)
            size += len(body)
        if size >= piece_bytes:
            yield b"".join(out)
            out.clear()
            size = 0
    add(_TRAILER)
    yield b"".join(out)


def decode_rows(rows: memoryview) -> list[LogEntry]:
    """The output of ``COPY (SELECT ENTRY_COLUMNS …) TO STDOUT (FORMAT binary)``; columns are views of it."""
    entries: list[LogEntry] = []
    at = len(_SIGNATURE)
    while rows[at:at + 2] != _TRAILER:
        numbers = _ROW.unpack_from(rows, at)
        at += _ROW.size
        head = EntryHead(*numbers[2:-1:2])
        chain = bytes(rows[at:at + CHAIN_BYTES])
        at += CHAIN_BYTES
        columns: list[memoryview | None] = []
        for header in (_ARRAY_HEADER_BYTES,) * 4 + (0,):
            size = _INT4.unpack_from(rows, at)[0]
            at += 4
            columns.append(None if size < 0 else rows[at + header:at + size])
            at += max(size, 0)
        entries.append(LogEntry(head, chain, *columns))
    return entries


def entries_body(rows: memoryview) -> tuple[bytes, int]:
    """The output of ``COPY (SELECT READ_COLUMNS …) TO STDOUT (FORMAT binary)`` as an ``entries`` body, and its record count."""
    out: list[Bytes] = [ENTRIES_MAGIC]
    at, records = len(_SIGNATURE), 0
    size_at = _INT4.unpack_from
    while rows[at:at + 2] != _TRAILER:
        _, _, base_offset, _, append_time, _, epoch, _, count = _READ_ROW.unpack_from(rows, at)
        at += _READ_ROW.size
        columns, payload, parts = 0, 0, []
        for bit in (KEYS, VALUES, HEADERS, TIMESTAMPS):
            size = size_at(rows, at)[0]
            at += 4
            if size < 0:
                continue
            columns |= bit
            size -= _ARRAY_HEADER_BYTES
            parts += (_INT4.pack(size), rows[at + _ARRAY_HEADER_BYTES:at + _ARRAY_HEADER_BYTES + size])
            at += _ARRAY_HEADER_BYTES + size
            payload += 4 + size
        out += (pack_entry_head(base_offset, append_time, epoch), pack_block_head(count, columns, payload))
        out += parts
        records += count
    return b"".join(out), records
