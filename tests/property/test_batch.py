"""The wire format, whatever goes in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.core.admission import admit
from myqueue.errors import CorruptBatchError, TooLargeError
from myqueue.protocol.batch import (
    BLOCK_BYTES_MAX,
    ENTRIES_MAGIC,
    elements,
    encode_block,
    messages_of,
    pack,
    pack_entry_head,
    pack_values,
    records_of,
)
from tests.property.strategies import batches, damaged, framed, values


@given(batches)
def test_what_is_packed_is_unpacked(records):
    """Every record comes back, in order, and blocks of several stay inside a page."""
    blocks = admit(pack(records))
    assert [record for block in blocks for record in records_of(block)] == records
    for block in blocks:
        assert block.count == 1 or len(encode_block(block)) - 12 <= BLOCK_BYTES_MAX


@given(st.lists(values, min_size=1, max_size=50))
def test_the_fast_path_agrees_with_the_long_one(items):
    assert [record.value for block in admit(pack_values(items)) for record in records_of(block)] == items


@given(batches, st.integers(0, 2**40), st.data())
def test_a_reader_gets_what_was_packed_from_any_offset(records, base, data):
    """Blocks inside entries are the same bytes; an offset in the middle of a block is honoured."""
    body, offset = [ENTRIES_MAGIC], base
    for block in admit(pack(records)):
        body += (pack_entry_head(offset, 77, 1), encode_block(block))
        offset += block.count
    first = data.draw(st.integers(base, offset))
    found = list(messages_of(b"".join(body), topic="t", partition=0, from_offset=first))
    assert [(message.offset, message.value, message.key) for message in found] == [
        (base + place, record.value, record.key) for place, record in enumerate(records) if base + place >= first]


@given(st.binary(max_size=200) | st.binary(max_size=200).map(lambda raw: b"MQB1" + raw) | framed()
       | batches.flatmap(lambda records: damaged(pack(records))))
def test_rubbish_is_refused_or_well_framed(body):
    """Any bytes: either one of two errors, or blocks whose columns lie inside the body, one behind the other."""
    try:
        blocks = admit(body)
    except (CorruptBatchError, TooLargeError):
        return
    assert b"MQB1" + b"".join(encode_block(block) for block in blocks) == body
    for block in blocks:
        assert block.count >= 1
        if block.headers is not None:
            assert len(list(elements(block.headers, block.count))) == block.count
