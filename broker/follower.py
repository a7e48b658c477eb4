"""A replica's side of replication: takes what a leader sends, one transaction a partition, and answers when it is on disk."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from db.log_store import HeldLog, LogStore
from db.replication import AppendPlan, AppendReply, ReplicaState, plan_append, takes_start
from myqueue.errors import BadRequestError, LogFaultError, MyQueueError, UnknownPartitionError
from myqueue.protocol.entry import LogEnd, LogEntry
from myqueue.protocol.fold import LogState
from myqueue.protocol.names import check_topic_name
from myqueue.protocol.types import PartitionId
from myqueue.service.wakeups import Wakeups

from .core.appends import Append
from .core.replica import may_begin_afresh
from .core.seeds import Seed

LOCK_SECONDS = 1.0
DISCARD_ROWS, DISCARDS_MAX = 2_000, 10  # of a damaged log in one transaction, and transactions in one call
_log = logging.getLogger(__name__)


class Follower:
    """Safe to share between threads.

    Args:
        disk_id: tells this broker's disk.
        stop_leading: called with an epoch that was promised, once that is on disk.
    """

    def __init__(self, store: LogStore, wakeups: Wakeups, *, disk_id: Callable[[], str], stop_leading: Callable[[PartitionId, int], None]) -> None:
        self._store, self._wakeups, self._disk_id, self._stop_leading = store, wakeups, disk_id, stop_leading

    def take(self, appends: Sequence[Append]) -> list[AppendReply | MyQueueError]:
        """An answer for each; one that fails does not keep the others from being stored."""
        return [self._answer(append, self._take) for append in appends]

    def take_seed(self, seed: Seed) -> AppendReply | MyQueueError:
        """Begin anew at an offered start, unless its border is held here or the offer is an old one; the answer is that to an append there."""
        def take(append: Append) -> AppendReply:
            self._begin_anew(seed)
            return self._take(append)

        return self._answer(seed.border, take)

    def _answer(self, append: Append, take: Callable[[Append], AppendReply]) -> AppendReply | MyQueueError:
        try:
            try:
                return take(append)
            except UnknownPartitionError:
                self._create(append)
                return take(append)
            except LogFaultError:
                if not self._begin_afresh(append):
                    raise
                return take(append)
        except LogFaultError as error:
            self._record_fault(append.partition, error)
            return error
        except MyQueueError as error:
            return error

    def _create(self, append: Append) -> None:
        """A new replica: the leader says what it is."""
        told = _introduced(append)
        if told is None:
            raise UnknownPartitionError(f"partition {append.partition} is not held here")
        self._store.create(append.partition, topic=told.topic, config=told.config)

    def _begin_afresh(self, append: Append) -> bool:
        """Let a replica that is known to be damaged begin with an empty log, where a leader says that it is no voter; whether it does.

        What is stored goes a bounded number of rows at a time, and is served by nobody meanwhile. Where there is more than one call is good
        for, it says no, and the leader's next append goes on.
        """
        told, partition, epoch = _introduced(append), append.partition, append.request.epoch
        if told is None:
            return False
        with self._store.locked(partition, lock_timeout_seconds=LOCK_SECONDS) as held:
            fault = held.head.fault
            if not may_begin_afresh(held.head, epoch=epoch, is_voter=told.is_voter):
                return False
            if epoch > held.head.promised_epoch:
                held.promise(epoch)
        self._stop_leading(partition, epoch)
        if not any(self._store.discard_damaged(partition, rows_max=DISCARD_ROWS) for _ in range(DISCARDS_MAX)):
            return False
        with self._store.locked(partition, lock_timeout_seconds=LOCK_SECONDS) as held:
            if not may_begin_afresh(held.head, epoch=epoch, is_voter=told.is_voter):
                return False
            held.begin_anew(LogEnd(), LogState(), 0)
        _log.warning("partition %s gets its log anew from the leader of epoch %d; it was damaged: %s", partition, epoch, fault)
        return True

    def _begin_anew(self, seed: Seed) -> None:
        partition, start = seed.partition, seed.start
        with self._store.locked(partition, lock_timeout_seconds=LOCK_SECONDS) as held:
            state = self._checked(held)
            if not takes_start(state, held.log, start, epoch=seed.epoch):
                return
            if seed.epoch > state.promised_epoch:
                held.promise(seed.epoch)
            held.begin_anew(LogEnd(start.position, seed.offset, start.epoch, start.chain, seed.append_time), seed.state, seed.applied)
        _log.warning("partition %s begins anew at lsn %d, with the state of lsn %d: it lay behind the start of its leader's log",
                     partition, start.position, seed.applied)
        if seed.epoch > state.promised_epoch:
            self._stop_leading(partition, seed.epoch)
        self._wakeups.wake(partition)

    def _checked(self, held: HeldLog) -> ReplicaState:
        """What decides about what a leader sends. Raises LogFaultError where this replica takes nothing any more."""
        head = held.head
        if head.fault is not None:
            raise LogFaultError(head.fault)
        return ReplicaState(head.promised_epoch, head.commit_lsn, self._disk_id(), head.leader_epoch, head.seeding_until)

    def _take(self, append: Append) -> AppendReply:
        partition, plan, notice = append.partition, None, None
        with self._store.locked(partition, lock_timeout_seconds=LOCK_SECONDS) as held:
            plan = plan_append(self._checked(held), held.log, append.request)
            if plan.promise is None and plan.delete_from is None and not plan.insert:
                notice = None if plan.commit is None else (plan.commit, held.offset_at(plan.commit))
            else:
                _write(held, plan)
        if notice is not None:
            self._store.advance(partition, *notice)  # a lower bound, not worth a wait for the disk
        if plan.promise is not None:
            self._stop_leading(partition, plan.promise)
        if plan.commit is not None:
            self._wakeups.wake(partition)
        return plan.reply

    def _record_fault(self, partition: PartitionId, error: LogFaultError) -> None:
        """What contradicts what was agreed is served no more; everything else stays as it is."""
        _log.error("partition %s is not served any more: %s", partition, error.message)
        try:
            with self._store.locked(partition) as held:
                if held.head.fault is None:
                    held.set_fault(error.message)
        except MyQueueError as failure:
            _log.error("the fault of partition %s could not be recorded: %s", partition, failure.message)


@dataclass(frozen=True, slots=True)
class _Introduction:
    topic: str
    config: Mapping[str, object]
    is_voter: bool


def _introduced(append: Append) -> _Introduction | None:
    """What a leader says of the partition and of this replica; None where it says nothing. Raises BadRequestError."""
    if not append.introduction:
        return None
    try:
        told = json.loads(append.introduction)
        return _Introduction(check_topic_name(told["topic"]), dict(told["config"]), bool(told.get("voter", True)))
    except (ValueError, TypeError, KeyError):
        raise BadRequestError("an introduction says topic and config") from None


def _write(held: HeldLog, plan: AppendPlan) -> None:
    """Carry out what was decided, in its order. A log that reaches the position of the state it was given is seeded then."""
    until = held.head.seeding_until
    if plan.promise is not None:
        held.promise(plan.promise)
    if plan.delete_from is not None:
        held.truncate(plan.delete_from)
    if plan.commit is not None:
        held.raise_commit(plan.commit, _offset_at(held, plan, plan.commit))
    if plan.insert:
        held.append(plan.insert, end_of(plan.insert[-1]))  # type: ignore[arg-type]
    if until is not None and plan.reply.matched is not None and plan.reply.matched >= until:
        held.end_seeding(_offset_at(held, plan, until))


def _offset_at(held: HeldLog, plan: AppendPlan, border: int) -> int:
    """The offset at a border of the log as it is once the plan is carried out."""
    place = border - 1 - plan.insert_at
    return end_of(plan.insert[place]).offset if plan.insert and place >= 0 else held.offset_at(border)  # type: ignore[arg-type]


def end_of(entry: LogEntry) -> LogEnd:
    """Where a log ends whose last entry this is."""
    head = entry.head
    return LogEnd(head.lsn + 1, head.base_offset + head.record_count, head.epoch, entry.chain, head.append_time)
