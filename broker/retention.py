"""Gives the disk back that trimmed messages take: each replica for itself, a segment at a time, beside the hot path.

First the head of each log concerned says that the log begins later, one short transaction each; a segment in which no log begins
any more is dropped at the next look. A process that dies in between leaves rows that no head speaks of, and the next look goes on.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from db.log_store import LogBusyError, LogStore
from myqueue.errors import UnknownPartitionError
from myqueue.protocol.types import PartitionId

from .core.retention import plan_begin
from .replicator import Replicator

LOCK_SECONDS = 0.05
_log = logging.getLogger(__name__)


class Retention:
    """Any number of processes may look at once."""

    def __init__(self, store: LogStore, replicator: Replicator) -> None:
        self._store, self._replicator = store, replicator

    def look(self) -> None:
        """Drop what was left by the last look, then let logs begin where nothing below is needed."""
        dropped = self._store.drop_segments()
        if dropped:
            _log.info("segments dropped: %s", dropped)
        for partition in self._store.may_begin_later():
            with suppress(LogBusyError, UnknownPartitionError):  # it is written to: the next look; or it is not here any more
                self._begin_later(partition)

    def _begin_later(self, partition: PartitionId) -> None:
        with self._store.locked(partition, lock_timeout_seconds=LOCK_SECONDS) as held:
            border = plan_begin(held.head, held.borders(), kept_from=self._replicator.kept_from(partition, held.head))
            if border is None:
                return
            held.begin_at(border)
        _log.info("partition %s begins at lsn %d, offset %d", partition, *border)
