"""Sends what this process's leaders wrote to the other replicas, counts who has it on disk, and tells who waits for the commit.

A few threads share the work: each takes a follower with the partitions that it lacks something of, sends one request for all of them, and
takes in the answers. A partition is under way to a follower once at a time. Without traffic nothing is sent, but for the commit
position that idle followers are told a moment later.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from db.log_store import Head, LogStore
from db.replication import AppendReply, AppendRequest, OfferedStart, Refusal, chain_before
from myqueue.clock import Clock
from myqueue.errors import LogFaultError, MyQueueError, NotLeaderError, OutcomeUnknownError, TooLargeError, UnavailableError
from myqueue.protocol import routes
from myqueue.protocol.entry import LogEnd, LogEntry
from myqueue.protocol.types import PartitionId
from myqueue.service.wakeups import Wakeups

from .core import appends, seeds
from .core.appends import BODY_BYTES, Append, append_size
from .core.leading import Leading
from .core.replica import is_leading
from .core.seeds import Seed
from .due import BACKOFF_MAX_SECONDS, BACKOFF_SECONDS, Due
from .leader_log import BeginsLaterError, LeaderLog
from .led import Led, Told, Waiting
from .peers import Peers

REQUEST_BYTES = 1 << 20  # entries of one partition in one request
CATCH_UP_PAUSE = 2.0  # after a step from the database, times what it took, while producers write
BUSY_SECONDS = 1.0  # so long after something was written
COMMIT_NOTICE_SECONDS = 0.05  # how soon an idle follower learns the commit position
OFFER_SECONDS = 30.0  # how long a follower may take to store a start with its state
OFFER_AGAIN_SECONDS = 60.0  # after one that was too large
MAJORITY_SECONDS = 1.0  # how long a write waits for a majority that was silent
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Sent:
    partition: PartitionId
    led: Led
    append: Append
    from_memory: bool


class Replicator:
    """Safe to share between threads.

    Args:
        identity: this broker's id and disk.
        introduce: a topic's name and config, for a replica that is new.
        kept_seconds: for so long after its last answer, what a follower lacks is kept though it is trimmed.
    """

    def __init__(self, store: LogStore, peers: Peers, wakeups: Wakeups, clock: Clock, *, identity: Callable[[], tuple[int, str]],
                 introduce: Callable[[int], Mapping[str, object]], kept_seconds: float = 60.0) -> None:
        self._kept_seconds = kept_seconds
        self._store, self._peers, self._wakeups, self._clock, self._identity, self._introduce = store, peers, wakeups, clock, identity, introduce
        self._led: dict[PartitionId, Led] = {}
        self._lock = threading.Lock()  # guards which leaderships there are
        self._due = Due(clock)

    # --- leaderships ---

    def lead(self, partition: PartitionId, head: Head) -> None:
        """This broker leads the partition, as its head row says; what is known already of this leadership is kept."""
        with self._lock:
            known = self._led.get(partition)
            if known is not None and known.leading.epoch == head.leader_epoch and not known.is_over:
                led = known
            else:
                led = self._led[partition] = self._begin(partition, head)
        if known is not None and known is not led:
            self._end(known)
        with led.lock:
            if tuple(head.learners) != led.leading.learners:
                led.leading.set_learners(head.learners)
            led.log.extend((), head.end)
            led.log.begin_at(head)
            led.leading.is_committed(led.log.start)
            led.recorded = min(led.recorded, head.commit_lsn)  # the database's crash may have taken it back
        self._push(partition, led)
        self._advance(partition, led)

    def _begin(self, partition: PartitionId, head: Head) -> Led:
        broker_id, disk_id = self._identity()
        began = head.commit_lsn == head.end.lsn and head.end.epoch == head.leader_epoch
        leading = Leading(head.leader_epoch, head.voters, head.learners, broker_id=broker_id, disk_id=disk_id, end=head.end.lsn,
                          commit=head.commit_lsn, began=began)
        return Led(leading, LeaderLog(self._store, partition, head), recorded=head.commit_lsn, told=head.commit_lsn, is_ready=leading.began,
                   began_at=self._clock.monotonic())

    def stop_leading(self, partition: PartitionId, epoch: int) -> None:
        """A higher epoch than that of our leadership was promised: what waits for a commit has an unknown outcome, and streams end."""
        self._wakeups.wake(partition)
        with self._lock:
            led = self._led.get(partition)
            if led is None or led.leading.epoch >= epoch:
                return
            del self._led[partition]
        self._end(led)

    def forget(self, partitions: Sequence[PartitionId]) -> None:
        """These are not held any more."""
        with self._lock:
            over = [led for led in (self._led.pop(partition, None) for partition in partitions) if led is not None]
        for led in over:
            self._end(led)

    @staticmethod
    def _end(led: Led) -> None:
        with led.lock:
            led.is_over = True
            waiting, led.waiting = led.waiting, []
            led.lock.notify_all()
        for wait in waiting:
            wait.told(OutcomeUnknownError("the leadership was lost before a majority had it"))

    # --- what writers and readers ask ---

    def stored(self, partition: PartitionId, epoch: int, entries: Sequence[LogEntry], end: LogEnd) -> None:
        """These entries are on this disk. Raises NotLeaderError where this process does not know the leadership (any more)."""
        led = self._of(partition, epoch)
        with led.lock:
            led.log.extend(entries, end)
            led.written_at = self._clock.monotonic()
        self._push(partition, led)
        self._advance(partition, led)

    def when_committed(self, partition: PartitionId, epoch: int, position: int, told: Told, *, confirm: bool = False) -> None:
        """Call ``told`` once everything below ``position`` is committed, or with OutcomeUnknownError when the leadership is lost.

        With ``confirm`` also only after a majority has answered a round that began after this call: nobody else led then.
        """
        led = self._of(partition, epoch)
        with led.lock:
            wait = Waiting(position, led.leading.rounds if confirm else None, told)
            if not led.is_over and not led.is_done(wait):
                led.waiting.append(wait)
                wait = None
            over = led.is_over
        if wait is not None:
            wait.told(OutcomeUnknownError("the leadership was lost before a majority had it") if over else None)
        elif confirm:
            self._push(partition, led, anyway=True)

    def require_majority(self, partition: PartitionId, stopping: threading.Event) -> None:
        """Before something is appended: a majority has answered within the lease, or does so within a second.

        Raises:
            UnavailableError: it is silent; nothing was done.
        """
        led = self._led.get(partition)
        if led is None:
            return  # the head row decides whether this broker leads
        self._wait_for(partition, led, lambda: led.leading.has_lease(self._clock.monotonic()), stopping, "does not answer")

    def require_marker(self, partition: PartitionId, stopping: threading.Event) -> None:
        """Before something is read for a decision: something of this leadership is committed, and so all that was before it.

        Raises:
            UnavailableError: not within a second; nothing was done.
        """
        led = self._led.get(partition)
        if led is not None and not led.is_ready:
            self._wait_for(partition, led, lambda: led.is_ready, stopping, "has not taken the leadership's first entry")

    def _wait_for(self, partition: PartitionId, led: Led, done: Callable[[], bool], stopping: threading.Event, trouble: str) -> None:
        with led.lock:
            if done():
                return
        self._push(partition, led, anyway=True)
        self._await(partition, led, done, stopping, trouble)

    @staticmethod
    def _await(partition: PartitionId, led: Led, done: Callable[[], bool], stopping: threading.Event, trouble: str) -> None:
        with led.lock:
            if not led.lock.wait_for(lambda: done() or led.is_over or stopping.is_set(), MAJORITY_SECONDS) or not done():
                raise UnavailableError(f"a majority of the replicas of partition {partition.partition} {trouble}; nothing was done",
                                       component="replicas", voters=sorted(led.leading.voters))

    def knows(self, partition: PartitionId, epoch: int) -> bool:
        """Whether this process replicates the partition in this epoch."""
        led = self._led.get(partition)
        return led is not None and led.leading.epoch == epoch and not led.is_over

    def is_ready(self, partition: PartitionId) -> bool:
        """Whether all that was told before our leadership is committed, so that the commit position here is not behind it."""
        led = self._led.get(partition)
        return led is not None and led.is_ready and not led.is_over

    def told(self, partition: PartitionId) -> int:
        """The highest commit position that somebody was told of here; to be asked for before the head row is read that must not be behind it."""
        led = self._led.get(partition)
        return 0 if led is None else led.told

    def is_settled(self, partition: PartitionId, head: Head, *, told: int) -> bool:
        """Whether the commit position of this head row is not behind what was ever told, by us in this leadership or before it.

        Args:
            told: from before the row was read. What was told since is told at the same time as the question is asked: either order is right.
        """
        led = self._led.get(partition)
        return (led is not None and led.is_ready and not led.is_over and led.leading.epoch == head.leader_epoch
                and head.commit_lsn >= told)

    def confirm(self, partition: PartitionId, epoch: int, stopping: threading.Event) -> None:
        """Wait until a majority has answered a round that begins now: nobody else led when this was called.

        Raises:
            NotLeaderError, UnavailableError: somebody may lead.
        """
        self._confirm({partition: (epoch, 0)}, stopping)

    def settle(self, heads: Mapping[PartitionId, Head], stopping: threading.Event) -> None:
        """The same for several partitions led here, whose rounds travel together; and until their logs are committed to where these heads say that
        they end, and the database says so. Raises like ``confirm``.
        """
        self._confirm({partition: (head.leader_epoch, head.end.lsn) for partition, head in heads.items()}, stopping)

    def _confirm(self, wanted: Mapping[PartitionId, tuple[int, int]], stopping: threading.Event) -> None:
        """Of each partition the epoch, and what commit position the database has to have."""
        begun = []
        for partition, (epoch, position) in wanted.items():
            led = self._of(partition, epoch)
            with led.lock:
                begun.append((partition, led, led.leading.rounds, position))
        for partition, led, _, _ in begun:
            self._push(partition, led, anyway=True)
        for partition, led, rounds, position in begun:
            def is_sure(led: Led = led, rounds: int = rounds, position: int = position) -> bool:
                return led.leading.confirmed(rounds) and led.recorded >= position

            self._await(partition, led, is_sure, stopping, "does not answer")

    def kept_from(self, partition: PartitionId, head: Head) -> int:
        """From which lsn on this log's entries are kept for followers; its end where nobody needs any. Nothing goes before this process knows."""
        if not is_leading(head) or (len(head.voters) == 1 and not head.learners):
            return head.end.lsn
        led = self._led.get(partition)
        if led is None or led.leading.epoch != head.leader_epoch:
            return head.start_lsn
        with led.lock:
            return led.leading.kept_from(heard_after=self._clock.monotonic() - self._kept_seconds, since=led.began_at, end=head.end.lsn)

    def status(self, partition: PartitionId) -> dict[str, object] | None:
        """The leader's view of its followers; None where this process does not lead."""
        led = self._led.get(partition)
        if led is None:
            return None
        with led.lock:
            return led.leading.describe(self._clock.monotonic())

    def missing(self, partition: PartitionId) -> dict[int, int]:
        """How many entries each follower lacks, as far as this process knows; nothing where it does not lead."""
        led = self._led.get(partition)
        if led is None:
            return {}
        with led.lock:
            return led.leading.missing(led.log.end)

    def _of(self, partition: PartitionId, epoch: int) -> Led:
        led = self._led.get(partition)
        if led is None or led.leading.epoch != epoch:
            raise NotLeaderError("this broker does not lead the partition any more", epoch=epoch)
        return led

    # --- what is due ---

    def _push(self, partition: PartitionId, led: Led, *, anyway: bool = False, delay_seconds: float = 0.0) -> None:
        """Have sent what followers lack; with ``anyway`` an empty append where they lack nothing."""
        with led.lock:
            leading = led.leading
            if led.is_over:
                return
            targets = [broker for broker in leading.followers if anyway or leading.lacks(broker, led.log.end)]
        self._due.mark(partition, targets, delay_seconds)

    def run(self, stopping: threading.Event) -> None:
        """Send until told to stop. Run it in several threads."""
        while not stopping.is_set():
            taken = self._due.take()
            if taken is not None:
                self._exchange(*taken)

    def _exchange(self, follower: int, partitions: list[PartitionId]) -> None:
        behind = [partition for partition in partitions if self._needs_start(follower, partition)]
        try:
            for partition in behind:
                self._offer(follower, partition)
        except MyQueueError as failure:
            self._due.done(follower, partitions, left=partitions, error=failure)
            return
        asked_at = self._clock.monotonic()
        sent, left = self._requests_for(follower, [partition for partition in partitions if partition not in behind])
        try:
            replies = self._send(follower, sent) if sent else []
            error = None
        except MyQueueError as failure:
            replies, error, left = [], failure, partitions
        seconds = self._clock.monotonic() - asked_at
        for one, reply in zip(sent, replies, strict=False):
            self._land(follower, one, reply, asked_at, seconds)
        self._due.done(follower, partitions, left=left, error=error)

    def _requests_for(self, follower: int, partitions: Sequence[PartitionId]) -> tuple[list[_Sent], Sequence[PartitionId]]:
        """Appends for one body, and the partitions for which there was no room. One that cannot be read does not hold up the others."""
        sent: list[_Sent] = []
        size = 0
        for place, partition in enumerate(partitions):
            try:
                one = self._request(follower, partition)
            except MyQueueError as error:
                self._unreadable(partition, follower, error)
                continue
            if one is None:
                continue
            size += append_size(one.append)
            if sent and size > BODY_BYTES:
                return sent, partitions[place:]
            sent.append(one)
        return sent, ()

    def _unreadable(self, partition: PartitionId, follower: int, error: MyQueueError) -> None:
        """Our own log could not be read for a follower."""
        led = self._led.get(partition)
        if isinstance(error, LogFaultError) and led is not None and not led.is_over:
            self._faulty(partition, led, error.message)
            return
        if isinstance(error, BeginsLaterError):
            self._due.mark(partition, [follower], BACKOFF_SECONDS)  # known now: the next one begins there
            return
        _log.warning("partition %s cannot be sent to broker %d: %s", partition, follower, error.message, extra={"code": error.code})
        self._due.mark(partition, [follower], BACKOFF_MAX_SECONDS)

    def _faulty(self, partition: PartitionId, led: Led, fault: str) -> None:
        """This replica's log is damaged: it is served and led no longer, and says so. A log that is not led any more may just have been cut off."""
        epoch = led.leading.epoch
        try:
            with self._store.locked(partition) as held:
                if not is_leading(held.head) or held.head.leader_epoch != epoch:
                    return
                held.set_fault(fault)
        except MyQueueError as error:
            _log.error("the fault of partition %s could not be recorded: %s", partition, error.message)
            return
        _log.error("partition %s is not served any more: %s", partition, fault)
        self.stop_leading(partition, epoch + 1)

    def _request(self, follower: int, partition: PartitionId) -> _Sent | None:
        led = self._led.get(partition)
        if led is None:
            return None
        with led.lock:
            leading, log = led.leading, led.log
            if led.is_over or follower not in leading.progress:
                return None
            position, end = max(leading.progress[follower].next, log.start), log.end
            entries = log.recent(position, bytes_max=REQUEST_BYTES)
        from_memory = entries is not None
        if entries is None:  # without the lock, so that writers go on; nobody else sends this follower this partition meanwhile
            entries = log.stored(position, end, bytes_max=REQUEST_BYTES)
        if entries and entries[0].head.request_count > len(entries):
            entries = log.exactly(position, position + entries[0].head.request_count)  # a request goes whole
        with led.lock:
            if led.is_over or follower not in leading.progress:
                return None
            plan = leading.plan(follower, log, entries_max=max(1, len(entries)), end=position + len(entries))
            if plan is None:
                return None  # it is offered a start first
            if plan.position == position and plan.end <= position + len(entries):  # cut to the border of a request
                entries = entries[:plan.end - position]
            else:  # the log begins later by now
                entries = log.exactly(plan.position, plan.end) if plan.end > plan.position else ()
            request = AppendRequest(leading.epoch, plan.position, plan.prev_epoch, tuple(entries), leading.commit, leading.begin_round())
            led.told_commit[follower] = leading.commit
            is_new = leading.progress[follower].disk_id is None
        introduction = self._introduction(partition, led, follower) if is_new else b""
        return _Sent(partition, led, Append(partition, request, introduction), from_memory)

    def _introduction(self, partition: PartitionId, led: Led, follower: int) -> bytes:
        """What a replica is told that may be new here, or damaged."""
        return json.dumps({**self._introduce(partition.topic_id), "voter": led.leading.may_need(follower)}).encode()

    def _send(self, follower: int, sent: Sequence[_Sent]) -> list[AppendReply | MyQueueError]:
        body = appends.encode(one.append for one in sent)
        return self._replies(follower, self._peers.post(follower, routes.I_APPEND, body, appends.APPENDS_TYPE).json())

    @staticmethod
    def _replies(follower: int, answer: Any) -> list[AppendReply | MyQueueError]:
        try:
            replies = [None if "error" in one else appends.reply_from_json(one) for one in answer["replies"]]
            problems = [one["error"] for one in answer["replies"] if "error" in one]
        except (LookupError, TypeError, ValueError) as error:
            raise UnavailableError(f"broker {follower} gave an answer that cannot be understood") from error
        if problems:
            _log.info("broker %d did not take %d append(s): %s", follower, len(problems), str(problems[0])[:200])
        return [reply if reply is not None else UnavailableError("not taken") for reply in replies]

    # --- followers behind the start ---

    def _needs_start(self, follower: int, partition: PartitionId) -> bool:
        """Whether a follower refused the border at our start: what it lacks is not here any more."""
        led = self._led.get(partition)
        if led is None:
            return False
        with led.lock:
            progress = led.leading.progress.get(follower)
            return progress is not None and progress.needs_snapshot and not led.is_over

    def _offer(self, follower: int, partition: PartitionId) -> None:
        """Send a follower our start and the state. Raises MyQueueError where it does not answer; what it says is taken in."""
        led = self._led.get(partition)
        asked_at = self._clock.monotonic()
        if led is None or led.offer_after.get(follower, 0.0) > asked_at:
            return
        try:
            seed = self._seed(follower, partition, led)
            body = None if seed is None else seeds.encode(seed)
        except TooLargeError as error:
            _log.error("broker %d cannot be made a replica: %s", follower, error.message)
            led.offer_after[follower] = asked_at + OFFER_AGAIN_SECONDS
            return
        except MyQueueError as error:
            self._unreadable(partition, follower, error)
            return
        if seed is not None and body is not None:
            _log.warning("broker %d lies behind the start of partition %s: it begins anew at lsn %d", follower, partition, seed.start.position)
            answer = self._peers.post(follower, routes.I_SEED, body, seeds.SEED_TYPE, read_timeout_seconds=OFFER_SECONDS)
            for reply in self._replies(follower, answer.json())[:1]:
                self._land(follower, _Sent(partition, led, seed.border, from_memory=True), reply, asked_at, 0.0)

    def _seed(self, follower: int, partition: PartitionId, led: Led) -> Seed | None:
        """What it is offered: the start as it is now, and all that is folded, of one moment; None where that is needed no longer."""
        snapshot, introduction = self._store.snapshot(partition), self._introduction(partition, led, follower)
        head = snapshot.head
        with led.lock:
            progress = led.leading.progress.get(follower)
            if led.is_over or progress is None or not progress.needs_snapshot or not is_leading(head) or head.leader_epoch != led.leading.epoch:
                return None
            led.log.begin_at(head)
            led.leading.is_committed(led.log.start)
            led.leading.seeded(follower, head.start_lsn)
            return Seed(partition, led.leading.epoch, led.leading.begin_round(), OfferedStart(head.start_lsn, head.start_epoch, head.start_chain),
                        head.start_offset, head.end.append_time, head.applied_lsn, snapshot.state, introduction)

    # --- answers ---

    def _land(self, follower: int, sent: _Sent, reply: AppendReply | MyQueueError, asked_at: float, seconds: float) -> None:
        try:
            self._take_in(follower, sent, reply, asked_at, seconds)
        except MyQueueError as error:
            _log.warning("partition %s: an answer of broker %d could not be used: %s", sent.partition, follower, error.message)
            self._due.mark(sent.partition, [follower], BACKOFF_MAX_SECONDS)

    def _take_in(self, follower: int, sent: _Sent, reply: AppendReply | MyQueueError, asked_at: float, seconds: float) -> None:
        led, partition = sent.led, sent.partition
        if isinstance(reply, MyQueueError):
            with led.lock:
                led.leading.not_taken(follower)
            self._due.mark(partition, [follower], BACKOFF_MAX_SECONDS / 2)
            return
        if reply.epoch > led.leading.epoch:
            self._lost(partition, led, reply.epoch)
            return
        if reply.refusal is Refusal.BROKEN_CHAIN and reply.epoch == led.leading.epoch:
            self._check_own(partition, led, sent.append.request)
        with led.lock:
            led.leading.learn(follower, reply, led.log, asked_at=asked_at)
            behind, busy = led.leading.lacks(follower, led.log.end), self._clock.monotonic() - led.written_at < BUSY_SECONDS
            refused = reply.matched is None
            led.log.release(min((progress.next for progress in led.leading.progress.values()), default=led.log.end) - 1)
            led.lock.notify_all()
        self._advance(partition, led)
        if behind:
            # Catching up from the database leaves time to producers that write meanwhile; a refusal that repeats itself is no busy loop.
            pause = 0.0 if sent.from_memory or not busy else CATCH_UP_PAUSE * seconds
            self._due.mark(partition, [follower], max(pause, BACKOFF_SECONDS if refused else 0.0))

    def _check_own(self, partition: PartitionId, led: Led, request: AppendRequest) -> None:
        """A follower says that entries do not follow from the ones before: damaged on their way, or on this disk."""
        with led.lock:
            led.log.forget_recent()
            chain = chain_before(led.log, request.position)
        try:
            entries = led.log.exactly(request.position, request.end)
        except LogFaultError as error:
            self._faulty(partition, led, error.message)
            return
        for entry in entries:
            chain = entry.chain_after(chain)
            if chain != entry.chain:
                self._faulty(partition, led, f"the entry at lsn {entry.head.lsn} does not have the digest it was stored with")
                return

    def _lost(self, partition: PartitionId, led: Led, epoch: int) -> None:
        """Somebody promised a higher epoch: so do we, and lead no longer."""
        with self._store.locked(partition) as held:
            if held.head.promised_epoch < epoch:
                held.promise(epoch)
        _log.warning("partition %s: epoch %d is promised elsewhere, the leadership of epoch %d ends", partition, epoch, led.leading.epoch)
        self.stop_leading(partition, epoch)

    def _advance(self, partition: PartitionId, led: Led) -> None:
        """Record a commit position that rose, then tell who waits for it; idle followers learn it a moment later."""
        with led.lock:
            try:
                led.leading.advance(led.log)
            except BeginsLaterError:  # another process committed and dropped what this one was counting
                led.leading.is_committed(led.log.start)
                led.leading.advance(led.log)
            commit = led.leading.commit
            offset = led.log.offset_at(commit) if commit > led.recorded else 0
        if commit > led.recorded:
            try:
                self._store.advance(partition, commit, offset)
                led.recorded = max(led.recorded, commit)
            except MyQueueError as error:  # a lower bound: the keeper records it later, and what is committed may be told
                _log.warning("partition %s: the commit position is not recorded: %s", partition, error.message, extra={"code": error.code})
            self._wakeups.wake(partition)
        with led.lock:
            if led.leading.began and led.recorded >= commit:
                led.is_ready = True
                led.lock.notify_all()
            led.told = max(led.told, commit)
            done = led.take_done()
            late = [broker for broker in led.leading.followers if led.told_commit.get(broker, -1) < commit]
        for wait in done:
            wait.told(None)
        self._due.mark(partition, late, COMMIT_NOTICE_SECONDS)

    # --- the keeper ---

    def look_around(self) -> None:
        """Once in a while: every partition that this broker leads with others is known here, and what does not move is sent again; fold."""
        for held in self._store.held():
            head = held.head
            if is_leading(head) and (len(head.voters) > 1 or head.learners):
                self.lead(held.id, head)
            elif held.id in self._led:
                self.stop_leading(held.id, head.promised_epoch)
            if head.applied_lsn < head.commit_lsn and head.seeding_until is None:
                self._store.fold(held.id)
