"""Background threads of a worker process: started after the fork, stopped in the reverse order, each wait bounded."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from ..clock import SystemClock
from ..errors import MyQueueError

STOP_TIMEOUT_SECONDS = 5.0
EXIT_CODE = 70  # EX_SOFTWARE
LONG_TURN_SECONDS = 5.0
_log = logging.getLogger(__name__)
_clock = SystemClock()


class Lifecycle:
    """What runs beside the requests. ``stopping`` is set as soon as the process was told to end: long waits watch it."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._targets: list[tuple[str, Callable[[threading.Event], None]]] = []
        self._closers: list[Callable[[], None]] = []
        self._leavers: list[tuple[str, Callable[[], None]]] = []
        self._told, self._left = threading.Event(), threading.Event()
        self._started = False

    def thread(self, name: str, target: Callable[[threading.Event], None]) -> None:
        """Run ``target(stopping)`` in a thread from ``start`` on, or from now on if that was; it returns soon after ``stopping`` is set."""
        if self._started:
            self._run(name, target)
        else:
            self._targets.append((name, target))

    def every(self, name: str, interval_seconds: float, action: Callable[[], None]) -> None:
        """Run ``action`` now and then. An error of ours, or a long turn, is logged and the next one comes; any other error ends the process."""

        def loop(stopping: threading.Event) -> None:
            while not stopping.is_set():
                began = _clock.monotonic()
                try:
                    action()
                except MyQueueError as error:
                    _log.warning("%s: %s", name, error.message, extra={"code": error.code})
                took = _clock.monotonic() - began
                if took > LONG_TURN_SECONDS:
                    _log.warning("%s: a turn took %.1f s", name, took)
                stopping.wait(interval_seconds)

        self.thread(name, loop)

    def on_stop(self, close: Callable[[], None]) -> None:
        """Call ``close`` after the threads have ended, last added first."""
        self._closers.append(close)

    def before_stop(self, name: str, action: Callable[[], None]) -> None:
        """Call ``action``, which is bounded, once the process was told to end and before it stops to answer requests. In the order given."""
        self._leavers.append((name, action))

    def may_end(self) -> bool:
        """The process was told to end. False while what comes before that is under way: it is told again when that is done. For signal handlers."""
        if self._leavers and not self._left.is_set():
            self._told.set()  # nobody but the waiting thread takes this event's lock: a handler may interrupt anything
            return False
        return True

    def start(self, end: Callable[[], None] | None = None) -> None:
        """Begin. ``end`` tells this process to end; it is called after what was given to ``before_stop``."""
        self._started = True
        if self._leavers and end is not None:
            threading.Thread(target=_guarded, args=("leaving", lambda _: self._leave(end), self.stopping), name="leaving", daemon=True).start()
        for name, target in self._targets:
            self._run(name, target)

    def _run(self, name: str, target: Callable[[threading.Event], None]) -> None:
        thread = threading.Thread(target=_guarded, args=(name, target, self.stopping), name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _leave(self, end: Callable[[], None]) -> None:
        while not self._told.wait(STOP_TIMEOUT_SECONDS):
            if self.stopping.is_set():
                return  # ended without being told
        for name, action in self._leavers:
            try:
                action()
            except MyQueueError as error:
                _log.warning("%s: %s", name, error.message, extra={"code": error.code})
        self._left.set()
        end()

    def stop(self) -> None:
        self.stopping.set()
        for thread in reversed(self._threads):
            thread.join(STOP_TIMEOUT_SECONDS)
            if thread.is_alive():
                _log.warning("thread %s does not end", thread.name)
        while self._closers:
            self._closers.pop()()


def _guarded(name: str, target: Callable[[threading.Event], None], stopping: threading.Event) -> None:
    """A background thread that dies of a bug takes the worker with it: half a node is worse than none."""
    try:
        target(stopping)
    except BaseException:  # noqa: BLE001 - logged, and the process ends with it
        _log.critical("thread %s died", name, exc_info=True)
        os._exit(EXIT_CODE)
