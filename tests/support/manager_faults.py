"""Faults of the managers of a real cluster, under load, and what must hold afterwards: ``scripts/manager-faults``.

Each round does one thing to the manager that leads (or to several), while commands are given to all managers and through the
balancer. Afterwards: what was acknowledged is on every manager, the WALs are the same row for row, and so are the tables.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import secrets
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psycopg2
import requests

from myqueue.supervisor import Cluster, ClusterSpec
from myqueue.supervisor.process import descendants
from tests.support.clusters import running_cluster
from tests.support.load import PAUSE_SECONDS
from tests.support.waiting import wait_until

MANAGERS = ("manager-1", "manager-2", "manager-3")
TABLES = ("wal", "member", "broker", "topic", "partition", "producer", "consumer", "id_counter", "client_session")
SETTLE_SECONDS = 60.0
BACK_SECONDS = 30.0  # until a command is acknowledged again; how soon it should be is measured elsewhere


class Creator:
    """Creates topics at some managers, one after the other, and keeps which were acknowledged."""

    def __init__(self, urls: list[str]) -> None:
        self._urls = itertools.cycle(urls)
        self._prefix, self._numbers = f"t-{secrets.token_hex(3)}", itertools.count(1)
        self.acknowledged: list[str] = []

    def create(self) -> bool:
        name = f"{self._prefix}-{next(self._numbers)}"
        try:
            answer = requests.post(f"{next(self._urls)}/v1/topics", json={"topic": name}, timeout=10)
        except requests.RequestException:
            return False
        assert answer.status_code in (201, 503), answer.text
        if answer.status_code == 201:
            self.acknowledged.append(name)
        return answer.status_code == 201

    def create_one(self, within_seconds: float = 10.0) -> float:
        """Until one is acknowledged: how long that took."""
        began = time.monotonic()
        wait_until(self.create, timeout_seconds=within_seconds, what="a command to be acknowledged")
        return time.monotonic() - began


def url_of(cluster: Cluster, name: str) -> str:
    return str(cluster.node(name)["url"])


def leader_of(cluster: Cluster, *names: str) -> str:
    """Which manager leads, once these agree on one."""

    def agreed() -> str | None:
        said = set()
        for url in urls:
            try:
                said.add(requests.get(f"{url}/readyz", timeout=2).json().get("leader"))
            except requests.RequestException:
                return None
        return f"manager-{said.pop()}" if len(said) == 1 and None not in said else None

    urls = [url_of(cluster, name) for name in names or MANAGERS]
    return wait_until(agreed, timeout_seconds=SETTLE_SECONDS, what="the managers to agree on a leader")


def others(leader: str) -> list[str]:
    return [name for name in MANAGERS if name != leader]


def rows(cluster: Cluster, name: str, statement: str) -> list[tuple]:
    address = cluster.node(name)["database"]
    with closing(psycopg2.connect(host=address["host"], port=address["port"], dbname=address["name"], user=address["user"],
                                  passfile=str(cluster.folder.pgpass_file), connect_timeout=5)) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


def check_same(cluster: Cluster, acknowledged: list[str]) -> None:
    """Every manager has applied the same log to the same tables, and what was acknowledged is in them, once."""
    state = "SELECT current_term, commit_index, applied_index, (SELECT max(index) FROM wal) FROM raft_state"

    def settled() -> bool:
        found = {rows(cluster, name, state)[0] for name in MANAGERS}
        return len(found) == 1 and len(set(next(iter(found))[1:])) == 1

    wait_until(settled, timeout_seconds=SETTLE_SECONDS, what="all managers to have applied all of one log", interval_seconds=0.1)
    for table in TABLES:
        first, *more = [rows(cluster, name, f"SELECT one::text FROM {table} AS one ORDER BY 1") for name in MANAGERS]
        assert more == [first, first], table
    names = [name for name, in rows(cluster, "manager-1", "SELECT name FROM topic")]
    assert set(acknowledged) <= set(names)
    created = [topic for topic, in rows(cluster, "manager-1", "SELECT command->>'topic' FROM wal WHERE command->>'type' LIKE 'create%topic'")]
    assert all(created.count(name) == 1 for name in acknowledged)


def term_of(cluster: Cluster, name: str) -> int:
    return int(rows(cluster, name, "SELECT current_term FROM raft_state")[0][0])


class Campaign:
    """Rounds of faults on one cluster whose managers have a PostgreSQL each."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.acknowledged: list[str] = []
        self.counts: Counter[str] = Counter()

    def round(self, fault: str) -> None:
        """One fault under load; then everything is healed and compared.

        Raises:
            AssertionError: something acknowledged is lost, or the managers differ, or do not come back in time.
        """
        cluster = self.cluster
        leader = leader_of(cluster)
        urls = [url_of(cluster, name) for name in MANAGERS]
        creators = [Creator(urls), Creator(urls[1:] + urls[:1]), Creator([cluster.balancer_url])]
        stop = threading.Event()

        def create(creator: Creator) -> None:
            while not stop.wait(PAUSE_SECONDS):
                creator.create()

        with ThreadPoolExecutor(len(creators)) as pool:
            loads = [pool.submit(create, creator) for creator in creators]
            try:
                wait_until(lambda: all(creator.acknowledged for creator in creators), timeout_seconds=BACK_SECONDS, what="load")
                FAULTS[fault](cluster, leader)
                heal(cluster)
                before = [len(creator.acknowledged) for creator in creators]
                wait_until(lambda: all(len(creator.acknowledged) > count for creator, count in zip(creators, before, strict=True)),
                           timeout_seconds=BACK_SECONDS, what=f"commands to be acknowledged after {fault}")
            finally:
                stop.set()
            for load in loads:
                load.result(BACK_SECONDS)
        acknowledged = [name for creator in creators for name in creator.acknowledged]
        check_same(cluster, acknowledged + self.acknowledged)
        self.acknowledged += acknowledged
        self.counts[fault] += 1


