"""What a cluster costs that nobody uses: ``python -m tests.support.bench_idle [--partitions N] [--seconds T]``.

Starts a cluster with three managers and three brokers, makes topics with three replicas a partition, leaves everything alone for a while, and
then takes each node's CPU time, all of its processes together.
"""

from __future__ import annotations

import argparse
import os
import time

import requests

from myqueue.supervisor import Cluster, ClusterSpec
from myqueue.supervisor.process import descendants
from tests.support.clusters import running_cluster

PARTITIONS_A_TOPIC = 10
SETTLE_SECONDS = 15.0


def cpu_seconds(pid: int) -> float:
    """Of a process and everything below it, as far as it lives."""
    total = 0.0
    for one in (pid, *descendants(pid)):
        with open(f"/proc/{one}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def used(cluster: Cluster) -> dict[str, float]:
    return {node["name"]: cpu_seconds(node["pid"]) for node in cluster.status()["nodes"] if node["pid"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=300, metavar="N", help="of all topics together (default: 300)")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="T", help="how long to look (default: 60)")
    options = parser.parse_args()
    with running_cluster(ClusterSpec(brokers=3, managers=3, ports=(0,))) as cluster:
        for number in range(-(-options.partitions // PARTITIONS_A_TOPIC)):
            made = requests.post(f"{cluster.balancer_url}/v1/topics", json={"topic": f"t{number}", "partitions": PARTITIONS_A_TOPIC}, timeout=60)
            assert (made.status_code, made.json().get("replication_factor")) == (201, 3), made.text
        time.sleep(SETTLE_SECONDS)
        before, began = used(cluster), time.monotonic()
        time.sleep(options.seconds)
        after, seconds = used(cluster), time.monotonic() - began
        for name in before:
            print(f"{name:12} {(after[name] - before[name]) / seconds * 100:5.1f} % of a core")
        print(f"load average meanwhile: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
