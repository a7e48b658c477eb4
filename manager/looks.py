"""What /metrics shows of a manager as of now: its place, how partitions are, and how far consumer groups are."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterator

from manager.catalogue import replicas_of
from manager.cluster.condition import conditions
from manager.groups import Groups
from manager.heartbeats import Liveness
from manager.node.role import Role
from manager.replica import Replica
from myqueue.clock import Clock
from myqueue.errors import MyQueueError
from myqueue.service import metrics

LAG_KEPT_SECONDS = 10.0  # it takes a call to each broker for each group
FRESHNESS_MAX = 1e9  # where the write manager was never heard of


class Looks:
    """Looks when it is asked. Raises MyQueueError where the database does not answer; a group whose lag cannot be told is missing."""

    def __init__(self, *, replica: Replica, liveness: Liveness, role: Role, groups: Groups, clock: Clock) -> None:
        self._replica, self._liveness, self._role, self._groups, self._clock = replica, liveness, role, groups, clock
        self._lag_lock = threading.Lock()
        self._lag: tuple[float, dict[tuple[str, ...], float]] = (-math.inf, {})

    def __call__(self) -> Iterator[metrics.Family]:
        catalogue = self._replica.catalogue()
        rows = [replicas_of(row) for topic in catalogue.topics.values() for row in topic.partitions]
        found = conditions(rows, self._liveness.outlook(catalogue))
        yield metrics.IS_WRITE_MANAGER.at({(): float(self._role.is_write_manager)})
        yield metrics.FRESHNESS.at({(): min(self._role.silence_seconds(), FRESHNESS_MAX)})
        conditions_of = {"all": rows, "leaderless": found.leaderless, "under_replicated": found.under_replicated,
                         "without_majority": found.without_majority}
        yield metrics.PARTITION_CONDITIONS.at({(condition,): len(partitions) for condition, partitions in conditions_of.items()})
        yield metrics.GROUP_MEMBERS.at({(group.name,): len(group.members) for group in catalogue.groups.values()})
        yield metrics.GROUP_LAG.at(self._lags([group.name for group in catalogue.groups.values() if group.members]))

    def _lags(self, names: list[str]) -> dict[tuple[str, ...], float]:
        with self._lag_lock:  # whoever comes meanwhile gets what is found now
            looked_at, lags = self._lag
            if self._clock.monotonic() - looked_at >= LAG_KEPT_SECONDS:
                lags = {}
                for name in names:
                    try:
                        positions = self._groups.offsets(name)
                    except MyQueueError:  # deleted just now, or a partition without a leader: told by its own series
                        metrics.LOOKS_FAILED.inc()
                        continue
                    by_topic: Counter[str] = Counter()
                    for one in positions:
                        by_topic[one.topic] += one.position.lag
                    lags |= {(name, topic): float(lag) for topic, lag in by_topic.items()}
                self._lag = self._clock.monotonic(), lags
            return lags
