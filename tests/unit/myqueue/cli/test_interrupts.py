"""A Ctrl-C that is not lost."""

from __future__ import annotations

import signal
import sys
import threading
import time
import weakref

import pytest

from myqueue.cli.interrupts import kept_interrupts


class Late:
    """Its end is where the interrupt comes."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


class Plain:
    pass


def finalized() -> None:
    held = Plain()
    weakref.finalize(held, signal.raise_signal, signal.SIGINT)
    del held


@pytest.mark.parametrize("end", [lambda: Late() and None, finalized], ids=["__del__", "weakref.finalize"])
def test_an_interrupt_in_a_finalizer_comes_a_moment_later(end) -> None:
    before = sys.unraisablehook, signal.getsignal(signal.SIGALRM)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), kept_interrupts():
        end()  # Python forgets it here
        time.sleep(5.0)
    assert time.monotonic() - began < 5.0
    assert before == (sys.unraisablehook, signal.getsignal(signal.SIGALRM))
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_other_errors_of_finalizers_are_told_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[type] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: told.append(unraisable.exc_type))
    with kept_interrupts():
        held = type("Broken", (), {"__del__": lambda self: 1 // 0})()
        del held
    assert told == [ZeroDivisionError]


def test_in_another_thread_it_changes_nothing() -> None:
    seen: list[object] = []

    def run() -> None:
        with kept_interrupts():
            seen.append(signal.getsignal(signal.SIGALRM))

    before = signal.getsignal(signal.SIGALRM)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join(5.0)
    assert seen == [before]
