"""Time that does not pass by itself: what is to happen, in order, and a trace of what did."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any

from myqueue.errors import LogFaultError
from tests.simulation.checker import Violation


class Schedule:
    """A queue of calls by simulated time. Everything random comes from one generator, so that a seed is a schedule."""

    rng: random.Random
    trace: list[str] | None

    def begin(self) -> None:
        """The time is 0 and nothing is due."""
        self.now = 0.0
        self.steps = 0
        self._queue: list[tuple[float, int, Callable[..., None], tuple]] = []
        self._count = 0

    def at(self, delay: float, call: Callable[..., None], *args: Any) -> None:
        """Do something later."""
        self._count += 1
        heapq.heappush(self._queue, (self.now + delay, self._count, call, args))

    def run_until(self, moment: float, done: Callable[[], bool] | None = None) -> bool:
        """Go on until then, or until it is done."""
        while self._queue and self._queue[0][0] <= moment:
            self.now, _, call, args = heapq.heappop(self._queue)
            self.steps += 1
            call(*args)
            if done is not None and self.steps % 16 == 0 and done():
                return True
        self.now = moment
        return done is not None and done()

    def note(self, text: str) -> None:
        """A line of the trace."""
        if self.trace is not None:
            self.trace.append(f"{self.now:8.3f} {text}")

    def guard(self, node: int, call: Callable[[], Any]) -> Any:
        """No fault is injected into what is stored, so that a fault or a failed assertion of the product is a violation."""
        try:
            return call()
        except LogFaultError as error:
            raise Violation(f"fault at {node}: {error.message}") from error
        except Violation:
            raise
        except AssertionError as error:
            raise Violation(f"assertion at {node}: {error}") from error
