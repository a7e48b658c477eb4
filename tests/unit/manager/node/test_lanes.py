"""Messages to the other managers, without a thread: a lane's loop is run here until it is told to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from db.replication import AppendReply, AppendRequest, MemoryLog, Refusal
from manager.node.lanes import Lanes
from manager.node.snapshots import StateOrder
from manager.raft.log import Proposal, entries_behind
from manager.raft.messages import Append, Envelope, TimeoutNow, TimeoutNowReply
from myqueue.errors import LogFaultError, TooLargeError, UnavailableError, UnreachableError

ENTRY = entries_behind(MemoryLog([]), 1, (Proposal({"type": "x"}),))[0]


class Peers:
    """Nobody answers."""

    def __init__(self, stopping: threading.Event) -> None:
        self.stopping = stopping

    def ask(self, node_id: int, request: Any, *, timeout_seconds: float) -> Any:
        self.stopping.set()
        raise UnreachableError(f"no manager {node_id}")


def lanes_to(stopping: threading.Event, offer: Callable[[StateOrder], Any], *, ask: Callable[..., Any] | None = None,
             answered: Callable[[], None] = lambda: None) -> tuple[Lanes, dict[str, Callable[[threading.Event], None]]]:
    loops: dict[str, Callable[[threading.Event], None]] = {}
    peers = Peers(stopping) if ask is None else SimpleNamespace(ask=ask)
    lanes = Lanes(peers, answered=answered, run=loops.__setitem__, offer=offer,  # type: ignore[arg-type]
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


@pytest.mark.parametrize(("quiet", "entries", "refusal", "woken"), [
    (True, (), None, 0), (False, (), None, 1), (True, (ENTRY,), None, 1), (True, (), Refusal.STALE_EPOCH, 1)])
def test_an_empty_round_s_answer_wakes_nobody_while_nothing_waits(quiet: bool, entries: tuple, refusal: Refusal | None, woken: int) -> None:
    """It is taken with the next round; one that says something is told at once."""
    stopping = threading.Event()
    reply = AppendReply(1, "d2", 0, 1, matched=None if refusal else 0, refusal=refusal)

    def ask(node_id: int, request: Any, *, timeout_seconds: float) -> AppendReply:
        stopping.set()
        return reply

    calls: list[None] = []
    lanes, loops = lanes_to(stopping, lambda order: None, ask=ask, answered=lambda: calls.append(None))
    lanes.quiet = quiet
    lanes.send(Envelope(1, 2, Append(1, AppendRequest(1, 0, 0, entries, 0, 1))))
    loops["large-2" if entries else "small-2"](stopping)
    assert (woken, [(2, reply)]) == (len(calls), lanes.take())