def heal(cluster: Cluster) -> None:
    """Every node runs again and is ready."""
    nodes = {node["name"]: node for node in cluster.status()["nodes"]}
    for name in sorted(nodes, key=lambda name: not name.startswith("postgres")):
        if nodes[name]["state"] == "paused":
            cluster.resume(name)
        elif nodes[name]["state"] == "down":
            cluster.start(name)
    wait_until(lambda: all(node["ready"] for node in cluster.status()["nodes"]), timeout_seconds=SETTLE_SECONDS, what="all nodes to be ready",
               interval_seconds=0.1)


def pid_of(cluster: Cluster, name: str) -> int:
    return int(cluster.node(name)["pid"])


def next_command(cluster: Cluster, *names: str) -> None:
    """Until one is acknowledged by these managers."""
    Creator([url_of(cluster, name) for name in names]).create_one(BACK_SECONDS)


def kill_leader(cluster: Cluster, leader: str) -> None:
    cluster.kill(leader)
    next_command(cluster, *others(leader))


def kill_driver(cluster: Cluster, leader: str) -> None:
    """The worker process that drives; the master starts another."""
    worker, = [pid for pid in descendants(pid_of(cluster, leader)) if Path(f"/proc/{pid}").exists()]
    os.kill(worker, signal.SIGKILL)
    next_command(cluster, *others(leader))


def kill_backend(cluster: Cluster, leader: str) -> None:
    """One process of the leader's PostgreSQL: the server throws out everybody and recovers."""
    database = f" {cluster.node(leader)['database']['name']} ".encode()
    serving = [pid for pid in descendants(pid_of(cluster, f"postgres-{leader}")) if database in command_line(pid)]
    os.kill(random.choice(serving), signal.SIGKILL)
    next_command(cluster, *others(leader))


def kill_postgres(cluster: Cluster, leader: str) -> None:
    """All of its processes."""
    cluster.kill(f"postgres-{leader}")
    next_command(cluster, *others(leader))


def stop_postgres_at_once(cluster: Cluster, leader: str) -> None:
    """PostgreSQL's immediate stop: without a checkpoint. The supervisor starts it again."""
    exits = cluster.node(f"postgres-{leader}")["exits"]
    postmaster = next(pid for pid in descendants(pid_of(cluster, f"postgres-{leader}")) if b"postgres\0-D" in command_line(pid))
    os.kill(postmaster, signal.SIGQUIT)
    wait_until(lambda: cluster.node(f"postgres-{leader}")["exits"] > exits, timeout_seconds=BACK_SECONDS, what="the stop to be noticed")
    next_command(cluster, *others(leader))


