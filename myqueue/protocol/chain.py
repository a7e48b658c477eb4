"""The digest of a log entry given the one before it: one formula for brokers, replicas, audit and SQL.

``chain = sha256(previous ‖ head ‖ column ‖ column …)`` where head is the entry's numbers as big-endian integers in the
order of :class:`EntryHead` and each column of keys, values, headers, timestamps, body is its length as int32 (-1 for
NULL) and its bytes. An array column's bytes are its elements only, each an int32 length (-1 for NULL) and the bytes:
the binary form of a PostgreSQL array without its 20-byte header, whose null flag PostgreSQL may rewrite.
Golden vectors: tests/data/chain.json, of trims chain_trim.json. The same in SQL: function ``entry_chain`` of the broker's database.
"""

from __future__ import annotations

import hashlib
import json
import struct
from typing import NamedTuple

CHAIN_BYTES = 32
GENESIS = bytes(CHAIN_BYTES)  # the chain before the first entry

MARKER, RECORDS, OFFSET_COMMIT, TRIM = 0, 1, 2, 3  # an entry's kind
NO_PRODUCER = -1

Bytes = bytes | bytearray | memoryview


class EntryHead(NamedTuple):
    """The numbers of an entry, in the chain's order. Times are microseconds since 1970."""

    topic_id: int  # int64
    partition: int  # int32
    lsn: int  # int64, counts entries of the partition
    epoch: int  # int64
    kind: int  # int16: MARKER, RECORDS, OFFSET_COMMIT, TRIM
    base_offset: int  # int64, counts records of the partition
    record_count: int  # int32, 0 unless RECORDS
    append_time: int  # int64
    producer_id: int  # int64, NO_PRODUCER without one
    producer_epoch: int  # int32, NO_PRODUCER without one
    producer_seq: int  # int64, NO_PRODUCER without one
    request_index: int  # int32, this entry's place in its request, from 0
    request_count: int  # int32, the entries of its request


_HEAD = struct.Struct(">qiqqhqiqqiqii")
_LENGTH = struct.Struct(">i").pack
_NULL = _LENGTH(-1)


def entry_chain(previous: bytes, head: EntryHead, keys: Bytes | None = None, values: Bytes | None = None,
                headers: Bytes | None = None, timestamps: Bytes | None = None, body: Bytes | None = None) -> bytes:
    """The chain after this entry, 32 bytes. Array columns are given as their elements only (see the module)."""
    digest = hashlib.sha256(previous)
    digest.update(_HEAD.pack(*head))
    for column in (keys, values, headers, timestamps, body):
        if column is None:
            digest.update(_NULL)
        else:
            digest.update(_LENGTH(len(column)))
            digest.update(column)
    return digest.digest()


def canonical_json(value: object) -> bytes:
    """One spelling for one JSON value: keys sorted, no spaces, UTF-8. Floats are refused: they have no one spelling."""
    _refuse_floats(value)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _refuse_floats(value: object) -> None:
    if isinstance(value, float):
        raise ValueError(f"{value!r}: no floats in what is digested")
    children = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    for child in children:
        _refuse_floats(child)


def wal_chain(previous: bytes, *, index: int, term: int, command: object, client_id: str | None, client_seq: int | None) -> bytes:
    """The chain of a manager's WAL after the entry at ``index``: the same idea over metadata commands."""
    return hashlib.sha256(previous + canonical_json([index, term, command, client_id, client_seq])).digest()
