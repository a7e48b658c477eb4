"""PURE: how carefully a partition is handed out after a claim, so that a message which ends its process is found.

Who got a partition in a group says durably, before it hands messages out, up to where: 1, 2, 4, … of them at a time, and none any more once
that is WINDOW_MAX. Where several were announced when a member died, the next one hands these out one at a time. Where it was one message alone, its
death counts against that message. So an innocent message is delayed and nothing else, and what was never handed out is never suspect.
"""

from __future__ import annotations

WINDOW_MAX = 1_024


class SlowStart:
    """One partition's, since it was claimed. All offsets are exclusive ends."""

    __slots__ = ("_suspect_end", "_window", "announced_end")

    def __init__(self, suspect_end: int = 0) -> None:
        """
        Args:
            suspect_end: up to here somebody who died may have had messages in its hands.
        """
        self.announced_end = 0  # what was said last
        self._suspect_end, self._window = suspect_end, 1

    def __repr__(self) -> str:
        return f"SlowStart(announced to {self.announced_end}, suspect to {self._suspect_end}, the next {self._window})"

    @property
    def is_over(self) -> bool:
        """Whether nothing is announced any more."""
        return self._window > WINDOW_MAX

    def due(self, offset: int) -> int | None:
        """Up to where to announce before the message at this offset is handed out; None where it was announced already."""
        if offset < self.announced_end:
            return None
        return offset + (1 if offset < self._suspect_end else self._window)

    def announced(self, end: int, offset: int) -> None:
        """It is durable that messages from this offset on, to below ``end``, may be in this member's hands."""
        self.announced_end = end
        if offset >= self._suspect_end:
            self._window *= 2

    def end_beside(self, offset: int) -> int | None:
        """What to say beside a commit of this offset: a message that is the last of several is not alone in anybody's hands for certain."""
        return max(self.announced_end, offset + 2) if offset < self.announced_end else None
