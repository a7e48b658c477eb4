"""Which broker holds and leads which partition: pure, and the same on every manager."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

DEFAULT_FACTOR = 3  # replicas of a new partition where there are as many brokers and nothing else is asked for


def choose_replicas(leaders: Mapping[int, int], replicas: Mapping[int, int], live: Iterable[int], *, partitions: int,
                    factor: int, absent: Iterable[int] = ()) -> list[tuple[int, ...]]:
    """The brokers of each of some new partitions, such that leaderships, and then replicas, stay as even as they can be.

    Args:
        leaders: how many partitions each broker leads now; a broker that is not in it leads none.
        replicas: how many it holds.
        live: the brokers that may be chosen, at least one.
        factor: replicas of a partition; there are fewer where there are fewer brokers.
        absent: those of the live ones that lead only where there is no other.

    Returns:
        The broker ids of each partition, its leader first: the one that leads the fewest, the lowest id among equals. The
        others are those that hold the fewest.
    """
    live = sorted(set(live))
    assert live, "placement needs a live broker"
    led, held = {broker_id: leaders.get(broker_id, 0) for broker_id in live}, {broker_id: replicas.get(broker_id, 0) for broker_id in live}
    leading = set(live) - set(absent) or set(live)
    heap = [(count, broker_id) for broker_id, count in led.items() if broker_id in leading]
    heapq.heapify(heap)
    chosen = []
    for _ in range(partitions):
        count, leader = heap[0]
        heapq.heapreplace(heap, (count + 1, leader))
        others = heapq.nsmallest(factor - 1, (broker_id for broker_id in live if broker_id != leader), key=lambda one: (held[one], one))
        chosen.append((leader, *others))
        for broker_id in chosen[-1]:
            held[broker_id] += 1
    return chosen
