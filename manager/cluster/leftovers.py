"""What a broker holds though the metadata does not say so: of deleted topics, and of partitions that moved away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from manager.cluster.election import Replicas
from myqueue.protocol.types import PartitionId


@dataclass(frozen=True, slots=True)
class Leftovers:
    """To be dropped."""

    topic_ids: tuple[int, ...]
    partitions: Mapping[PartitionId, int]  # with the epoch in which that was seen: who has promised it by then was asked for it again

    def __bool__(self) -> bool:
        return bool(self.topic_ids or self.partitions)


def leftovers(broker_id: int, held: Iterable[PartitionId], known: Mapping[PartitionId, Replicas]) -> Leftovers:
    """What of the partitions held by a broker nobody will ask it for any more.

    Args:
        known: every partition by the metadata, read **after** the broker has said what it holds and confirmed by a majority of
            the managers: else a topic that was created in between would be dropped.
    """
    topics = {partition.topic_id for partition in known}
    gone, moved = set(), {}
    for partition in held:
        replicas = known.get(partition)
        if partition.topic_id not in topics:
            gone.add(partition.topic_id)
        elif replicas is not None and not replicas.electing and broker_id not in replicas.voters and broker_id not in replicas.learners:
            moved[partition] = replicas.epoch
    return Leftovers(tuple(sorted(gone)), dict(sorted(moved.items())))
