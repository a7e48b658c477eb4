"""What the write manager's coordinator does about partitions, with brokers and elections that are only asked."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from db.metadata_store import BrokerRow, CatalogueRows, PartitionRow, TopicRow
from manager.appointer import Appointer
from manager.catalogue import Catalogue, replicas_of
from manager.cluster.election import Broker, Outlook
from manager.cluster.reassignment import ChangeVoters
from manager.coordinator import Coordinator
from myqueue.protocol.types import PartitionId
from myqueue.testing import ManualClock

DISKS = {1: "d1", 2: "d2", 3: "d3"}
BROKERS = tuple(BrokerRow(number, disk, "h", 80 + number, "ACTIVE", {}) for number, disk in DISKS.items())
ROWS = tuple(PartitionRow(7, number, 3, 4, "ACTIVE", number + 1, {str(broker): disk for broker, disk in DISKS.items()}) for number in (0, 1, 2))
CATALOGUE = Catalogue.of(CatalogueRows("cluster", 12, (), BROKERS, (TopicRow(7, "a", 3, {}, 0),), ROWS))
OUTLOOK = Outlook({number: Broker(number, disk) for number, disk in DISKS.items()})
TURNS = 3


class Turns(threading.Event):
    """Stops the coordinator after some turns, and waits for none."""

    count = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.count += 1
        if self.count >= TURNS:
            self.set()
        return self.is_set()


def elections_held(damaged: set[tuple[int, int]], *, turn_seconds: float = 0.0) -> list[tuple[PartitionId, str]]:
    """What is elected, and why, where these (broker, partition) are damaged; with time that passes, voters are cared for too."""
    clock = ManualClock()
    held: list[tuple[PartitionId, str]] = []

    def status(broker_id: int, _address: object, partitions: object = None, **_: Any) -> list[dict[str, Any]]:
        return [{"topic_id": 7, "partition": row.partition, "fault": "lsn 1" if (broker_id, row.partition) in damaged else None,
                 "leading": row.leader == broker_id, "leader_epoch": row.epoch, "committed_in_epoch": row.leader == broker_id, "commit_lsn": 0,
                 "replicas": {str(other): {} for other in DISKS if other != broker_id}} for row in ROWS]

    def outlook(_catalogue: Catalogue) -> Outlook:
        clock.advance(turn_seconds)
        return OUTLOOK

    def hold(elections: list[Any], _outlook: Outlook, *, attempts: int) -> set[PartitionId]:
        held.extend((election.partition, election.reason) for election in elections)
        return {election.partition for election in elections}

    replica: Any = SimpleNamespace(catalogue=lambda: CATALOGUE, current=lambda: CATALOGUE, confirmed_index=lambda: 12, require=lambda index: None)
    brokers: Any = SimpleNamespace(each=lambda calls: [call() for call in calls], status=status)
    watch: Any = SimpleNamespace(outlook=outlook, begin=lambda: None, is_in_doubt=False)
    signals: Any = None
    leading = threading.Event()
    leading.set()
    Coordinator(propose=lambda command: {}, elections=SimpleNamespace(hold=hold), replica=replica, brokers=brokers,  # type: ignore[arg-type]
                appointer=Appointer(replica=replica, brokers=brokers, signals=signals), watch=watch, clock=clock).run(leading, Turns())
    return held


def test_a_leader_that_says_that_its_replica_is_damaged_is_replaced():
    """Broker 1 leads partition 0 and took its appointment long ago."""
    assert elections_held(damaged=set()) == []
    assert set(elections_held(damaged={(1, 0), (1, 2)})) == {(PartitionId(7, 0), "broker 1 cannot lead")}


def test_a_voter_that_says_that_its_replica_is_damaged_loses_its_vote():
    """At the next turn of care; nothing is done where the present leader was not asked in its epoch."""
    assert elections_held(damaged=set(), turn_seconds=1.0) == []
    held = elections_held(damaged={(1, 2)}, turn_seconds=1.0)
    assert set(held) == {(PartitionId(7, 2), "its voters change")}


def test_a_partition_moves_once_its_leader_s_followers_have_shown_themselves():
    """Partition 2, which broker 3 leads, is wanted on 2 and 3: nobody leaves before 2 follows in this epoch, nor behind a damaged leader."""
    row = ROWS[2]._replace(wanted=[2, 3], replication_factor=2)
    acknowledged = {"disk_id": "d2", "matched_lsn": 9, "counts": True, "disk_lost": False}

    def taken(told: dict[str, Any], fault: str | None = None) -> object:
        nobody: Any = None
        coordinator = Coordinator(propose=nobody, elections=nobody, replica=nobody, brokers=nobody, appointer=nobody, watch=nobody,
                                  clock=ManualClock())
        status = {"leading": True, "leader_epoch": 4, "committed_in_epoch": True, "commit_lsn": 10, "fault": fault, "replicas": {"2": told}}
        return coordinator._step(replicas_of(row), OUTLOOK, status, {})

    assert taken(acknowledged) == ChangeVoters({2: "d2", 3: "d3"})
    assert taken({**acknowledged, "disk_id": None}) is None
    assert taken({**acknowledged, "counts": False}) is None
    assert taken({**acknowledged, "disk_lost": True}) is None
    assert taken(acknowledged, "lsn 1") is None


def test_an_election_that_somebody_else_has_begun_is_left_to_him_for_a_moment():
    """An operator's request on any manager; not what was left behind before this coordinator looked for the first time."""
    def due(*, begun_at: int) -> list[int]:
        """In which looks, a third of a second apart, partition 0 is elected, which is ELECTING from a look on."""
        clock, looks, held = ManualClock(), [0], []

        def catalogue() -> Catalogue:
            electing = looks[0] >= begun_at
            row = PartitionRow(7, 0, 3, 5, "ELECTING", None, ROWS[0].voters) if electing else ROWS[0]
            return Catalogue.of(CatalogueRows("cluster", 12, (), BROKERS, (TopicRow(7, "a", 3, {}, 0),), (row,)))

        def outlook(_catalogue: Catalogue) -> Outlook:
            clock.advance(0.34)
            looks[0] += 1
            return OUTLOOK

        def hold(elections: list[Any], _outlook: Outlook, *, attempts: int) -> set[PartitionId]:
            held.append(looks[0] - 1)
            return {election.partition for election in elections}

        replica: Any = SimpleNamespace(catalogue=catalogue)
        watch: Any = SimpleNamespace(outlook=outlook, begin=lambda: None, is_in_doubt=False)
        nobody: Any = None
        coordinator = Coordinator(propose=lambda command: {}, elections=SimpleNamespace(hold=hold), replica=replica,  # type: ignore[arg-type]
                                  brokers=nobody, appointer=Appointer(replica=replica, brokers=nobody, signals=nobody), watch=watch, clock=clock)
        coordinator.begin()
        coordinator._care_due = coordinator._tidy_due = float("inf")
        for _ in range(6):
            coordinator._turn()
        return held

    assert due(begun_at=0)[0] == 0
    assert due(begun_at=1)[0] == 4


