"""Which backends are used: ejected when they fail, readmitted by a good poll. Pure; no clock, no socket.

A connection that cannot be made ejects at once: the process is not there. A poll that only takes too long counts, and
ejects with the third in a row: a busy node must not be taken for a dead one. A backend nobody has heard of is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

SLOW_POLLS_MAX = 3  # in a row; the third ejects


@dataclass(frozen=True, slots=True)
class Ejection:
    """Why and since when (monotonic seconds) a backend is not used."""

    since: float
    reason: str


@dataclass(frozen=True, slots=True)
class Health:
    """What is known of every backend, by URL. Each change gives a new value."""

    ejected: Mapping[str, Ejection] = field(default_factory=dict)
    slow_polls: Mapping[str, int] = field(default_factory=dict)

    def is_live(self, url: str) -> bool:
        return url not in self.ejected

    def failed(self, url: str, *, reason: str, now: float) -> Health:
        """No connection, or the backend said itself that it cannot serve: out. The first reason and time are kept."""
        if url in self.ejected:
            return self
        return replace(self, ejected={**self.ejected, url: Ejection(now, reason)})

    def was_slow(self, url: str, *, reason: str, now: float) -> Health:
        """A poll was not answered in time."""
        count = self.slow_polls.get(url, 0) + 1
        counted = replace(self, slow_polls={**self.slow_polls, url: count})
        return counted.failed(url, reason=reason, now=now) if count >= SLOW_POLLS_MAX else counted

    def answered(self, url: str) -> Health:
        """A good poll: in again."""
        if url not in self.ejected and url not in self.slow_polls:
            return self
        return Health({other: ejection for other, ejection in self.ejected.items() if other != url},
                      {other: count for other, count in self.slow_polls.items() if other != url})
