"""The sketch's own format: what is packed becomes rows, and rows become messages again."""

from __future__ import annotations

import struct

from tests.bench.sketch.format import BLOCK_BYTES_MAX, End, pack, rows

HEAD_BYTES = 11 + 8


def blocks(body: bytes) -> list[tuple[int, int]]:
    found, at = [], 0
    while at < len(body):
        count, length = struct.unpack_from(">ii", body, at)
        found.append((count, length))
        at += 8 + length
    return found


def test_blocks_stay_inside_a_page() -> None:
    found = blocks(pack([b"x" * 100] * 1000))
    assert 1000 == sum(count for count, _ in found)
    assert all(24 + count * 104 <= BLOCK_BYTES_MAX for count, _ in found)
    assert [(1, 9004), (1, 9004)] == blocks(pack([b"x" * 9000] * 2)), "a larger message has a block of its own"
    assert b"" == pack([])


def test_groups_go_on_where_the_last_one_ended() -> None:
    bodies = [pack([b"a"] * 10), pack([b"b"] * 5)]
    together, end = rows(bodies, End())
    first, middle = rows(bodies[:1], End())
    second, after = rows(bodies[1:], middle)
    assert (end, (2, 15)) == (after, end[:2])
    assert together == first[:-2] + second[HEAD_BYTES:]
    assert end.chain != middle.chain and 32 == len(end.chain)
