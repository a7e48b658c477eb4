"""The follower's side of replication: what an append from a leader does to this log.

What must never happen: a promise that falls, an entry accepted below it, a committed entry that changes, a log that
ends inside a request. So: the promise first; then the border before the request must be held; then entries are deleted
from the first *conflicting* one on and never below the commit; only whole requests are stored; and the answer says how
far this request matched, never how long the log is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from db.replication.log import Entry, LogView, chain_before, epoch_before
from myqueue.errors import LogFaultError


class Refusal(StrEnum):
    """Why an append was not stored."""

    STALE_EPOCH = "stale_epoch"  # the sender's epoch is below the promise: it leads no longer
    NO_MATCH = "no_match"  # the border before the request is not held here; the hint says where to go on
    BROKEN_CHAIN = "broken_chain"  # an entry's digest does not follow from the one before: damaged on its way, or at the sender
    SPLIT_REQUEST = "split_request"  # the entries are not whole requests, or their epochs are impossible


@dataclass(frozen=True, slots=True)
class AppendRequest:
    """Entries for the positions from ``position`` on. Without entries it is a heartbeat and asks whether the border matches."""

    epoch: int  # of the sender's leadership
    position: int  # a border: where the entries go
    prev_epoch: int  # the epoch of the sender's entry before ``position``
    entries: Sequence[Entry]
    commit: int  # the sender's commit position, exclusive
    round: int = 0  # counts the sender's rounds; the answer echoes it

    @property
    def end(self) -> int:
        return self.position + len(self.entries)


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """What a replica has on disk beside its log."""

    promised_epoch: int
    commit: int
    disk_id: str
    leader_epoch: int = 0  # it leads while this equals the promise and is above 0
    seeding_until: int | None = None  # while its log ends below, it counts for no majority

    @property
    def leading(self) -> bool:
        return 0 < self.leader_epoch == self.promised_epoch


@dataclass(frozen=True, slots=True)
class Hint:
    """Where the sender should go on after NO_MATCH."""

    end: int  # this log's end
    next: int  # the border to try: our end, or the first position of the epoch that conflicts


@dataclass(frozen=True, slots=True)
class AppendReply:
    """The answer, to be sent after the plan is committed to disk. ``matched`` is None for a refusal."""

    epoch: int  # the promise: an answer of another epoch than the leader's is ignored or ends its leadership
    disk_id: str
    position: int  # of the request that is answered
    round: int
    matched: int | None = None  # the end of the request answered: this log equals the sender's up to here
    refusal: Refusal | None = None
    hint: Hint | None = None
    counts: bool = True  # False while the replica is seeding
    life: int = 0  # the life number of the disk, where one is kept


@dataclass(frozen=True, slots=True)
class AppendPlan:
    """What to write in one transaction, in this order, before ``reply`` may leave."""

    reply: AppendReply
    promise: int | None = None  # the new promise; whoever writes it stops leading (managers: the vote is cleared)
    delete_from: int | None = None  # drop the entries from this position on
    insert_at: int = 0
    insert: tuple[Entry, ...] = ()  # goes to insert_at …, after the deletion
    commit: int | None = None  # the new commit position where it rises


def plan_append(replica: ReplicaState, log: LogView, request: AppendRequest) -> AppendPlan:
    """Decide what an append does here. Repeats, reordering and several senders are safe.

    A refusal is a plan too: its promise, if any, is written before the reply leaves.

    Raises:
        LogFaultError: the request contradicts what was agreed (a committed entry would change, the same position and
            epoch hold another digest, another leader in an epoch that is led here). Nothing may be written but the fault.
    """
    if request.epoch < replica.promised_epoch:
        return _refuse(replica, request, replica.promised_epoch, Refusal.STALE_EPOCH)
    if replica.leading and request.epoch == replica.promised_epoch:
        raise LogFaultError(f"two leaders in epoch {request.epoch}")
    promise = request.epoch if request.epoch > replica.promised_epoch else None
    if not _whole_requests(request):
        return _refuse(replica, request, request.epoch, Refusal.SPLIT_REQUEST, promise=promise)
    hint = _mismatch(replica, log, request)
    if hint is not None:
        return _refuse(replica, request, request.epoch, Refusal.NO_MATCH, hint=hint, promise=promise)
    if not _chain_holds(log, request):
        return _refuse(replica, request, request.epoch, Refusal.BROKEN_CHAIN, promise=promise)
    fork = _first_difference(log, request)
    delete_from = fork if fork < min(log.end, request.end) else None
    if delete_from is not None and delete_from < replica.commit:
        raise LogFaultError(f"entry {delete_from} is committed (commit {replica.commit}) and differs in epoch {request.epoch}")
    insert = tuple(request.entries[fork - request.position:]) if fork < request.end else ()
    if insert and insert[0].request_index != 0:
        raise LogFaultError(f"the log ends inside a request at {fork}")
    commit = min(request.commit, request.end)
    return AppendPlan(
        reply=AppendReply(request.epoch, replica.disk_id, request.position, request.round, matched=request.end,
                          counts=replica.seeding_until is None or request.end >= replica.seeding_until),
        promise=promise, delete_from=delete_from, insert_at=fork, insert=insert,
        commit=commit if commit > replica.commit else None)


def _refuse(replica: ReplicaState, request: AppendRequest, epoch: int, refusal: Refusal, *, hint: Hint | None = None,
            promise: int | None = None) -> AppendPlan:
    reply = AppendReply(epoch, replica.disk_id, request.position, request.round, refusal=refusal, hint=hint)
    return AppendPlan(reply=reply, promise=promise)


def _whole_requests(request: AppendRequest) -> bool:
    """Whether the entries are whole requests of epochs that never fall and do not pass the sender's."""
    epoch, index, count = request.prev_epoch, 0, 0
    for entry in request.entries:
        begins = index == count
        expected = (0, entry.request_count, entry.epoch) if begins else (index, count, epoch)
        if (entry.request_index, entry.request_count, entry.epoch) != expected or not epoch <= entry.epoch <= request.epoch:
            return False
        epoch, index, count = entry.epoch, entry.request_index + 1, entry.request_count
        if index > count:
            return False
    return index == count


