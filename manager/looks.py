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
        self._replica, self._liveness, self._role, self._lags = replica, liveness, role, GroupLags(groups, clock)

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
        yield metrics.GROUP_LAG.at(self._lags.of([group.name for group in catalogue.groups.values() if group.members]))


class GroupLags:
    """How far groups are. Brokers are asked at most once in ``LAG_KEPT_SECONDS``, and by one thread at a time: the others get what was found last."""

    def __init__(self, groups: Groups, clock: Clock) -> None:
        self._groups, self._clock = groups, clock
        self._looking = threading.Lock()
        self._found: tuple[float, dict[tuple[str, ...], float]] = (-math.inf, {})

    def of(self, names: list[str]) -> dict[tuple[str, ...], float]:
        """By group and topic. A group that cannot be told now is missing."""
        looked_at, lags = self._found
        if self._clock.monotonic() - looked_at < LAG_KEPT_SECONDS or not self._looking.acquire(blocking=False):
            return lags
        try:
            lags = self._looked_up(names)
            self._found = self._clock.monotonic(), lags
        finally:
            self._looking.release()
        return lags

    def _looked_up(self, names: list[str]) -> dict[tuple[str, ...], float]:
        lags: Counter[tuple[str, ...]] = Counter()
        for name in names:
            try:
                positions = self._groups.offsets(name, wait_seconds=0.0)
            except MyQueueError:  # deleted just now, or a partition without a leader: told by its own series
                metrics.LOOKS_FAILED.inc()
                continue
            for one in positions:
                lags[name, one.topic] += one.position.lag
        return {labels: float(lag) for labels, lag in lags.items()}
