"""Back-off: grows, is bounded, and its jitter stays within half."""

from __future__ import annotations

import pytest

from myqueue.client.backoff import Backoff


@pytest.mark.parametrize(("failures", "expected"), [(1, 0.1), (2, 0.2), (3, 0.4), (4, 0.5), (1_000_000, 0.5)])
def test_waits_grow_up_to_the_maximum(failures: int, expected: float) -> None:
    assert expected == pytest.approx(Backoff(first_seconds=0.1, factor=2.0, max_seconds=0.5).delay_seconds(failures))


def test_jitter_takes_away_at_most_half() -> None:
    policy = Backoff(first_seconds=1.0, max_seconds=8.0)
    assert (2.0, 3.0, 4.0) == tuple(policy.delay_seconds(3, draw) for draw in (0.0, 0.5, 1.0))
