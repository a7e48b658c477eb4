"""Appends between brokers as bytes: entries as they are stored, for several partitions in one body. Specified in db/DESIGN.md.

    body   := "MQA1" ‖ append*
    append := topic_id:int64 ‖ partition:int32 ‖ epoch:int64 ‖ position:int64 ‖ prev_epoch:int64 ‖ commit:int64 ‖ round:int64
              ‖ introduction:int32 ‖ count:int32 ‖ length:int32 ‖ introduction's bytes ‖ entry × count
    entry  := the numbers of its head behind topic and partition ‖ chain ‖ keys, values, headers, timestamps, body
    column := size:int32 (-1: NULL) ‖ bytes

``length`` counts the bytes of the entries. The introduction is JSON, the topic's name and config for a replica that is new; 0 bytes
where the follower has answered already.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from db.replication import AppendReply, AppendRequest, Hint, Refusal
from myqueue.errors import CorruptBatchError
from myqueue.protocol.chain import CHAIN_BYTES, Bytes, EntryHead
from myqueue.protocol.entry import LogEntry
from myqueue.protocol.types import PartitionId

APPENDS_TYPE = "application/vnd.myqueue.appends.v1"
MAGIC = b"MQA1"
_APPEND = struct.Struct(">qiqqqqqiii")
_HEAD = struct.Struct(">qqhqiqqiqii")
_SIZE = struct.Struct(">i")
_NULL = _SIZE.pack(-1)
COLUMNS = 5
BODY_BYTES = 4 << 20  # appends are gathered up to here; one request of a producer is never split and may be longer
BODY_BYTES_MAX = 16 << 20  # what a broker takes: BODY_BYTES, and one request with its heads


@dataclass(frozen=True, slots=True)
class Append:
    """An append to one partition's replica."""

    partition: PartitionId
    request: AppendRequest
    introduction: bytes = b""


def entry_size(entry: LogEntry) -> int:
    """Bytes of an entry in a body."""
    return _HEAD.size + CHAIN_BYTES + COLUMNS * _SIZE.size + entry.size_bytes


def append_size(append: Append) -> int:
    """Bytes of an append in a body."""
    return _APPEND.size + len(append.introduction) + sum(map(entry_size, append.request.entries))  # type: ignore[arg-type]


def encode(appends: Iterable[Append]) -> bytes:
    """The body of a request."""
    out: list[Bytes] = [MAGIC]
    for append in appends:
        request = append.request
        entries: list[Bytes] = []
        for entry in request.entries:
            _encode_entry(entry, entries)  # type: ignore[arg-type]
        out += (_APPEND.pack(*append.partition, request.epoch, request.position, request.prev_epoch, request.commit, request.round,
                             len(append.introduction), len(request.entries), sum(map(len, entries))), append.introduction, *entries)
    return b"".join(out)


def _encode_entry(entry: LogEntry, out: list[Bytes]) -> None:
    out += (_HEAD.pack(*entry.head[2:]), entry.chain)
    for column in entry[2:]:
        if column is None:
            out.append(_NULL)
        else:
            out += (_SIZE.pack(len(column)), column)


def decode(body: bytes) -> list[Append]:
    """The appends of a body; columns are views of it. Raises CorruptBatchError for whatever does not fit exactly."""
    if body[:4] != MAGIC:
        raise CorruptBatchError("not a body of appends of this version")
    view, at, appends = memoryview(body), 4, []
    try:
        while at < len(body):
            topic_id, partition, epoch, position, prev_epoch, commit, rounds, introduced, count, length = _APPEND.unpack_from(view, at)
            at += _APPEND.size
            if min(introduced, count, length) < 0 or at + introduced + length > len(body):
                raise CorruptBatchError("an append does not fit its body")
            of = PartitionId(topic_id, partition)
            entries = _decode_entries(view[at + introduced:at + introduced + length], of, position, count)
            appends.append(Append(of, AppendRequest(epoch, position, prev_epoch, entries, commit, rounds), bytes(view[at:at + introduced])))
            at += introduced + length
    except struct.error:
        raise CorruptBatchError("an append is cut off") from None
    return appends


def _decode_entries(view: memoryview, partition: PartitionId, position: int, count: int) -> list[LogEntry]:
    entries, at = [], 0
    for lsn in range(position, position + count):
        numbers = _HEAD.unpack_from(view, at)
        at += _HEAD.size
        chain = bytes(view[at:at + CHAIN_BYTES])
        at += CHAIN_BYTES
        columns: list[memoryview | None] = []
        for _ in range(COLUMNS):
            size = _SIZE.unpack_from(view, at)[0]
            at += _SIZE.size
            if size < -1 or at + max(size, 0) > len(view):
                raise CorruptBatchError("an entry does not fit its append")
            columns.append(None if size < 0 else view[at:at + size])
            at += max(size, 0)
        head = EntryHead(*partition, *numbers)
        if head.lsn != lsn or len(chain) != CHAIN_BYTES:
            raise CorruptBatchError(f"the entry for lsn {lsn} says that it is {head.lsn}")
        entries.append(LogEntry(head, chain, *columns))
    if at != len(view):
        raise CorruptBatchError("bytes are left behind an append's entries")
    return entries


def reply_to_json(reply: AppendReply) -> dict[str, Any]:
    """An answer as JSON."""
    return {"epoch": reply.epoch, "disk_id": reply.disk_id, "position": reply.position, "round": reply.round, "matched": reply.matched,
            "refusal": reply.refusal, "hint": None if reply.hint is None else [reply.hint.end, reply.hint.next], "counts": reply.counts}


def reply_from_json(body: Mapping[str, Any]) -> AppendReply:
    """The answer that JSON stands for. Raises KeyError, TypeError, ValueError for something else."""
    hint = body["hint"]
    return AppendReply(int(body["epoch"]), str(body["disk_id"]), int(body["position"]), int(body["round"]),
                       None if body["matched"] is None else int(body["matched"]), None if body["refusal"] is None else Refusal(body["refusal"]),
                       None if hint is None else Hint(int(hint[0]), int(hint[1])), body["counts"] is True)
