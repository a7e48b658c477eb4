"""Background threads, with real threads."""

from __future__ import annotations

import logging
import re
import threading
import time

import pytest

from myqueue.errors import UnavailableError
from myqueue.service.lifecycle import Lifecycle
from tests.support.waiting import wait_until


def test_nothing_runs_before_the_start_and_nothing_after_the_stop() -> None:
    lifecycle, turns = Lifecycle(), []
    lifecycle.every("turns", 0.01, lambda: turns.append(1))
    assert [] == turns
    lifecycle.start()
    wait_until(lambda: len(turns) > 3, what="some turns")
    lifecycle.stop()
    count = len(turns)
    assert not any(thread.name == "turns" for thread in threading.enumerate())
    assert count == len(turns)


def test_an_error_of_ours_is_logged_and_the_next_turn_comes(caplog: pytest.LogCaptureFixture) -> None:
    lifecycle, turns = Lifecycle(), []

    def turn() -> None:
        turns.append(1)
        raise UnavailableError("not now")

    lifecycle.every("turns", 0.01, turn)
    with caplog.at_level(logging.WARNING):
        lifecycle.start()
        wait_until(lambda: len(turns) > 2, what="turns after the first error")
        lifecycle.stop()
    assert "turns: not now" in caplog.text


def test_a_turn_that_took_long_is_said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever waited in it said nothing, and what comes behind it came late."""
    monkeypatch.setattr("myqueue.service.lifecycle.LONG_TURN_SECONDS", 0.0)
    lifecycle, turns = Lifecycle(), []
    lifecycle.every("folds", 0.01, lambda: turns.append(1))
    with caplog.at_level(logging.WARNING):
        lifecycle.start()
        wait_until(lambda: len(turns) > 1, what="a second turn")
        lifecycle.stop()
    assert re.search(r"folds: a turn took \d+\.\d s", caplog.text)


def test_what_is_closed_last_was_opened_first_and_only_after_the_threads() -> None:
    lifecycle, order = Lifecycle(), []
    lifecycle.thread("t", lambda stopping: (stopping.wait(10), order.append("thread"))[0])
    lifecycle.on_stop(lambda: order.append("first"))
    lifecycle.on_stop(lambda: order.append("second"))
    lifecycle.start()
    lifecycle.stop()
    assert ["thread", "second", "first"] == order


def test_a_long_interval_does_not_delay_the_stop() -> None:
    lifecycle = Lifecycle()
    lifecycle.every("slow", 60, lambda: None)
    lifecycle.start()
    began = time.monotonic()
    lifecycle.stop()
    assert time.monotonic() - began < 1
