"""What the threads and worker processes of one manager tell each other: hints on top of the shared ``Wakeups``.

Each key is a small integer, so that no two share a slot. A signal's stamp is the moment it was last given, on the
monotonic clock that all processes of the machine share; ``age`` reads it.
"""

from __future__ import annotations

import threading

from myqueue.clock import Clock
from myqueue.service.wakeups import Wakeups

LOG = 1  # the leader has something to send: an entry, or a higher commit index
ACKED = 2  # a follower acknowledged more
COMMITTED = 3  # a follower learnt a higher commit index
APPLIED = 4  # the applied index rose
CATALOGUE = 5  # topics, partitions, brokers or members changed
MAJORITY = 6  # a majority answered the leader
LEADER = 7  # this follower heard of the leader


class Signals:
    """Signals of one manager, shared by its worker processes."""

    def __init__(self, wakeups: Wakeups, clock: Clock, stopping: threading.Event) -> None:
        self._wakeups, self._clock, self._stopping = wakeups, clock, stopping

    def give(self, *keys: int) -> None:
        """Wake who waits. Call after the commit."""
        for key in keys:
            self._wakeups.wake(key)

    def stamp(self, key: int) -> int:
        """Take it before looking at the database, then ``wait`` with it."""
        return self._wakeups.stamp(key)

    def wait(self, key: int, stamp: int, timeout_seconds: float) -> bool:
        """True when the signal was given since the stamp was taken; False when the time is over or the process stops."""
        return self._wakeups.wait(key, stamp, timeout_seconds, self._stopping)

    def age(self, key: int) -> float:
        """Seconds since the signal was last given; infinite if it never was."""
        stamp = self._wakeups.stamp(key)
        return max(0.0, self._clock.monotonic() - stamp / 1e9) if stamp else float("inf")
