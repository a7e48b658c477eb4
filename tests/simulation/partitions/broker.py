"""One simulated broker: the shell around the real functions, with a disk that survives and a process that does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from broker.core.group import Handed, Request, plan_group
from broker.core.leading import Leading
from broker.core.offsets import LogRange
from broker.core.replica import Appointment, check_leading, is_leading, may_begin_afresh, plan_appoint, plan_promise
from db.replication import (
    AppendReply,
    AppendRequest,
    OfferedStart,
    Refusal,
    plan_append,
    takes_start,
)
from myqueue.errors import NotLeaderError, RefusedError, UnavailableError
from myqueue.protocol.entry import marker_entry
from myqueue.protocol.fold import LogState
from tests.simulation.partitions.checker import Checker
from tests.simulation.partitions.disk import PARTITION, Disk, offered_start


@dataclass(frozen=True)
class Promised:
    """What a replica answers to a coordinator."""

    epoch: int
    disk_id: str
    end_epoch: int
    end_lsn: int
    commit_lsn: int
    seeding: bool


@dataclass(frozen=True)
class Status:
    """What a leader says of its leadership to a coordinator."""

    epoch: int
    settled: bool  # something of it is committed
    caught_up: frozenset[int]  # learners that hold all that is
    fault: str | None = None  # this replica is damaged and serves nothing
    following: frozenset[int] = frozenset()  # who has acknowledged something of it
    learners: tuple[int, ...] = ()  # whom it sends its log beside the voters


@dataclass(frozen=True)
class Seed:
    """A new start with the sender's folded state at ``applied``."""

    epoch: int
    start: OfferedStart
    offset: int
    append_time: int
    state: LogState
    applied: int
    round: int


@dataclass
class Waiting:
    """A request whose answer rests on the log up to ``position``, as it is in ``epoch``."""

    request: Any
    outcome: Any
    position: int
    epoch: int
    confirm: int | None = None  # it is also to be confirmed by a round begun from here on


