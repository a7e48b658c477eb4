"""What a replicated log is to the core: positions, borders, entries, and the view through which a decision reads it.

Positions count entries from 0. ``start`` is the first one held; every other position that is passed around is an
exclusive end and so names a *border*, the place between two entries. A border and the epoch of the entry before it,
(position, epoch), identify everything up to there: two logs that hold the same pair are identical up to it.
A Raft index counted from 1 and meant inclusively **is** such a border: ``last_index``, ``commit_index``,
``match_index``, ``prev_index`` need no translation; only the entry with index i stands at position i - 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from myqueue.errors import LogFaultError
from myqueue.protocol.chain import GENESIS


class Entry(Protocol):
    """One entry as it is stored and sent. Its payload is no concern of the core, but its digest is."""

    @property
    def epoch(self) -> int: ...

    @property
    def request_index(self) -> int:
        """Its place in the request that wrote it, from 0."""

    @property
    def request_count(self) -> int:
        """How many entries that request has."""

    @property
    def chain(self) -> bytes:
        """The digest of the log up to and including this entry, as its writer stated it."""

    def chain_after(self, previous: bytes) -> bytes:
        """The digest computed from the payload, given the one before."""


class LogView(Protocol):
    """A log as a decision sees it: under the head row's lock in SQL, or a list in memory."""

    @property
    def start(self) -> int:
        """The first position held; what is below was committed and compacted or dropped."""

    @property
    def start_epoch(self) -> int:
        """The epoch of the entry before ``start``; 0 for the empty beginning."""

    @property
    def start_chain(self) -> bytes:
        """The chain of the entry before ``start``."""

    @property
    def end(self) -> int:
        """The position after the last entry; ``start`` where there is none."""

    def epoch_at(self, position: int) -> int:
        """The epoch of the entry at ``position``, start <= position < end."""

    def chain_at(self, position: int) -> bytes:
        """The chain of the entry at ``position``, start <= position < end."""

    def first_position_of_epoch(self, epoch: int) -> int:
        """The first position held whose entry is of ``epoch`` or a later one; ``end`` where there is none. Epochs never fall."""

    def request_start(self, position: int) -> int:
        """The position where the request begins that holds ``position``; ``position`` itself where that is ``end``."""


def epoch_before(log: LogView, border: int) -> int:
    """The epoch of the entry before a border, start <= border <= end. At the start it is the remembered one."""
    return log.start_epoch if border == log.start else log.epoch_at(border - 1)


def chain_before(log: LogView, border: int) -> bytes:
    """The chain of the entry before a border, start <= border <= end."""
    return log.start_chain if border == log.start else log.chain_at(border - 1)


def holds_border(log: LogView, border: int, epoch: int) -> bool:
    """Whether this log holds (border, epoch), that is everything up to it."""
    return log.start <= border <= log.end and epoch_before(log, border) == epoch


def end_epoch(log: LogView) -> int:
    """The epoch of the last entry."""
    return epoch_before(log, log.end)


@dataclass
class MemoryLog:
    """A log in memory that satisfies :class:`LogView`: for simulation, tests, and small windows."""

    entries: list[Entry]
    start: int = 0
    start_epoch: int = 0
    start_chain: bytes = GENESIS

    @property
    def end(self) -> int:
        return self.start + len(self.entries)

    def at(self, position: int) -> Entry:
        """The entry at a position that is held."""
        if not self.start <= position < self.end:
            raise LogFaultError(f"position {position} is not held: the log is [{self.start}, {self.end})")
        return self.entries[position - self.start]

    def epoch_at(self, position: int) -> int:
        return self.at(position).epoch

    def chain_at(self, position: int) -> bytes:
        return self.at(position).chain

    def first_position_of_epoch(self, epoch: int) -> int:
        return next((self.start + place for place, entry in enumerate(self.entries) if entry.epoch >= epoch), self.end)

    def request_start(self, position: int) -> int:
        return position if position == self.end else position - self.at(position).request_index

    def between(self, first: int, end: int) -> Sequence[Entry]:
        """The entries at positions first … end - 1."""
        return tuple(self.entries[max(0, first - self.start):max(0, end - self.start)])

    def truncate(self, position: int) -> None:
        """Forget the entries from ``position`` on."""
        del self.entries[max(0, position - self.start):]

    def compact(self, position: int) -> None:
        """Forget the entries below ``position`` and remember the epoch and chain of the last of them."""
        epoch, chain = epoch_before(self, position), chain_before(self, position)
        del self.entries[:position - self.start]
        self.start, self.start_epoch, self.start_chain = position, epoch, chain
