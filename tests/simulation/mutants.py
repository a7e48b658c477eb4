"""Rules of the managers taken out one at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from db.replication import (
    AppendPlan,
    AppendRequest,
    LogView,
    Progress,
    ReplicaState,
    SendPlan,
    end_epoch,
    majority_position,
    plan_append,
    plan_send,
)
from manager.raft.messages import Reply, VoteReply
from manager.raft.node import Node
from manager.raft.proposal import Admission, Outcome
from manager.raft.quorum import Tally
from manager.raft.state import Changes, Held, RaftState
from tests.simulation.manager import Disk
from tests.simulation.mutant import Mutant
from tests.simulation.world import Kinds

# --- replication ---

Planner = Callable[[ReplicaState, LogView, AppendRequest], AppendPlan]


def cuts_what_is_longer(replica: ReplicaState, log: LogView, request: AppendRequest) -> AppendPlan:
    plan = plan_append(replica, log, request)
    if plan.reply.matched is not None and plan.delete_from is None and log.start <= request.end < log.end:
        return replace(plan, delete_from=request.end)
    return plan


def takes_stale_epochs(replica: ReplicaState, log: LogView, request: AppendRequest) -> AppendPlan:
    if request.epoch < replica.promised_epoch:
        replica = replace(replica, promised_epoch=request.epoch, leader_epoch=0)
    return plan_append(replica, log, request)


def commits_to_its_own_end(replica: ReplicaState, log: LogView, request: AppendRequest) -> AppendPlan:
    plan = plan_append(replica, log, request)
    if plan.reply.matched is None:
        return plan
    kept = log.end if plan.delete_from is None else plan.delete_from
    commit = min(request.commit, max(kept, request.end))
    return replace(plan, commit=commit if commit > replica.commit else None)


def commits_by_counting(voters: Any, holders: Any, *, epoch: int, log: LogView, commit: int) -> int:
    return max(commit, majority_position(voters, holders))


def splits_requests(progress: Progress, log: LogView, *, entries_max: int, end: int | None = None) -> SendPlan | None:
    """A leader sends so many entries, wherever a request ends."""
    plan = plan_send(progress, log, entries_max=entries_max, end=end)
    return None if plan is None else replace(plan, end=min(plan.position + entries_max, log.end))


def takes_parts_of_requests(replica: ReplicaState, log: LogView, request: AppendRequest) -> AppendPlan:
    """A follower stores what such a leader sends."""
    with patch("db.replication.append._whole_requests", lambda request: True):
        return plan_append(replica, log, request)


class _BelievesOldAnswers(Node):
    def step(self, held: Held, source: int, reply: Reply, *, now: float) -> None:
        if not isinstance(reply, VoteReply) and reply.epoch < held.state.current_term:
            reply = replace(reply, epoch=held.state.current_term)
        super().step(held, source, reply, now=now)


class _SendsBeforeItsCommit(Disk):
    """What a leader inserts is sent and counted at once and reaches the disk a tick later."""

    unsynced_from: int | None = None

    def write(self, changes: Changes) -> None:
        if changes.insert and self.state_leads_after(changes):
            self.unsynced_from = self.log.end if self.unsynced_from is None else self.unsynced_from
        elif changes.delete_from is not None or changes.install is not None:
            self.unsynced_from = None
        super().write(changes)

    def state_leads_after(self, changes: Changes) -> bool:
        return self.state.leading or changes.leader_term is not None

    def tick(self) -> None:
        self.unsynced_from = None

    def crash(self) -> None:
        if self.unsynced_from is not None and self.unsynced_from >= self.log.start:
            self.log.truncate(self.unsynced_from)
            end = self.log.end
            self.state = replace(self.state, commit_index=min(self.state.commit_index, max(end, self.state.applied_index)))
        self.unsynced_from = None


class _ForgetsTheStartEpoch(Disk):
    def compact(self) -> None:
        super().compact()
        self.log.start_epoch = 0

    def write(self, changes: Changes) -> None:
        super().write(changes)
        if changes.install is not None:
            self.log.start_epoch = 0


# --- elections ---


class _ForgetsItsVote(Disk):
    def crash(self) -> None:
        self.state = replace(self.state, voted_for=None)


class _ForgetsItsTerm(Disk):
    def crash(self) -> None:
        term = max(end_epoch(self.log), 1)
        if term < self.state.current_term:
            self.state = replace(self.state, current_term=term, voted_for=None, leader_term=0)


class _AddsAnyVoter(Node):
    def _check_caught_up(self, held: Held, member: Any) -> None:
        """Whoever asks becomes a voter."""


class _LeavesTheMarkerOut(Node):
    def _lead_from(self, held: Held, now: float) -> None:
        super()._lead_from(held, now)
        del self._changes["insert"]


def any_start(log: LogView, offered: Any) -> bool:
    return True


def _any_log(log: LogView, *, last_term: int, last_index: int) -> bool:
    return True


def _half_wins(self: Tally, voters: Any) -> bool:
    return bool(voters) and len(self.granted) >= max(1, len(voters) // 2)


def any_disk(voters: Any, node: int, disk_id: str | None) -> bool:
    return node in voters


def _no_copy(seen: Any, disk_id: str, life: int) -> bool:
    return False


def _by_position(state: RaftState, log: LogView, *, index: int, term: int) -> Outcome:
    return Outcome.COMMITTED if index <= state.commit_index else Outcome.WAITING


def _always_new(last_seq: int | None, client_seq: int) -> Admission:
    return Admission.APPLY


def _planner(broken: Planner) -> tuple[tuple[str, Any], ...]:
    return (("manager.raft.follower.plan_append", broken),)


_ALL = (
    Mutant("truncation_without_conflict", "delete only from a conflicting entry on", _planner(cuts_what_is_longer)),
    Mutant("stale_append_truncates", "an append below the promise is refused", _planner(takes_stale_epochs)),
    Mutant("commit_past_the_match", "a follower commits what this request matched", _planner(commits_to_its_own_end)),
    Mutant("old_epoch_committed_by_counting", "only entries of the own epoch are counted",
           (("manager.raft.leader.commit_position", commits_by_counting),)),
    Mutant("acknowledgement_without_epoch", "an answer of another epoch is ignored", kinds=Kinds(node=_BelievesOldAnswers)),
    Mutant("sent_before_the_local_commit", "an entry leaves after its own commit to disk", kinds=Kinds(disk=_SendsBeforeItsCommit)),
    Mutant("any_snapshot_accepted", "a start is taken only above ours and where its border is not held",
           (("manager.raft.follower.accepts_start", any_start),)),
    Mutant("start_epoch_forgotten", "the epoch before the start is remembered", kinds=Kinds(disk=_ForgetsTheStartEpoch)),
    Mutant("term_not_durable", "the term is on disk before the reply", kinds=Kinds(disk=_ForgetsItsTerm)),
    Mutant("vote_not_durable", "the vote is on disk before the reply", kinds=Kinds(disk=_ForgetsItsVote)),
    Mutant("no_up_to_date_check", "a vote only for a log at least as up to date", (("manager.raft.follower.is_up_to_date", _any_log),)),
    Mutant("election_by_a_minority", "a majority elects", (("manager.raft.quorum.Tally.won", _half_wins),)),
    Mutant("disk_identity_ignored", "only the registered disk counts", (("db.replication.quorum.counts", any_disk),)),
    Mutant("life_number_ignored", "an older copy of a disk counts for nothing",
           (("manager.raft.follower.is_copy", _no_copy), ("manager.raft.node.is_copy", _no_copy))),
    Mutant("voter_added_before_it_caught_up", "a new voter holds what is committed", kinds=Kinds(node=_AddsAnyVoter)),
    Mutant("marker_left_out", "a leadership begins with a marker", kinds=Kinds(node=_LeavesTheMarkerOut)),
    Mutant("acknowledged_by_position", "a proposal is done only if the entry is still ours",
           (("tests.simulation.manager.proposal_outcome", _by_position),)),
    Mutant("session_ignored", "a session's command is applied once", (("tests.simulation.machine.admit", _always_new),)),
)
MUTANTS = {mutant.name: mutant for mutant in _ALL}
