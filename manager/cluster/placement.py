"""Which broker leads which partition: pure, and the same on every manager."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping


def choose_leaders(leaders: Mapping[int, int], live: Iterable[int], *, partitions: int) -> list[int]:
    """A leader for each of some new partitions, such that leaderships stay as even as they can be.

    Args:
        leaders: how many partitions each broker leads now; a broker that is not in it leads none.
        live: the brokers that may be chosen, at least one.

    Returns:
        One broker id a partition: each time the one that leads the fewest, the lowest id among equals.
    """
    heap = [(leaders.get(broker_id, 0), broker_id) for broker_id in set(live)]
    assert heap, "placement needs a live broker"
    heapq.heapify(heap)
    chosen = []
    for _ in range(partitions):
        count, broker_id = heap[0]
        chosen.append(broker_id)
        heapq.heapreplace(heap, (count + 1, broker_id))
    return chosen
