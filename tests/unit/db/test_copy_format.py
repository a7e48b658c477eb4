"""Rows of COPY in binary: what PostgreSQL reads and writes, byte for byte."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from db.copy_format import ENTRY_COLUMNS, READ_COLUMNS, encode_rows, entries_body
from myqueue.protocol.batch import messages_of
from myqueue.protocol.chain import GENESIS
from myqueue.protocol.entry import UNCHAINED, LogEnd, LogEntry, Planned, chained, offset_entry, record_entries
from myqueue.protocol.types import Record
from tests.support.factories import PARTITION, record_blocks

SIGNATURE = b"PGCOPY\n\xff\r\n\0" + bytes(8)
SIGNED = {8: ">q", 4: ">i", 2: ">h"}


def fields_of(rows: bytes) -> list[list[bytes | None]]:
    """Rows cut into fields, by the documentation of COPY and nothing else."""
    assert rows[:19] == SIGNATURE
    at, found = 19, []
    while True:
        count = struct.unpack_from(">h", rows, at)[0]
        at += 2
        if count == -1:
            assert at == len(rows)
            return found
        row: list[bytes | None] = []
        for _ in range(count):
            size = struct.unpack_from(">i", rows, at)[0]
            at += 4
            row.append(None if size == -1 else rows[at:at + size])
            at += max(size, 0)
        found.append(row)


def numbers(fields: list[bytes | None]) -> list[int]:
    return [struct.unpack(SIGNED[len(field)], field)[0] for field in fields if field is not None]


def written(planned: Planned) -> list[LogEntry]:
    return list(chained(GENESIS, planned[0]))


def test_rows_come_in_pieces_as_they_are_asked_for():
    """So that a database stores the first while the digests of the others are made."""
    entries, _ = record_entries(PARTITION, LogEnd(), epoch=3, append_time=9, blocks=record_blocks([Record(b"v" * 5_000)] * 9), sequence=None)
    taken: list[LogEntry] = []

    def watched() -> Iterator[LogEntry]:
        for entry in chained(GENESIS, entries):
            taken.append(entry)
            yield entry

    pieces = encode_rows(watched(), piece_bytes=12_000)
    first = next(pieces)
    assert (len(entries), len(taken)) == (9, 3)
    assert first + b"".join(pieces) == b"".join(encode_rows(taken))
    assert entries == [entry._replace(chain=UNCHAINED) for entry in taken]


def test_a_row_holds_every_column_in_order():
    """Numbers as they are, the chain, and each array behind its header of one dimension that begins at 1."""
    blocks = record_blocks([Record(b"v", b"k"), Record(b"w")])
    [entry] = written(record_entries(PARTITION, LogEnd(), epoch=3, append_time=9, blocks=blocks, sequence=None))
    [row] = fields_of(b"".join(encode_rows([entry])))
    assert len(row) == len(ENTRY_COLUMNS)
    assert numbers(row[:13]) == list(entry.head)
    assert row[13] == entry.chain
    assert row[14] == struct.pack(">iiiii", 1, 0, 17, 2, 1) + struct.pack(">i", 1) + b"k" + struct.pack(">i", -1)
    assert row[15] == struct.pack(">iiiii", 1, 0, 17, 2, 1) + struct.pack(">i", 1) + b"v" + struct.pack(">i", 1) + b"w"
    assert row[16:] == [None, None, None]


def test_times_are_an_array_of_bigint():
    blocks = record_blocks([Record(b"v", timestamp_us=5)])
    [entry] = written(record_entries(PARTITION, LogEnd(), epoch=3, append_time=9, blocks=blocks, sequence=None))
    [row] = fields_of(b"".join(encode_rows([entry])))
    assert row[17] == struct.pack(">iiiii iq", 1, 0, 20, 1, 1, 8, 5)


def test_an_offset_commit_has_a_body_and_no_arrays():
    [entry] = written(offset_entry(PARTITION, LogEnd(), epoch=3, append_time=9, body=b"{}"))
    [row] = fields_of(b"".join(encode_rows([entry])))
    assert row[14:] == [None, None, None, None, b"{}"]


def test_what_is_read_becomes_an_entries_body():
    """The rows of a read, written as PostgreSQL does, are the blocks that were packed."""
    records = [Record(b"v", b"k", (("h", b"x"),), 5), Record(b"w"), Record(b"z" * 9_000)]
    rows, offset = SIGNATURE, 40
    for block in record_blocks(records):
        rows += struct.pack(">h iq iq iq ii", len(READ_COLUMNS), 8, offset, 8, 77, 8, 3, 4, block.count)
        for column, kind in zip(block[1:], (17, 17, 17, 20), strict=True):
            rows += struct.pack(">i", -1) if column is None else struct.pack(">iiiiii", 20 + len(column), 1, 1, kind, block.count, 1) + bytes(column)
        offset += block.count
    body, count = entries_body(memoryview(rows + struct.pack(">h", -1)))
    found = list(messages_of(body, topic="t", partition=0))
    assert count == 3
    assert [message.offset for message in found] == [40, 41, 42]
    assert [Record(message.value, message.key, message.headers) for message in found] == [Record(one.value, one.key, one.headers) for one in records]


def test_no_rows_are_an_empty_body():
    assert entries_body(memoryview(SIGNATURE + struct.pack(">h", -1))) == (b"MQE1", 0)
