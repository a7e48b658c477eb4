"""Rules of the partitions taken out one at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from broker.core.replica import may_begin_afresh
from broker.core.retention import plan_begin
from db.log_store import Head
from db.replication import AppendReply
from db.replication.log import end_epoch
from manager.cluster import reassignment
from manager.cluster.election import Outlook, Replicas
from myqueue.protocol.entry import Border, LogEnd, LogEntry
from myqueue.protocol.fold import LogState, ProducerState
from tests.simulation import mutants as of_managers
from tests.simulation.mutant import Mutant
from tests.simulation.partitions.broker import Broker, Seed, Waiting
from tests.simulation.partitions.disk import Disk
from tests.simulation.partitions.world import Kinds

# --- disks ---


class _ForgetsItsPromise(Disk):
    def crash_database(self) -> None:
        super().crash_database()
        self.head = replace(self.head, promised_epoch=max(self.head.leader_epoch, end_epoch(self.log)))


class _DequeuesOnFoldedState(Disk):
    def state_with_tail(self) -> LogState:
        folded = self.folded.copy()
        return replace(super().state_with_tail(), consumers=folded.consumers, requests=folded.requests)


class _DeduplicatesOnFoldedState(Disk):
    def state_with_tail(self) -> LogState:
        return replace(super().state_with_tail(), producers=self.folded.copy().producers)


class _RemembersWhatWasCut(Disk):
    """The producers that decisions look at are kept beside the log, and a truncation does not undo them."""

    remembered: dict[int, ProducerState] = {}

    def append(self, entries: Sequence[LogEntry], end: LogEnd) -> None:
        super().append(entries, end)
        self.remembered = self.state_with_tail().producers

    def state_with_tail(self) -> LogState:
        state = super().state_with_tail()
        for producer_id, kept in self.remembered.items():
            known = state.producers.get(producer_id)
            if known is None or known.last_seq < kept.last_seq:
                state.producers[producer_id] = kept
        return state


class _ForgetsTheStartEpoch(Disk):
    def trim(self, lsn: int) -> None:
        super().trim(lsn)
        self.log.start_epoch = 0


class _SendsBeforeItsCommit(Disk):
    """What a leader appends is sent and counted at once and reaches the disk at the keeper's next turn."""

    unsynced_from: int | None = None

    def append(self, entries: Sequence[LogEntry], end: LogEnd) -> None:
        self.unsynced_from = self.log.end if self.unsynced_from is None else self.unsynced_from
        super().append(entries, end)

    def fold(self) -> None:
        super().fold()
        self.unsynced_from = None

    def crash_database(self) -> None:
        if self.unsynced_from is not None and self.log.start <= self.unsynced_from < self.log.end:
            self.log.truncate(self.unsynced_from)
            end, commit = self.border(self.log.end), min(self.head.commit_lsn, self.log.end)
            self.head = replace(self.head, end=end, commit_lsn=commit, commit_offset=self.border(commit).offset)
            self.commit_synced = min(self.commit_synced, commit)
        self.unsynced_from = None
        super().crash_database()


# --- brokers ---


class _AnswersByPosition(Broker):
    def answers(self) -> list[tuple[Waiting, Any]]:
        done = [(wait, wait.outcome) for wait in self.waiting if self.disk.head.commit_lsn >= wait.position]
        self.waiting = [wait for wait in self.waiting if self.disk.head.commit_lsn < wait.position]
        return done


class _AnswersBeforeItsMarker(Broker):
    def marker_committed(self) -> bool:
        return True


class _BelievesOldAnswers(Broker):
    def learn(self, source: int, reply: AppendReply) -> None:
        super().learn(source, replace(reply, epoch=max(reply.epoch, self.disk.head.promised_epoch)))


class _SeedsWithoutTheState(Broker):
    def ask(self, target: int) -> Any:
        message = super().ask(target)
        return replace(message, state=LogState(trim_offset=message.state.trim_offset)) if isinstance(message, Seed) else message


def _begins_above_what_is_trimmed(head: Head, borders: Iterable[Border], *, kept_from: int) -> Border | None:
    return plan_begin(replace(head, trim_offset=head.end.offset), borders, kept_from=kept_from)


def _no_marker(partition: Any, end: LogEnd, *, epoch: int, append_time: int) -> tuple[list[LogEntry], LogEnd]:
    return [], end


