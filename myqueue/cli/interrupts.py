"""A Ctrl-C that is not lost.

Python raises KeyboardInterrupt wherever the main thread happens to be. Where that is a finalizer, or another place whose errors can reach
nobody, it is written on stderr and forgotten, and the command goes on as if nothing had been pressed.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

AGAIN_SECONDS = 0.05  # the finalizer is over by then


@contextmanager
def kept_interrupts() -> Iterator[None]:
    """Within this, an interrupt that was lost is raised again in a moment. For the main thread; elsewhere it does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    hook, handler = sys.unraisablehook, signal.signal(signal.SIGALRM, _again)

    def keep(unraisable: Any) -> None:
        if unraisable.exc_type is KeyboardInterrupt:
            signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS)
        else:
            hook(unraisable)

    sys.unraisablehook = keep
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, handler)
        sys.unraisablehook = hook


def _again(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
