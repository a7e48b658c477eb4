"""When a topic gets another partition by itself."""

from __future__ import annotations

import pytest

from manager.cluster.growth import grown, may_grow

CONFIG = {"grow_at_messages": 100, "partitions_max": 4}


@pytest.mark.parametrize(("config", "held", "wanted"), [
    (CONFIG, [100], None), (CONFIG, [101], 2), (CONFIG, [0], None), (CONFIG, [200, 0], None), (CONFIG, [201, 0], 3), (CONFIG, [1_000, 0, 0], 4),
    (CONFIG, [1_000] * 4, None), (CONFIG, [1_000] * 5, None), ({}, [10**9], None), ({"grow_at_messages": 1}, [10**9], None),
    ({"partitions_max": 9}, [10**9], None), ({"grow_at_messages": "1", "partitions_max": 9}, [10**9], None),
    ({"grow_at_messages": True, "partitions_max": 9}, [10**9], None)])
def test_one_is_added_where_the_mean_is_above_the_bound(config: dict, held: list[int], wanted: int | None) -> None:
    assert grown(config, held) == wanted
    assert wanted is None or may_grow(config, len(held))


def test_a_topic_that_stands_still_does_not_go_on_growing() -> None:
    """New partitions are empty and old ones stay full: it ends when the mean is small enough."""
    held, steps = [350], 0
    while (wanted := grown(CONFIG, held)) is not None:
        held, steps = [*held, *[0] * (wanted - len(held))], steps + 1
    assert (len(held), steps) == (4, 3)
    assert grown({**CONFIG, "partitions_max": 99}, held) is None
