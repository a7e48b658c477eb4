"""A quota over any time, whatever comes: at most the rate, the burst and one request."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.core.quota import BURST_SECONDS, Bucket, plan_take

REQUESTS = st.lists(st.tuples(st.floats(0.0, 3.0), st.integers(0, 5_000)), max_size=60)  # (seconds since the one before, bytes)


@given(st.integers(1, 2_000), REQUESTS)
def test_over_any_time_no_more_is_taken_than_the_quota_a_burst_and_one_request(rate: int, requests: list[tuple[float, int]]) -> None:
    bucket, now, taken = Bucket(), 0.0, []
    for pause, size in requests:
        now += pause
        bucket, wait_seconds = plan_take(bucket, size, bytes_per_second=rate, now=now)
        if not wait_seconds:
            taken.append((now, size))
    for first, (began, _) in enumerate(taken):
        total = 0
        for ended, size in taken[first:]:
            total += size
            bound = rate * (ended - began + BURST_SECONDS) + max(size for _, size in requests)
            assert total <= bound * (1 + 1e-9)


@given(st.integers(1, 2_000), REQUESTS, st.integers(1, 1 << 30))
def test_who_waits_as_told_is_taken_whatever_its_size(rate: int, requests: list[tuple[float, int]], size: int) -> None:
    bucket, now = Bucket(), 0.0
    for pause, before in requests:
        now += pause
        bucket, _ = plan_take(bucket, before, bytes_per_second=rate, now=now)
    wait_seconds = plan_take(bucket, size, bytes_per_second=rate, now=now).wait_seconds
    again = plan_take(bucket, size, bytes_per_second=rate, now=now + wait_seconds * (1 + 1e-9) + 1e-9)
    assert not again.wait_seconds
    assert again.bucket.owed_bytes >= size
