"""What becomes of a command: into the WAL of the leader, by any of its processes, and whether it is committed as what it was."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from db.replication import LogView
from manager.raft.log import Proposal, entries_behind
from manager.raft.membership import changes_membership
from manager.raft.state import Changes, Held, RaftState
from myqueue.errors import NotLeaderError, OverloadedError, RefusedError

UNCOMMITTED_MAX = 10_000  # entries above the commit index; beyond, a leader without a majority would only pile up


class Outcome(StrEnum):
    """What is known of a proposal at its index."""

    WAITING = "waiting"
    COMMITTED = "committed"
    UNKNOWN = "unknown"  # replaced by another leader, or no longer to be seen: ask again with the same client_seq


class Admission(StrEnum):
    """What to do with a committed command of a session."""

    APPLY = "apply"
    REPEAT = "repeat"  # applied before: give the stored answer once more
    STALE = "stale"  # older than the last one, whose answer is gone: a recorded rejection


def plan_propose(held: Held, proposals: Iterable[Proposal], *, uncommitted_max: int = UNCOMMITTED_MAX) -> Changes:
    """The commands at the end of this leader's WAL. They are sent and counted only after these changes are on disk.

    Raises:
        NotLeaderError: this manager does not lead; ``leader`` names who does, where that is known. Nothing is stored.
        OverloadedError: too much waits for a majority already. Nothing is stored.
        RefusedError: a member command; those go through ``Node.change_member``.
    """
    proposals = tuple(proposals)
    if not held.state.leading:
        raise NotLeaderError(leader=held.contact.leader)
    if held.contact.handing_over == held.state.current_term:
        raise NotLeaderError("this manager hands its leadership over")
    if held.log.end + len(proposals) - held.state.commit_index > uncommitted_max:
        raise OverloadedError(f"{held.log.end - held.state.commit_index} commands wait for a majority already")
    if any(changes_membership(proposal.command) for proposal in proposals):
        raise RefusedError("a member command is checked against the followers' progress first")
    return Changes(insert=entries_behind(held.log, held.state.current_term, proposals))


def proposal_outcome(state: RaftState, log: LogView, *, index: int, term: int) -> Outcome:
    """Whether the entry written at ``index`` in ``term`` is committed. Read state and log in one statement, or under the lock."""
    if index <= log.start:
        return Outcome.COMMITTED if state.leader_term == state.current_term == term else Outcome.UNKNOWN
    if index > log.end or log.epoch_at(index - 1) != term:
        return Outcome.UNKNOWN
    return Outcome.COMMITTED if index <= state.commit_index else Outcome.WAITING


def admit(last_seq: int | None, client_seq: int) -> Admission:
    """Whether a session's command is applied: each sequence once, in rising order. Decided by the fold, so everywhere alike."""
    if last_seq is None or client_seq > last_seq:
        return Admission.APPLY
    return Admission.REPEAT if client_seq == last_seq else Admission.STALE
