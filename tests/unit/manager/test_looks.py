"""What /metrics shows of a manager: how far groups are, which takes calls to brokers."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from manager.groups import GroupPosition
from manager.looks import LAG_KEPT_SECONDS, GroupLags
from manager.records import Position
from myqueue.errors import UnavailableError
from myqueue.testing import ManualClock


class Groups:
    """Tells how far groups are when it is let."""

    def __init__(self) -> None:
        self.end_offset, self.asked, self.is_down = 10, threading.Semaphore(0), False
        self.let = threading.Event()
        self.let.set()

    def offsets(self, name: str, *, wait_seconds: float) -> list[GroupPosition]:
        self.asked.release()
        assert self.let.wait(10)
        if self.is_down:
            raise UnavailableError("a leader does not answer")
        return [GroupPosition("t", Position(number, 4, 0, self.end_offset), 1) for number in range(2)]


def test_who_comes_while_brokers_are_asked_gets_what_was_found_last_and_does_not_wait():
    groups, clock = Groups(), ManualClock()
    lags = GroupLags(groups, clock)
    assert lags.of(["g"]) == {("g", "t"): 12.0}
    assert groups.asked.acquire(timeout=10)
    clock.advance(LAG_KEPT_SECONDS)
    groups.end_offset = 20
    groups.let.clear()
    with ThreadPoolExecutor(2) as pool:
        try:
            first = pool.submit(lags.of, ["g"])
            assert groups.asked.acquire(timeout=10)
            assert pool.submit(lags.of, ["g"]).result(10) == {("g", "t"): 12.0}
        finally:
            groups.let.set()
        assert first.result(10) == {("g", "t"): 32.0}
    assert lags.of(["g"]) == {("g", "t"): 32.0}
    assert not groups.asked.acquire(blocking=False), "it is kept"


def test_a_group_that_cannot_be_told_is_missing_and_is_asked_for_again():
    groups, clock = Groups(), ManualClock()
    lags = GroupLags(groups, clock)
    groups.is_down = True
    assert lags.of(["g"]) == {}
    groups.is_down = False
    clock.advance(LAG_KEPT_SECONDS)
    assert lags.of(["g"]) == {("g", "t"): 12.0}
