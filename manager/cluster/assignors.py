"""PURE. How the members of a consumer group share the partitions of their topics.

Every strategy gives each partition to exactly one of the members that have subscribed to its topic, and depends on its arguments alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from myqueue.protocol.types import PartitionId

Shares = dict[int, list[PartitionId]]  # by member


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member: the topics it reads, and what it was to read until now."""

    member_id: int
    topic_ids: Collection[int]
    had: Sequence[PartitionId] = ()


def by_range(members: Sequence[Subscriber], partitions: Mapping[int, int]) -> Shares:
    """Topic by topic, neighbouring partitions to one member; the first members get one more where it does not come out even."""
    shares: Shares = {member.member_id: [] for member in members}
    for topic_id, count in sorted(partitions.items()):
        readers = _readers(members, topic_id)
        first = 0
        for place, member_id in enumerate(readers):
            size = count // len(readers) + (place < count % len(readers))
            shares[member_id] += [PartitionId(topic_id, number) for number in range(first, first + size)]
            first += size
    return shares


def by_turns(members: Sequence[Subscriber], partitions: Mapping[int, int]) -> Shares:
    """All partitions one after the other, each to the next member that reads its topic."""
    shares: Shares = {member.member_id: [] for member in members}
    order, turn = sorted(member.member_id for member in members), 0
    for topic_id, count in sorted(partitions.items()):
        readers = set(_readers(members, topic_id))
        for number in range(count if readers else 0):
            while order[turn % len(order)] not in readers:
                turn += 1
            shares[order[turn % len(order)]].append(PartitionId(topic_id, number))
            turn += 1
    return shares


def sticky(members: Sequence[Subscriber], partitions: Mapping[int, int]) -> Shares:
    """Everybody keeps what they had, as far as it is fair: of two members that could read a partition, neither has two more than the other."""
    topics = {member.member_id: frozenset(member.topic_ids) for member in members}
    shares: Shares = {member_id: [] for member_id in sorted(topics)}
    everything = {PartitionId(topic_id, number) for topic_id, count in partitions.items() for number in range(count)}
    for member in sorted(members, key=lambda member: member.member_id):
        kept = [one for one in member.had if one in everything and one.topic_id in topics[member.member_id]]
        shares[member.member_id] = sorted(set(kept))
        everything -= set(kept)
    for partition in sorted(everything):
        readers = [member_id for member_id in shares if partition.topic_id in topics[member_id]]
        if readers:
            shares[min(readers, key=lambda member_id: (len(shares[member_id]), member_id))].append(partition)
    while (move := _unfair(shares, topics)) is not None:
        giver, place, taker = move
        shares[taker].append(shares[giver].pop(place))
    return {member_id: sorted(share) for member_id, share in shares.items()}


def _unfair(shares: Shares, topics: Mapping[int, Collection[int]]) -> tuple[int, int, int] | None:
    """Who has two more than another one that could read one of them: (who, the place of that one, the other). Each such move lowers the sum of
    squares, so there is a last one.
    """
    by_load = sorted(shares, key=lambda member_id: (len(shares[member_id]), member_id))
    for giver in reversed(by_load):
        for taker in by_load:
            if len(shares[giver]) - len(shares[taker]) < 2:
                break
            share = shares[giver]
            place = next((place for place in range(len(share) - 1, -1, -1) if share[place].topic_id in topics[taker]), None)
            if place is not None:
                return giver, place, taker
    return None


def _readers(members: Sequence[Subscriber], topic_id: int) -> list[int]:
    return sorted(member.member_id for member in members if topic_id in member.topic_ids)


STRATEGIES: Mapping[str, Callable[[Sequence[Subscriber], Mapping[int, int]], Shares]] = {
    "sticky": sticky, "range": by_range, "round_robin": by_turns}
