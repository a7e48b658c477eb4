"""Messages to the other managers, without a thread: a lane's loop is run here until it is told to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from manager.node.lanes import Lanes
from manager.node.snapshots import StateOrder
from manager.raft.messages import Envelope, TimeoutNow, TimeoutNowReply
from myqueue.errors import LogFaultError, TooLargeError, UnavailableError, UnreachableError


class Peers:
    """Nobody answers."""

    def __init__(self, stopping: threading.Event) -> None:
        self.stopping = stopping

    def ask(self, node_id: int, request: Any, *, timeout_seconds: float) -> Any:
        self.stopping.set()
        raise UnreachableError(f"no manager {node_id}")


def lanes_to(stopping: threading.Event, offer: Callable[[StateOrder], Any]) -> tuple[Lanes, dict[str, Callable[[threading.Event], None]]]:
    loops: dict[str, Callable[[threading.Event], None]] = {}
    lanes = Lanes(Peers(stopping), answered=lambda: None, run=loops.__setitem__, offer=offer,  # type: ignore[arg-type]
                  small_timeout_seconds=1.0, large_timeout_seconds=1.0)
    lanes.reach([2])
    return lanes, loops


@pytest.mark.parametrize("error", [LogFaultError("there is no snapshot"), UnavailableError("the database is away"), TooLargeError("much")])
def test_a_state_that_cannot_be_read_ends_no_lane(error: Exception) -> None:
    """It is logged; the core orders it again."""
    stopping = threading.Event()

    def offer(_order: StateOrder) -> Any:
        stopping.set()
        raise error

    lanes, loops = lanes_to(stopping, offer)
    lanes.send_state(StateOrder(2, term=1, round=1))
    loops["large-2"](stopping)
    assert [] == lanes.take()


def test_a_word_that_did_not_arrive_is_one_that_was_not_taken() -> None:
    """So that the leader looks for another successor at once."""
    stopping = threading.Event()
    lanes, loops = lanes_to(stopping, lambda order: None)
    lanes.send(Envelope(1, 2, TimeoutNow(term=5, leader=1)))
    loops["small-2"](stopping)
    assert [(2, TimeoutNowReply(5, taken=False))] == lanes.take()
