"""Managers on real processes that compact their WAL: one far behind gets a state; killed in the middle of either; restarted under load.

After each fault: every acknowledged command is on every manager, the same log, the same tables, equal digests.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import requests

from tests.support.agreement import Kept, assert_agreed, kept
from tests.support.broker_stub import BrokerStub
from tests.support.long import LONG
from tests.support.managers import ManagerCluster, ManagerProcess, manager_cluster, register
from tests.support.waiting import wait_until

WAL_ENTRIES_MAX, SNAPSHOT_ENTRIES = 20, 10
ROUNDS = 50 if LONG else 1


@pytest.fixture
def cluster(postgres) -> Iterator[ManagerCluster]:
    with manager_cluster(postgres, flags=("--wal-entries-max", str(WAL_ENTRIES_MAX))) as cluster, BrokerStub() as stub:
        cluster.start()
        register(cluster.write, stub)
        stub.beat_to([manager.url for manager in cluster.managers])
        yield cluster


class Clients:
    """Create topics, each at the next manager, until they are told to stop, and keep which were acknowledged."""

    def __init__(self) -> None:
        self._managers: list[ManagerProcess] = []
        self._numbers, self._stopping = itertools.count(1), threading.Event()
        self.acknowledged: list[str] = []
        self.wrong: list[str] = []

    def run(self) -> None:
        while not self._stopping.is_set():
            number = next(self._numbers)
            try:
                answer = self._managers[number % len(self._managers)].post("/v1/topics", {"topic": f"t-{number}"})
            except requests.RequestException:
                self._stopping.wait(0.05)  # nobody listens there now
                continue
            if answer.status_code == 201:
                self.acknowledged.append(f"t-{number}")
            elif answer.status_code != 503:
                self.wrong.append(answer.text)

    @contextmanager
    def running(self, managers: list[ManagerProcess], *, count: int = 3) -> Iterator[Clients]:
        self._managers = managers
        threads = [threading.Thread(target=self.run, daemon=True) for _ in range(count)]
        self._stopping.clear()
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._stopping.set()
            for thread in threads:
                thread.join(15)
        assert not any(thread.is_alive() for thread in threads)
        assert self.wrong == []

    def wait_for(self, more: int) -> None:
        """Until so many more were acknowledged."""
        enough = len(self.acknowledged) + more
        wait_until(lambda: len(self.acknowledged) >= enough, timeout_seconds=30, what=f"{more} more acknowledged commands")


def assert_nothing_lost(cluster: ManagerCluster, acknowledged: list[str]) -> list[Kept]:
    """The managers agree; what was acknowledged is in the tables and in what each of them answers."""
    found = assert_agreed(cluster.managers)
    for manager in cluster.managers:
        wait_until(lambda manager=manager: set(acknowledged) <= set(manager.get("/topics").json()["topics"]),
                   what=f"manager {manager.node_id} to answer with all that was acknowledged")
    for one in found:
        assert one.end - one.start <= WAL_ENTRIES_MAX + 2 * SNAPSHOT_ENTRIES, "the WAL was not compacted"
    return found


def wait_killed(manager: ManagerProcess, fault: str) -> None:
    wait_until(lambda: f"fault point {fault}" in manager.log(), timeout_seconds=20, what=f"{fault} at manager {manager.node_id}")
    manager.kill()


@pytest.mark.timeout(180)
def test_a_manager_far_behind_gets_a_state(cluster: ManagerCluster):
    """Killed before and after it has it on disk; then one that lives and knows everything from before, by its caches too."""
    behind, clients = cluster.reads[0], Clients()
    behind.kill()
    with clients.running(cluster.managers):
        clients.wait_for(3 * WAL_ENTRIES_MAX)
        assert kept(behind).end < kept(cluster.write).start
        behind.start(faults="install_before_commit")
        wait_killed(behind, "install_before_commit")
        assert (0, {}) == (kept(behind).start, kept(behind).snapshots)
        behind.start(faults="install_after_commit")
        wait_killed(behind, "install_after_commit")
        assert kept(behind).start > 0
        behind.start()
        clients.wait_for(5)
    cluster.wait_ready()
    assert_nothing_lost(cluster, clients.acknowledged)

    paused, before = cluster.reads[0], clients.acknowledged[-1]
    assert before in paused.get("/topics").json()["topics"]
    paused.pause()
    with clients.running([manager for manager in cluster.managers if manager is not paused]):
        clients.wait_for(3 * WAL_ENTRIES_MAX)
        assert kept(paused).end < kept(cluster.write).start
        paused.resume()
    assert_nothing_lost(cluster, clients.acknowledged)
    assert "took the state at index" in paused.log()


@pytest.mark.timeout(120)
def test_killed_while_compacting(cluster: ManagerCluster):
    """With the snapshot written and not committed, and right after: the leader, then a manager that follows."""
    clients = Clients()
    with clients.running(cluster.managers):
        for victim in (cluster.write, cluster.reads[0]):
            for fault in ("compact_before_commit", "compact_after_commit"):
                victim.kill()
                victim.start(faults=fault)
                wait_killed(victim, fault)
            victim.start()
            clients.wait_for(SNAPSHOT_ENTRIES)
    cluster.wait_ready()
    found = assert_nothing_lost(cluster, clients.acknowledged)
    assert all(one.start > 0 for one in found)


@pytest.mark.timeout(60 + 60 * ROUNDS)
def test_killed_and_restarted_under_load(cluster: ManagerCluster):
    """kill -9 of a majority or of all, at random moments, while clients propose."""
    seed = random.randrange(1 << 30)
    chance, clients = random.Random(seed), Clients()
    print(f"seed {seed}")
    for round_number in range(ROUNDS):
        victims = chance.sample(cluster.managers, chance.choice((2, 3)))
        with clients.running(cluster.managers):
            clients.wait_for(chance.randint(1, 2 * SNAPSHOT_ENTRIES))
            for victim in victims:
                victim.kill()
            for victim in chance.sample(victims, len(victims)):
                victim.start()
            clients.wait_for(chance.randint(1, SNAPSHOT_ENTRIES))
        cluster.wait_ready()
        assert_nothing_lost(cluster, clients.acknowledged)
        print(f"round {round_number + 1}: {len(victims)} killed, {len(clients.acknowledged)} acknowledged commands are on every manager")
