"""What the threads and worker processes of one manager tell each other: hints on top of the shared ``Wakeups``.

Each key is a small integer, so that no two share a slot.
"""

from __future__ import annotations

import threading

from myqueue.service.wakeups import Wakeups

DRIVE = 1  # there is something for the driver: an entry, an answer, a higher commit index, another term
APPLIED = 2  # the applied index rose, or what waits for it should look again
CATALOGUE = 3  # topics, partitions, brokers, members or the leader changed
READ = 4  # somebody wants a fresh read
READ_CONFIRMED = 5
MEMBER = 6  # somebody asks for a membership change
MEMBER_ANSWERED = 7


class Signals:
    """Signals of one manager, shared by its worker processes."""

    def __init__(self, wakeups: Wakeups, stopping: threading.Event) -> None:
        self._wakeups, self._stopping = wakeups, stopping

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
