"""Fault points for tests: ``MYQUEUE_FAULT=name[:n][,name…]`` makes the process die, or misbehave, where the name stands.

Only in test mode (``MYQUEUE_TEST_MODE=1``); outside it a service with MYQUEUE_FAULT set refuses to start. ``name:3``
means the third time the point is passed.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping

from ..errors import ConfigurationError

EXIT_CODE = 137  # as after kill -9
_log = logging.getLogger(__name__)
_lock = threading.Lock()
_armed: dict[str, int] = {}


def arm(environment: Mapping[str, str]) -> None:
    """Read the fault points from the environment. Raises ConfigurationError outside test mode."""
    text = environment.get("MYQUEUE_FAULT", "")
    if text and environment.get("MYQUEUE_TEST_MODE") != "1":
        raise ConfigurationError("MYQUEUE_FAULT is for tests: it needs MYQUEUE_TEST_MODE=1")
    with _lock:
        _armed.clear()
        for part in filter(None, text.split(",")):
            name, _, count = part.partition(":")
            _armed[name] = int(count or 1)


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
