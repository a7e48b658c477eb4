"""Which of several replicas is the odd one."""

from __future__ import annotations

import pytest

from pipeline.audit.replicas import odd_ones


@pytest.mark.parametrize(("chains", "leader", "right", "odd"), [
    ({1: b"a", 2: b"a", 3: b"a"}, 2, 2, []),
    ({1: b"a", 2: b"b", 3: b"b"}, 1, 2, [1]),        # most have it, also against the leader
    ({1: b"a", 2: b"b"}, 2, 2, [1]),                 # one against one: the leader's
    ({1: b"a", 2: b"b"}, None, 1, [2]),
    ({1: b"a", 2: b"b", 3: b"c"}, 3, 3, [1, 2]),
    ({1: b"a", 2: b"a", 3: b"b", 4: b"b"}, 4, 4, [1, 2]),
    ({1: b"a", 2: b"a", 3: b"b", 4: b"c"}, 4, 4, [1, 2, 3]),  # two of four are not most
])
def test_what_most_have_is_right_and_else_what_the_leader_has(chains: dict[int, bytes], leader: int | None, right: int, odd: list[int]) -> None:
    assert (right, odd) == odd_ones(chains, leader)
