"""The bucket of a quota, with its time set by hand."""

from __future__ import annotations

from broker.core.quota import Bucket, Taken, plan_take


def test_a_second_s_worth_is_taken_at_once_and_what_comes_then_waits_for_what_is_owed():
    """The request that passes the burst is taken, and holds up the next one."""
    bucket = Bucket()
    for _ in range(3):
        bucket, wait_seconds = plan_take(bucket, 50, bytes_per_second=100, now=7.0)
        assert wait_seconds == 0
    assert bucket == Bucket(150, 7.0)
    assert plan_take(bucket, 1, bytes_per_second=100, now=7.0) == Taken(bucket, 0.5)
    assert plan_take(bucket, 1, bytes_per_second=100, now=7.25) == Taken(bucket, 0.25)
    assert plan_take(bucket, 1, bytes_per_second=100, now=7.5) == Taken(Bucket(101, 7.5))


def test_a_request_larger_than_the_burst_is_taken_and_paid_off_after():
    taken = plan_take(Bucket(), 1_000, bytes_per_second=100, now=0.0)
    assert taken == Taken(Bucket(1_000, 0.0))
    assert plan_take(taken.bucket, 1, bytes_per_second=100, now=0.0).wait_seconds == 9.0
    assert plan_take(taken.bucket, 1_000, bytes_per_second=100, now=9.0) == Taken(Bucket(1_100, 9.0))


def test_what_is_not_used_is_not_saved_up():
    assert plan_take(Bucket(100, 0.0), 30, bytes_per_second=100, now=1_000.0) == Taken(Bucket(30, 1_000.0))


def test_a_quota_that_is_raised_shortens_the_wait_for_what_was_owed_before():
    owing = plan_take(Bucket(), 8_000, bytes_per_second=10, now=0.0).bucket
    assert plan_take(owing, 1, bytes_per_second=10, now=0.0).wait_seconds == 799.0
    assert plan_take(owing, 1, bytes_per_second=1_000, now=0.0).wait_seconds == 7.0


def test_a_moment_that_another_process_saw_earlier_takes_nothing_back():
    """Who waited for the lock may come with an older time than the last one."""
    assert plan_take(Bucket(50, 9.0), 10, bytes_per_second=100, now=8.0) == Taken(Bucket(60, 9.0))
