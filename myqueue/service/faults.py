"""Fault points for tests: ``MYQUEUE_FAULT=name[:n][,name…]`` makes the process die, or misbehave, where the name stands.

Only in test mode (``MYQUEUE_TEST_MODE=1``); outside it a service with MYQUEUE_FAULT set refuses to start. ``name:3``
means the third time the point is passed. Two points are rules broken for good, for tests that must find it:
``append_before_disk`` (a broker) and ``vote_not_stored`` (a manager).

``MYQUEUE_CLOCK_FILE=path``, in test mode too, adds the 8 bytes in that file, microseconds as a native integer, to the wall clock at every
look: a test makes the clock of one node jump. The monotonic clock stays as it is.
"""

from __future__ import annotations

import logging
import mmap
import os
import threading
from collections.abc import Mapping

from ..clock import Clock, SystemClock
from ..errors import ConfigurationError

EXIT_CODE = 137  # as after kill -9
CLOCK_FILE_BYTES = 8
_log = logging.getLogger(__name__)
_lock = threading.Lock()
_armed: dict[str, int] = {}


def arm(environment: Mapping[str, str]) -> None:
    """Read the fault points from the environment. Raises ConfigurationError outside test mode."""
    text = environment.get("MYQUEUE_FAULT", "")
    for name in ("MYQUEUE_FAULT", "MYQUEUE_CLOCK_FILE"):
        if environment.get(name) and environment.get("MYQUEUE_TEST_MODE") != "1":
            raise ConfigurationError(f"{name} is for tests: it needs MYQUEUE_TEST_MODE=1")
    with _lock:
        _armed.clear()
        for part in filter(None, text.split(",")):
            name, _, count = part.partition(":")
            _armed[name] = int(count or 1)


def is_armed(name: str) -> bool:
    """Whether a point is armed, however often it is passed: for a rule that is broken for good."""
    return name in _armed


def is_due(name: str) -> bool:
    """True exactly once: the n-th time an armed point is passed. For faults that are not a death."""
    if name not in _armed:
        return False
    with _lock:
        if name not in _armed:
            return False
        _armed[name] -= 1
        if _armed[name] > 0:
            return False
        del _armed[name]
        return True


def fault_point(name: str) -> None:
    """Die here at once, without any cleaning up, when the point is due."""
    if is_due(name):
        _log.error("fault point %s: dying", name)
        os._exit(EXIT_CODE)


class JumpingClock(SystemClock):
    """The clocks of this machine, the wall clock moved by what a file says at that moment."""

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            self._offset = memoryview(mmap.mmap(file.fileno(), CLOCK_FILE_BYTES, access=mmap.ACCESS_READ)).cast("q")

    def now_us(self) -> int:
        return super().now_us() + self._offset[0]


def make_clock(environment: Mapping[str, str]) -> Clock:
    """The clock of a node. ``arm`` has refused a clock file outside test mode. Raises ConfigurationError where the file cannot be used."""
    path = environment.get("MYQUEUE_CLOCK_FILE")
    try:
        return JumpingClock(path) if path else SystemClock()
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"MYQUEUE_CLOCK_FILE cannot be used: {error}") from None
