"""Wake-ups across the worker processes of one node: a few shared bytes instead of a database poll.

The memory is mapped before the workers fork. Who changed something under a key stamps the key's slot with the
monotonic clock and wakes the waiters of its own process; in a node of several workers each process with waiters
compares the shared memory every few milliseconds and wakes its own. A wake-up is a hint: the waiter looks at the
database again. Two keys may share a slot, which costs a needless look.
"""

from __future__ import annotations

import mmap
import struct
import threading
from collections.abc import Hashable

from ..clock import SystemClock

SLOTS = 4_096
POLL_SECONDS = 0.005  # between looks at the shared memory, while somebody waits in a node of several workers
STOP_CHECK_SECONDS = 0.5
_SLOT = struct.Struct("=q")


class Wakeups:
    """Make one in the master process, before the fork. ``workers`` is how many processes will share it."""

    def __init__(self, workers: int = 1) -> None:
        self._memory = mmap.mmap(-1, SLOTS * _SLOT.size)
        self._conditions = [threading.Condition() for _ in range(64)]
        self._clock = SystemClock()
        self._shared = workers > 1
        self._waiters = 0
        self._watcher_lock = threading.Lock()
        self._watcher: threading.Thread | None = None

    @staticmethod
    def _slot(key: Hashable) -> int:
        return hash(key) % SLOTS  # of integers, strings and their tuples: the same in every forked process

    def stamp(self, key: Hashable) -> int:
        """What to compare with later: take it before looking at the database, then wait for it to change."""
        return int(_SLOT.unpack_from(self._memory, self._slot(key) * _SLOT.size)[0])

    def wake(self, key: Hashable) -> None:
        """Say that something changed under this key. Call after the commit."""
        slot = self._slot(key)
        condition = self._conditions[slot % len(self._conditions)]
        with condition:
            _SLOT.pack_into(self._memory, slot * _SLOT.size, int(self._clock.monotonic() * 1e9))
            condition.notify_all()

    def wait(self, key: Hashable, stamp: int, timeout_seconds: float, stopping: threading.Event | None = None) -> bool:
        """Wait until the stamp of ``key`` has changed: True; False when the time is over or the process is stopping."""
        end = self._clock.monotonic() + timeout_seconds
        condition = self._conditions[self._slot(key) % len(self._conditions)]
        if self._shared:
            self._watch()
        with condition:
            self._waiters += 1
            try:
                while self.stamp(key) == stamp:
                    left = end - self._clock.monotonic()
                    if left <= 0 or (stopping is not None and stopping.is_set()):
                        return False
                    condition.wait(min(left, STOP_CHECK_SECONDS))
                return True
            finally:
                self._waiters -= 1

    def _watch(self) -> None:
        with self._watcher_lock:
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._compare, name="wakeups", daemon=True)
                self._watcher.start()

    def _compare(self) -> None:
        seen, pause = bytes(self._memory), threading.Event()
        while True:
            pause.wait(POLL_SECONDS if self._waiters > 0 else STOP_CHECK_SECONDS / 10)
            now = self._memory[:]
            if now != seen:
                seen = now
                for condition in self._conditions:
                    with condition:
                        condition.notify_all()
