"""Wake-ups between threads and between processes."""

from __future__ import annotations

import os
import threading
import time

import pytest

from myqueue.service.wakeups import SLOTS, Wakeups


def waiting(wakeups: Wakeups, key: object, seconds: float) -> tuple[threading.Thread, list[bool]]:
    results: list[bool] = []
    stamp = wakeups.stamp(key)
    thread = threading.Thread(target=lambda: results.append(wakeups.wait(key, stamp, seconds)))
    thread.start()
    return thread, results


@pytest.mark.parametrize("workers", [1, 2])
def test_a_wake_ends_the_wait_of_its_key_at_once(workers: int) -> None:
    wakeups = Wakeups(workers)
    thread, results = waiting(wakeups, (1, 0), 10)
    began = time.monotonic()
    wakeups.wake((1, 0))
    thread.join(5)
    assert [True] == results
    assert time.monotonic() - began < 0.5


def test_without_a_wake_the_wait_ends_with_its_time() -> None:
    wakeups = Wakeups()
    assert not wakeups.wait("a", wakeups.stamp("a"), 0.05)


def test_a_wake_between_the_stamp_and_the_wait_is_not_missed() -> None:
    """The order a reader uses: stamp, look, wait. What comes after the look is seen."""
    wakeups = Wakeups()
    stamp = wakeups.stamp("a")
    wakeups.wake("a")
    began = time.monotonic()
    assert wakeups.wait("a", stamp, 10)
    assert time.monotonic() - began < 0.5


def test_another_key_does_not_end_the_wait() -> None:
    wakeups = Wakeups()
    other = next(key for key in range(1, SLOTS) if hash(key) % SLOTS != hash("a") % SLOTS)
    thread, results = waiting(wakeups, "a", 0.3)
    wakeups.wake(other)
    thread.join(5)
    assert [False] == results


def test_a_stopping_process_ends_its_waits() -> None:
    wakeups, stopping = Wakeups(), threading.Event()
    stamp, results = wakeups.stamp("a"), []
    thread = threading.Thread(target=lambda: results.append(wakeups.wait("a", stamp, 30, stopping)))
    thread.start()
    stopping.set()
    thread.join(3)
    assert [False] == results


def test_a_wake_in_a_forked_process_is_seen_here() -> None:
    wakeups = Wakeups(workers=2)
    stamp = wakeups.stamp(("topic", 7))
    child = os.fork()
    if child == 0:
        wakeups.wake(("topic", 7))
        os._exit(0)
    assert wakeups.wait(("topic", 7), stamp, 5)
    assert 0 == os.waitpid(child, 0)[1]


def test_many_waiters_of_one_key_are_all_woken() -> None:
    wakeups = Wakeups(workers=2)
    started = [waiting(wakeups, "a", 10) for _ in range(40)]
    wakeups.wake("a")
    for thread, _ in started:
        thread.join(5)
    assert [[True]] * 40 == [results for _, results in started]
