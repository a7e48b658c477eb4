"""What a manager has on disk, what a decision changes of it, and what a decision sees."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from db.replication import OfferedStart
from db.wal import RaftState, WalEntry
from manager.raft.log import WalView
from manager.raft.membership import Membership


class TermVote(NamedTuple):
    """A term and who has this manager's vote in it. They are written together."""

    term: int
    voted_for: int | None


@dataclass(frozen=True, slots=True)
class Contact:
    """When this manager last heard of a leader or gave its vote, by its own monotonic clock. Shared by its processes, not on disk.

    A hand-over is known here too. Both terms are compared with the current one, so that an old word means nothing.
    """

    at: float
    leader: int | None = None
    handed_over: int = 0  # the term whose leader told this manager to ask for votes at once
    handing_over: int = 0  # the term that this manager leads and hands over: it takes no commands meanwhile
    leaving: bool = False  # this manager is about to end: it does not want to lead


@dataclass(frozen=True, slots=True)
class Held:
    """What a decision sees: everything under the lock of ``raft_state``, and the last contact."""

    state: RaftState
    log: WalView
    membership: Membership  # in force: that of the last member command in the log
    contact: Contact


@dataclass(frozen=True, slots=True)
class Install:
    """A state that replaces the metadata, and the start of the log that goes with it. The log is emptied."""

    start: OfferedStart
    state: Any


@dataclass(frozen=True, slots=True)
class Changes:
    """What to write in one transaction, in this order. Everything is on disk before anything that follows from it is sent."""

    term_vote: TermVote | None = None
    leader_term: int | None = None
    install: Install | None = None
    delete_from: int | None = None  # a border: rows with index > delete_from go
    insert: tuple[WalEntry, ...] = ()
    commit_index: int | None = None

    def __bool__(self) -> bool:
        return self != NO_CHANGES


NO_CHANGES = Changes()


@dataclass(frozen=True, slots=True)
class Handled:
    """The outcome of a request from another manager: write ``changes``, commit, then note the contact and send ``reply``."""

    changes: Changes
    reply: Any
    contact: Contact | None = None


def state_after(state: RaftState, changes: Changes) -> RaftState:
    """The row after these changes. It asserts what never falls: the term, the commit, a vote once given."""
    if changes.term_vote is not None:
        term, vote = changes.term_vote
        assert term > state.current_term or (term == state.current_term and state.voted_for in (None, vote)), (state, changes)
        state = replace(state, current_term=term, voted_for=vote)
    if changes.leader_term is not None:
        state = replace(state, leader_term=changes.leader_term)
    if changes.install is not None:
        index = changes.install.start.position
        assert index > state.applied_index, (state, changes.install.start)
        state = replace(state, commit_index=max(state.commit_index, index), applied_index=index)
    assert changes.delete_from is None or changes.delete_from >= state.commit_index, (state, changes)
    if changes.commit_index is not None:
        assert changes.commit_index >= state.commit_index, (state, changes)
        state = replace(state, commit_index=changes.commit_index)
    return state
