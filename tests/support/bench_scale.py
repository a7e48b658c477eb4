"""What many topics cost: ``python -m tests.support.bench_scale [--topics N] [--partitions N] [--factor N] [--seconds T]``.

Starts a cluster with three managers and three brokers, creates topics through the balancer, one after the other, lists them in every way, leaves
everything alone for a while, and takes each node's memory and CPU time, all of its processes together. In the end every node but PostgreSQL is
started anew, and the time until it is ready is taken.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import requests

from myqueue import AdminClient
from myqueue.client.admin import TopicDescription
from myqueue.errors import UnavailableError
from myqueue.supervisor import Cluster, ClusterSpec
from myqueue.supervisor.process import descendants
from tests.support.bench_idle import used
from tests.support.clusters import running_cluster

SETTLE_SECONDS = 20.0
ASKED = 5
ATTEMPTS = 5
MIB = 1 << 20


def memory_bytes(pid: int) -> int:
    """Of a process and everything below it; what several share is counted once, in parts."""
    total = 0
    for one in (pid, *descendants(pid)):
        with open(f"/proc/{one}/smaps_rollup") as file:
            total += next(int(line.split()[1]) for line in file if line.startswith("Pss:")) << 10
    return total


def memory(cluster: Cluster) -> dict[str, int]:
    return {node["name"]: memory_bytes(node["pid"]) for node in cluster.status()["nodes"] if node["pid"]}


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = call()
    return time.perf_counter() - began, result


def _created(admin: AdminClient, name: str, partitions: int, factor: int) -> TopicDescription:
    """A topic is asked for until it is known to be there: a machine that is busy with other things may lose an answer."""
    for attempt in range(ATTEMPTS):
        try:
            return admin.create_topic(name, partitions=partitions, replication_factor=factor, exist_ok=True)
        except UnavailableError as error:
            print(f"attempt {attempt + 1} to create {name}: {error.message}")
    raise AssertionError(f"{name} could not be created")


def create(cluster: Cluster, topics: int, partitions: int, factor: int) -> None:
    taken, before = [], used(cluster)
    with AdminClient(cluster.bootstrap, max_block_seconds=120) as admin:
        for number in range(topics):
            name = f"t{number:05}"
            seconds, made = timed(lambda name=name: _created(admin, name, partitions, factor))
            assert (partitions, factor) == (made.partitions, made.replication_factor)
            taken.append(seconds)
    after = used(cluster)
    tenth = max(1, topics // 10)
    first, last = (sum(some) / tenth * 1e3 for some in (taken[:tenth], taken[-tenth:]))
    print(f"created in {sum(taken):.1f} s; one took {first:.0f} ms among the first tenth, {last:.0f} among the last, {max(taken) * 1e3:.0f} at worst")
    print("CPU a topic: " + ", ".join(f"{name} {(after[name] - before[name]) / topics * 1e3:.0f} ms" for name in before))


def listed(cluster: Cluster) -> None:
    with requests.Session() as http:
        for path in ("/topics", "/v1/topics", "/v1/topics?fresh=true", "/v1/cluster", "/health", "/brokers", "/v1/topics/t00000"):
            answers = [timed(lambda path=path: http.get(cluster.balancer_url + path, timeout=60)) for _ in range(ASKED)]
            assert all(answer.status_code == 200 for _, answer in answers), answers
            times = sorted(seconds for seconds, _ in answers)
            print(f"GET {path:24} {times[ASKED // 2] * 1e3:7.1f} ms, {times[-1] * 1e3:7.1f} at worst, {len(answers[0][1].content):>10,} bytes")


def idle(cluster: Cluster, seconds: float, empty: dict[str, int]) -> None:
    time.sleep(SETTLE_SECONDS)
    before, began = used(cluster), time.monotonic()
    time.sleep(seconds)
    after, passed = used(cluster), time.monotonic() - began
    held = memory(cluster)
    for name in before:
        share = (after[name] - before[name]) / passed * 100
        print(f"{name:12} {share:5.1f} % of a core, {held[name] / MIB:7.0f} MiB; {empty[name] / MIB:7.0f} MiB empty")
    print(f"load average meanwhile: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=1_000, metavar="N", help="how many (default: 1000)")
    parser.add_argument("--partitions", type=int, default=10, metavar="N", help="of each (default: 10)")
    parser.add_argument("--factor", type=int, default=1, metavar="N", help="replicas of each partition (default: 1)")
    parser.add_argument("--seconds", type=float, default=30.0, metavar="T", help="how long to look at the idle cluster (default: 30)")
    options = parser.parse_args()
    with running_cluster(ClusterSpec(brokers=3, managers=3, ports=(0,))) as cluster:
        empty = memory(cluster)
        create(cluster, options.topics, options.partitions, options.factor)
        listed(cluster)
        idle(cluster, options.seconds, empty)
        for name in ("manager-1", "broker-1", "balancer"):
            print(f"{name} is ready {timed(lambda name=name: cluster.restart(name))[0]:.1f} s after its restart was asked for")


if __name__ == "__main__":
    main()
