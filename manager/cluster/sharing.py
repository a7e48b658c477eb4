"""PURE. What a consumer group needs next: members that are gone, partitions that are to be shared anew."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from manager.cluster.assignors import STRATEGIES, Subscriber
from manager.cluster.commands import Assigned
from manager.cluster.groups import read_partition, spelt
from myqueue.protocol.limits import NOTICE_SECONDS


@dataclass(frozen=True, slots=True)
class Reader:
    """A member as its row has it."""

    member_id: int
    topics: Sequence[str]  # names
    wanted: Sequence[str]
    owned: Collection[str]
    session_timeout_seconds: float


def due_assignment(strategy: str, members: Sequence[Reader], topics: Mapping[str, tuple[int, int]]) -> tuple[Assigned, ...] | None:
    """Who is to read what from now on; None where that is as it was, and nobody owns partitions that are gone.

    Args:
        topics: (topic_id, number of partitions) by name, of all topics that there are.
    """
    subscribers = [Subscriber(one.member_id, {topics[name][0] for name in one.topics if name in topics},
                              [read_partition(name) for name in one.wanted]) for one in members]
    read = {topic_id for one in subscribers for topic_id in one.topic_ids}
    shares = STRATEGIES[strategy](subscribers, {topic_id: count for topic_id, count in topics.values() if topic_id in read})
    there = {topic_id for topic_id, _ in topics.values()}
    is_as_it_was = all(set(one.wanted) == {spelt(*partition) for partition in shares[one.member_id]} for one in members)
    if is_as_it_was and all(read_partition(name).topic_id in there for one in members for name in one.owned):
        return None
    return tuple(Assigned(*partition, member_id) for member_id, share in sorted(shares.items()) for partition in share)


def expired(members: Sequence[Reader], silent_seconds: Mapping[int, float], holding_seconds: Mapping[int, float]) -> tuple[int, ...]:
    """Who is to be taken for gone.

    Args:
        silent_seconds: since each member was last heard of.
        holding_seconds: since it has been asked to release something that it still owns; who has nothing to release is missing.
    """
    return tuple(one.member_id for one in members
                 if silent_seconds[one.member_id] >= one.session_timeout_seconds - NOTICE_SECONDS
                 or holding_seconds.get(one.member_id, 0.0) >= one.session_timeout_seconds)
