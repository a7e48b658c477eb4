"""The invariants R1-R8 over all replicas of a partition, checked after every step from outside: it believes nothing a broker says."""

from __future__ import annotations

from collections import Counter
from typing import Any

from broker.core.append import AppendRequest, AppendResult
from broker.core.group import Handed
from broker.core.offsets import DequeueRequest, TrimRequest
from db.replication import counts, majority
from db.replication.log import chain_before
from myqueue.errors import DuplicateSequenceError, EndOffsetMismatchError
from myqueue.protocol.chain import OFFSET_COMMIT, RECORDS
from myqueue.protocol.entry import LogEntry
from myqueue.protocol.fold import LogState, OffsetCommit
from tests.simulation.checker import Violation, require
from tests.simulation.partitions.disk import Disk

__all__ = ["Checker", "Violation", "require"]


class Checker:
    """What was ever led, stored, promised, committed, acknowledged."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}  # epoch -> broker
        self.appointed: dict[int, int] = {}  # epoch -> broker, by the metadata
        self.chains: dict[tuple[int, int], bytes] = {}  # (lsn, epoch) -> chain
        self.holders: dict[tuple[int, int], set[str]] = {}  # (lsn, epoch) -> disks that ever stored it
        self.stored: dict[str, int] = {}  # disk -> the log's end that was looked at already
        self.promised: dict[str, int] = {}
        self.commits: dict[str, int] = {}
        self.ledger: list[LogEntry] = []  # what any leader ever called committed
        self.fold = LogState()
        self.states: dict[int, LogState] = {0: LogState()}  # by lsn: the fold of the ledger there
        self.sequences: dict[tuple[int, int], int] = {}  # (producer, seq) -> first lsn
        self.handed: dict[str, list[int]] = {}  # consumer -> the offsets its dequeues handed out, in the order of the log
        self.seen: Counter[str] = Counter()
        self.records_acknowledged = 0  # the end of the highest records that a producer was told of
        self.got: dict[tuple[str, str], int] = {}  # (consumer, request id) -> the offset it was told first

    # --- what was written ---

    def wrote(self, disk: Disk, *, by_leader: bool = False) -> None:
        """One transaction of a replica is on disk."""
        head, name = disk.head, disk.disk_id
        require(head.promised_epoch >= self.promised.get(name, 0), "R4", f"the promise of {name} fell to {head.promised_epoch}")
        require(head.commit_lsn >= self.commits.get(name, 0), "R5", f"the commit of {name} fell to {head.commit_lsn}")
        self.promised[name], self.commits[name] = head.promised_epoch, head.commit_lsn
        self._look_at_log(disk)
        if by_leader:
            self._committed(disk)
        self._agrees(disk, head.commit_lsn, "R5", "a commit")
        self._folded(disk)

    def crashed(self, disk: Disk) -> None:
        """A commit position may be learnt again."""
        self.commits[disk.disk_id] = disk.head.commit_lsn

    def seeded(self, disk: Disk) -> None:
        """The log was replaced by an offered start, which is committed."""
        self.seen["replicas seeded"] += 1
        self.stored[disk.disk_id] = disk.log.start
        self._agrees(disk, disk.log.start, "R5", "an offered start")

    def begun_afresh(self, disk: Disk) -> None:
        """A damaged replica has forgotten its log: it holds nothing of it any more."""
        self.seen["damaged replicas made anew"] += 1
        self.stored[disk.disk_id] = self.commits[disk.disk_id] = 0
        for holders in self.holders.values():
            holders.discard(disk.disk_id)

    def trimmed(self, disk: Disk) -> None:
        """A log begins later: nothing of it was lost that is served, or that is not folded here."""
        self.seen["logs trimmed"] += 1
        require(disk.head.start_offset <= self.fold.trim_offset, "R5",
                f"{disk.disk_id} begins at offset {disk.head.start_offset}, trimmed is what lies below {self.fold.trim_offset}")
        require(disk.log.start <= disk.head.applied_lsn, "R8",
                f"{disk.disk_id} begins at {disk.log.start} and has folded up to {disk.head.applied_lsn}")
        self._agrees(disk, disk.log.start, "R5", "a start")

    def _look_at_log(self, disk: Disk) -> None:
        """Entries are looked at from the first one that may be new."""
        known = min(self.stored.get(disk.disk_id, 0), disk.log.end)
        first = max(disk.log.start, 0)
        at = known
        while at > first and disk.disk_id not in self.holders.get((at - 1, disk.log.epoch_at(at - 1)), ()):
            at -= 1
        if at < known:
            self.seen["tails cut"] += 1
        for lsn in range(max(first, at), disk.log.end):
            key = lsn, disk.log.epoch_at(lsn)
            chain = disk.log.chain_at(lsn)
            require(self.chains.setdefault(key, chain) == chain, "R2", f"lsn {lsn} of epoch {key[1]} is stored with two contents")
            self.holders.setdefault(key, set()).add(disk.disk_id)
        self.stored[disk.disk_id] = disk.log.end
        if disk.log.end > disk.log.start:
            last = disk.entry(disk.log.end - 1)
            require(last.request_index == last.request_count - 1, "whole requests", f"the log of {disk.disk_id} ends inside a request")

    def _committed(self, disk: Disk) -> None:
        voters = disk.head.voters
        for lsn in range(max(disk.log.start, len(self.ledger)), disk.head.commit_lsn):
            entry = disk.entry(lsn)
            self._take(entry)
        border = disk.head.commit_lsn
        key = border - 1, disk.log.epoch_at(border - 1)
        count = sum(1 for node, name in voters.items() if name is not None and name in self.holders.get(key, ()) and counts(voters, node, name))
        require(count >= majority(len(voters)), "R7", f"lsn {key[0]} is committed by {count} of {dict(voters)}")

    def _take(self, entry: LogEntry) -> None:
        """The next entry of the ledger, and the naive twins: sequences once and in order, messages handed out once and in order."""
        self.ledger.append(entry)
        head = entry.head
        if head.kind == RECORDS and head.producer_id >= 0 and head.request_index == 0:
            key = head.producer_id, head.producer_seq
            require(key not in self.sequences, "R8", f"sequence {key} is stored at {self.sequences.get(key)} and {head.lsn}")
            require(key[1] == 0 or (key[0], key[1] - 1) in self.sequences, "R8", f"sequence {key} is stored before the one before it")
            self.sequences[key] = head.lsn
        if head.kind == OFFSET_COMMIT:
            commit = OffsetCommit.from_body(bytes(entry.body or b""))
            if commit.message_offset is not None:
                handed = self.handed.setdefault(commit.consumer, [])
                require(commit.message_offset == len(handed), "R8",
                        f"{commit.consumer} is handed {commit.message_offset} after {len(handed)} messages")
                handed.append(commit.message_offset)
        if head.request_index == head.request_count - 1:
            of_request = self.ledger[len(self.ledger) - head.request_count:]
            first = of_request[0]
            self.fold.fold(first.head, sum(one.head.record_count for one in of_request), None if first.body is None else bytes(first.body))
            self.states[len(self.ledger)] = self.fold.copy()

    def _agrees(self, disk: Disk, border: int, rule: str, what: str) -> None:
        if border == 0:
            return
        require(border <= len(self.ledger), rule, f"{what} of {disk.disk_id} at {border} was never committed by anyone")
        require(border < disk.log.start or chain_before(disk.log, border) == self.ledger[border - 1].chain, rule,
                f"{what} of {disk.disk_id} at {border} differs from what was committed there")

    def _folded(self, disk: Disk) -> None:
        applied = disk.head.applied_lsn
        if disk.head.seeding_until is None:
            require(applied <= disk.head.commit_lsn, "R8", f"{disk.disk_id} folded {applied}, committed is {disk.head.commit_lsn}")
        require(disk.folded == self.states.get(applied), "R8", f"the state of {disk.disk_id} at {applied} is not the fold")

    # --- leadership ---

    def appoints(self, epoch: int, broker_id: int) -> None:
        """The metadata names a leader."""
        require(self.appointed.setdefault(epoch, broker_id) == broker_id, "R1", f"epoch {epoch} is given to {self.appointed[epoch]} and {broker_id}")

    def leads(self, disk: Disk, epoch: int) -> None:
        """A replica begins to lead."""
        broker_id = disk.broker_id
        require(self.leaders.setdefault(epoch, broker_id) == broker_id, "R1", f"brokers {self.leaders[epoch]} and {broker_id} lead epoch {epoch}")
        require(self.appointed.get(epoch) == broker_id, "R1", f"{broker_id} leads epoch {epoch}, which is not its own")
        self.seen["leaderships"] += 1
        committed, brought = len(self.ledger), disk.log.first_position_of_epoch(epoch)
        require(brought >= committed, "R3", f"leader {broker_id} of epoch {epoch} brings {brought} entries, {committed} are committed")
        self._agrees(disk, committed, "R3", "the log of a new leader")

    # --- answers ---

    def answered(self, request: Any, outcome: Any, position: int) -> None:
        """A client is told something that rests on the log up to ``position``."""
        require(position <= len(self.ledger), "R6", f"an answer rests on {position}, committed is {len(self.ledger)}")
        if isinstance(request, AppendRequest) and request.sequence is not None:
            key = request.sequence.producer_id, request.sequence.seq
            if isinstance(outcome, AppendResult):
                self.seen["duplicates answered"] += outcome.duplicate
                self.seen["requests acknowledged"] += 1
                self.records_acknowledged = max(self.records_acknowledged, outcome.base_offset + outcome.record_count)
                lsn = self.sequences.get(key)
                require(lsn is not None, "R6", f"sequence {key} is acknowledged and not committed")
                require(self.ledger[lsn].head.base_offset == outcome.base_offset, "R6", f"sequence {key} was told another offset")  # type: ignore[index]
                self._conditional(request, outcome)
            elif isinstance(outcome, EndOffsetMismatchError):
                self.seen["conditions refused"] += 1
                require(any(entry.head.base_offset == outcome.end_offset for entry in self.ledger) or outcome.end_offset == self.records(), "R6",
                        f"sequence {key} was told that the log ends at {outcome.end_offset}, where nothing committed does")
                require(outcome.end_offset != request.expected_end_offset, "R6", f"sequence {key} is refused where it would be right")
            elif isinstance(outcome, DuplicateSequenceError):
                require(key in self.sequences, "R6", f"sequence {key} is called a duplicate and is not committed")
        if isinstance(request, DequeueRequest) and isinstance(outcome, Handed):
            self._dequeued(request, outcome.offset)
        if isinstance(request, TrimRequest) and isinstance(outcome, Handed):
            self.seen["trims acknowledged"] += 1
            require(self.fold.trim_offset >= request.before_offset, "R6", f"a trim to {request.before_offset} is acknowledged and not committed")

    def _conditional(self, request: AppendRequest, outcome: AppendResult) -> None:
        """On a condition, it is stored there and nowhere else. A duplicate may have been stored without one."""
        if request.expected_end_offset is not None and not outcome.duplicate:
            self.seen["conditions met"] += 1
            require(outcome.base_offset == request.expected_end_offset, "R6",
                    f"a request for offset {request.expected_end_offset} is stored at {outcome.base_offset}")

    def _dequeued(self, request: DequeueRequest, offset: int | None) -> None:
        handed = self.handed.get(request.consumer, [])
        if offset is None:
            self.seen["found empty"] += 1
            return
        require(offset < len(handed), "R6", f"{request.consumer} is told {offset}, committed are {len(handed)} of its dequeues")
        require(any(entry.head.kind == RECORDS and entry.head.base_offset <= offset < entry.head.base_offset + entry.head.record_count
                    for entry in self.ledger), "R6", f"offset {offset} is handed out and not committed")
        if request.request_id is not None:
            known = self.got.setdefault((request.consumer, request.request_id), offset)
            require(known == offset, "R8", f"{request.consumer}/{request.request_id} was told {known} and {offset}")
        self.seen["messages handed out"] += 1

    def found_empty(self, request: DequeueRequest, records_before: int) -> None:
        """*Empty* is true only if everything acknowledged before the call began had been handed out."""
        handed = len(self.handed.get(request.consumer, []))
        require(handed >= records_before, "R6", f"{request.consumer} is told empty with {handed} of {records_before} messages handed out")

    def records(self) -> int:
        """Committed records so far."""
        return self.ledger[-1].head.base_offset + self.ledger[-1].head.record_count if self.ledger else 0
