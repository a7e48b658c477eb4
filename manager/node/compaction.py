"""Snapshots of this manager's metadata, taken while it runs, and the WAL shortened behind them.

At every ``snapshot_entries``-th entry, which is the same one on every manager, so that their digests can be compared. The
driver stops applying for a moment and opens a view of its tables just there; from then on it goes on, and this thread reads, spells and digests
that view. What is on disk never depends on it: a snapshot that is missed costs a longer WAL until the next one.
"""

from __future__ import annotations

import logging
import queue
import threading
from contextlib import ExitStack

from db.snapshots import Snapshot, StateView, keep, view_of_state
from db.wal_store import WalStore
from myqueue.clock import Clock
from myqueue.errors import MyQueueError
from myqueue.service.faults import fault_point

STOP_CHECK_SECONDS = 0.5
_log = logging.getLogger(__name__)


class Compaction:
    """Belongs to the driver's process: the driver says what is applied, a thread of its own does the work."""

    def __init__(self, store: WalStore, clock: Clock, *, snapshot_entries: int) -> None:
        self._store, self._clock, self._snapshot_entries = store, clock, snapshot_entries
        self._begun = 0  # the index of the last view that was opened
        self._views: queue.Queue[tuple[StateView, ExitStack]] = queue.Queue(maxsize=1)
        self._busy = threading.Event()

    def applied(self, index: int) -> None:
        """Called by the driver after it applied something, before it applies more: opens a view where a snapshot is due."""
        if index and index % self._snapshot_entries == 0 and index > self._begun:
            self._begin()

    def resume(self) -> None:
        """Called when this process becomes the driver: what stands at an index where one is due may have none yet."""
        self._begin()

    def run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            try:
                view, stack = self._views.get(timeout=STOP_CHECK_SECONDS)
            except queue.Empty:
                continue
            try:
                with stack:
                    state = view.read()
                self._keep(Snapshot.of(state))
            except MyQueueError as error:
                _log.warning("no snapshot at index %d: %s", view.index, error.message, extra={"code": error.code})
            finally:
                self._busy.clear()

    def _begin(self) -> None:
        if self._busy.is_set():  # with the last one: asked again as long as nothing more is applied, else this one is missed
            return
        try:
            with ExitStack() as stack:
                view = stack.enter_context(view_of_state(self._store))
                self._begun = view.index
                if view.index % self._snapshot_entries == 0 and view.newest < view.index:
                    self._busy.set()
                    self._views.put_nowait((view, stack.pop_all()))
        except MyQueueError as error:
            _log.warning("no snapshot now: %s", error.message, extra={"code": error.code})

    def _keep(self, snapshot: Snapshot) -> None:
        began = self._clock.monotonic()
        with self._store.locked() as held:
            gone = keep(held, snapshot)
            fault_point("compact_before_commit")
        fault_point("compact_after_commit")
        _log.info("snapshot at index %d: %d characters, digest %s; %d entries left the WAL in %.3f s", snapshot.index, len(snapshot.state),
                  snapshot.digest.hex()[:16], gone, self._clock.monotonic() - began)
