"""The one driver of a manager: it holds the timers, sends what the Raft core wants sent, and applies what is committed.

Of all worker processes one holds the advisory lock and drives; a second one that believes the same for a moment does no
harm, because every decision is made under the row lock of ``raft_state`` and a leadership belongs to the node that wrote it. The
order is the core's: write what it decided, commit, and only then send, answer and tell.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Mapping

from db.member_requests import MemberRequest
from db.wal_store import DriverLock
from manager.cluster import commands
from manager.cluster.draft import Event
from manager.node import signals as sig
from manager.node.compaction import Compaction
from manager.node.founder import Founder
from manager.node.lanes import Lanes
from manager.node.mailbox import Mailbox
from manager.node.role import Role
from manager.node.signals import Signals
from manager.node.snapshots import StateOrder
from manager.node.transport import Peers
from manager.node.wal import Applied, Desk, Wal
from manager.raft.membership import Member
from manager.raft.messages import Reply
from manager.raft.node import Node, Ready
from manager.raft.node import Role as Part
from manager.raft.state import Held
from myqueue.clock import Clock
from myqueue.errors import DiskLostError, LogFaultError, MyQueueError, NotLeaderError, OverloadedError, RefusedError
from myqueue.service import metrics
from myqueue.service.faults import fault_point

REPAIR_SECONDS = 0.5  # between looks of a leader for members that do not vote with the disk they have
PAUSE_SECONDS = 0.5  # after something failed, and between looks at the lock
ELECTION_STEP_SECONDS = 0.05  # between looks at the timers during an election
_log = logging.getLogger(__name__)
# Commands that no client's session asked for.
OF_LEADERS = (commands.Noop.TYPE, commands.InitCluster.TYPE, commands.SetMember.TYPE, commands.RemoveMember.TYPE, commands.DiskLost.TYPE)
Step = Callable[[Held], None]


class Driver:
    """Drives one manager while it holds the lock."""

    def __init__(self, *, wal: Wal, role: Role, peers: Peers, lanes: Lanes, founder: Founder, mailbox: Mailbox, lock: DriverLock,
                 compaction: Compaction, signals: Signals, clock: Clock, alone: bool, heartbeat_seconds: float, election_timeout_seconds: float,
                 on_events: Callable[[tuple[Event, ...]], None], on_leading: Callable[[], None]) -> None:
        """
        Args:
            alone: as far as the settings know, there is no other manager to wait for.
            on_leading: called when this manager begins to lead.
        """
        self._wal, self._role, self._lanes, self._founder, self._mailbox, self._lock = wal, role, lanes, founder, mailbox, lock
        self._peers, self._signals, self._clock, self._alone = peers, signals, clock, alone
        self._compaction, self._on_events, self._on_leading = compaction, on_events, on_leading
        self._heartbeat_seconds, self._election_timeout_seconds = heartbeat_seconds, election_timeout_seconds
        self._node, self._started = self._new_node(), False
        self._seen = -1  # the stamp of the last look
        self._round_due = self._look_due = self._repair_due = 0.0
        self._reached: Mapping[int, Member] = {}  # by the lanes
        self._read_asked = 0
        self._at_rest = False  # as the last step left it
        self._disk_lost: DiskLostError | None = None  # another identity is to be taken
        self.driving = threading.Event()  # this process holds the lock
        self.leading = threading.Event()  # … and this manager leads: other threads of the process watch these
        self._leaving = threading.Event()  # this process is about to end, and led
        self._given_up = threading.Event()  # nobody takes the leadership over
        self._hand_over_asked = False

    def run(self, stopping: threading.Event) -> None:
        """Until the process stops: be the driver, or wait to become it."""
        try:
            while not stopping.is_set():
                if not self._is_driver():
                    self._rest()
                    stopping.wait(PAUSE_SECONDS)
                    continue
                try:
                    self._turn()
                except MyQueueError as error:
                    self._node.abandon()
                    self._mailbox.forget()
                    self._seen = -1  # look again, whatever was asked for
                    self._tell_role()
                    self._disk_lost = error if isinstance(error, DiskLostError) else self._disk_lost
                    level = logging.CRITICAL if isinstance(error, LogFaultError) else logging.WARNING
                    _log.log(level, "driver: %s", error.message, extra={"code": error.code})
                    stopping.wait(PAUSE_SECONDS / 2)
        finally:
            self._rest()
            self._lock.release()

    def leave(self, timeout_seconds: float) -> None:
        """This process is about to end: lead no more, and know here who leads next. Bounded; called while requests are still answered."""
        end = self._clock.monotonic() + timeout_seconds
        if self.driving.is_set():
            self._role.leave(True)
        if not self.leading.is_set() or self._alone:
            return
        self._leaving.set()
        self._signals.give(sig.DRIVE)
        while not self._given_up.is_set() and (left := end - self._clock.monotonic()) > 0:
            stamp = self._signals.stamp(sig.CATALOGUE)
            if self._role.leader() not in (None, self._role.node_id):
                _log.info("handed the leadership over to manager %s", self._role.leader())
                return
            self._signals.wait(sig.CATALOGUE, stamp, left)
        _log.warning("nobody takes the leadership over")

    def _new_node(self) -> Node:
        return Node(heartbeat_seconds=self._heartbeat_seconds, election_timeout_seconds=self._election_timeout_seconds)

    def _is_driver(self) -> bool:
        now = self._clock.monotonic()
        if not self.driving.is_set() or now >= self._look_due:
            self._look_due = now + PAUSE_SECONDS
            if not self._lock.held():
                return False
            if not self.driving.is_set():
                self._role.leave(False)  # a process before this one may have said it
                self.driving.set()
                self._compaction.resume()
        return True

    def _rest(self) -> None:
        """Not the driver any more: what this process knew as one is void."""
        if self.driving.is_set():
            self._node, self._started = self._new_node(), False
            self._tell_role()
            self.driving.clear()

    # --- one turn ---

    def _turn(self) -> None:
        if self._disk_lost is not None:
            self._wal.renew_disk(self._disk_lost)
            self._disk_lost = None
        stamp, asked = self._signals.stamp(sig.DRIVE), self._signals.stamp(sig.READ)
        self._lanes.quiet = False
        founded = self._founder.turn()
        now = self._clock.monotonic()
        steps = deque(self._answer(source, reply) for source, reply in self._lanes.take())
        if self._node.role is Part.LEADER and asked != self._read_asked:
            steps.append(self._read(asked))
        self._read_asked = asked
        if self._leaving.is_set() and self._node.role is Part.LEADER and not self._hand_over_asked:
            self._hand_over_asked = True
            steps.append(self._hand_over)
        steps.extend(self._change_member(request) for request in self._mailbox.taken())
        if founded or self._timer_is_due(now):
            steps.append(self._tick(hurry=founded or self._alone))
            if self._node.role is Part.LEADER and now >= self._repair_due:
                self._repair_due = now + REPAIR_SECONDS
                steps.append(self._repair)
        elif not steps and stamp != self._seen:
            steps.append(self._advance)
        self._seen = stamp
        while steps:
            if self._take(steps):
                steps.append(self._advance)
        if self._signals.stamp(sig.DRIVE) == stamp:
            self._lanes.quiet = self._at_rest
            self._signals.wait(sig.DRIVE, stamp, max(0.001, self._idle_seconds()))

    def _take(self, steps: deque[Step]) -> bool:
        """Lock, decide, write, commit, and then everything that follows; True if another step can go on at once.

        Steps that change nothing share the transaction with the one after them: they saw what that one sees.
        """
        with self._wal.deciding() as desk:
            readies, done = self._decide(desk, steps)
            self._at_rest = not readies[-1].persist and self._node.is_at_rest(desk.held)
        was_handing_over = self._role.is_handing_over
        self._tell_role()
        self._mailbox.send_answers()
        self._reach(desk.held)
        for ready in readies:
            self._carry_out(ready)
        self._effects(done)
        self._compaction.applied(done.applied_index)
        persist = readies[-1].persist  # what was written just now counts from the next step on
        hands_over = self._role.is_handing_over and not was_handing_over  # nothing more is taken: from the next step on the word may leave
        return done.applied_index < done.commit_index or bool(persist.insert) or persist.term_vote is not None or hands_over

    def _decide(self, desk: Desk, steps: deque[Step]) -> tuple[list[Ready], Applied]:
        readies = []
        while steps:
            with contextlib.suppress(NotLeaderError, OverloadedError, RefusedError):  # of a fresh read or a hand-over: who asked waits in vain
                steps.popleft()(desk.held)
            ready = self._node.ready()
            readies.append(ready)
            if ready.persist or ready.apply:
                return readies, desk.write(ready.persist, apply=True)
        state = desk.held.state
        return readies, Applied(state.applied_index, state.applied_index, state.commit_index)

    def _reach(self, held: Held) -> None:
        """Be able to send to every member of the membership that was in force."""
        membership = held.membership
        if membership.members != self._reached and membership.members:
            self._peers.follow({member.node_id: member.url for member in membership.members.values()})
            self._lanes.reach(membership.others(held.state.node_id))
            self._alone = set(membership.voters) == {held.state.node_id}
            self._reached = membership.members

    def _carry_out(self, ready: Ready) -> None:
        for envelope in ready.send:
            self._lanes.send(envelope)
        for order in ready.snapshots:
            self._lanes.send_state(StateOrder(order.target, self._node.term, order.round))
        for read in ready.reads:
            self._role.confirm_read(read.read_id, read.index)
            self._signals.give(sig.READ_CONFIRMED)
        for event in ready.events:
            _log.info("%s in term %d %s", event.name, event.term, event.detail, extra={"event": event.name, "term": event.term})
            if event.name == "hand_over_given_up":
                self._give_up()

    def _effects(self, done: Applied) -> None:
        """Announce what is on disk, first that what others keep in memory is old, then the index: whoever waits for that finds it in what he reads.

        What a driver before this one had no time to announce, or was taken over as a state, is announced with it.
        """
        metrics.APPLIED_INDEX.set(done.applied_index)
        shown = self._role.shown_index
        if done.applied_index == shown:
            return
        if any(kind not in OF_LEADERS for kind, _ in done.results):
            fault_point("apply_after_commit")
        for kind, result in done.results:
            metrics.COMMANDS.labels(kind, result).inc()
        if done.catalogue_changed or done.before != shown:
            self._signals.give(sig.CATALOGUE)
        self._role.show(done.applied_index)
        self._signals.give(sig.APPLIED)
        if done.events:
            self._on_events(done.events)

    # --- steps ---

    def _answer(self, source: int, reply: Reply) -> Step:
        return lambda held: self._node.step(held, source, reply, now=self._clock.monotonic())

    def _read(self, asked: int) -> Step:
        return lambda held: self._node.read(held, asked, now=self._clock.monotonic())

    def _tick(self, *, hurry: bool) -> Step:
        timeout = 0.0 if hurry else self._election_timeout_seconds * random.uniform(1, 2)
        return lambda held: self._node.tick(held, now=self._clock.monotonic(), timeout_seconds=timeout)

    def _hand_over(self, held: Held) -> None:
        try:
            self._node.hand_over(held, now=self._clock.monotonic())
        except (NotLeaderError, RefusedError):
            self._give_up()
            raise

    def _give_up(self) -> None:
        self._given_up.set()
        self._signals.give(sig.CATALOGUE)

    def _change_member(self, request: MemberRequest) -> Step:
        return lambda held: self._mailbox.decide(self._node, held, request)

    def _repair(self, held: Held) -> None:
        self._node.repair(held, now=self._clock.monotonic())

    def _advance(self, held: Held) -> None:
        self._node.advance(held, now=self._clock.monotonic())

    # --- time ---

    def _timer_is_due(self, now: float) -> bool:
        """Whether the core's timers could have something to say: without it, a follower that hears its leader asks the database nothing."""
        if self._node.role is Part.LEADER and now >= self._round_due:
            self._round_due = now + self._heartbeat_seconds
            return True
        if self._node.role is Part.LEADER:
            return False
        started, self._started = self._started, True
        return not started or self._role.is_chosen or now - self._role.contact().at >= self._least_silence()

    def _least_silence(self) -> float:
        return 0.0 if self._alone else self._election_timeout_seconds

    def _idle_seconds(self) -> float:
        now = self._clock.monotonic()
        if self._node.role is Part.LEADER:
            return self._round_due - now
        left = self._role.contact().at + self._least_silence() - now
        return min(left, PAUSE_SECONDS) if left > 0 else ELECTION_STEP_SECONDS

    def _tell_role(self) -> None:
        """Let the other processes and threads know whether this manager leads."""
        term = self._node.term if self._node.role is Part.LEADER else 0
        self._role.hand_over(self._node.handing_over)
        if term == self._role.led_term and bool(term) == self.leading.is_set():
            return
        if term:
            self._role.lead(term)
            self._on_leading()
            self.leading.set()
        else:
            self.leading.clear()
            self._role.stop_leading()
        self._signals.give(sig.APPLIED, sig.CATALOGUE)
