"""A dequeue that only asks what a request id got before."""

from __future__ import annotations

from broker.core.offsets import DequeueRequest, LogRange, OffsetPlan, plan_dequeue
from myqueue.protocol.fold import LogState, OffsetCommit

READABLE = LogRange(0, 5)


def test_asking_for_a_repetition_hands_out_nothing_new_and_moves_nothing() -> None:
    """Were it to, a consume with a request id and no partition would lose a message of every other partition."""
    for request_id in ("r", None):
        assert OffsetPlan(None, None) == plan_dequeue(LogState(), DequeueRequest("#1", request_id, known_only=True), READABLE, now_us=1)


def test_what_was_handed_out_under_the_request_id_is_found_by_asking() -> None:
    first = plan_dequeue(LogState(), DequeueRequest("#1", "r"), READABLE, now_us=1)
    assert OffsetPlan(0, OffsetCommit("#1", 1, 0, 0, "r").to_body()) == first
