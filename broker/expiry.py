"""Trims what the topics' configs do not keep: the leader of each partition, by an entry of the log as a client's trim is."""

from __future__ import annotations

import logging
from collections.abc import Callable

from db.log_store import HeldPartition, LogStore
from myqueue.clock import Clock
from myqueue.errors import MyQueueError
from myqueue.protocol.topic_config import Kept, kept_of
from myqueue.protocol.types import PartitionId

from .core.replica import is_leading
from .core.retention import plan_expiry

_log = logging.getLogger(__name__)


class Expiry:
    """Any number of processes may look at once: what is trimmed already is trimmed again without an entry.

    Args:
        trim: trims a partition below an offset.
    """

    def __init__(self, store: LogStore, clock: Clock, *, trim: Callable[[PartitionId, int], object]) -> None:
        self._store, self._clock, self._trim = store, clock, trim

    def look(self) -> None:
        """Trim the partitions led here. What cannot be trimmed now is looked at the next time."""
        known: dict[int, Kept] = {}
        for held in self._store.held():
            topic_id = held.id.topic_id
            if topic_id not in known:
                found = self._store.topic(topic_id)
                known[topic_id] = kept_of(found[1] if found else {})
            if known[topic_id] and is_leading(held.head):
                try:
                    self._trim_one(held, known[topic_id])
                except MyQueueError as error:
                    _log.info("partition %s is not trimmed now: %s", held.id, error.message, extra={"code": error.code})

    def _trim_one(self, held: HeldPartition, kept: Kept) -> None:
        parts = self._store.parts(held.id, with_sizes=kept.size_bytes is not None)
        offset = plan_expiry(kept, parts, now_us=self._clock.now_us(), committed=held.head.commit_offset)
        if offset > held.head.earliest:
            self._trim(held.id, offset)
            _log.info("partition %s is trimmed below offset %d, as its topic says", held.id, offset)
