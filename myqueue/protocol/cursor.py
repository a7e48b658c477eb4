"""PURE. Where a search goes on: an opaque text that a client hands back, and the cut that every page of the search keeps to.

    text := base64url, without padding, of zlib(version ‖ number*)      numbers as varints, seven bits a byte, the lowest first
    numbers: topic_id, query, partition, offset + 1 (0: at the start), how many ends, then each end less the one before it, zigzag
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import BadRequestError
from .names import INT64_MAX

VERSION = 1
BYTES_MAX = 1 << 17  # unpacked
ENDS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class SearchCursor:
    """A search under way: partitions below ``partition`` are done, and of that one what lies below ``offset`` (None: nothing yet).

    Args:
        query: a digest of what is searched for: a cursor belongs to one search.
        ends: the cut: of each partition, from 0, the offset at which the search ends, whatever was added since it began.
    """

    topic_id: int
    query: int
    ends: tuple[int, ...]
    partition: int = 0
    offset: int | None = None

    def encode(self) -> str:
        out = bytearray([VERSION])
        for number in (self.topic_id, self.query, self.partition, 0 if self.offset is None else self.offset + 1, len(self.ends)):
            _put(out, number)
        before = 0
        for end in self.ends:
            _put(out, ((end - before) << 1) ^ ((end - before) >> 64))
            before = end
        return base64.urlsafe_b64encode(zlib.compress(bytes(out), 9)).rstrip(b"=").decode()


def decode_cursor(text: str) -> SearchCursor:
    """The cursor that a text stands for. Raises BadRequestError for whatever is none."""
    try:
        unpacker = zlib.decompressobj()
        raw = unpacker.decompress(base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4)), BYTES_MAX)
        if not unpacker.eof or raw[:1] != bytes([VERSION]):
            raise ValueError
        numbers = _numbers(raw[1:])
        topic_id, query, partition, place, count = (next(numbers) for _ in range(5))
        ends, end = [], 0
        for number in numbers:
            end += (number >> 1) ^ -(number & 1)
            ends.append(end)
        if len(ends) != count or not 0 <= partition < count <= ENDS_MAX or not all(0 <= one <= INT64_MAX for one in (topic_id, place, *ends)):
            raise ValueError
    except (ValueError, binascii.Error, zlib.error, StopIteration, RuntimeError):
        raise BadRequestError("the cursor is none that was handed out here: begin without one", argument="cursor") from None
    return SearchCursor(topic_id, query, tuple(ends), partition, place - 1 if place else None)


def _put(out: bytearray, number: int) -> None:
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _numbers(raw: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in raw:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number
            number = shift = 0
        elif shift > 70:
            raise ValueError("a number is too long")
    if shift:
        raise ValueError("a number is cut off")
