"""What /metrics shows of a broker as of now: what it holds, how much that is, and what its followers lack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from db.log_store import Head, LogStore
from myqueue.service import metrics

from .core.replica import is_leading
from .replicator import Replicator

ROLES = ("leader", "follower", "seeding", "damaged")


class Looks:
    """Looks when it is asked. Raises MyQueueError where the database does not answer."""

    def __init__(self, store: LogStore, replicator: Replicator) -> None:
        self._store, self._replicator = store, replicator

    def __call__(self) -> Iterator[metrics.Family]:
        roles, messages, missing = Counter(dict.fromkeys(ROLES, 0)), Counter(), {}  # type: ignore[var-annotated]
        for held in self._store.held():
            roles[role_of(held.head)] += 1
            if not is_leading(held.head):
                continue
            messages[held.topic] += held.head.commit_offset - held.head.earliest
            for replica, lacks in self._replicator.missing(held.id).items():
                missing[replica] = max(lacks, missing.get(replica, 0))
        yield metrics.PARTITIONS_HELD.at({(role,): count for role, count in roles.items()})
        yield metrics.STORED_MESSAGES.at({(topic,): count for topic, count in messages.items()})
        yield metrics.STORED_BYTES.at({(topic,): size for topic, size in self._store.sizes().items()})
        yield metrics.REPLICA_MISSING.at({(f"broker-{replica}",): lacks for replica, lacks in missing.items()})


def role_of(head: Head) -> str:
    """What a broker does for a partition, as its head says."""
    if head.fault is not None:
        return "damaged"
    if head.seeding_until is not None:
        return "seeding"
    return "leader" if is_leading(head) else "follower"
