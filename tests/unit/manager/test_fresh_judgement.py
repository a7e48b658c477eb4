"""What an operator asks for is judged by all that was committed before, though this manager has not applied it yet: it may be new as a leader."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from db.metadata_store import BrokerRow, CatalogueRows, PartitionRow, TopicRow
from manager.catalogue import Catalogue
from manager.cluster.election import Broker, Outlook
from manager.cluster.liveness import State
from manager.leaderships import Leaderships
from manager.recovery import Recovery
from manager.repairs import Repairs
from manager.service import ManagerService
from myqueue.errors import RefusedError
from myqueue.testing import ManualClock

DISKS = {1: "d1", 2: "d2", 3: "d3", 4: "d4"}
TOPIC = TopicRow(7, "t", 3, {}, 0)


def catalogue(version: int, brokers: tuple[int, ...], voters: tuple[int, ...], leader: int) -> Catalogue:
    rows = tuple(BrokerRow(number, DISKS[number], "h", 80 + number, "ACTIVE", {}) for number in brokers)
    partition = PartitionRow(7, 0, 3, version, "ACTIVE", leader, {str(number): DISKS[number] for number in voters})
    return Catalogue.of(CatalogueRows("c", version, (), rows, (TOPIC,), (partition,)))


OLD = catalogue(5, (1, 2, 3), (1, 2, 3), 1)  # what is applied here
NEW = catalogue(9, (1, 2, 3, 4), (2, 3, 4), 4)  # what is committed: broker 4 came, and leads what broker 1 held
REPLICA = SimpleNamespace(catalogue=lambda: OLD, current=lambda: OLD, certain=lambda look: look(OLD), fresh=lambda: NEW)
BROKERS = SimpleNamespace(status=lambda *_, **__: [], each=lambda calls: [call() for call in calls])
NO_ELECTION = SimpleNamespace(hold=lambda *_: pytest.fail("nothing is to be elected"))


def outlook(known: Catalogue, dead: frozenset[int] = frozenset()) -> Outlook:
    return Outlook({number: Broker(number, row.disk_id) for number, row in known.brokers.items()}, dead=dead)


def service(propose: Callable[[Any], Any]) -> ManagerService:
    clock, alive = ManualClock(), dict.fromkeys(DISKS, State.ALIVE)
    return ManagerService(proposer=SimpleNamespace(propose=propose), replica=REPLICA, liveness=SimpleNamespace(broker_states=lambda: alive),  # type: ignore[arg-type]
                          records=SimpleNamespace(), brokers=BROKERS, appointer=SimpleNamespace(), book=SimpleNamespace(), peers=SimpleNamespace(),  # type: ignore[arg-type]
                          role=SimpleNamespace(), clock=clock, pause=clock.advance, appoint_timeout_seconds=1.0, propose_timeout_seconds=1.0,  # type: ignore[arg-type]
                          drain_wait_seconds=1.0)


def test_a_broker_that_was_just_registered_can_be_drained():
    proposed: list[Any] = []
    service(lambda command: proposed.append(command) or {}).drain_broker(4)
    assert [4] == [command.broker_id for command in proposed]


def test_who_leads_by_now_is_not_elected_again():
    told = Leaderships(elections=NO_ELECTION, replica=REPLICA, brokers=BROKERS, outlook=outlook).elect("t", 0, 4)  # type: ignore[arg-type]
    assert {"topic": "t", "partition": 0, "leader": 4, "epoch": 9, "changed": False} == told


def test_a_replica_of_now_can_be_repaired():
    """Broker 4 is no stranger to the partition: its replica is taken out, as far as these brokers let it be."""
    with pytest.raises(RefusedError, match="no majority"):
        Repairs(elections=NO_ELECTION, replica=REPLICA, brokers=BROKERS, outlook=outlook).repair("t", 0, 4)  # type: ignore[arg-type]


def test_a_majority_that_is_lost_by_now_is_given_up():
    proposed: list[Any] = []
    recovery = Recovery(propose=lambda command: proposed.append(command) or {"items": [{"ok": True}]}, replica=REPLICA, brokers=BROKERS,  # type: ignore[arg-type]
                        outlook=lambda known: outlook(known, frozenset({3, 4})))
    assert [[2]] == [one["survivors"] for one in recovery.force("t")]
    assert 1 == len(proposed)
