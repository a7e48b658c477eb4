"""What a broker does with its partitions: lock → load → plan → write → commit → wake.

Nothing that matters lives in this process: any worker of the node may serve any request.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from db.log_store import Head, HeadMovedError, LogStore, Remembered, StoredRecord, Wanted
from db.replication import counts
from myqueue.clock import Clock
from myqueue.errors import (
    CorruptBatchError,
    MyQueueError,
    NotLeaderError,
    OutcomeUnknownError,
    QuotaExceededError,
    RefusedError,
    UnavailableError,
    UnknownPartitionError,
)
from myqueue.protocol.batch import Block
from myqueue.protocol.entry import chained, end_chained, marker_entry
from myqueue.protocol.fold import LogState
from myqueue.protocol.types import CommitStamp, PartitionId, ProducerSequence
from myqueue.service import metrics
from myqueue.service.wakeups import Wakeups

from .core.admission import fault_of
from .core.append import AppendRequest, AppendResult
from .core.group import GroupPlan, Handed, Request, plan_group
from .core.offsets import ClaimRequest, CommitRequest, DequeueRequest, LogRange, TrimRequest
from .core.replica import Appointment, PromiseAnswer, PromisePlan, check_leading, commits_alone, is_leading, plan_appoint, plan_promise
from .later import AfterCommit, Answer, NotSettledError
from .reads import Reads
from .replicator import Replicator
from .standing import Standing, is_shared
from .writer import GroupWriter, Later, Turn

T = TypeVar("T")
NO_PARTITIONS: Mapping[PartitionId, int] = {}
_log = logging.getLogger(__name__)
WRITER_LOCK_SECONDS = 0.25  # then the thread turns to other partitions and comes back
LOOK_AGAIN_SECONDS = 5.0  # after a lost commit: how long to try to find out
OFFSET_BYTES = 256  # what a commit or a dequeue counts for in the queue
TOPICS_KEY = "topics"  # woken when the topics that this broker knows have changed
TAIL_ENTRIES_MAX = 4_096  # entries that wait for a majority; beyond it nothing is appended


@dataclass(frozen=True, slots=True)
class Self:
    """This broker and its disk, as registered."""

    broker_id: int
    disk_id: str


@dataclass(frozen=True, slots=True)
class _Write:
    """What one transaction writes, and what is answered once it is committed."""

    head: Head  # before it
    plan: GroupPlan
    answers: Sequence[Answer | MyQueueError]
    alone: bool  # this disk's commit is the commit


class BrokerService:
    """The operations of a broker, by partition identity: writes, and what managers ask for. What is only read: ``reads``.

    Args:
        who: tells this broker's registered identity; raises UnavailableError before it is registered.
        take: counts an append of so many bytes against its topic's quota; raises QuotaExceededError where that is used up.
    """

    def __init__(self, store: LogStore, wakeups: Wakeups, replicator: Replicator, *, who: Callable[[], Self], clock: Clock,
                 stopping: threading.Event, queue_bytes_max: int, long_polls_max: int, timeout_seconds: float,
                 take: Callable[[PartitionId, int], None] = lambda partition, size_bytes: None) -> None:
        self._replicator, self._take = replicator, take
        self._store, self._wakeups, self._who, self._clock, self._stopping = store, wakeups, who, clock, stopping
        self._timeout_seconds = timeout_seconds
        self.standing = Standing(store, replicator, stopping=stopping)
        self.reads = Reads(store, wakeups, self.standing, clock=clock, stopping=stopping, long_polls_max=long_polls_max)
        self.writer: GroupWriter[Request, Answer] = GroupWriter(self.write_group, clock=clock, queue_bytes_max=queue_bytes_max,
                                                                on_queued=metrics.QUEUED_BYTES.set)

    # --- what callers ask for ---

    def append(self, partition: PartitionId, blocks: Sequence[Block], sequence: ProducerSequence | None, *, size_bytes: int,
               expected_end_offset: int | None = None) -> AppendResult:
        """Store blocks at the end of a partition, durably and all or nothing.

        When this returns, every record is on disk and readable. A sequence that was stored before is not stored again: the first
        answer is given once more, so a lost reply may simply be retried.

        Args:
            blocks: from :func:`broker.core.admission.admit`.
            expected_end_offset: store them only where they begin at this offset.

        Raises:
            EndOffsetMismatchError: they would begin elsewhere; names the end. Nothing was stored.
            QuotaExceededError: so fast the topic takes no more; says how long to wait. Nothing was stored, not even looked at: a repetition too.
            UnknownPartitionError, NotLeaderError, SequenceGapError, DuplicateSequenceError, ProducerFencedError, CorruptBatchError,
            OverloadedError, UnavailableError: nothing was stored.
            OutcomeUnknownError: retry with the same sequence to find out.
        """
        try:
            self._take(partition, size_bytes)
        except QuotaExceededError:
            check_leading(self._store.head(partition))  # who does not lead says that, and not to wait here
            metrics.QUOTA_REFUSED.inc()
            raise
        return self._submit(partition, AppendRequest(blocks, sequence, expected_end_offset), size_bytes)  # type: ignore[return-value]

    def commit_offset(self, partition: PartitionId, consumer: str, offset: int | None, *, generation: int | None = None,
                      handed_end: int | None = None, stamp: CommitStamp | None = None) -> int:
        """Set a consumer's offset (None: to the committed end), as an entry of the log; the offset that it has then.

        Args:
            handed_end: messages from there to below this one may be in a group member's hands once this has returned.
            stamp: where a later commit of the same client is there already this one changes nothing.

        Raises:
            OffsetOutOfRangeError, MemberFencedError: see ``plan_commit``. Nothing was done.
        """
        handed = self._submit(partition, CommitRequest(consumer, offset, generation, handed_end, stamp), OFFSET_BYTES)
        return handed.offset  # type: ignore[union-attr,return-value]

    def claim(self, partition: PartitionId, consumer: str, *, generation: int, start: str) -> Handed:
        """Let a consumer group's member begin here: where, and what is suspect there; an older generation commits nothing any more.

        Raises:
            MemberFencedError: a newer generation has begun already. Nothing was done.
        """
        return self._submit(partition, ClaimRequest(consumer, generation, start), OFFSET_BYTES)  # type: ignore[return-value]

    def dequeue(self, partition: PartitionId, consumer: str, request_id: str | None = None, *, known_only: bool = False) -> StoredRecord | None:
        """Hand out the consumer's next message and move its offset, in one transaction; None when nothing is left.

        With ``known_only``: the message that this request id got before, or None; nothing moves.
        """
        answer = self._submit(partition, DequeueRequest(consumer, request_id, known_only), OFFSET_BYTES)
        return answer if isinstance(answer, StoredRecord) else None

    def trim(self, partition: PartitionId, before_offset: int) -> int:
        """Serve nothing below an offset any more; the first offset that is served then, on this replica at once and on others within a second or two.

        An entry of the log, so that it survives what messages survive; again is a success. The disk is given back later, a segment at a time.

        Raises:
            OffsetOutOfRangeError: above the committed end, which it names. Nothing was done.
            UnknownPartitionError, NotLeaderError, OverloadedError, UnavailableError: nothing was done.
            OutcomeUnknownError: do it again to find out.
        """
        start = self._submit(partition, TrimRequest(before_offset), OFFSET_BYTES).offset  # type: ignore[union-attr]
        deadline = self._clock.monotonic() + self._timeout_seconds
        try:
            while self._store.head(partition).earliest < start and self._store.fold(partition) and self._clock.monotonic() < deadline:
                pass  # so many entries at a time
        except MyQueueError as error:
            raise OutcomeUnknownError("the trim is in the log, and whether it shows here already is not known") from error
        return start  # type: ignore[return-value]

    # --- what managers ask for ---

    def promise(self, partition: PartitionId, *, topic: str, config: dict[str, object], epoch: int) -> PromiseAnswer:
        """Promise an epoch; the log is made where it is not there. What was led here ends.

        Raises:
            RefusedError: see ``plan_promise``; ``promised_epoch`` says what is promised.
        """
        who = self._who()
        head, plan = self._made(partition, topic, config, lambda: self._promised(partition, epoch))
        if plan.changes:
            self._replicator.stop_leading(partition, plan.promised_epoch)
        self._wakeups.wake(TOPICS_KEY)
        serves_nothing = head.seeding_until is not None or head.fault is not None
        return PromiseAnswer(plan.promised_epoch, who.disk_id, head.end.epoch, head.end.lsn, head.commit_lsn, seeding=serves_nothing)

    def _promised(self, partition: PartitionId, epoch: int) -> tuple[Head, PromisePlan]:
        """The head as it was before, and what was promised."""
        with self._store.locked(partition) as held:
            head = held.head
            plan = plan_promise(head, epoch)
            if plan.changes:
                held.promise(plan.promised_epoch)
        return head, plan

    def appoint(self, partition: PartitionId, *, topic: str, config: dict[str, object], appointment: Appointment) -> int:
        """Lead a partition in an epoch: the log is made where it is not there, the marker is appended. A repeat changes nothing.

        Returns:
            The promised epoch.

        Raises:
            RefusedError: see ``plan_appoint``; ``promised_epoch`` says what is promised.
        """
        self._store.configure({partition.topic_id: config})
        promised_epoch = self._made(partition, topic, config, lambda: self._appointed(partition, appointment))
        self._replicate_led(partition)
        self._wakeups.wake(TOPICS_KEY)
        return promised_epoch

    def _appointed(self, partition: PartitionId, appointment: Appointment) -> int:
        who = self._who()
        with self._store.locked(partition) as held:
            plan = plan_appoint(held.head, appointment, broker_id=who.broker_id, disk_id=who.disk_id)
            head = held.head
            if plan.starts:
                held.lead(plan.promised_epoch, appointment.voters, appointment.replication_factor, appointment.learners)
                append_time = max(self._clock.now_us(), head.end.append_time)
                entries, end = marker_entry(partition, head.end, epoch=plan.promised_epoch, append_time=append_time)
                held.append(entries, end)
                if self._commits_alone(appointment.voters, head):
                    held.commit(end.lsn, end.offset, LogState())
                elif commits_alone(appointment.voters, who.broker_id, who.disk_id):
                    held.raise_commit(end.lsn, end.offset)  # with what waited for others before; it is folded soon
            elif tuple(appointment.learners) != tuple(head.learners):
                held.set_learners(appointment.learners)
        return plan.promised_epoch

    def _made(self, partition: PartitionId, topic: str, config: dict[str, object], act: Callable[[], T]) -> T:
        """Act on a log, which is made first where it is not there: a transaction less for all the others."""
        try:
            return act()
        except UnknownPartitionError:
            self._store.create(partition, topic=topic, config=config)
            return act()

    def status(self, partitions: Sequence[PartitionId] | None = None) -> list[dict[str, Any]]:
        """How these partitions, or all, are on this broker; those that it does not hold are missing."""
        wanted = None if partitions is None else set(partitions)
        return [self._status(held.id, held.topic, held.head) for held in self._store.held() if wanted is None or held.id in wanted]

    def _status(self, partition: PartitionId, topic: str, head: Head) -> dict[str, Any]:
        leading = is_leading(head)
        alone = leading and not is_shared(head)
        told = self._replicator.status(partition) if leading else None
        return {"topic_id": partition.topic_id, "partition": partition.partition, "topic": topic, "promised_epoch": head.promised_epoch,
                "leader_epoch": head.leader_epoch, "leading": leading, "start_lsn": head.start_lsn, "end_lsn": head.end.lsn,
                "end_offset": head.end.offset, "commit_lsn": head.commit_lsn, "commit_offset": head.commit_offset, "applied_lsn": head.applied_lsn,
                "seeding": head.seeding_until is not None, "fault": head.fault, "committed_in_epoch": alone, "replicas": {}, **(told or {})}

    def declare_damaged(self, partition: PartitionId, *, epoch: int, reason: str) -> dict[str, Any]:
        """Serve a replica no more, for a reason that managers give: it is no voter in this epoch, and the epoch's leader sends it all again.

        Returns:
            What offsets it holds. A repeat changes nothing.

        Raises:
            RefusedError: a later epoch is promised: it may be a voter there. Nothing was done.
        """
        with self._store.locked(partition) as held:
            head = held.head
            if epoch < head.promised_epoch:
                raise RefusedError(f"epoch {head.promised_epoch} is promised, and {epoch} was meant", promised_epoch=head.promised_epoch)
            if epoch > head.promised_epoch:
                held.promise(epoch)
            if head.fault is None:
                held.set_fault(reason)
        self._replicator.stop_leading(partition, epoch)
        self._wakeups.wake(TOPICS_KEY)
        _log.warning("partition %s is not served any more: %s", partition, head.fault or reason)
        return {"start_offset": head.start_offset, "end_offset": head.end.offset}

    def set_learners(self, partition: PartitionId, *, epoch: int, learners: Sequence[int]) -> None:
        """Send the log to these brokers too. Raises NotLeaderError where this broker does not lead in this epoch."""
        with self._store.locked(partition) as held:
            check_leading(held.head)
            if held.head.leader_epoch != epoch:
                raise NotLeaderError(f"epoch {held.head.leader_epoch} is led, not {epoch}", epoch=held.head.leader_epoch)
            if tuple(learners) != tuple(held.head.learners):
                held.set_learners(learners)
        self._replicate_led(partition)

    def drop(self, topic_ids: Iterable[int], partitions: Mapping[PartitionId, int] = NO_PARTITIONS) -> None:
        """Forget topics and their logs, and single partitions of others; whoever waits for their data is told.

        Args:
            partitions: with an epoch each. A replica that has promised it, or a later one, stays: this was said before it was asked for again.
        """
        for topic_id in topic_ids:
            self._dropped(self._store.drop(topic_id))
        for partition, epoch in partitions.items():
            if self._store.drop_partition(partition, before_epoch=epoch):
                self._dropped([partition])

    def _dropped(self, partitions: Sequence[PartitionId]) -> None:
        self._replicator.forget(partitions)
        for partition in partitions:
            self._wakeups.wake(partition)
        self._wakeups.wake(TOPICS_KEY)

    def _replicate_led(self, partition: PartitionId) -> None:
        """Have the replicator know a leadership that others take part in."""
        head = self._store.head(partition)
        if is_shared(head):
            self._replicator.lead(partition, head)
        else:
            self._replicator.stop_leading(partition, head.promised_epoch + 1)

    # --- writing ---

    def write_group(self, partition: PartitionId, requests: Sequence[Request], turn: Turn) -> Sequence[Answer | Later[Answer] | MyQueueError]:
        """Write requests in one transaction; where one of them spoils it for all, each alone."""
        try:
            return self._write(partition, requests, turn)
        except CorruptBatchError as error:
            turn.fail()
            if len(requests) == 1:
                return [_located(requests[0], error)]
        turn.wait()
        return [self._alone(partition, request) for request in requests]

    def _alone(self, partition: PartitionId, request: Request) -> Answer | Later[Answer] | MyQueueError:
        try:
            return self._write(partition, [request], Turn())[0]
        except CorruptBatchError as error:
            return _located(request, error)
        except MyQueueError as error:
            return error

    def _write(self, partition: PartitionId, requests: Sequence[Request], turn: Turn, *,
               look_again: bool = True) -> Sequence[Answer | Later[Answer] | MyQueueError]:
        began = self._clock.monotonic()
        told, wants = self._replicator.told(partition), wanted(requests)
        remembered = self._remembered(partition, wants, turn) if look_again else None
        write = None if remembered is None else self._by_memory(partition, remembered, requests)
        try:
            if remembered is not None and write is not None:
                write = self._appended_expecting(partition, remembered, write, turn)
            if write is None:
                turn.wait()
                with self._store.locked(partition, wants, lock_timeout_seconds=WRITER_LOCK_SECONDS) as held:
                    head = held.head
                    alone = self._check_may_write(head)
                    if not all(isinstance(request, AppendRequest) for request in requests):
                        self.standing.check_settled(partition, head, told)
                    readable = LogRange(head.start_offset, head.commit_offset)
                    plan = plan_group(partition, head.end, held.state, readable, requests, epoch=head.leader_epoch, now_us=self._clock.now_us())
                    answers = [held.record_at(outcome.offset) if isinstance(request, DequeueRequest) and isinstance(outcome, Handed)
                               and outcome.offset is not None else outcome for request, outcome in zip(requests, plan.outcomes, strict=True)]
                    write = _Write(head, plan, answers, alone)
                    if plan.entries:
                        # Not remembered: one that committed with others before, and has not folded all of that yet.
                        entries, end = held.append(plan.entries, plan.end, plan.changes if alone or is_shared(head) else None)
                        write = replace(write, plan=replace(plan, entries=entries, end=end))
                        if alone:
                            held.commit(end.lsn, end.offset, plan.changes)  # its commit to disk is the commit
        except OutcomeUnknownError:
            if write is None or not look_again:
                raise
            write = _with_chain(write)
            if not self._is_stored(partition, write.plan):
                return self._write(partition, requests, turn, look_again=False)
        self._after_commit(partition, write.plan, len(requests), self._clock.monotonic() - began)
        return write.answers if write.alone else self._replicated(partition, write, requests)

    def _remembered(self, partition: PartitionId, wants: Wanted, turn: Turn) -> Remembered | None:
        """The log as it was left, or is left by the group before."""
        if turn.expected is None:
            return self._store.remembered(partition, wants)
        return turn.expected if turn.expected.holds(wants) else None

    def _by_memory(self, partition: PartitionId, remembered: Remembered, requests: Sequence[Request]) -> _Write | None:
        """What is to be written on a log that is as it was remembered, not chained yet. None where that is anything but appends that are stored:
        whatever else is to be told, a refusal above all, is found out under the lock.
        """
        if not all(isinstance(request, AppendRequest) for request in requests):
            return None
        head = remembered.head
        try:
            alone = self._check_may_write(head)
        except MyQueueError:
            return None
        plan = plan_group(partition, head.end, remembered.state, LogRange(head.start_offset, head.commit_offset), requests, epoch=head.leader_epoch,
                          now_us=self._clock.now_us())
        if not all(isinstance(outcome, AppendResult) and not outcome.duplicate for outcome in plan.outcomes):
            return None
        return _Write(head, plan, plan.outcomes, alone)  # type: ignore[arg-type]

    def _appended_expecting(self, partition: PartitionId, remembered: Remembered, write: _Write, turn: Turn) -> _Write | None:
        """Store it; None where the log is not as it was remembered, and nothing was done."""
        plan = write.plan
        try:
            entries, end = self._store.append_expecting(partition, remembered, plan.entries, plan.end, plan.changes, commits=write.alone,
                                                        wait=None if turn.expected is None else turn.wait, on_sent=turn.let_follow,
                                                        lock_timeout_seconds=WRITER_LOCK_SECONDS)
        except HeadMovedError:
            turn.fail()
            return None
        except MyQueueError:
            turn.fail()
            raise
        return replace(write, plan=replace(plan, entries=entries, end=end))

    def _check_may_write(self, head: Head) -> bool:
        """Whether this disk alone commits. Raises NotLeaderError, UnavailableError: nothing is stored."""
        check_leading(head)
        who = self._who()
        if not counts(head.voters, who.broker_id, who.disk_id):
            raise NotLeaderError("this disk is not a voter of the partition; nothing was stored")
        if head.end.lsn - head.commit_lsn > TAIL_ENTRIES_MAX:
            raise UnavailableError(f"{head.end.lsn - head.commit_lsn} entries wait for a majority of the replicas already; nothing was stored",
                                   component="replicas")
        return self._commits_alone(head.voters, head)

    def _commits_alone(self, voters: Mapping[int, str | None], head: Head) -> bool:
        """Everything here is committed and folded with each write, and nobody else gets the log."""
        who = self._who()
        return commits_alone(voters, who.broker_id, who.disk_id) and not head.learners and head.applied_lsn == head.end.lsn

    def _replicated(self, partition: PartitionId, write: _Write, requests: Sequence[Request]) -> Sequence[Later[Answer]]:
        """Hand what was written to the replicator; every answer, refusals too, rests on the log up to the end and waits for its commit."""
        head, plan, epoch = write.head, write.plan, write.head.leader_epoch
        if not self._replicator.knows(partition, epoch):
            self._replicator.lead(partition, head)
        if plan.entries:
            with suppress(NotLeaderError):  # lost just now: those who wait are told that their outcome is unknown
                self._replicator.stored(partition, epoch, plan.entries, plan.end)
        return [AfterCommit(self._replicator, partition, epoch, plan.end.lsn, answer, confirm=_is_empty(request, answer))
                for request, answer in zip(requests, write.answers, strict=True)]

    def _is_stored(self, partition: PartitionId, plan: GroupPlan) -> bool:
        """After a commit whose answer was lost: look under the head's lock, which the old session may still hold.

        Raises:
            OutcomeUnknownError: it could not be found out in time.
        """
        deadline = self._clock.monotonic() + LOOK_AGAIN_SECONDS
        while True:
            try:
                with self._store.locked(partition, lock_timeout_seconds=LOOK_AGAIN_SECONDS) as held:
                    if held.head.start_lsn >= plan.end.lsn:
                        raise OutcomeUnknownError("what stood there was trimmed and dropped meanwhile")
                    return held.has_entry(plan.end.lsn - 1, plan.end.chain)
            except OutcomeUnknownError:
                raise
            except UnavailableError:
                if self._clock.monotonic() >= deadline:
                    raise OutcomeUnknownError() from None
                self._stopping.wait(0.1)

    def _after_commit(self, partition: PartitionId, plan: GroupPlan, requests: int, seconds: float) -> None:
        if not plan.entries:
            return
        self._wakeups.wake(partition)
        metrics.APPEND_GROUP.observe(requests)
        metrics.COMMIT_SECONDS.observe(seconds)
        metrics.RECORDS_APPENDED.inc(plan.end.offset - plan.entries[0].head.base_offset)

    # --- inner parts ---

    def _submit(self, partition: PartitionId, request: Request, size_bytes: int) -> Answer:
        self._replicator.require_majority(partition, self._stopping)
        try:
            return self.writer.submit(partition, request, size_bytes=size_bytes, timeout_seconds=self._timeout_seconds)
        except NotSettledError:
            self.standing.head(partition)  # waits for it
            return self.writer.submit(partition, request, size_bytes=size_bytes, timeout_seconds=self._timeout_seconds)


def _located(request: Request, error: CorruptBatchError) -> CorruptBatchError:
    """What the database refused, with the place of it where that can be found."""
    found = fault_of(request.blocks) if isinstance(request, AppendRequest) else None
    return found or error


def _with_chain(write: _Write) -> _Write:
    """What the database chained while it stored it, and has not said: the digests are the same."""
    plan, before = write.plan, write.head.end.chain
    entries = list(chained(before, plan.entries))
    return replace(write, plan=replace(plan, entries=entries, end=end_chained(plan.end, entries, before)))


def _is_empty(request: Request, answer: Answer | MyQueueError) -> bool:
    return isinstance(request, DequeueRequest) and isinstance(answer, Handed) and answer.offset is None


def wanted(requests: Sequence[Request]) -> Wanted:
    """Whose state these requests need."""
    producers = frozenset(request.sequence.producer_id for request in requests if isinstance(request, AppendRequest) and request.sequence is not None)
    others = [request for request in requests if not isinstance(request, AppendRequest)]
    return Wanted(producers, frozenset(request.consumer for request in others if not isinstance(request, TrimRequest)),
                  frozenset((request.consumer, request.request_id) for request in others
                            if isinstance(request, DequeueRequest) and request.request_id is not None), trim=bool(others))