class Broker:
    """Disk and process of one broker."""

    def __init__(self, disk: Disk, checker: Checker, *, entries_max: int = 4) -> None:
        self.disk, self.checker, self.entries_max = disk, checker, entries_max
        self.up = False
        self.lost = False
        self.life = 0
        self.leading: Leading | None = None
        self.waiting: list[Waiting] = []
        self.now = 0.0

    @property
    def learners(self) -> tuple[int, ...]:
        return tuple(self.disk.head.learners)

    def start(self) -> None:
        self.up = True
        self.life += 1
        self.leading, self.waiting = None, []

    def crash(self, *, database: bool) -> None:
        self.up = False
        self.leading, self.waiting = None, []
        if database:
            self.disk.crash_database()
            self.checker.crashed(self.disk)

    # --- what coordinators ask ---

    def promise(self, epoch: int) -> Promised:
        """Raises RefusedError."""
        plan = plan_promise(self.disk.head, epoch)
        if plan.changes:
            self.disk.promise(plan.promised_epoch)
            self._wrote()
        head = self.disk.head
        return Promised(head.promised_epoch, self.disk.disk_id, head.end.epoch, head.end.lsn, head.commit_lsn,
                        head.seeding_until is not None or head.fault is not None)

    def appoint(self, appointment: Appointment) -> int:
        """Raises RefusedError."""
        plan = plan_appoint(self.disk.head, appointment, broker_id=self.disk.broker_id, disk_id=self.disk.disk_id)
        if plan.starts:
            entries, end = marker_entry(PARTITION, self.disk.head.end, epoch=plan.promised_epoch, append_time=self.disk.head.end.append_time)
            self.disk.lead(plan.promised_epoch, appointment.voters, entries, end)
            self.checker.leads(self.disk, plan.promised_epoch)
            self._wrote()
        self.disk.set_learners(appointment.learners)
        self._lead().set_learners(appointment.learners)
        self._advance()
        return plan.promised_epoch

    # --- what clients ask ---

    def write(self, requests: Sequence[Request], now_us: int) -> list[Waiting]:
        """Plan and store a group; what waits for the commit. Raises NotLeaderError, UnavailableError: nothing was done."""
        lead, disk, head = self._lead(), self.disk, self.disk.head
        readable = LogRange(head.start_offset, head.commit_offset)
        if not self.marker_committed():
            raise UnavailableError("the marker of this leadership is not committed yet")
        plan = plan_group(PARTITION, head.end, disk.state_with_tail(), readable, requests, epoch=head.leader_epoch, now_us=now_us)
        if plan.entries:
            disk.append(plan.entries, plan.end)
            self._wrote()
        added = [Waiting(request, outcome, plan.end.lsn, head.leader_epoch,
                         lead.rounds if isinstance(outcome, Handed) and outcome.offset is None else None)
                 for request, outcome in zip(requests, plan.outcomes, strict=True)]
        self.waiting += added
        self._advance()
        return added

    def marker_committed(self) -> bool:
        """Whether something of this leadership is committed, and so everything that was committed before it."""
        return self._lead().began

    def _lead(self) -> Leading:
        head = self.disk.head
        check_leading(head)
        if self.leading is None or self.leading.epoch != head.leader_epoch:
            began = head.commit_lsn == self.disk.log.end and head.end.epoch == head.leader_epoch
            self.leading = Leading(head.leader_epoch, head.voters, self.learners, broker_id=self.disk.broker_id, disk_id=self.disk.disk_id,
                                   end=self.disk.log.end, commit=head.commit_lsn, began=began)
        return self.leading

    def status(self) -> Status:
        """Raises NotLeaderError."""
        if self.disk.head.fault is not None:
            return Status(self.disk.head.leader_epoch, False, frozenset(), self.disk.head.fault)
        lead = self._lead()
        caught_up = {one for one in lead.learners if (holder := lead.progress[one].holder) is not None and holder.matched >= lead.commit}
        following = frozenset(one for one, progress in lead.progress.items() if progress.holder is not None)
        return Status(lead.epoch, lead.began, frozenset(caught_up) if lead.began else frozenset(), following=following, learners=self.learners)

    # --- replication ---

    def ask(self, target: int) -> AppendRequest | Seed | None:
        """What goes to a follower next."""
        disk = self.disk
        if not is_leading(disk.head):
            return None
        lead = self._lead()
        if target not in lead.progress:
            return None
        rounds = lead.begin_round()
        plan = lead.plan(target, disk.log, entries_max=self.entries_max)
        if plan is None:
            start = offered_start(disk)
            lead.seeded(target, start.position)
            return Seed(lead.epoch, start, disk.start.offset, disk.start.append_time, disk.folded.copy(), disk.head.applied_lsn, rounds)
        return AppendRequest(lead.epoch, plan.position, plan.prev_epoch, disk.log.between(plan.position, plan.end), lead.commit, rounds)

    def take(self, request: AppendRequest) -> AppendReply:
        """A leader's append."""
        disk = self.disk
        plan = plan_append(disk.replica_state(), disk.log, request)
        disk.follow(plan)
        if disk.head.seeding_until is None:
            disk.fold()
        self._wrote()
        return plan.reply

    def take_seed(self, seed: Seed) -> AppendReply:
        """A new start; refused or not, the answer says what is held at it."""
        disk = self.disk
        if takes_start(disk.replica_state(), disk.log, seed.start, epoch=seed.epoch):
            disk.seed(seed.epoch, seed.start, seed.offset, seed.append_time, seed.state, seed.applied)
            self.checker.seeded(disk)
            self._wrote()
        return self.take(AppendRequest(seed.epoch, seed.start.position, seed.start.epoch, (), 0, seed.round))

    def receive(self, message: AppendRequest | Seed, *, is_voter: bool) -> AppendReply:
        """Whatever a leader sends. Raises UnavailableError where this replica is damaged and a voter: nothing of it is believed any more."""
        if may_begin_afresh(self.disk.head, epoch=message.epoch, is_voter=is_voter):
            self.disk.begin_afresh(message.epoch)
            self.checker.begun_afresh(self.disk)
            self._wrote()
        if self.disk.head.fault is not None:
            raise UnavailableError(self.disk.head.fault)
        return self.take_seed(message) if isinstance(message, Seed) else self.take(message)

    def not_taken(self, target: int) -> None:
        """A follower has it, and did not take it."""
        if is_leading(self.disk.head):
            self._lead().not_taken(target)

    def may_need(self, target: int) -> bool:
        return self.leading is None or self.leading.may_need(target)

    def wants_more(self, target: int) -> bool:
        """Whether a follower is known to lack something."""
        return self.up and is_leading(self.disk.head) and self._lead().lacks(target, self.disk.log.end)

    def learn(self, source: int, reply: AppendReply) -> None:
        """A follower's answer."""
        if reply.epoch > self.disk.head.promised_epoch:
            self.disk.promise(reply.epoch)
            self._wrote()
        if reply.refusal is Refusal.BROKEN_CHAIN and is_leading(self.disk.head):
            self._check_own()
        if is_leading(self.disk.head):
            self._lead().learn(source, reply, self.disk.log, asked_at=self.now)
            self._advance()

    def _check_own(self) -> None:
        """A follower says that entries do not follow from the ones before: damaged on their way, or on this disk."""
        damaged = self.disk.first_damaged()
        if damaged is not None:
            self.disk.set_fault(f"the entry at lsn {damaged} does not have the digest it was stored with")

    def _advance(self) -> None:
        lead, disk = self._lead(), self.disk
        lead.advance(disk.log)
        if lead.commit > disk.head.commit_lsn:
            disk.commit(lead.commit)
            self._wrote(by_leader=True)

    # --- answers ---

    def answers(self) -> list[tuple[Waiting, Any]]:
        """What can be told now: an outcome, or None where the leadership was lost and the outcome is unknown."""
        done, still = [], []
        for wait in self.waiting:
            if not is_leading(self.disk.head) or self.disk.head.leader_epoch != wait.epoch:
                done.append((wait, None))
            elif self.disk.head.commit_lsn >= wait.position and (wait.confirm is None or self._lead().confirmed(wait.confirm)):
                done.append((wait, wait.outcome))
            else:
                still.append(wait)
        self.waiting = still
        return done

    def fold(self) -> None:
        """The keeper's turn."""
        if is_leading(self.disk.head):
            self._advance()
        if self.disk.head.seeding_until is None:
            self.disk.fold()
            self._wrote()

    def _wrote(self, *, by_leader: bool = False) -> None:
        self.checker.wrote(self.disk, by_leader=by_leader)


__all__ = ["Broker", "NotLeaderError", "Promised", "RefusedError", "Seed", "Status", "UnavailableError", "Waiting"]
