"""Which suspect brokers may take new replicas, by their own word; with the threads that ask them."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from manager.cluster.liveness import State
from manager.watch import BrokerWatch
from myqueue.testing import ManualClock

ALIVE, SUSPECT, DEAD = State.ALIVE, State.SUSPECT, State.DEAD


@pytest.mark.parametrize(("states", "ready", "expected"), [
    ({1: ALIVE, 2: ALIVE, 3: ALIVE}, (1, 2, 3), ()),
    ({1: ALIVE, 2: SUSPECT, 3: SUSPECT}, (3,), (3,)),
    ({1: ALIVE, 2: DEAD}, (2, 3), ()),
    ({1: SUSPECT, 2: SUSPECT, 3: SUSPECT}, (3, 1), (1, 3)),
])
def test_suspect_brokers_alone_are_asked_whether_they_are_ready(states: dict[int, State], ready: tuple[int, ...], expected: tuple[int, ...]):
    """One that does not answer within a second is not ready, and is not waited for."""
    asked, over = list[int](), threading.Event()

    def is_ready(address: int, *, timeout_seconds: float) -> bool:
        asked.append(address)
        return address in ready or over.wait(20)

    catalogue = SimpleNamespace(brokers=(1, 2, 3), address=lambda broker_id: broker_id)
    looks = BrokerWatch(states=lambda: states, brokers=SimpleNamespace(is_ready=is_ready), clock=ManualClock(), lost_after_seconds=1)  # type: ignore[arg-type]
    try:
        assert expected == looks.late(catalogue)  # type: ignore[arg-type]
    finally:
        over.set()
        looks.close()
    assert {broker_id for broker_id, state in states.items() if state is SUSPECT} == set(asked)
