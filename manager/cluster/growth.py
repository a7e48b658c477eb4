"""When a topic gets another partition by itself: its config says at how many messages, and up to how many partitions.

One is added while the messages that are held are more than ``grow_at_messages`` for each partition there is: by the mean, not by the fullest one,
or a topic would go on growing for as long as its old partitions are full, though the new ones are empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from myqueue.protocol.topic_config import number_in


def may_grow(config: Mapping[str, Any], partitions: int) -> bool:
    """Whether a topic with so many partitions may get another one by itself, however many messages it holds."""
    return number_in(config, "grow_at_messages") is not None and partitions < (number_in(config, "partitions_max") or 0)


def grown(config: Mapping[str, Any], held: Sequence[int]) -> int | None:
    """How many partitions a topic is to have in all now, one more than it has; None where it is to stay as it is.

    Args:
        held: the messages in each of its partitions.
    """
    bound = number_in(config, "grow_at_messages")
    if bound is None or not may_grow(config, len(held)) or sum(held) <= bound * len(held):
        return None
    return len(held) + 1
