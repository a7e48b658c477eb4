"""Trims what the topics' configs do not keep: the leader of each partition, by an entry of the log as a client's trim is."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from db.log_store import HeldPartition, LogStore
from myqueue.clock import Clock
from myqueue.errors import MyQueueError
from myqueue.protocol.topic_config import Kept, kept_of
from myqueue.protocol.types import PartitionId

from .core.replica import is_leading
from .core.retention import plan_expiry

Configs = Mapping[int, Mapping[str, Any]]  # by topic id
_log = logging.getLogger(__name__)


class Expiry:
    """Any number of processes may look at once: what is trimmed already is trimmed again without an entry.

    Args:
        configs: every topic's config as the managers agreed on it by now. What is stored here is what was said when a replica was made or a
            leader appointed: nothing is deleted by that.
        trim: trims a partition below an offset.
        on_configs: called when the configs are stored, which may have changed by that.
    """

    def __init__(self, store: LogStore, clock: Clock, *, configs: Callable[[], Configs], trim: Callable[[PartitionId, int], object],
                 on_configs: Callable[[], None] = lambda: None) -> None:
        self._store, self._clock, self._configs, self._trim, self._on_configs = store, clock, configs, trim, on_configs

    def look(self) -> None:
        """Learn the configs of all topics held here, and trim the partitions led here. What cannot be trimmed now is looked at the next time.

        Raises:
            UnavailableError: no manager says what the topics keep. Nothing was trimmed.
        """
        held = self._store.held()
        if not held:
            return
        configs = self._configs()
        self._store.configure({topic_id: configs[topic_id] for topic_id in sorted({one.id.topic_id for one in held} & configs.keys())})
        self._on_configs()
        for one in held:
            kept = kept_of(configs.get(one.id.topic_id, {}))
            if kept and is_leading(one.head):
                try:
                    self._trim_one(one, kept)
                except MyQueueError as error:
                    _log.info("partition %s is not trimmed now: %s", one.id, error.message, extra={"code": error.code})

    def _trim_one(self, held: HeldPartition, kept: Kept) -> None:
        parts = self._store.parts(held.id, with_sizes=kept.size_bytes is not None)
        offset = plan_expiry(kept, parts, now_us=self._clock.now_us(), committed=held.head.commit_offset)
        if offset > held.head.earliest:
            self._trim(held.id, offset)
            _log.info("partition %s is trimmed below offset %d, as its topic says", held.id, offset)
