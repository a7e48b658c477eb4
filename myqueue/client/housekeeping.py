"""A client's one background thread for what is done every few seconds: heartbeats, a fresh picture, commits."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from ..clock import Clock
from ..errors import MyQueueError
from ..protocol import routes
from .connection import Connection
from .transport import understood

HEARTBEAT_INTERVAL_SECONDS = 10.0
log = logging.getLogger(__name__)


class Presence:
    """Which ids made no call lately: those need a heartbeat. A call of any kind counts as one."""

    def __init__(self, kind: str, connection: Connection, *, interval_seconds: float = HEARTBEAT_INTERVAL_SECONDS) -> None:
        self._kind = kind  # "producers" or "consumers"
        self._connection = connection
        self._interval_seconds = interval_seconds
        self._last_call: dict[int, float] = {}

    def touch(self, actor_id: int) -> None:
        self._last_call[actor_id] = self._connection.clock.monotonic()

    def send_due(self) -> None:
        """Send one heartbeat for all ids that were silent for about an interval. Raises MyQueueError."""
        now = self._connection.clock.monotonic()
        due = sorted(actor for actor, at in list(self._last_call.items()) if now - at >= self._interval_seconds * 0.9)
        if due:
            self._connection.call("POST", routes.HEARTBEATS, json={self._kind: due})
            for actor in due:
                self.touch(actor)


class Housekeeper:
    """Runs tasks at their intervals in one daemon thread, and one last task when it is stopped."""

    def __init__(self, name: str, tasks: Mapping[Callable[[], object], float], *, clock: Clock, last: Callable[[], object] | None = None) -> None:
        self._tasks = dict(tasks)
        self._clock = clock
        self._last = last
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask it to do its last task and end; returns at once."""
        self._stopping.set()

    def join(self, timeout_seconds: float) -> bool:
        """Wait for the end; whether it came in time."""
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        due = {task: self._clock.monotonic() + interval for task, interval in self._tasks.items()}
        while not self._stopping.wait(max(0.0, min(due.values()) - self._clock.monotonic())):
            now = self._clock.monotonic()
            for task in [task for task, at in due.items() if at <= now]:
                attempt(task)
                due[task] = self._clock.monotonic() + self._tasks[task]
        if self._last:
            self._last()


def attempt(task: Callable[[], object]) -> None:
    """Do it; what fails now is done again at the next interval, so the failure is only logged."""
    try:
        with understood():
            task()
    except MyQueueError as error:
        log.info("%s: %s", getattr(task, "__qualname__", task), error.message)
