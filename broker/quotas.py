"""The quotas of topics, from their configs as they are stored here, remembered until any process of this node learns of a change."""

from __future__ import annotations

from dataclasses import dataclass

from db.log_store import LogStore
from myqueue.errors import QuotaExceededError
from myqueue.protocol.topic_config import PRODUCE_BYTES_PER_SECOND, number_in
from myqueue.protocol.types import PartitionId
from myqueue.service.wakeups import Wakeups

from .buckets import Buckets
from .directory import CACHED_TOPICS_MAX
from .service import TOPICS_KEY


@dataclass(frozen=True, slots=True)
class Quota:
    """What each partition of a topic may take."""

    topic: str
    bytes_per_second: int


class Quotas:
    """Where there is no quota a request costs a look at the shared stamp and one into a dictionary."""

    def __init__(self, store: LogStore, wakeups: Wakeups, buckets: Buckets) -> None:
        self._store, self._wakeups, self._buckets = store, wakeups, buckets
        self._known: tuple[int, dict[int, Quota | None]] = (-1, {})

    def take(self, partition: PartitionId, size_bytes: int) -> None:
        """Count a request that is to be appended against its topic's quota, if it has one.

        Raises:
            QuotaExceededError: the partition has taken its part; ``wait_seconds`` says when it takes more.
            UnavailableError: what the quota is cannot be looked up.
        """
        stamp = self._wakeups.stamp(TOPICS_KEY)
        known_stamp, known = self._known
        if known_stamp != stamp or len(known) > CACHED_TOPICS_MAX:
            self._known = _, known = stamp, {}
        if partition.topic_id not in known:
            known[partition.topic_id] = self._look(partition.topic_id)
        quota = known[partition.topic_id]
        if quota is None:
            return
        wait_seconds = self._buckets.take(partition, size_bytes, bytes_per_second=quota.bytes_per_second)
        if wait_seconds > 0:
            raise QuotaExceededError(
                f"partition {partition.partition} of topic {quota.topic} takes {quota.bytes_per_second} bytes a second "
                f"({PRODUCE_BYTES_PER_SECOND}), and has taken them: come again in {wait_seconds:.3f} s; nothing was stored",
                topic=quota.topic, partition=partition.partition, quota=quota.bytes_per_second, wait_seconds=round(wait_seconds, 3))

    def _look(self, topic_id: int) -> Quota | None:
        found = self._store.topic(topic_id)
        rate = None if found is None else number_in(found[1], PRODUCE_BYTES_PER_SECOND)
        return None if found is None or rate is None else Quota(found[0], rate)