def freeze_leader(cluster: Cluster, leader: str) -> None:
    """It wakes up in a later term, with commands in its sockets and in its hands."""
    cluster.pause(leader)
    next_command(cluster, *others(leader))
    cluster.resume(leader)


def end_leader(cluster: Cluster, leader: str) -> None:
    """SIGTERM, and a new start."""
    cluster.restart(leader)


def interrupt_leader(cluster: Cluster, leader: str) -> None:
    """SIGINT; the supervisor starts it again."""
    exits = cluster.node(leader)["exits"]
    os.kill(pid_of(cluster, leader), signal.SIGINT)
    wait_until(lambda: cluster.node(leader)["exits"] > exits, timeout_seconds=BACK_SECONDS, what="the end to be noticed")


def end_a_follower(cluster: Cluster, leader: str) -> None:
    cluster.restart(random.choice(others(leader)))


def kill_a_majority(cluster: Cluster, leader: str) -> None:
    for name in (leader, random.choice(others(leader))):
        cluster.kill(name)


def kill_all(cluster: Cluster, _leader: str) -> None:
    for name in MANAGERS:
        cluster.kill(name)


FAULTS: dict[str, Callable[[Cluster, str], None]] = {
    fault.__name__: fault for fault in (kill_leader, kill_driver, kill_backend, kill_postgres, stop_postgres_at_once, freeze_leader, end_leader,
                                        interrupt_leader, end_a_follower, kill_a_majority, kill_all)}


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""  # it ended meanwhile


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0: nothing was lost and nothing differs. 1: the first round that failed is named."""
    parser = argparse.ArgumentParser(prog="scripts/manager-faults",
                                     description="Start three managers with a PostgreSQL each and do harm to them, under load, round "
                                     "after round: kill -9 of the leader, its driver, its PostgreSQL; a freeze; clean stops; a majority; all. "
                                     "After each round every acknowledged command must be on every manager, with one log and the same tables.")
    parser.add_argument("--rounds", type=int, default=len(FAULTS), metavar="N", help=f"how many (default {len(FAULTS)}: each fault once)")
    parser.add_argument("--seed", type=int, default=None, metavar="S", help="draws the faults (default: a new one)")
    parser.add_argument("--fault", choices=sorted(FAULTS), help="only this one")
    options = parser.parse_args(argv)
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    seed = secrets.randbelow(1 << 31) if options.seed is None else options.seed
    chosen = schedule(seed, options.rounds, options.fault)
    with running_cluster(ClusterSpec(brokers=1, managers=3, ports=(0,), postgres="per-node")) as cluster:
        return run(Campaign(cluster), chosen, seed)


def schedule(seed: int, rounds: int, fault: str | None = None) -> list[str]:
    """The faults of a campaign: all of them in random orders, so that each comes about as often."""
    if fault:
        return [fault] * rounds
    rng = random.Random(seed)
    return list(itertools.islice((name for _ in itertools.count() for name in rng.sample(sorted(FAULTS), len(FAULTS))), rounds))


def run(campaign: Campaign, chosen: Sequence[str], seed: int) -> int:
    for number, fault in enumerate(chosen, 1):
        began = time.monotonic()
        try:
            campaign.round(fault)
        except AssertionError as error:
            print(f"round {number}, {fault}: {error}\n  again: scripts/manager-faults --rounds {number} --seed {seed}", file=sys.stderr)
            print(f"faults: FAILED in round {number} of {len(chosen)}, {fault}")
            return 1
        seconds = time.monotonic() - began
        print(f"round {number} of {len(chosen)}: {fault}, {len(campaign.acknowledged)} commands acknowledged, {seconds:.1f} s", flush=True)
    told = ", ".join(f"{name} {count}" for name, count in sorted(campaign.counts.items()))
    print(f"faults: {len(chosen)} ({told}); {len(campaign.acknowledged)} acknowledged commands checked on 3 managers; lost 0, differing 0")
    return 0


if __name__ == "__main__":
    sys.exit(main())
