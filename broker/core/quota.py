"""How much of a topic one partition's leader takes in a second: a bucket of what is owed, that time empties.

What must hold: over any time, what is taken is at most the quota for that time, a burst of ``BURST_SECONDS`` of it, and one request. A request
is taken whenever no more than the burst is owed, whatever its size: none is too large ever to be taken, and small ones cannot keep a large one
waiting for ever. What it owes beyond the burst holds up whoever comes next.
"""

from __future__ import annotations

from typing import NamedTuple

BURST_SECONDS = 1.0


class Bucket(NamedTuple):
    """What was owed at a moment: bytes, and seconds of a clock that never goes back. One that was never used owes nothing."""

    owed_bytes: float = 0.0
    at: float = 0.0


class Taken(NamedTuple):
    """The bucket afterwards, and how many seconds to wait: 0 where the request was taken, else it was not and the bucket is as it was."""

    bucket: Bucket
    wait_seconds: float = 0.0


def plan_take(bucket: Bucket, size_bytes: int, *, bytes_per_second: int, now: float) -> Taken:
    """Take a request, or say when one would be taken. A quota that was changed meanwhile counts for what is owed from before, too.

    Args:
        bytes_per_second: 1 or more.
        now: by the bucket's clock.
    """
    owed = max(0.0, bucket.owed_bytes - max(0.0, now - bucket.at) * bytes_per_second)
    wait_seconds = owed / bytes_per_second - BURST_SECONDS
    if wait_seconds > 0:
        return Taken(bucket, wait_seconds)
    return Taken(Bucket(owed + size_bytes, max(now, bucket.at)))