def _mismatch(replica: ReplicaState, log: LogView, request: AppendRequest) -> Hint | None:
    """None where the border before the request is held (or lies below the start, where all is committed), else where to go on.

    Whoever leads a later epoch holds everything that is committed here, so a mismatch at or below the commit is a fault, and
    the hint never goes below it.
    """
    if request.position > log.end:
        return Hint(end=log.end, next=log.end)
    if request.position < log.start:
        _check_start(log, request)
        return None
    here = epoch_before(log, request.position)
    if here == request.prev_epoch:
        return None
    committed = max(replica.commit, log.start)
    if request.position <= committed:
        raise LogFaultError(f"entry {request.position - 1} of epoch {here} is committed and the leader of epoch {request.epoch} "
                            f"has one of epoch {request.prev_epoch}")
    return Hint(end=log.end, next=max(committed, log.first_position_of_epoch(here)))


def _check_start(log: LogView, request: AppendRequest) -> None:
    """A request that reaches over our start must agree with the epoch remembered for the entry before it."""
    if request.end >= log.start:
        entry = request.entries[log.start - 1 - request.position]
        if entry.epoch != log.start_epoch:
            raise LogFaultError(f"the entry before our start {log.start} is of epoch {log.start_epoch}, the sender's of {entry.epoch}")


def _held_part(log: LogView, request: AppendRequest) -> Sequence[Entry]:
    """The request's entries at or above our start; what is below is committed here and skipped."""
    return request.entries[max(0, log.start - request.position):]


def _chain_holds(log: LogView, request: AppendRequest) -> bool:
    first = max(log.start, request.position)
    if first > log.end:
        return True
    chain = chain_before(log, first)
    for entry in _held_part(log, request):
        chain = entry.chain_after(chain)
        if chain != entry.chain:
            return False
    return True


def _first_difference(log: LogView, request: AppendRequest) -> int:
    """The first position of the request where this log has another entry or none; the request's end where there is none.

    Equal chains mean that everything below is equal too, so a few looks at the log find it. The request's own chain has been
    checked by now: the same epoch with another digest can only be a real divergence.
    """
    if request.end <= log.start:
        return request.end
    held = range(max(log.start, request.position), min(log.end, request.end))
    fork = held.start + bisect_left(held, True, key=lambda at: log.chain_at(at) != request.entries[at - request.position].chain)
    if fork < held.stop and log.epoch_at(fork) == request.entries[fork - request.position].epoch:
        raise LogFaultError(f"entry {fork} of epoch {log.epoch_at(fork)} has two digests")
    return fork
