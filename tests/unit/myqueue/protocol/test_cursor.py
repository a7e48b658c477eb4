"""A search's cursor comes back as it was, and whatever else comes is a sentence."""

from __future__ import annotations

import base64
import random
import zlib

import pytest

from myqueue.errors import BadRequestError
from myqueue.protocol.cursor import SearchCursor, decode_cursor


@pytest.mark.parametrize("cursor", [
    SearchCursor(1, 0, (0,)), SearchCursor(7, 2**32 - 1, (5, 0, 2**63 - 1, 3), 3, 2), SearchCursor(2**62, 9, (1,) * 1_000, 999, 0),
    SearchCursor(3, 4, tuple(range(0, 3_000, 3)), 12, None)])
def test_a_cursor_comes_back_as_it_was(cursor: SearchCursor) -> None:
    assert decode_cursor(cursor.encode()) == cursor


def test_a_cursor_over_a_thousand_partitions_fits_a_request_line() -> None:
    numbers = random.Random(7)
    cursor = SearchCursor(12_345, 2**32 - 1, tuple(numbers.randrange(10**9) for _ in range(1_000)), 500, 10**9)
    assert decode_cursor(cursor.encode()) == cursor
    assert len(cursor.encode()) < 7_500


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(zlib.compress(raw)).decode()


@pytest.mark.parametrize("text", [
    "", "x", "ä", "!!!!", "AAAA", _text(b""), _text(b"\x02\x01\x00\x00\x00\x01\x02"), _text(b"\x01"), _text(b"\x01\x01\x00\x00\x00\x02\x02"),
    _text(b"\x01\x01\x00\x01\x00\x01\x02"), _text(b"\x01\x01\x00\x00\x00\x01\x01"), _text(b"\x01" + b"\xff" * 40),
    _text(b"\x01\x01\x00\x00\x00\x01\x82"),
    _text(b"\x01" * (1 << 18)), SearchCursor(1, 0, (5, 6)).encode()[:-3]])
def test_what_is_no_cursor_is_a_sentence(text: str) -> None:
    with pytest.raises(BadRequestError, match="begin without one"):
        decode_cursor(text)
