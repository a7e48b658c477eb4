"""When a node that died by itself is started again. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """The first restart comes soon, later ones ever later, so that a node that cannot live does not eat the machine."""

    first_seconds: float = 0.5
    factor: float = 2.0
    most_seconds: float = 15.0
    stable_after_seconds: float = 30.0  # a node that lived this long starts with a clean record

    def deaths_in_a_row(self, before: int, *, lived_seconds: float) -> int:
        """How many deaths count once a node has died again after living for some time."""
        return 1 if lived_seconds >= self.stable_after_seconds else before + 1

    def delay_seconds(self, deaths_in_a_row: int) -> float:
        """How long to wait before the next start."""
        assert deaths_in_a_row >= 1
        exponent = min(deaths_in_a_row - 1, 32)  # beyond it the delay is the longest anyway
        return min(self.most_seconds, self.first_seconds * self.factor**exponent)
