"""How a partition is, for whoever watches the cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from manager.cluster.election import Outlook, Replicas
from myqueue.protocol.types import PartitionId


@dataclass(frozen=True, slots=True)
class Conditions:
    """The partitions that are not as they should be."""

    leaderless: tuple[PartitionId, ...]  # nobody leads, or the broker that does is not there
    under_replicated: tuple[PartitionId, ...]  # fewer live voters than wanted
    without_majority: tuple[PartitionId, ...]  # writes are refused until brokers return


def conditions(partitions: Iterable[Replicas], outlook: Outlook) -> Conditions:
    """Sort the partitions out by what is wrong with them; one may be in several lists."""
    leaderless, under, without = [], [], []
    for one in partitions:
        if one.electing or one.leader is None or not outlook.is_up(one.leader):
            leaderless.append(one.partition)
        if len(outlook.answering(one.voters)) < one.replication_factor:
            under.append(one.partition)
        if not outlook.can_elect(one.voters):
            without.append(one.partition)
    return Conditions(tuple(leaderless), tuple(under), tuple(without))
