"""Reading the metadata on any manager, with what is known of its freshness.

What was read is kept in memory until the driver says that it changed, so that a produce or a consume asks the database
nothing. A read manager may be a moment behind: before it denies that something exists, it catches up with the write
manager.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from db.metadata_store import MetadataStore
from manager.catalogue import Catalogue
from manager.node import signals as sig
from manager.node.role import Role
from manager.node.signals import Signals
from manager.node.transport import Peers
from myqueue.clock import Clock
from myqueue.errors import (
    MyQueueError,
    NotFoundError,
    NotLeaderError,
    StaleMetadataError,
    UnavailableError,
    UnknownConsumerError,
    UnknownProducerError,
)

T = TypeVar("T")
REGISTRATIONS_KEPT = 100_000
READ_AGAIN_SECONDS = 0.25


class Replica:
    """The metadata as this manager has applied it."""

    def __init__(self, store: MetadataStore, *, role: Role, peers: Peers, signals: Signals, clock: Clock, wait_seconds: float) -> None:
        self._store, self._role, self._peers, self._signals, self._clock = store, role, peers, signals, clock
        self._wait_seconds = wait_seconds
        self._lock = threading.Lock()
        self._written = 0
        self._settled_term = 0
        self._cached: tuple[int, Catalogue] | None = None  # with the stamp taken before it was read
        self._registered: set[tuple[str, int, int]] = set()

    def applied_index(self) -> int:
        """The index applied here and announced to all processes: what is read from now on shows it. 0 until the driver has looked."""
        return self._role.shown_index

    def note_written(self, index: int) -> None:
        """A command that was asked for here is done at this index, whether or not it is applied here yet."""
        self._written = max(self._written, index)

    def index_of_writes(self) -> int:
        """What a reader must see to see every command that was answered here."""
        return max(self._written, self.applied_index())

    def wait_for(self, index: int, timeout_seconds: float) -> bool:
        """Wait until this manager has applied an index."""
        end = self._clock.monotonic() + timeout_seconds
        while True:
            stamp = self._signals.stamp(sig.APPLIED)
            if self.applied_index() >= index:
                return True
            left = end - self._clock.monotonic()
            if left <= 0 or not self._signals.wait(sig.APPLIED, stamp, left):
                return self.applied_index() >= index

    def require(self, min_index: int) -> None:
        """Wait until a reader's index is applied here. Raises StaleMetadataError if it takes too long."""
        if not self.wait_for(min_index, self._wait_seconds):
            raise StaleMetadataError(f"this manager has applied index {self.applied_index()}, not yet {min_index}",
                                     applied_index=self.applied_index(), min_index=min_index)

    def prefer(self, index: int) -> None:
        """Wait for a reader's index as ``require`` does, and answer in any case: the answer says how far this manager was.

        One that is cut off does not wait. An election is no cut: until there is a new leader the old one was heard a moment ago.
        """
        if not self._role.is_cut_off:
            self.wait_for(index, self._wait_seconds)

    def catch_up_fresh(self) -> None:
        """Wait until this manager shows all that was committed when this was called (on the leader: by a round of a majority).

        Raises:
            StaleMetadataError: it could not be confirmed, or not applied, in time.
        """
        end = self._clock.monotonic() + self._wait_seconds
        while True:
            stamp = self._signals.stamp(sig.CATALOGUE)
            try:
                index = self._fresh_index()
                break
            except MyQueueError as error:  # an election, or the one that led handed over just now: the next leader is asked
                left = end - self._clock.monotonic()
                if left <= 0 or not error.retriable:
                    raise StaleMetadataError(f"this manager does not know it and cannot ask the write manager: {error.message}") from error
            self._signals.wait(sig.CATALOGUE, stamp, min(left, READ_AGAIN_SECONDS))
        self.require(index)

    def fresh(self) -> Catalogue:
        """What to judge by, where a command is refused or carried out for what it says: all that was committed when this was called is in it.

        Raises:
            StaleMetadataError: see ``catch_up_fresh``.
        """
        self.catch_up_fresh()
        return self.current()

    def confirmed_index(self) -> int:
        """On the leader: an index that holds all that was committed when this was called, confirmed by a round of a majority.

        Raises:
            NotLeaderError: this manager does not lead, or no longer: known at once, so that there is time to ask the one that does.
            StaleMetadataError: no majority confirmed in time that this manager leads.
        """
        end = self._clock.monotonic() + self._wait_seconds
        self._signals.give(sig.READ)
        asked = self._signals.stamp(sig.READ)
        while self._clock.monotonic() < end:
            stamp = self._signals.stamp(sig.READ_CONFIRMED)
            confirmed, index = self._role.confirmed_read()
            if confirmed >= asked:
                return index
            if not self._role.is_write_manager:
                raise NotLeaderError("this manager does not lead: another one confirms what was committed")
            self._signals.give(sig.DRIVE)
            if not self._signals.wait(sig.READ_CONFIRMED, stamp, READ_AGAIN_SECONDS):
                self._signals.give(sig.READ)
        raise StaleMetadataError("no majority of the managers has confirmed in time who leads")

    def settle(self) -> None:
        """On the leader: show all that was committed before it began to lead. Costs a round of a majority, once a term.

        Raises:
            NotLeaderError, StaleMetadataError: see ``confirmed_index``; it could not be applied in time.
        """
        term = self._role.led_term
        if term and term == self._settled_term:
            return
        self.require(self.confirmed_index())
        self.current()
        self._settled_term = term

    def freshness_seconds(self) -> float:
        """How long ago this manager last heard of the write manager, which is how old its answers may be; 0 there."""
        return self._role.silence_seconds()

    def catalogue(self) -> Catalogue:
        """What to route by now."""
        stamp = self._signals.stamp(sig.CATALOGUE)
        cached = self._cached
        if cached is not None and cached[0] == stamp:
            return cached[1]
        with self._lock:
            cached = self._cached
            if cached is not None and cached[0] == self._signals.stamp(sig.CATALOGUE):
                return cached[1]
            return self._load()

    def cluster_id(self) -> str:
        """Which cluster this is.

        Raises:
            UnavailableError: the command that founds it is not applied here yet; nothing was done.
        """
        known = self.catalogue().cluster_id
        if not known:
            raise UnavailableError("this manager does not know its cluster yet; nothing was done", component="manager")
        return known

    def current(self) -> Catalogue:
        """What to route by, with the very index that is applied here as its version."""
        applied = self.applied_index()
        catalogue = self.catalogue()
        if catalogue.version >= applied:
            return catalogue
        with self._lock:
            if self._cached is not None and self._cached[1].version >= applied:
                return self._cached[1]
            return self._load()

    def certain(self, look: Callable[[Catalogue], T]) -> T:
        """Look something up; what is not found is looked up once more after a fresh read, on the write manager too.

        A leader that was just elected may not have applied yet what was acknowledged before it, and one that was replaced does not know it.

        Raises:
            NotFoundError: it was not there either.
            StaleMetadataError: this manager cannot say, because it could not catch up.
        """
        try:
            return look(self.catalogue())
        except NotFoundError:
            pass  # perhaps only here
        return look(self.fresh())

    def check_producer(self, producer_id: int, topic_id: int, name: str) -> None:
        """Raises UnknownProducerError where it is not registered for the topic."""
        if not self._is_registered("producer", producer_id, topic_id):
            raise UnknownProducerError(f"Producer {producer_id} is not registered for topic '{name}'", producer_id=producer_id, topic=name)

    def check_consumer(self, consumer_id: int, topic_id: int, name: str) -> None:
        """Raises UnknownConsumerError where it is not registered for the topic."""
        if not self._is_registered("consumer", consumer_id, topic_id):
            raise UnknownConsumerError(f"Consumer {consumer_id} is not registered for topic '{name}'", consumer_id=consumer_id, topic=name)

    def _is_registered(self, kind: str, actor_id: int, topic_id: int) -> bool:
        """A registration is never taken back while its topic lives, and a topic's id never used again: so a yes is kept."""
        key = (kind, actor_id, topic_id)
        if key in self._registered:
            return True
        look = self._store.is_producer if kind == "producer" else self._store.is_consumer
        if not look(actor_id, topic_id):
            return False
        if len(self._registered) >= REGISTRATIONS_KEPT:
            self._registered = set()
        self._registered.add(key)
        return True

    def _load(self) -> Catalogue:
        stamp = self._signals.stamp(sig.CATALOGUE)
        catalogue = Catalogue.of(self._store.catalogue())
        self._peers.follow({member.node_id: member.url for member in catalogue.members})
        self._cached = (stamp, catalogue)
        return catalogue

    def _fresh_index(self) -> int:
        """An index that holds all that was committed when this was called, by this manager where it leads, else by the one that does."""
        if self._role.is_write_manager:
            return self.confirmed_index()
        return self._peers.heartbeats(self._role.require_leader(), [], fresh=True).version
