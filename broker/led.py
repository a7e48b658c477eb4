"""A leadership of this process: what is known of its followers, its log, and who waits for what to be committed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from myqueue.errors import MyQueueError

from .core.leading import Leading
from .leader_log import LeaderLog

Told = Callable[[MyQueueError | None], None]  # None: committed


@dataclass(slots=True)
class Waiting:
    """Somebody whose answer rests on the log up to a border."""

    position: int  # committed up to here
    confirm: int | None  # and a round begun after so many was answered by a majority
    told: Told


@dataclass(slots=True)
class Led:
    """One leadership. Its lock guards everything in it."""

    leading: Leading
    log: LeaderLog
    lock: threading.Condition = field(default_factory=threading.Condition)
    waiting: list[Waiting] = field(default_factory=list)
    told_commit: dict[int, int] = field(default_factory=dict)  # follower -> the commit position it was sent last
    recorded: int = 0  # the commit position in the database
    told: int = 0  # the highest commit position that somebody was told of
    is_ready: bool = False  # all that was told before this leadership is committed, and the database says so
    offer_after: dict[int, float] = field(default_factory=dict)  # follower -> when it may be offered a start again, after one that could not be sent
    written_at: float = float("-inf")  # when this process last wrote to it
    is_over: bool = False
    began_at: float = float("-inf")  # since when this process knows of it

    def take_done(self) -> list[Waiting]:
        """Those who need not wait any more, each once."""
        done: list[Waiting] = []
        still: list[Waiting] = []
        for wait in self.waiting:
            (done if self.is_done(wait) else still).append(wait)
        self.waiting = still
        return done

    def is_done(self, wait: Waiting) -> bool:
        """Whether this one need not wait any more."""
        return self.leading.commit >= wait.position and (wait.confirm is None or self.leading.confirmed(wait.confirm))
