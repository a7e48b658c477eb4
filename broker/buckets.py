"""What partitions owe to their quotas, known to all worker processes of one broker: shared memory, mapped before the workers fork.

A partition that has taken nothing for a while owes nothing, so nothing is lost where its place is given to another: each partition may stand
in a few places, and gets the one that was left alone for longest. Only where more partitions than that meet in the same moment one of them is
forgiven what it owes.
"""

from __future__ import annotations

import fcntl
import mmap
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from myqueue.clock import Clock
from myqueue.protocol.types import PartitionId

from .core.quota import Bucket, plan_take

GROUPS = 1_024
PLACES = 8  # in a group
_TOPIC_ID, _PARTITION, _OWED_BYTES, _AT = range(4)  # the first two integers, the others floats; a topic 0 is none
_FIELDS = 4


class Buckets:
    """Make one in the master process, before the fork. A process that is killed while it holds the lock lets go of it by that."""

    def __init__(self, clock: Clock) -> None:
        memory = memoryview(mmap.mmap(-1, GROUPS * PLACES * _FIELDS * 8))
        self._integers, self._floats = memory.cast("q"), memory.cast("d")
        self._clock = clock
        self._threads = threading.Lock()
        self._processes = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close; only the system's lock on it is used

    def close(self) -> None:
        """Nothing is taken in this process any more."""
        self._processes.close()

    def take(self, partition: PartitionId, size_bytes: int, *, bytes_per_second: int) -> float:
        """Take a request of a partition: 0. Where it is not taken: how many seconds to wait before the next one would be."""
        with self._alone():
            at = self._place(partition)
            taken = plan_take(Bucket(self._floats[at + _OWED_BYTES], self._floats[at + _AT]), size_bytes, bytes_per_second=bytes_per_second,
                              now=self._clock.monotonic())
            self._floats[at + _OWED_BYTES], self._floats[at + _AT] = taken.bucket
            return taken.wait_seconds

    def _place(self, partition: PartitionId) -> int:
        """Where the partition stands from now on."""
        first = hash(partition) % GROUPS * PLACES  # of integers: the same in every process
        places = range(first * _FIELDS, (first + PLACES) * _FIELDS, _FIELDS)
        for at in places:
            if (self._integers[at + _TOPIC_ID], self._integers[at + _PARTITION]) == partition:
                return at
        at = min(places, key=lambda place: self._floats[place + _AT])
        self._integers[at + _TOPIC_ID], self._integers[at + _PARTITION] = partition
        self._floats[at + _OWED_BYTES] = 0.0
        return at

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One thread of one process at a time; a process takes no other lock of the system meanwhile, so that none waits in a circle."""
        with self._threads:
            fcntl.lockf(self._processes, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.lockf(self._processes, fcntl.LOCK_UN)
