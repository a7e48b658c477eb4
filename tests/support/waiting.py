"""The one function that waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
INTERVAL_SECONDS = 0.02


def wait_until(condition: Callable[[], T], *, timeout_seconds: float = 10.0, what: str = "", interval_seconds: float = INTERVAL_SECONDS) -> T:
    """Call a condition again and again until its value is true, and return that value.

    Raises:
        AssertionError: it was never true within the time-out; says what was waited for and the last value.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_seconds} s in vain for {what or condition.__name__}; the last value was {value!r}")
        time.sleep(interval_seconds)
