"""What a broker holds of the partition on its disk. Each method is one transaction, and the checker looks at what it left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from db.log_store import Head
from db.replication import AppendPlan, MemoryLog, OfferedStart, ReplicaState, chain_before, epoch_before
from myqueue.protocol.chain import GENESIS
from myqueue.protocol.entry import Border, LogEnd, LogEntry, chained, end_chained
from myqueue.protocol.fold import LogState
from myqueue.protocol.types import PartitionId

PARTITION = PartitionId(1, 0)


class Disk:
    """Head, log and folded state of one replica."""

    def __init__(self, broker_id: int, disk_id: str) -> None:
        self.broker_id, self.disk_id = broker_id, disk_id
        self.head = Head()
        self.log = MemoryLog([])
        self.start = LogEnd()
        self.folded = LogState()
        self.commit_synced = 0  # a crash of the database leaves at least this commit position

    # --- looking ---

    def replica_state(self) -> ReplicaState:
        head = self.head
        return ReplicaState(head.promised_epoch, head.commit_lsn, self.disk_id, head.leader_epoch, head.seeding_until)

    def entry(self, lsn: int) -> LogEntry:
        return self.log.at(lsn)  # type: ignore[return-value]

    def border(self, lsn: int) -> LogEnd:
        """The position before the entry at ``lsn``, as a new end of the log would be."""
        if lsn == self.log.start:
            return self.start
        head = self.entry(lsn - 1).head
        return LogEnd(lsn, head.base_offset + head.record_count, head.epoch, self.log.chain_at(lsn - 1), head.append_time)

    def state_with_tail(self) -> LogState:
        """Decisions see the folded state and every entry above."""
        state = self.folded.copy()
        self.fold_into(state, self.head.applied_lsn, self.log.end)
        return state

    def fold_into(self, state: LogState, first: int, end: int) -> None:
        at = first
        while at < end:
            entry = self.entry(at)
            of_request = [self.entry(lsn) for lsn in range(at, at + entry.request_count)]
            state.fold(entry.head, sum(one.head.record_count for one in of_request), None if entry.body is None else bytes(entry.body))
            at += entry.request_count

    def first_damaged(self) -> int | None:
        """The first entry that does not have the digest it was stored with."""
        chain = self.log.start_chain
        for lsn in range(self.log.start, self.log.end):
            chain = self.entry(lsn).chain_after(chain)
            if chain != self.entry(lsn).chain:
                return lsn
        return None

    # --- transactions ---

    def promise(self, epoch: int) -> None:
        self.head = replace(self.head, promised_epoch=epoch)

    def lead(self, epoch: int, voters: Mapping[int, str | None], marker: Sequence[LogEntry], end: LogEnd) -> None:
        self.head = replace(self.head, promised_epoch=epoch, leader_epoch=epoch, voters=dict(voters))
        self.append(marker, end)

    def set_learners(self, learners: Sequence[int]) -> None:
        self.head = replace(self.head, learners=tuple(learners))

    def append(self, entries: Sequence[LogEntry], end: LogEnd) -> None:
        written = list(chained(self.head.end.chain, entries))
        self.log.entries.extend(written)
        self.head = replace(self.head, end=end_chained(end, written, self.head.end.chain))
        self.sync()

    def follow(self, plan: AppendPlan) -> None:
        """Carry out what ``plan_append`` decided, in its order."""
        if plan.promise is not None:
            self.promise(plan.promise)
        if plan.delete_from is not None:
            self.log.truncate(plan.delete_from)
        self.log.entries.extend(plan.insert)
        self.head = replace(self.head, end=self.border(self.log.end))
        until = self.head.seeding_until
        if until is not None and self.log.end >= until:
            self.head = replace(self.head, seeding_until=None)
            self.commit(max(until, self.head.commit_lsn))
        if plan.commit is not None and plan.commit > self.head.commit_lsn:
            self.commit(plan.commit)
        self.sync()

    def commit(self, lsn: int) -> None:
        """Raise the commit position, without waiting for the disk. Entries below the seed's state are not folded again."""
        border = self.border(lsn)
        self.head = replace(self.head, commit_lsn=lsn, commit_offset=border.offset)

    def fold(self) -> None:
        """Fold what is committed; state and position move together."""
        head = self.head
        if head.commit_lsn > head.applied_lsn:
            self.fold_into(self.folded, head.applied_lsn, head.commit_lsn)
            self.head = replace(head, applied_lsn=head.commit_lsn, trim_offset=self.folded.trim_offset)
        self.sync()

    def sync(self) -> None:
        """Whatever was written before is on disk now."""
        self.commit_synced = self.head.commit_lsn

    def seed(self, epoch: int, offered: OfferedStart, offset: int, append_time: int, state: LogState, applied: int) -> None:
        """Begin anew at an offered start: the state is that at ``applied``, the log comes by appends."""
        self.log = MemoryLog([], offered.position, offered.epoch, offered.chain)
        self.start = LogEnd(offered.position, offset, offered.epoch, offered.chain, append_time)
        self.folded = state.copy()
        self.head = replace(self.head, promised_epoch=epoch, start_lsn=offered.position, start_offset=offset, end=self.start,
                            commit_lsn=offered.position, commit_offset=offset, applied_lsn=applied, seeding_until=applied,
                            trim_offset=state.trim_offset)
        self.sync()

    def borders(self) -> list[Border]:
        """Where this log may begin: behind each request."""
        ends = (self.entry(lsn) for lsn in range(self.log.start, self.log.end))
        return [Border(*self.border(entry.head.lsn + 1)[:2]) for entry in ends if entry.request_index == entry.request_count - 1]

    def trim(self, lsn: int) -> None:
        """Retention: the log begins at a request's border at or below what is applied."""
        self.start = self.border(lsn)
        self.log.compact(lsn)
        self.head = replace(self.head, start_lsn=lsn, start_offset=self.start.offset)

    def begin_afresh(self, epoch: int) -> None:
        """Forget everything but what was promised and led."""
        self.log, self.start, self.folded, self.commit_synced = MemoryLog([]), LogEnd(), LogState(), 0
        self.head = Head(promised_epoch=epoch, leader_epoch=self.head.leader_epoch)

    def set_fault(self, fault: str) -> None:
        """This replica serves nothing from now on."""
        self.head = replace(self.head, fault=fault)

    def flip(self, lsn: int) -> None:
        """The disk changes a bit of what it was given, and says nothing."""
        entry = self.entry(lsn)
        assert entry.values is not None
        values = bytes(entry.values)
        self.log.entries[lsn - self.log.start] = entry._replace(values=values[:-1] + bytes([values[-1] ^ 1]))

    def crash_database(self) -> None:
        """The commit position is a lower bound that a crash may lower, never below what was folded."""
        lsn = max(self.commit_synced, self.head.start_lsn, min(self.head.applied_lsn, self.head.commit_lsn))
        if lsn < self.head.commit_lsn:
            self.head = replace(self.head, commit_lsn=lsn, commit_offset=self.border(lsn).offset)


def offered_start(disk: Disk) -> OfferedStart:
    """Where this replica's log begins, as it is offered to one that is behind it."""
    return OfferedStart(disk.log.start, epoch_before(disk.log, disk.log.start), chain_before(disk.log, disk.log.start) or GENESIS)