def _forgets_though_a_voter(head: Head, *, epoch: int, is_voter: bool) -> bool:
    return may_begin_afresh(head, epoch=epoch, is_voter=False)


# --- coordinators ---


def _anybody(voters: Any, answers: Any) -> bool:
    return bool(answers)


def _adds_any_learner(replicas: Replicas, outlook: Outlook, **known: Any) -> reassignment.Step | None:
    return reassignment.next_step(replicas, outlook, **{**known, "settled": True, "caught_up": frozenset(replicas.learners)})


_PLAN_APPEND = "tests.simulation.partitions.broker.plan_append"
_IDENTITY = ("db.replication.quorum", "broker.core.leading", "broker.core.replica", "manager.cluster.election")
_ALL = (
    Mutant("truncation_without_conflict", "delete only from a conflicting entry on", ((_PLAN_APPEND, of_managers.cuts_what_is_longer),)),
    Mutant("stale_append_truncates", "an append below the promise is refused", ((_PLAN_APPEND, of_managers.takes_stale_epochs),)),
    Mutant("commit_past_the_match", "a follower commits what this request matched", ((_PLAN_APPEND, of_managers.commits_to_its_own_end),)),
    Mutant("request_split_by_replication", "requests are replicated whole",
           (("broker.core.leading.plan_send", of_managers.splits_requests), (_PLAN_APPEND, of_managers.takes_parts_of_requests))),
    Mutant("old_epoch_committed_by_counting", "only entries of the own epoch are counted",
           (("broker.core.leading.commit_position", of_managers.commits_by_counting),)),
    Mutant("acknowledgement_without_epoch", "an answer of another epoch is ignored", kinds=Kinds(broker=_BelievesOldAnswers)),
    Mutant("sent_before_the_local_commit", "an entry leaves after its own commit to disk", kinds=Kinds(disk=_SendsBeforeItsCommit)),
    Mutant("any_start_accepted", "a start is taken only above ours and where its border is not held",
           (("db.replication.start.accepts_start", of_managers.any_start),)),
    Mutant("start_epoch_forgotten", "the epoch before the start is remembered", kinds=Kinds(disk=_ForgetsTheStartEpoch)),
    Mutant("dropped_though_not_trimmed", "nothing is dropped that is served",
           (("tests.simulation.partitions.chaos.plan_begin", _begins_above_what_is_trimmed),)),
    Mutant("seeded_without_the_state", "a start comes with all that is folded", kinds=Kinds(broker=_SeedsWithoutTheState)),
    Mutant("damaged_voter_begins_afresh", "a damaged replica gets its log anew where it is no voter",
           (("tests.simulation.partitions.broker.may_begin_afresh", _forgets_though_a_voter),)),
    Mutant("promise_not_durable", "a promise is on disk before the answer", kinds=Kinds(disk=_ForgetsItsPromise)),
    Mutant("no_up_to_date_check", "the furthest log of a majority leads", (("manager.cluster.election.Promise.reach", (0, 0)),)),
    Mutant("election_by_a_minority", "a majority elects", (("manager.cluster.election.has_majority", _anybody),)),
    Mutant("disk_identity_ignored", "only the registered disk counts", tuple((f"{module}.counts", of_managers.any_disk) for module in _IDENTITY)),
    Mutant("voter_added_before_it_caught_up", "a new voter holds what is committed, by a leader that has committed in its epoch",
           (("tests.simulation.partitions.coordinator.next_step", _adds_any_learner),)),
    Mutant("marker_left_out", "a leadership begins with a marker", (("tests.simulation.partitions.broker.marker_entry", _no_marker),)),
    Mutant("acknowledged_by_position", "an answer is told only in the epoch that wrote the entry", kinds=Kinds(broker=_AnswersByPosition)),
    Mutant("answered_before_the_marker", "a leader decides nothing before its marker is committed", kinds=Kinds(broker=_AnswersBeforeItsMarker)),
    Mutant("dequeue_on_folded_state", "a dequeue sees the offsets above the folded state", kinds=Kinds(disk=_DequeuesOnFoldedState)),
    Mutant("deduplication_on_folded_state", "a sequence is looked for above the folded state too", kinds=Kinds(disk=_DeduplicatesOnFoldedState)),
    Mutant("deduplication_not_undone", "a truncated request is not known any more", kinds=Kinds(disk=_RemembersWhatWasCut)),
)
MUTANTS = {mutant.name: mutant for mutant in _ALL}
