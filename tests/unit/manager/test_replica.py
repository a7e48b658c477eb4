"""How long a reader's index is waited for, and what a writer is told to read at."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from db.metadata_store import CatalogueRows
from manager.node import signals as sig
from manager.node.role import Role
from manager.node.signals import Signals
from manager.raft.state import Contact
from manager.replica import Replica
from myqueue.errors import NotLeaderError, UnavailableError
from myqueue.service.wakeups import Wakeups
from myqueue.testing import ManualClock

KEPT_SECONDS = 2.0


class Store:
    """A manager's database: how far it has applied."""

    index = 5

    cluster_id: str | None = None

    def catalogue(self) -> CatalogueRows:
        return CatalogueRows(self.cluster_id, self.index, (), (), (), ())


class Applying(Signals):
    """Signals of a manager that applies the next entry as soon as somebody waits for one, announces it, and then does as it is told."""

    on_wait: Callable[[], object] = staticmethod(lambda: None)

    def __init__(self, store: Store, role: Role) -> None:
        super().__init__(Wakeups(), threading.Event())
        self._store, self._role, self.waits = store, role, 0

    def wait(self, key: int, stamp: int, timeout_seconds: float) -> bool:
        self.waits += 1
        self._store.index += 1
        self.announce()
        self.on_wait()
        self.give(key)
        return True

    def announce(self) -> None:
        self.give(sig.CATALOGUE)
        self._role.show(self._store.index)


@pytest.fixture
def manager() -> SimpleNamespace:
    clock, store = ManualClock(), Store()
    role, peers = Role(1, clock, leader_kept_seconds=KEPT_SECONDS), SimpleNamespace(follow=lambda members: None)
    signals = Applying(store, role)
    role.show(store.index)
    replica = Replica(store, role=role, peers=peers, signals=signals, clock=clock, wait_seconds=2.0)  # type: ignore[arg-type]
    return SimpleNamespace(clock=clock, store=store, role=role, signals=signals, peers=peers, replica=replica)


def test_nobody_is_told_of_a_cluster_that_is_not_founded_here_yet(manager: SimpleNamespace) -> None:
    """A leader may be asked before it has applied the log's first command: whoever registered with an empty name would belong nowhere."""
    with pytest.raises(UnavailableError, match="does not know its cluster yet; nothing was done"):
        manager.replica.cluster_id()
    manager.store.cluster_id = "c1"
    manager.signals.give(sig.CATALOGUE)
    assert manager.replica.cluster_id() == "c1"


def test_an_index_is_waited_for_during_an_election_too(manager: SimpleNamespace) -> None:
    """A vote was given, so nobody leads now; what was acknowledged before is on its way here."""
    manager.role.note_contact(Contact(manager.clock.monotonic(), 3), 7)
    manager.clock.advance(1.5)
    manager.role.note_contact(Contact(manager.clock.monotonic()), 8)
    assert manager.role.leader() is None
    manager.replica.prefer(8)
    assert (8, 3) == (manager.replica.applied_index(), manager.signals.waits)


@pytest.mark.parametrize("silent_seconds", [None, 2 * KEPT_SECONDS + 0.1])
def test_a_manager_that_is_cut_off_answers_at_once(manager: SimpleNamespace, silent_seconds: float | None) -> None:
    """With what it has; so does one that never heard of a leader."""
    if silent_seconds is not None:
        manager.role.note_contact(Contact(manager.clock.monotonic(), 3), 7)
        manager.clock.advance(silent_seconds)
    manager.replica.prefer(8)
    assert (5, 0) == (manager.replica.applied_index(), manager.signals.waits)


def test_whoever_waited_for_an_index_reads_nothing_older_from_memory(manager: SimpleNamespace) -> None:
    """A process may look at the database between the commit of what was applied and the word that what it keeps in memory is old."""
    manager.role.note_contact(Contact(manager.clock.monotonic(), 3), 7)
    assert 5 == manager.replica.catalogue().version
    manager.store.index = 7  # committed, and not announced yet
    manager.replica.prefer(7)
    assert (1, 8) == (manager.signals.waits, manager.replica.catalogue().version)


def test_a_writer_is_told_where_its_command_is_done_and_not_how_far_this_manager_is(manager: SimpleNamespace) -> None:
    """A manager that passed it on may be behind; a reader elsewhere must see it all the same."""
    assert 5 == manager.replica.index_of_writes()
    manager.replica.note_written(9)
    assert (5, 9) == (manager.replica.applied_index(), manager.replica.index_of_writes())
    manager.store.index = 12
    manager.signals.announce()
    assert 12 == manager.replica.index_of_writes()


def test_a_manager_that_no_longer_leads_says_so_at_once(manager: SimpleNamespace) -> None:
    """Whoever asked it needs what is left of his time to ask the next leader."""
    manager.role.lead(7)
    manager.signals.on_wait = manager.role.stop_leading
    began = manager.clock.monotonic()
    with pytest.raises(NotLeaderError):
        manager.replica.confirmed_index()
    assert (1, began) == (manager.signals.waits, manager.clock.monotonic())


def test_a_fresh_read_asks_the_next_leader(manager: SimpleNamespace) -> None:
    """Over a hand-over: this manager led when it was asked, the one it turns to has handed over too, the third confirms."""
    asked = []

    def heartbeats(leader: int, _heard: list[object], *, fresh: bool) -> SimpleNamespace:
        asked.append(leader)
        if leader == 2:
            manager.role.note_contact(Contact(manager.clock.monotonic(), 3), 9)
            raise NotLeaderError("it does not lead")
        return SimpleNamespace(version=8)

    manager.role.lead(7)
    manager.signals.on_wait = lambda: lose_to(2) if manager.role.is_write_manager else None

    def lose_to(leader: int) -> None:
        manager.role.stop_leading()
        manager.role.note_contact(Contact(manager.clock.monotonic(), leader), 8)

    manager.peers.heartbeats = heartbeats
    known = manager.replica.fresh()
    assert [2, 3] == asked
    assert known.version >= 8


def test_a_leader_settles_once_a_term(manager: SimpleNamespace) -> None:
    """It shows all that was committed when a majority confirmed it; afterwards it asks nobody until it leads again."""
    manager.role.lead(7)
    manager.signals.on_wait = lambda: manager.role.confirm_read(manager.signals.stamp(sig.READ), 9)
    manager.replica.settle()
    assert manager.store.index >= 9 and manager.replica.catalogue().version >= 9
    waits = manager.signals.waits
    manager.replica.settle()
    assert manager.signals.waits == waits
    manager.role.stop_leading()
    with pytest.raises(NotLeaderError):
        manager.replica.settle()
    manager.role.lead(8)
    manager.replica.settle()
    assert manager.signals.waits > waits
