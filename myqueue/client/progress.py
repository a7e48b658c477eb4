"""PURE: how far a partition was handed out, how far it was dealt with without a gap, and so what may be committed.

    committed ≤ done_up_to ≤ position

Messages may be dealt with in any order; ``done_up_to`` never passes one that is not, so a commit never acknowledges an
earlier message that failed. What is done above it is kept as ranges: their number is bounded by the messages not done.
"""

from __future__ import annotations


class Progress:
    """One partition's progress. All offsets are exclusive ends: ``position`` is the next offset to hand out."""

    __slots__ = ("_end_by_start", "_start_by_end", "committed", "done_up_to", "position")

    def __init__(self, offset: int, committed: int | None = None) -> None:
        self.position = offset
        self.done_up_to = offset
        self.committed = committed
        self._end_by_start: dict[int, int] = {}
        self._start_by_end: dict[int, int] = {}

    def __repr__(self) -> str:
        ranges = "".join(f" +{start}..{end}" for start, end in sorted(self._end_by_start.items()))
        return f"Progress(position={self.position}, done_up_to={self.done_up_to}{ranges}, committed={self.committed})"

    def handed(self, offset: int) -> None:
        """A message was given to the caller."""
        self.position = offset + 1

    def done(self, offset: int) -> None:
        """A message was dealt with. One that was not handed out since the last seek, or is done already, changes nothing."""
        if offset == self.done_up_to < self.position and not self._end_by_start:
            self.done_up_to = offset + 1
            return
        if not self.done_up_to <= offset < self.position or self._holds(offset):
            return
        start = self._start_by_end.pop(offset, offset)
        end = self._end_by_start.pop(offset + 1, offset + 1)
        self._end_by_start[start], self._start_by_end[end] = end, start
        if start == self.done_up_to:
            del self._end_by_start[start], self._start_by_end[end]
            self.done_up_to = end

    def all_done(self) -> None:
        """Everything handed out so far was dealt with."""
        self.seek(self.position)

    def seek(self, offset: int) -> None:
        """Go on from another offset; what was handed out before no longer counts."""
        self.position = self.done_up_to = offset
        self._end_by_start.clear()
        self._start_by_end.clear()

    def to_commit(self) -> int | None:
        """The offset that a commit should write, or None where it is written already."""
        return None if self.done_up_to == self.committed else self.done_up_to

    def _holds(self, offset: int) -> bool:
        return any(start <= offset < end for start, end in self._end_by_start.items())
