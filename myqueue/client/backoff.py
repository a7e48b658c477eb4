"""How long to wait before the next try: policies as small values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that grow by a factor up to a maximum; the caller draws the jitter, so that this stays a pure function."""

    first_seconds: float = 0.05
    factor: float = 2.0
    max_seconds: float = 2.0

    def delay_seconds(self, failures: int, draw: float = 1.0) -> float:
        """The wait after so many failures in a row (1 or more), between half of it and all of it as ``draw`` goes from 0 to 1."""
        assert failures >= 1 and 0.0 <= draw <= 1.0
        whole = min(self.max_seconds, self.first_seconds * self.factor ** min(failures - 1, 60))
        return whole * (0.5 + draw / 2)