def test_partitions_that_are_led_elect_few_at_a_time_and_no_more_once_one_finds_no_leader():
    """A drain of many partitions while brokers are slow would leave all of them without a leader."""
    rounds: list[int] = []

    def hold(elections: list[Any], _outlook: Outlook, *, attempts: int) -> set[PartitionId]:
        rounds.append(len(elections))
        return {election.partition for election in elections[len(rounds) // 3:]}  # from the third round on one finds nobody

    nobody: Any = None
    coordinator = Coordinator(propose=nobody, elections=SimpleNamespace(hold=hold), replica=nobody, brokers=nobody,  # type: ignore[arg-type]
                              appointer=nobody, watch=nobody, clock=ManualClock())
    elections: Any = [SimpleNamespace(partition=PartitionId(7, number)) for number in range(90)]
    coordinator._hold_gently(elections, OUTLOOK)
    assert rounds == [20, 20, 20]
    assert list(coordinator._failed) == [PartitionId(7, 40)], "those that were not begun are still led"


def test_an_election_that_fails_again_and_again_is_given_more_time():
    """Brokers that are too slow to promise in time would be so in every round."""
    told: list[int] = []
    clock = ManualClock()

    def hold(elections: list[Any], _outlook: Outlook, *, attempts: int) -> set[PartitionId]:
        told.append(attempts)
        return set()

    def outlook(_catalogue: Catalogue) -> Outlook:
        clock.advance(60.0)
        return OUTLOOK

    rows = (PartitionRow(7, 0, 3, 4, "ELECTING", None, {str(broker): disk for broker, disk in DISKS.items()}),)
    catalogue = Catalogue.of(CatalogueRows("cluster", 12, (), BROKERS, (TopicRow(7, "a", 3, {}, 0),), rows))
    replica: Any = SimpleNamespace(catalogue=lambda: catalogue)
    watch: Any = SimpleNamespace(outlook=outlook, begin=lambda: None, is_in_doubt=False)
    nobody: Any = None
    leading = threading.Event()
    leading.set()
    Coordinator(propose=lambda command: {}, elections=SimpleNamespace(hold=hold), replica=replica, brokers=nobody,  # type: ignore[arg-type]
                appointer=Appointer(replica=replica, brokers=nobody, signals=nobody), watch=watch, clock=clock).run(leading, Turns())
    assert told == [0, 1, 2]
