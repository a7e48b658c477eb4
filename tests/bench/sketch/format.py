"""PURE: the least that a log of blocks in PostgreSQL needs, for the sketch and for PostgreSQL alone.

    body   := block+                       one request
    block  := count:int32 ‖ length:int32 ‖ (size:int32 ‖ bytes)*        big-endian; length counts what is behind it

The elements of a block are the binary form of a ``bytea[]`` without its header, so that a row is made by putting numbers around it.
Nothing is checked: this shows what the path costs at least, not what a product must do.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

BLOCK_BYTES_MAX = 7_900  # a row with its header stays inside an 8 KiB page
ARRAY_HEADER_BYTES = 24  # as stored
TABLE = """CREATE TABLE {log} (partition int, lsn bigint, base bigint, count int, chain bytea, vals bytea[], PRIMARY KEY (partition, lsn))
           WITH (toast_tuple_target = 8160);
           ALTER TABLE {log} ALTER vals SET STORAGE EXTERNAL"""
COPY_IN = "COPY {log} (partition, lsn, base, count, chain, vals) FROM STDIN (FORMAT binary)"
HEAD = "CREATE TABLE IF NOT EXISTS head (log text PRIMARY KEY, lsn bigint, base bigint, chain bytea)"
COPY_OUT = "COPY (SELECT count, vals FROM {log} WHERE partition = 0 AND lsn >= %s AND lsn < %s) TO STDOUT (FORMAT binary)"

_SIZE = struct.Struct(">i")
_BLOCK = struct.Struct(">ii")
_SIGNATURE = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
_TRAILER = struct.pack(">h", -1)
_ROW = struct.Struct(">h ii iq iq ii i32s iiiiii")  # numbers and digest with their sizes; then the array's size, dimensions, flag, type, count, bound
_READ_ROW = struct.Struct(">h ii i")
_BYTEA = 17


class End(NamedTuple):
    """Where a log ends: the next row, the next message, and the digest of all before."""

    lsn: int = 0
    offset: int = 0
    chain: bytes = b""


def pack(values: Iterable[bytes]) -> bytes:
    """Messages as one body."""
    out: list[bytes] = []
    block: list[bytes] = []
    stored = ARRAY_HEADER_BYTES
    for value in values:
        size = 4 + ((len(value) + 3) & ~3)
        if block and stored + size > BLOCK_BYTES_MAX:
            _close(out, block)
            block, stored = [], ARRAY_HEADER_BYTES
        block += (_SIZE.pack(len(value)), value)
        stored += size
    if block:
        _close(out, block)
    return b"".join(out)


def rows(bodies: Sequence[bytes], end: End) -> tuple[bytes, End]:
    """The input of COPY for several requests, one behind the other at the end of a log, and where it ends then."""
    out, (lsn, offset, chain) = [_SIGNATURE], end
    for body in bodies:
        for count, block in _blocks(body):
            chain = hashlib.sha256(chain + block).digest()
            out += (_ROW.pack(6, 4, 0, 8, lsn, 8, offset, 4, count, 32, chain, 20 + len(block), 1, 0, _BYTEA, count, 1), block)
            lsn, offset = lsn + 1, offset + count
    out.append(_TRAILER)
    return b"".join(out), End(lsn, offset, chain)


def count_read(copied: memoryview) -> int:
    """How many messages the output of COPY holds; looks at each block's head only."""
    at, records = len(_SIGNATURE), 0
    while copied[at:at + 2] != _TRAILER:
        _, _, count, length = _READ_ROW.unpack_from(copied, at)
        at += _READ_ROW.size + length
        records += count
    return records


def cut(copied: memoryview) -> list[bytes]:
    """The messages themselves in the output of COPY."""
    raw, messages, at, size_at = bytes(copied), [], len(_SIGNATURE), _SIZE.unpack_from
    while raw[at:at + 2] != _TRAILER:
        _, _, count, _ = _READ_ROW.unpack_from(raw, at)
        at += _READ_ROW.size + 20
        for _ in range(count):
            end = at + 4 + size_at(raw, at)[0]
            messages.append(raw[at + 4:end])
            at = end
    return messages


def _close(out: list[bytes], block: list[bytes]) -> None:
    joined = b"".join(block)
    out += (_BLOCK.pack(len(block) // 2, len(joined)), joined)


def _blocks(body: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(body):
        count, length = _BLOCK.unpack_from(body, at)
        at += _BLOCK.size
        yield count, body[at:at + length]
        at += length
