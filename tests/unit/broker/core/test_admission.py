"""What a batch must satisfy before it waits with others."""

from __future__ import annotations

import struct

import pytest

from broker.core.admission import BLOCKS_MAX, admit, fault_of
from myqueue.errors import CorruptBatchError, TooLargeError
from myqueue.protocol.batch import HEADERS, REQUEST_BYTES_MAX, TIMESTAMPS, VALUES, pack, pack_values, records_of
from myqueue.protocol.types import Record


def one_record(columns: int, extra: bytes) -> bytes:
    """A batch of one record "a" whose extra column has these bytes."""
    payload = struct.pack(">ii", 5, 1) + b"a" + struct.pack(">i", len(extra)) + extra
    return b"MQB1" + struct.pack(">iii", 1, columns, len(payload)) + payload


def test_good_batches_pass():
    records = [Record(b"a", b"k", (("h", None),), 0), Record(b"b"), Record(b"c", timestamp_us=2**62)]
    assert [record for block in admit(pack(records)) for record in records_of(block)] == records
    assert len(admit(pack([Record(b"x", timestamp_us=5)] * 500))) > 1


def test_elements_that_fill_no_column_are_found_by_their_block():
    """Only where the database has refused a batch: it costs a look at every record."""
    bad = struct.pack(">iiiii", 2, VALUES, 12, 8, 4) + b"abcd"
    blocks = admit(pack_values([b"x"]) + bad + pack_values([b"y"])[4:])
    error = fault_of(blocks)
    assert error is not None
    assert (error.details, error.message) == ({"block": 1}, "block 1: a column has fewer elements than its block says")
    assert fault_of([blocks[0], blocks[2]]) is None
    with pytest.raises(CorruptBatchError) as refused:
        admit(pack_values([b"x"]) + one_record(VALUES | HEADERS, struct.pack(">i", 4) + b"\0\0\0\1")[4:])
    assert refused.value.details == {"block": 1}


@pytest.mark.parametrize("raw", [b"\0\0\0\1", b"rubbish.", b"\0\0\0\1\xff\0\0\0\0"])
def test_headers_that_no_reader_could_decode_are_refused(raw: bytes):
    """One bad record would spoil a whole range for every reader."""
    with pytest.raises(CorruptBatchError):
        admit(one_record(VALUES | HEADERS, struct.pack(">i", len(raw)) + raw))


@pytest.mark.parametrize("raw", [struct.pack(">q", -1), struct.pack(">q", -(2**63)), b"1234"])
def test_times_before_1970_are_refused(raw: bytes):
    """PostgreSQL's timestamps end 4713 years before Christ, and the view must never fail."""
    with pytest.raises(CorruptBatchError, match="timestamp"):
        admit(one_record(VALUES | TIMESTAMPS, struct.pack(">i", len(raw)) + raw))


def test_a_negative_time_between_good_ones_is_found():
    body = bytearray(pack([Record(b"a", timestamp_us=1), Record(b"b", timestamp_us=2), Record(b"c", timestamp_us=3)]))
    body[-20] |= 0x80
    with pytest.raises(CorruptBatchError):
        admit(bytes(body))


def test_a_request_is_bounded():
    with pytest.raises(TooLargeError):
        admit(pack_values([b"x" * 1_000_000] * (REQUEST_BYTES_MAX // 1_000_000 + 1)))


def test_a_batch_of_too_many_blocks_is_refused():
    """Each block becomes an entry with a head of its own: what is stored of a request must fit the calls between brokers."""
    block = pack_values([b"x"])[4:]
    assert len(admit(b"MQB1" + block * BLOCKS_MAX)) == BLOCKS_MAX
    with pytest.raises(TooLargeError, match="blocks"):
        admit(b"MQB1" + block * (BLOCKS_MAX + 1))
