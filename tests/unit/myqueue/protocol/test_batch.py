"""The batch format: framing is checked to the last byte."""

from __future__ import annotations

import struct

import pytest

from myqueue.errors import CorruptBatchError, TooLargeError
from myqueue.protocol.batch import (
    BLOCK_BYTES_MAX,
    ENTRIES_MAGIC,
    RECORD_BYTES_MAX,
    VALUES,
    blocks_of,
    check_record,
    decode_headers,
    encode_block,
    messages_of,
    pack,
    pack_entry_head,
    pack_values,
    records_of,
)
from myqueue.protocol.types import Record


def block(count: int, columns: int, payload: bytes) -> bytes:
    return b"MQB1" + struct.pack(">iii", count, columns, len(payload)) + payload


def column(*elements: bytes) -> bytes:
    raw = b"".join(struct.pack(">i", len(element)) + element for element in elements)
    return struct.pack(">i", len(raw)) + raw


@pytest.mark.parametrize(("body", "reason"), [
    (b"", "begins with MQB1"),
    (b"MQB2", "begins with MQB1"),
    (b"MQB1", "at least one block"),
    (b"MQB1" + bytes(11), "head is cut off"),
    (block(1, 0, b""), "unknown columns"),
    (block(1, 16 | VALUES, column(b"a")), "unknown columns"),
    (block(1, 1, column(b"a")), "unknown columns"),
    (block(1, VALUES, column(b"a"))[:-1], "passes the end"),
    (block(0, VALUES, column()), "does not fit"),
    (block(-1, VALUES, column(b"a")), "does not fit"),
    (block(3, VALUES, column(b"", b"")), "does not fit"),
    (block(1, VALUES, column(b"a") + b"x"), "behind its last column"),
    (block(1, VALUES, b"\0\0"), "column's head is cut off"),
    (block(1, VALUES, struct.pack(">i", 100) + b"abcd"), "does not fit"),
    (block(1, VALUES, struct.pack(">i", -1)), "does not fit"),
    (block(1, VALUES, struct.pack(">ii", 4, -1)), "a value is NULL"),
])
def test_broken_framing_is_refused(body: bytes, reason: str):
    """Nothing of a batch is used when a length, count or column of it is wrong."""
    with pytest.raises(CorruptBatchError, match=reason):
        blocks_of(body)


def test_rubbish_behind_a_batch_is_refused():
    """A good batch with anything behind it is not a good batch."""
    body = pack_values([b"a"])
    for rubbish in (b"\0", b"MQB1", body):
        with pytest.raises(CorruptBatchError):
            blocks_of(body + rubbish)


def test_a_batch_cut_anywhere_is_refused():
    """Every prefix of a batch of one block is refused."""
    body = pack([Record(b"v", b"k", (("h", b"x"),), 5)])
    for length in range(len(body)):
        with pytest.raises(CorruptBatchError):
            blocks_of(body[:length])


def test_a_block_of_several_records_stays_inside_a_page():
    """Packing never makes a block of several records that is stored outside its row."""
    for size in (0, 1, 3, 4, 100, 1_000, 3_000, 7_000):
        for found in blocks_of(pack_values([b"x" * size] * 5_000 if size < 200 else [b"x" * size] * 50)):
            stored = 24 + sum(4 + ((len(record.value) + 3) & ~3) for record in records_of(found))
            assert found.count == 1 or stored <= BLOCK_BYTES_MAX


def test_a_foreign_block_that_is_too_long_is_refused():
    """A client that packs too many records into a block is told so."""
    with pytest.raises(CorruptBatchError, match="a block of several records has"):
        blocks_of(block(2, VALUES, column(b"x" * 4_000, b"y" * 4_000)))


def test_the_size_of_a_record():
    """A record of exactly the limit goes through, one byte more does not, on both sides."""
    assert blocks_of(pack([Record(b"x" * RECORD_BYTES_MAX)]))[0].count == 1
    check_record(Record(b"x" * RECORD_BYTES_MAX))
    with pytest.raises(TooLargeError):
        check_record(Record(b"x" * RECORD_BYTES_MAX, b"k"))
    with pytest.raises(TooLargeError):
        blocks_of(pack([Record(b"x" * (RECORD_BYTES_MAX + 1))]))


def test_encode_block_is_the_inverse():
    """A block's bytes are those it was read from."""
    body = pack([Record(b"v", b"k", (("h", None),), 5), Record(b"w")])
    assert b"MQB1" + encode_block(blocks_of(body)[0]) == body


def test_messages_of_skips_what_the_reader_has():
    """Entries are whole blocks: the first may begin before the offset that was asked for."""
    entries = ENTRIES_MAGIC + pack_entry_head(10, 99, 1) + encode_block(blocks_of(pack_values([b"a", b"b", b"c"]))[0])
    found = list(messages_of(entries, topic="t", partition=0, from_offset=11))
    assert [(message.offset, message.value, message.timestamp) for message in found] == [(11, b"b", 99), (12, b"c", 99)]


def test_a_client_time_goes_before_the_append_time():
    entries = ENTRIES_MAGIC + pack_entry_head(0, 99, 1) + encode_block(blocks_of(pack([Record(b"a", timestamp_us=5), Record(b"b")]))[0])
    assert [message.timestamp for message in messages_of(entries, topic="t", partition=0)] == [5, 99]


@pytest.mark.parametrize("raw", [b"\0", b"\0\0\0\1", b"\0\0\0\1a", b"\xff\xff\xff\xff\0\0\0\0", b"\0\0\0\1\xff\0\0\0\0", b"\0\0\0\0\x80\0\0\0"])
def test_broken_headers_are_refused(raw: bytes):
    with pytest.raises(CorruptBatchError):
        decode_headers(raw)
