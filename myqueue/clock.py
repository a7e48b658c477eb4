"""Time comes from here; nothing else in product code reads a clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What a component needs to know of time."""

    def now_us(self) -> int:
        """Wall-clock time in microseconds since 1970, for what people read and what the log stores. It may jump."""

    def monotonic(self) -> float:
        """Seconds that never go back, for time-outs and intervals."""


class SystemClock:
    """The clocks of this machine."""

    def now_us(self) -> int:
        return time.time_ns() // 1_000

    def monotonic(self) -> float:
        return time.monotonic()
