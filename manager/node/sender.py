"""Brings one follower up to date: the leader's side of replication, a thread for each other manager.

One append is under way at a time; what is proposed meanwhile goes with the next one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from db.replication import AppendRequest, Progress, SendPlan, after_reply, majority, plan_send
from db.wal_store import WalEntry, WalStore
from manager.node import signals as sig
from manager.node.role import TERM, FixedRole
from manager.node.signals import Signals
from manager.node.transport import Peers
from myqueue.clock import Clock
from myqueue.errors import LogFaultError, MyQueueError
from myqueue.protocol.chain import canonical_json

ENTRIES_MAX = 200
APPEND_BYTES_MAX = 4 << 20  # of commands in one append; the body limit of a node is above it
PAUSE_SECONDS = 0.25  # after a failure
_log = logging.getLogger(__name__)


class Contacts:
    """Which managers answered lately; gives the signal MAJORITY whenever they are, with this one, a majority."""

    def __init__(self, managers: int, *, signals: Signals, clock: Clock, timeout_seconds: float) -> None:
        self._managers, self._signals, self._clock, self._timeout_seconds = managers, signals, clock, timeout_seconds
        self._answered_at: dict[int, float] = {}

    def note(self, node_id: int) -> None:
        now = self._clock.monotonic()
        self._answered_at[node_id] = now
        fresh = sum(1 for moment in list(self._answered_at.values()) if now - moment <= self._timeout_seconds)
        if fresh + 1 >= majority(self._managers):
            self._signals.give(sig.MAJORITY)


class Sender:
    """Sends the log to one manager while ``driving`` is set."""

    def __init__(self, node_id: int, *, store: WalStore, role: FixedRole, peers: Peers, signals: Signals, contacts: Contacts,
                 interval_seconds: float) -> None:
        self.node_id = node_id
        self.progress = Progress(next=0)  # written by this thread only; the driver reads it
        self._store, self._role, self._peers, self._signals, self._contacts = store, role, peers, signals, contacts
        self._interval_seconds = interval_seconds
        self._rounds = 0
        self._started = False
        self._trouble: str | None = None

    def run(self, driving: threading.Event, stopping: threading.Event) -> None:
        while not stopping.is_set():
            if not driving.wait(PAUSE_SECONDS):
                continue
            stamp = self._signals.stamp(sig.LOG)
            try:
                more = self._send()
            except MyQueueError as error:
                self._tell(error)
                stopping.wait(PAUSE_SECONDS)
                continue
            if not more:
                self._signals.wait(sig.LOG, stamp, self._interval_seconds)

    def _send(self) -> bool:
        """One append and its answer; True if the follower is not known to have everything."""
        with self._store.reading() as held:
            if not self._role.leads(held.state):
                return False
            log, end, commit = held.log, held.log.end, held.state.commit_index
            if not self._started:
                self.progress, self._started = Progress(next=end), True
            plan = plan_send(self.progress, log, entries_max=ENTRIES_MAX)
            if plan is None:
                raise LogFaultError(f"manager {self.node_id} is behind the beginning of the log, and there are no snapshots yet")
            entries = _bounded(log.entries(plan.position, plan.end))
        self._rounds += 1
        reply = self._peers.append(self.node_id, _request(plan, entries, commit=commit, rounds=self._rounds))
        before = self.progress
        self.progress = after_reply(before, reply, epoch=TERM, rounds=self._rounds, log=log)
        if reply.epoch > TERM:
            raise LogFaultError(f"manager {self.node_id} has promised term {reply.epoch}")
        if reply.matched is None and self.progress == before:
            raise LogFaultError(f"manager {self.node_id} refuses the log: {reply.refusal}")
        self._note(before)
        return self.progress.next < end or reply.matched is None

    def _note(self, before: Progress) -> None:
        self._contacts.note(self.node_id)
        if self._trouble is not None:
            _log.info("manager %d answers again", self.node_id)
            self._trouble = None
        if self.progress.disk_lost and not before.disk_lost:
            _log.critical("manager %d no longer holds what it acknowledged: its disk was replaced or restored", self.node_id)
        if self.progress.matched > before.matched or self.progress.disk_id != before.disk_id:
            self._signals.give(sig.ACKED)

    def _tell(self, error: MyQueueError) -> None:
        """Log a failure once per kind, not once per attempt."""
        if self._trouble != error.code:
            level = logging.CRITICAL if isinstance(error, LogFaultError) else logging.WARNING
            _log.log(level, "append to manager %d: %s", self.node_id, error.message, extra={"code": error.code})
        self._trouble = error.code


def _request(plan: SendPlan, entries: Sequence[WalEntry], *, commit: int, rounds: int) -> AppendRequest:
    return AppendRequest(epoch=TERM, position=plan.position, prev_epoch=plan.prev_epoch, entries=entries, commit=commit, round=rounds)


def _bounded(entries: Sequence[WalEntry]) -> Sequence[WalEntry]:
    """As many of the first entries as fit into one append, at least one."""
    size = 0
    for count, entry in enumerate(entries):
        size += len(canonical_json(entry.command))
        if count and size > APPEND_BYTES_MAX:
            return entries[:count]
    return entries
