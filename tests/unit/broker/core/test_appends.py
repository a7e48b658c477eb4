"""Appends between brokers as bytes."""

from __future__ import annotations

import pytest

from broker.core.appends import Append, decode, encode, entry_size, reply_from_json, reply_to_json
from db.replication import AppendReply, AppendRequest, Hint, Refusal
from myqueue.errors import CorruptBatchError
from myqueue.protocol.entry import LogEnd, LogEntry, chained, marker_entry, offset_entry, record_entries
from myqueue.protocol.types import PartitionId, Record
from tests.support.factories import blocks, record_blocks, sequence

PARTITION = PartitionId(7, 3)


def plain(entry: LogEntry) -> LogEntry:
    return LogEntry(entry.head, entry.chain, *(None if column is None else bytes(column) for column in entry[2:]))


def some_entries() -> list[LogEntry]:
    entries, end = marker_entry(PARTITION, LogEnd(10, 20, 4, bytes(32), 5), epoch=5, append_time=6)
    more, end = record_entries(PARTITION, end, epoch=5, append_time=7, sequence=sequence(3),
                               blocks=[*blocks(b"a", b""), *record_blocks([Record(b"v", b"k", (("h", b"x"),), 9), Record(b"w")])])
    last, _ = offset_entry(PARTITION, end, epoch=5, append_time=8, body=b"{}")
    return list(chained(bytes(32), entries + more + last))


def test_what_was_written_is_read():
    """Every column, every number, several partitions, with and without an introduction and entries."""
    entries = some_entries()
    appends = [Append(PARTITION, AppendRequest(5, 10, 4, tuple(entries), 9, 77), b'{"topic":"t"}'),
               Append(PartitionId(8, 0), AppendRequest(2, 0, 0, (), 0, 1))]
    found = decode(encode(appends))
    assert [one.introduction for one in found] == [b'{"topic":"t"}', b""]
    assert [plain(entry) for entry in found[0].request.entries] == [plain(entry) for entry in entries]  # type: ignore[arg-type]
    for one, other in zip(found, appends, strict=True):
        assert one.partition == other.partition
        names = ("epoch", "position", "prev_epoch", "commit", "round", "end")
        assert [getattr(one.request, name) for name in names] == [getattr(other.request, name) for name in names]


def test_the_chain_holds_after_the_way():
    entries = some_entries()
    chain = bytes(32)
    for entry in decode(encode([Append(PARTITION, AppendRequest(5, 10, 4, tuple(entries), 9, 1))]))[0].request.entries:
        chain = entry.chain_after(chain)
        assert chain == entry.chain


def test_the_size_of_an_entry_is_what_it_takes():
    entries = some_entries()
    empty = len(encode([Append(PARTITION, AppendRequest(5, 10, 4, (), 9, 1))]))
    assert len(encode([Append(PARTITION, AppendRequest(5, 10, 4, tuple(entries), 9, 1))])) == empty + sum(map(entry_size, entries))


def test_whatever_does_not_fit_is_refused():
    """Every shortened body, and one with a byte more."""
    body = encode([Append(PARTITION, AppendRequest(5, 10, 4, tuple(some_entries()), 9, 1), b"{}")])
    for size in range(5, len(body)):
        with pytest.raises(CorruptBatchError):
            decode(body[:size])
    for bad in (body + b"\0", b"MQA2" + body[4:], b""):
        with pytest.raises(CorruptBatchError):
            decode(bad)


def test_an_entry_elsewhere_than_it_says_is_refused():
    entries = some_entries()
    with pytest.raises(CorruptBatchError, match="says that it is"):
        decode(encode([Append(PARTITION, AppendRequest(5, 11, 4, tuple(entries), 9, 1))]))


@pytest.mark.parametrize("reply", [AppendReply(3, "d", 4, 5, matched=6), AppendReply(3, "d", 4, 5, refusal=Refusal.NO_MATCH, hint=Hint(9, 7)),
                                   AppendReply(3, "d", 4, 5, refusal=Refusal.STALE_EPOCH, counts=False)])
def test_answers_come_back(reply: AppendReply):
    assert reply_from_json(reply_to_json(reply)) == reply
