"""Which backends are used: ejected when they fail, readmitted by a good poll. Pure; no clock, no socket.

A connection that cannot be made ejects at once: the process is not there. A poll that only takes too long counts, and
ejects with the third in a row: a busy node must not be taken for a dead one; until then others are preferred. A backend nobody
has heard of is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

SLOW_POLLS_MAX = 3  # in a row; the third ejects
T = TypeVar("T")


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
    silent: Mapping[str, float] = field(default_factory=dict)  # since when (monotonic seconds) a poll has waited for its answer

    def is_live(self, url: str) -> bool:
        return url not in self.ejected

    def is_slow(self, url: str) -> bool:
        """Whether the last poll was not answered in time."""
        return url in self.slow_polls

    def silent_seconds(self, url: str, now: float) -> float:
        """For how long it has not answered although it was asked; 0 where nothing is asked of it."""
        return now - self.silent[url] if url in self.silent else 0.0

    def asked(self, url: str, *, now: float) -> Health:
        """A poll leaves."""
        return self if url in self.silent else replace(self, silent={**self.silent, url: now})

    def failed(self, url: str, *, reason: str, now: float) -> Health:
        """No connection, or the backend said itself that it cannot serve: out. The first reason and time are kept."""
        heard = replace(self, silent=_without(self.silent, url))
        return heard if url in self.ejected else replace(heard, ejected={**self.ejected, url: Ejection(now, reason)})

    def was_slow(self, url: str, *, reason: str, now: float) -> Health:
        """A poll was not answered in time."""
        count = self.slow_polls.get(url, 0) + 1
        counted = replace(self, slow_polls={**self.slow_polls, url: count})
        if count < SLOW_POLLS_MAX or url in self.ejected:
            return counted
        return replace(counted, ejected={**self.ejected, url: Ejection(now, reason)})

    def answered(self, url: str) -> Health:
        """A good poll: in again."""
        return Health(_without(self.ejected, url), _without(self.slow_polls, url), _without(self.silent, url))


def _without(known: Mapping[str, T], url: str) -> Mapping[str, T]:
    return {other: value for other, value in known.items() if other != url} if url in known else known
