"""The managers' WAL as the replication core sees it.

An index counts entries from 1 and is inclusive; numerically it is the core's *border* behind that entry, so last index,
commit index, match index and previous index are used as they are. Only the entry with index i stands at position i - 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from db.replication import LogView, chain_before, end_epoch
from db.wal import Command, WalEntry

NOOP = "noop"  # the marker: a leader's first entry, so that something of its own term can be committed


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a client asks for. With a session (client_id, client_seq) it is applied once, however often it is proposed."""

    command: Command
    client_id: str | None = None
    client_seq: int | None = None

    @property
    def key(self) -> tuple[str | None, int | None]:
        return self.client_id, self.client_seq


class WalView(LogView, Protocol):
    """The WAL under the lock of ``raft_state``: what is in it is on disk."""

    def between(self, first: int, end: int) -> Sequence[WalEntry]:
        """The entries at positions first … end - 1, that is with the indexes first + 1 … end.

        Fewer, but at least one, where they would pass the bytes of one append: the rest goes with the next one.
        """


def entries_behind(log: LogView, term: int, proposals: Iterable[Proposal]) -> tuple[WalEntry, ...]:
    """The proposals as entries that continue this log."""
    index, chain, entries = log.end, chain_before(log, log.end), []
    for proposal in proposals:
        index += 1
        entry = WalEntry(index, term, proposal.command, proposal.client_id, proposal.client_seq, b"")
        entry = replace(entry, chain=entry.chain_after(chain))
        chain = entry.chain
        entries.append(entry)
    return tuple(entries)


def marker() -> Proposal:
    """The no-op with which a leadership begins."""
    return Proposal({"type": NOOP})


def is_up_to_date(log: LogView, *, last_term: int, last_index: int) -> bool:
    """Whether a log that ends with (last_term, last_index) holds at least as much as this one (Raft 5.4.1)."""
    return (last_term, last_index) >= (end_epoch(log), log.end)
