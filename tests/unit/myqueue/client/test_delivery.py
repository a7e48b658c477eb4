"""Callers who wait for one batch are woken one by the other, and none sleeps on."""

from __future__ import annotations

import random
import signal
import threading
import time
from types import FrameType

import pytest

from myqueue.client.delivery import Completion, Delivery
from myqueue.errors import OutcomeUnknownError, OverloadedError
from myqueue.protocol.types import Appended, TopicPartition
from tests.support.waiting import wait_until

PARTITION = TopicPartition("a", 0)
APPENDED = Appended("a", 0, 40, 64, 9, False, 1)
pytestmark = pytest.mark.timeout(60)


def waiting(completion: Completion, count: int, timeout_seconds: float = 30.0) -> tuple[list[threading.Thread], list[object]]:
    """So many threads that wait for its records, and what they got."""
    got: list[object] = []

    def wait(index: int) -> None:
        try:
            got.append(Delivery((completion, index)).result(timeout_seconds).offset)
        except (OutcomeUnknownError, OverloadedError) as error:
            got.append(type(error))

    threads = [threading.Thread(target=wait, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    return threads, got


def joined(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


def test_all_who_wait_are_woken() -> None:
    completion = Completion(PARTITION)
    threads, got = waiting(completion, 64)
    wait_until(lambda: len(completion._waiting) == 64)
    completion.succeed(APPENDED)
    joined(threads)
    assert sorted(got) == list(range(40, 104))
    assert Delivery((completion, 3)).result(0).offset == 43, "who comes later does not wait"


def test_all_who_wait_are_told_a_failure() -> None:
    completion = Completion(PARTITION)
    threads, got = waiting(completion, 8)
    wait_until(lambda: len(completion._waiting) == 8)
    completion.fail(OverloadedError())
    joined(threads)
    assert got == [OverloadedError] * 8


@pytest.mark.parametrize("seed", range(5))
def test_nobody_sleeps_on_whoever_gives_up_in_the_same_moment(seed: int) -> None:
    """Callers whose time is over while others are being woken, and callers who come meanwhile: who has time left is woken all the same."""
    chance = random.Random(seed)
    for _ in range(20):
        completion = Completion(PARTITION)
        patient, got = waiting(completion, 8)
        end = chance.uniform(0.0, 0.01)
        hasty = [waiting(completion, 1, chance.uniform(0.0, 2 * end))[0][0] for _ in range(12)]
        time.sleep(end)
        completion.succeed(APPENDED)
        late, later = waiting(completion, 4)
        joined([*patient, *hasty, *late])
        assert sorted(got) == list(range(40, 48))
        assert sorted(later) == list(range(40, 44))
        assert not completion._waiting


class _Interruption(Exception):
    pass


def test_an_interrupted_caller_leaves_the_others_their_turn() -> None:
    """As by Ctrl-C in the main thread, while it waits before the others."""
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise _Interruption

    completion = Completion(PARTITION)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(_Interruption):
            completion.wait(20)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    threads, got = waiting(completion, 5)
    wait_until(lambda: len(completion._waiting) == 5)
    completion.succeed(APPENDED)
    joined(threads)
    assert sorted(got) == list(range(40, 45))


def test_whoever_is_not_woken_looks_for_himself() -> None:
    """One who was to wake the next one and did not, as after a Ctrl-C in that very moment, costs a second and nobody's answer."""
    class Silent(Completion):
        def _wake_next(self) -> None:
            """Nobody."""

    completion = Silent(PARTITION)
    threads, got = waiting(completion, 6)
    wait_until(lambda: len(completion._waiting) == 6)
    completion.succeed(APPENDED)
    joined(threads)
    assert sorted(got) == list(range(40, 46))


def test_whose_time_is_over_is_told_so() -> None:
    completion = Completion(PARTITION)
    with pytest.raises(OutcomeUnknownError):
        Delivery((completion, 0)).result(0.01)
    assert not completion._waiting
