"""The replica's side of leadership: what it promised, whether it leads, what an appointment does.

What must never happen: a promise that falls, two leaderships in one epoch, a leader on a disk that is not the registered one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from db.replication import counts, majority
from myqueue.errors import NotLeaderError, RefusedError
from myqueue.protocol.entry import LogEnd

FIRST_EPOCH = 1


class ReplicaHead(Protocol):
    """What of a head row these rules look at."""

    @property
    def promised_epoch(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def end(self) -> LogEnd: ...

    @property
    def seeding_until(self) -> int | None: ...

    @property
    def fault(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Appointment:
    """What the write manager decided about a partition: its epoch, the voters by broker and registered disk, and who learns."""

    epoch: int
    voters: Mapping[int, str | None]
    replication_factor: int = 1
    learners: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class PromisePlan:
    """``changes`` says whether the promise is new and has to be on disk before the answer leaves. It ends a leadership."""

    promised_epoch: int
    changes: bool


@dataclass(frozen=True, slots=True)
class PromiseAnswer:
    """What a coordinator chooses the leader by: the disk it speaks for, and how far its log goes. All positions are exclusive."""

    promised_epoch: int
    disk_id: str
    end_epoch: int
    end_lsn: int
    commit_lsn: int
    seeding: bool  # counts for no majority and cannot lead


@dataclass(frozen=True, slots=True)
class AppointPlan:
    """``starts`` says whether this begins the leadership (the marker is to be appended) or repeats what is so already."""

    promised_epoch: int
    starts: bool


def is_leading(head: ReplicaHead) -> bool:
    """Whether this replica leads by what its own disk says."""
    return 0 < head.leader_epoch == head.promised_epoch and head.fault is None and head.seeding_until is None


def check_leading(head: ReplicaHead) -> None:
    """Raises NotLeaderError."""
    if not is_leading(head):
        raise NotLeaderError("this broker does not lead the partition; nothing was stored", epoch=head.promised_epoch)


def commits_alone(voters: Mapping[int, str | None], broker_id: int, disk_id: str) -> bool:
    """Whether this disk alone is a majority: then its commit is the partition's."""
    return majority(len(voters)) == 1 and counts(voters, broker_id, disk_id)


def plan_promise(head: ReplicaHead, epoch: int) -> PromisePlan:
    """Decide on the promise for an epoch that a coordinator was handed out.

    The same epoch again is a repeat of one question, as long as nothing has begun in it.

    Raises:
        RefusedError: an epoch as high is promised and begun, or a higher one; ``promised_epoch`` says which.
    """
    if epoch > head.promised_epoch:
        return PromisePlan(epoch, changes=True)
    if epoch == head.promised_epoch and head.leader_epoch < epoch and head.end.epoch < epoch:
        return PromisePlan(epoch, changes=False)
    raise RefusedError(f"epoch {head.promised_epoch} is promised, the question is of {epoch}", promised_epoch=head.promised_epoch)


def plan_appoint(head: ReplicaHead, appointment: Appointment, *, broker_id: int, disk_id: str) -> AppointPlan:
    """Decide what an appointment as leader does; a repeat changes nothing.

    The promise has to be that of the epoch. The first epoch needs none: before it there was no leader and no entry anywhere.

    Raises:
        RefusedError: another epoch was promised, this disk is not a voter, or the log holds an entry of this epoch already.
    """
    epoch = appointment.epoch
    if epoch != head.promised_epoch and not _begins(head, epoch):
        raise RefusedError(f"epoch {head.promised_epoch} is promised, the appointment is of {epoch}", promised_epoch=head.promised_epoch)
    if not counts(appointment.voters, broker_id, disk_id):
        raise RefusedError(f"broker {broker_id} with disk {disk_id} is not a voter", promised_epoch=head.promised_epoch)
    if head.fault is not None or head.seeding_until is not None:
        raise RefusedError("this replica serves nothing: " + (head.fault or "it is being seeded"), promised_epoch=head.promised_epoch)
    if head.leader_epoch == epoch:
        return AppointPlan(epoch, starts=False)
    if head.end.epoch >= epoch:
        raise RefusedError(f"the log holds an entry of epoch {head.end.epoch} already", promised_epoch=head.promised_epoch)
    return AppointPlan(epoch, starts=True)


def may_begin_afresh(head: ReplicaHead, *, epoch: int, is_voter: bool) -> bool:
    """Whether a damaged replica may forget its log and get it again from the leader of ``epoch``.

    Only where it is no voter there: whoever leads was elected by a majority that does not need this log, and can be followed only by
    one that does not either. The epoch is to be on disk as promised before anything goes, so that no earlier leader finds the empty log.
    """
    return head.fault is not None and not is_voter and head.promised_epoch <= epoch and head.leader_epoch < epoch


def _begins(head: ReplicaHead, epoch: int) -> bool:
    return epoch == FIRST_EPOCH and head.promised_epoch == 0 and head.end.lsn == 0
