"""The one driver of a manager: it applies what is committed, and on the write manager it sends the log and commits.

Of all worker processes one holds the advisory lock and drives; a second one that believes the same for a moment does no
harm, because every decision is made under the row lock of ``raft_state``. Threads: the driver itself, one sender for each
other manager. They sleep until a signal comes.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping

from db.replication import Holder, holders, majority
from db.wal_store import DriverLock, WalStore
from manager.cluster import commands
from manager.cluster.state import Event
from manager.node import signals as sig
from manager.node.role import FixedRole
from manager.node.sender import Sender
from manager.node.signals import Signals
from manager.node.transport import Identity, Peers
from manager.node.wal import Applied, Proposal, Wal
from myqueue.errors import LogFaultError, MyQueueError
from myqueue.service import metrics

PAUSE_SECONDS = 0.5  # after something failed, and between looks at the lock
_log = logging.getLogger(__name__)


class Driver:
    """Drives one manager while it holds the lock."""

    def __init__(self, *, store: WalStore, wal: Wal, role: FixedRole, peers: Peers, senders: Iterable[Sender], lock: DriverLock,
                 signals: Signals, on_events: Callable[[tuple[Event, ...]], None]) -> None:
        self._store, self._wal, self._role, self._peers, self._lock, self._signals = store, wal, role, peers, lock, signals
        self._senders = {sender.node_id: sender for sender in senders}
        self._on_events = on_events
        self._woken = False  # by a signal, not by the end of the wait: then all is looked at
        self._committed = 0
        self.driving = threading.Event()  # other threads of this process that only the driver needs watch it

    def run(self, stopping: threading.Event) -> None:
        """Until the process stops: be the driver, or wait to become it."""
        try:
            while not stopping.is_set():
                if not self._lock.held():
                    self.driving.clear()
                    stopping.wait(PAUSE_SECONDS)
                    continue
                try:
                    self._turn(stopping)
                except MyQueueError as error:
                    level = logging.CRITICAL if isinstance(error, LogFaultError) else logging.WARNING
                    _log.log(level, "driver: %s", error.message, extra={"code": error.code})
                    stopping.wait(PAUSE_SECONDS)
        finally:
            self.driving.clear()
            self._lock.release()

    def _turn(self, stopping: threading.Event) -> None:
        key = self._key()
        if not self.driving.is_set():
            if self._role.is_write_manager:
                self._begin(stopping)
            self.driving.set()
        stamp = self._signals.stamp(key)
        more = self._work(woken=self._woken)
        self._woken = not more and self._signals.wait(key, stamp, 2 * PAUSE_SECONDS)

    def _key(self) -> int:
        if not self._role.is_write_manager:
            return sig.COMMITTED
        return sig.ACKED if self._senders else sig.LOG  # alone, every entry of ours is committed at once

    def _work(self, *, woken: bool) -> bool:
        """Commit and apply what can be; True if there may be more."""
        if self._role.is_write_manager and woken and not self._may_commit():
            return False
        done = self._wal.advance(self._holders) if self._role.is_write_manager else self._wal.apply_committed()
        if done.commit_rose and self._senders:
            self._signals.give(sig.LOG)  # the others learn the commit index
        self._committed = done.commit_index
        self._effects(done)
        return done.applied_index < done.commit_index

    def _may_commit(self) -> bool:
        """Whether the acknowledgements could move the commit index: the second of two for the same entries cannot."""
        matched = sorted((sender.progress.matched for sender in self._senders.values()), reverse=True)
        needed = majority(len(matched) + 1) - 1  # besides this manager
        return not self._senders or matched[needed - 1] > self._committed

    def _effects(self, done: Applied) -> None:
        metrics.APPLIED_INDEX.set(done.applied_index)
        if not done.results:
            return
        for kind, result in done.results:
            metrics.COMMANDS.labels(kind, result).inc()
        if done.catalogue_changed:
            self._signals.give(sig.CATALOGUE)
        self._signals.give(sig.APPLIED)
        if done.events:
            self._on_events(done.events)

    def _holders(self, own: Holder) -> Mapping[int, Holder]:
        return holders((self._role.node_id, own), [(node_id, sender.progress) for node_id, sender in self._senders.items()])

    def _begin(self, stopping: threading.Event) -> None:
        """Take the term, and at the very first start name the cluster and its voters."""
        state = self._wal.begin_term()
        with self._store.reading() as held:
            empty = held.log.end == 0
        while empty and not stopping.is_set():
            identities = self._identities(stopping)
            if identities is None:
                continue
            members = tuple(commands.Member(node_id, self._peers.url(node_id), disk_id) for node_id, disk_id in
                            sorted({self._role.node_id: state.disk_id, **{known.node_id: known.disk_id for known in identities}}.items()))
            self._wal.propose([Proposal(commands.InitCluster(str(uuid.uuid4()), members), None, None)])
            self._signals.give(sig.LOG)
            empty = False

    def _identities(self, stopping: threading.Event) -> list[Identity] | None:
        """All other managers, each with an empty disk.

        All, because one that holds a log shows that this disk was emptied: to begin a new log over it would contradict what
        was committed.
        """
        found = []
        for node_id in self._senders:
            try:
                found.append(self._peers.identity(node_id))
            except MyQueueError as error:
                _log.info("waiting for all managers before the first start: %s", error.message)
                stopping.wait(PAUSE_SECONDS)
                return None
        for known in found:
            if known.end_index or known.cluster_id:
                raise LogFaultError(f"manager {known.node_id} holds a log and this write manager's disk is empty: restore it, or begin anew with "
                                    "empty databases everywhere")
        return found

