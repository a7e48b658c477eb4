"""What this process knows of the cluster, and how it learns it: it polls the managers and keeps their routing table."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from myqueue.client.transport import Transport, call
from myqueue.clock import Clock
from myqueue.errors import MyQueueError, OutcomeUnknownError, UnavailableError
from myqueue.protocol import routes, wire
from myqueue.protocol.types import ClusterSnapshot

from .core.health import Health
from .core.routing import WRITE, Backend, Manager, View, is_lost, led_by

POLLS_AT_ONCE = 8
STOP_CHECK_SECONDS = 0.25
WAITING_INTERVAL_SECONDS = 0.5  # between looks at the managers while a request waits for one
INDEX_KEPT_SECONDS = 10.0  # a manager that has not applied a write by then is cut off, and says how old it is
_log = logging.getLogger(__name__)


class Upstreams:
    """The view of the cluster. It is a value that is replaced as a whole, so that a request sees one state of it."""

    def __init__(self, seeds: Sequence[str], transport: Transport, clock: Clock, *, interval_seconds: float,
                 poll_timeout_seconds: float) -> None:
        self._seeds = tuple(Manager(url.rstrip("/")) for url in seeds)
        self._transport, self._clock = transport, clock
        self._interval_seconds, self._poll_timeout_seconds = interval_seconds, poll_timeout_seconds
        self._lock = threading.Lock()
        self._view = View(self._seeds)
        self._due = threading.Event()
        self._looked_at = float("-inf")
        self._polled: set[str] = set()  # a poll of these is under way
        self._indexes: dict[str, tuple[str, int] | None] = {}  # (cluster, applied index) as each manager said it last
        self._written: tuple[int, float] | None = None  # the index behind the last write that was answered, and when
        self._polls = ThreadPoolExecutor(POLLS_AT_ONCE, thread_name_prefix="poll")

    @property
    def view(self) -> View:
        return self._view

    def watch(self, stopping: threading.Event) -> None:
        """Refresh the view about once an interval, and soon after a request has found it wrong."""
        while not stopping.is_set():
            self._due.clear()
            self.refresh()
            end = self._clock.monotonic() + self._interval_seconds
            while not stopping.is_set() and not self._due.is_set() and (left := end - self._clock.monotonic()) > 0:
                self._due.wait(min(left, STOP_CHECK_SECONDS))
            stopping.wait(min(self._interval_seconds, STOP_CHECK_SECONDS) / 5)  # a failing backend cannot make this a busy loop

    def refresh(self) -> None:
        """Poll every manager; where one is ahead of the table, take that of the first, most likely to know it, that is not behind.

        One that does not answer is not waited for longer than an interval, and not asked again meanwhile.
        """
        self._looked_at = self._clock.monotonic()
        wait([self._polls.submit(self._poll, manager) for manager in self._to_poll()], timeout=self._interval_seconds)
        if not self._is_behind():
            return
        for manager in self._by_knowledge():
            try:
                if self._learn(*self._table_of(manager)):
                    return
            except MyQueueError as error:
                _log.warning("no routing table from %s: %s", manager.backend.component, error.message)

    def is_lost(self, backend: Backend) -> bool:
        """Whether it is no use to wait for this manager any longer. While that is asked, the managers are looked at more often."""
        now = self._clock.monotonic()
        if now - self._looked_at >= WAITING_INTERVAL_SECONDS:
            self._due.set()
        return is_lost(self._view, backend.url, now=now)

    def wrote(self, index: int) -> None:
        """A manager has answered a write, having applied this index."""
        with self._lock:
            known = self._written
            self._written = (max(index, known[0]) if known else index, self._clock.monotonic())

    def wanted_index(self) -> int | None:
        """What a read is to show: the last writes that went through this process; None where they are long past."""
        written = self._written
        return written[0] if written is not None and self._clock.monotonic() - written[1] <= INDEX_KEPT_SECONDS else None

    def refresh_topic(self, topic: str) -> None:
        """Ask the managers for the partitions of one topic, at once. Raises UnavailableError where none answers."""
        for manager in self._by_knowledge():
            try:
                snapshot, _ = self._table_of(manager, topic)
            except MyQueueError as error:
                _log.warning("no partitions of a topic from %s: %s", manager.backend.component, error.message)
                continue
            with self._changed() as view:
                if view.snapshot is not None:
                    others = {key: info for key, info in view.snapshot.partitions.items() if key.topic != topic}
                    snapshot = replace(view.snapshot, partitions={**others, **snapshot.partitions},
                                       brokers={**view.snapshot.brokers, **snapshot.brokers})
                self._view = replace(view, snapshot=snapshot)
            return
        raise UnavailableError("no manager answers, so the partition's leader is not known", component="managers")

    def failed(self, backend: Backend, error: MyQueueError) -> None:
        """A request could not reach this backend: it is not used until a poll succeeds, and the view is refreshed soon."""
        if any(backend.url == manager.url for manager in self._view.managers):
            self._note(backend.component, lambda health: health.failed(backend.url, reason=error.message, now=self._clock.monotonic()))
        self._due.set()

    def suspect(self) -> None:
        """An answer says that the view is old: refresh it soon."""
        self._due.set()

    def ready(self) -> dict[str, Any]:
        """For /readyz. Raises UnavailableError until a manager answers and has told the routing table."""
        view = self._view
        if view.snapshot is None or not any(view.health.is_live(manager.url) for manager in view.managers):
            raise UnavailableError("no manager answers", component="managers")
        return {"version": view.snapshot.version,
                "managers": [{"node": m.backend.component, "url": m.url, "role": m.role, "live": view.health.is_live(m.url)} for m in view.managers]}

    def close(self) -> None:
        self._polls.shutdown(wait=True, cancel_futures=True)

    def _known(self) -> tuple[Manager, ...]:
        """The managers of the table; where none of them answers, those of the settings too."""
        view = self._view
        if any(view.health.is_live(manager.url) for manager in view.managers):
            return view.managers
        known = {manager.url for manager in view.managers}
        return view.managers + tuple(seed for seed in self._seeds if seed.url not in known)

    def _by_knowledge(self) -> list[Manager]:
        """Managers to ask, the write manager first: a read manager may be a moment behind."""
        health = self._view.health
        return sorted((m for m in self._known() if health.is_live(m.url)), key=lambda manager: manager.role != WRITE)

    def _to_poll(self) -> list[Manager]:
        with self._lock:
            chosen = [manager for manager in self._known() if manager.url not in self._polled]
            self._polled.update(manager.url for manager in chosen)
            return chosen

    def _is_behind(self) -> bool:
        """Whether a manager has applied more than the table shows, or belongs to another cluster, or does not say."""
        snapshot = self._view.snapshot
        if snapshot is None:
            return True
        said = [self._indexes.get(manager.url) for manager in self._known() if self._view.health.is_live(manager.url)]
        return any(one is None or one[0] != snapshot.cluster_id or one[1] > snapshot.version for one in said)

    def _poll(self, manager: Manager) -> None:
        try:
            self._ask(manager)
        finally:
            with self._lock:
                self._polled.discard(manager.url)

    def _ask(self, manager: Manager) -> None:
        name = manager.backend.component
        self._note(name, lambda health: health.asked(manager.url, now=self._clock.monotonic()))
        try:
            told = call(self._transport, "GET", manager.url + routes.READYZ, read_timeout_seconds=self._poll_timeout_seconds, repeatable=True)
        except OutcomeUnknownError as error:
            reason = error.message
            self._note(name, lambda health: health.was_slow(manager.url, reason=reason, now=self._clock.monotonic()))
        except MyQueueError as error:
            reason = error.message
            self._note(name, lambda health: health.failed(manager.url, reason=reason, now=self._clock.monotonic()))
        else:
            self._note(name, lambda health: health.answered(manager.url))
            self._indexes[manager.url] = (told["cluster_id"], told["applied_index"]) if "applied_index" in told else None
            self._follow(told.get("leader"), told.get("term"))

    def _follow(self, leader: int | None, term: int | None) -> None:
        """A manager says who leads: believed at once, unless something is known of a later term."""
        if leader is None or term is None:
            return
        with self._changed() as view:
            if term >= view.term:
                self._view = led_by(replace(view, term=term, leader=leader))

    def _table_of(self, manager: Manager, *topics: str) -> tuple[ClusterSnapshot, tuple[Manager, ...]]:
        body = call(self._transport, "GET", manager.url + routes.CLUSTER, params={"topic": list(topics)} if topics else None,
                    read_timeout_seconds=self._poll_timeout_seconds, repeatable=True)
        managers = tuple(Manager(m["url"].rstrip("/"), m["node_id"], m["role"]) for m in body["managers"])
        return wire.snapshot_from_json(body), managers

    def _learn(self, snapshot: ClusterSnapshot, managers: tuple[Manager, ...]) -> bool:
        """Take this table; False for one that is older than ours."""
        with self._changed() as view:
            old = view.snapshot
            if old is not None and old.cluster_id == snapshot.cluster_id and old.version > snapshot.version:
                return False
            if old is not None and old.cluster_id != snapshot.cluster_id:
                view = replace(view, term=0, leader=None)  # another cluster, whose terms and indexes begin anew
                self._written = None
            self._view = led_by(replace(view, snapshot=snapshot, managers=managers or view.managers))
        return True

    def _note(self, component: str, change: Callable[[Health], Health]) -> None:
        with self._changed() as view:
            health = change(view.health)
            for url, ejection in health.ejected.items():
                if url not in view.health.ejected:
                    _log.warning("%s is not used until it answers again: %s", component, ejection.reason)
            for url in view.health.ejected:
                if url not in health.ejected:
                    _log.info("%s answers again", component)
            self._view = replace(view, health=health)

    @contextmanager
    def _changed(self) -> Iterator[View]:
        with self._lock:
            yield self._view
