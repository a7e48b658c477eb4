"""What a batch from outside must satisfy before it waits with others.

``blocks_of`` checks the framing. The two columns whose elements mean something to every reader are checked here, so that
one record cannot spoil a whole range for others: headers decode, timestamps are not before 1970. A batch of values and
keys costs nothing per record.
"""

from __future__ import annotations

from collections.abc import Sequence

from myqueue.errors import CorruptBatchError, TooLargeError
from myqueue.protocol.batch import REQUEST_BYTES_MAX, Block, blocks_of, decode_headers, elements, records_of

BLOCKS_MAX = 16_384  # each becomes an entry with a head of its own: what is stored must fit the calls between brokers too
_TIMESTAMP_BYTES = 12  # int32 length and int64


def admit(body: bytes | bytearray) -> list[Block]:
    """The blocks of a produce body.

    Raises:
        CorruptBatchError, TooLargeError: nothing of it may be stored.
    """
    if len(body) > REQUEST_BYTES_MAX:
        raise TooLargeError(f"the batch has {len(body)} bytes, the most is {REQUEST_BYTES_MAX}", size=len(body), maximum=REQUEST_BYTES_MAX)
    blocks = blocks_of(body)
    if len(blocks) > BLOCKS_MAX:
        raise TooLargeError(f"the batch has {len(blocks)} blocks, the most is {BLOCKS_MAX}: pack more records into one",
                            size=len(blocks), maximum=BLOCKS_MAX)
    for number, block in enumerate(blocks):
        try:
            if block.headers is not None:
                _check_headers(block)
            if block.timestamps is not None:
                _check_timestamps(block)
        except CorruptBatchError as error:
            raise error.at(block=number) from None
    return blocks


def fault_of(blocks: Sequence[Block]) -> CorruptBatchError | None:
    """What is wrong with the elements of a batch, and in which block. It looks at every record: for one that the database has refused."""
    for number, block in enumerate(blocks):
        try:
            records_of(block)
        except CorruptBatchError as error:
            return error.at(block=number)
    return None


def _check_headers(block: Block) -> None:
    for raw in elements(block.headers, block.count):  # type: ignore[arg-type]
        if raw is not None:
            decode_headers(raw)


def _check_timestamps(block: Block) -> None:
    column = bytes(block.timestamps)  # type: ignore[arg-type]
    if len(column) == _TIMESTAMP_BYTES * block.count:
        signs = column[4::_TIMESTAMP_BYTES]
        lengths = column[3::_TIMESTAMP_BYTES]
        if max(signs) < 0x80 and set(lengths) == {8}:
            return
    for raw in elements(column, block.count):
        if raw is not None and (len(raw) != 8 or raw[0] >= 0x80):
            raise CorruptBatchError("a timestamp is not a count of microseconds since 1970")
