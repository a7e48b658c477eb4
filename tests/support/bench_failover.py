"""How long producers wait when a leader dies: ``python -m tests.support.bench_failover [--rounds N] [--partitions N]``.

Starts a cluster with three brokers, keeps a producer sending to a topic with three replicas, kills the broker (-9, all its processes) that leads
its first partition, and takes the time until each partition has acknowledged a message that was sent after it; then the broker is
started again, and the next round begins once all replicas are in step.
"""

from __future__ import annotations

import argparse
import statistics
import time

import requests

from myqueue import MyProducer
from myqueue.supervisor import Cluster, ClusterSpec
from tests.support.clusters import running_cluster
from tests.support.waiting import wait_until

TOPIC = "failover"
WAIT_SECONDS = 60


def leader_node(cluster: Cluster) -> str | None:
    """The node that leads the partition now; None during an election. Brokers have their numbers in the order in which they came."""
    answer = requests.get(f"http://{cluster.bootstrap}/v1/cluster", params={"topic": TOPIC}, timeout=5).json()
    ports = {broker["broker_id"]: broker["port"] for broker in answer["brokers"]}
    leader = answer["partitions"][0]["leader"]
    nodes = {int(node["url"].rpartition(":")[2]): node["name"] for node in cluster.status()["nodes"] if node["url"]}
    return None if leader is None else nodes[ports[leader]]


def failover_seconds(cluster: Cluster, producer: MyProducer, partitions: int) -> float:
    """From the leader's death until every partition has acknowledged a message that was sent after it."""
    name = wait_until(lambda: leader_node(cluster), timeout_seconds=WAIT_SECONDS, what="a leader")
    began = time.perf_counter()
    cluster.kill(name)
    for delivery in [producer.send(TOPIC, b"after", partition=number) for number in range(partitions)]:
        delivery.result(WAIT_SECONDS)
    seconds = time.perf_counter() - began
    cluster.start(name)
    wait_until(lambda: cluster.node(name)["ready"], timeout_seconds=WAIT_SECONDS, what=f"{name} to be ready")
    for number in range(20):
        producer.send(TOPIC, b"between %d" % number).result(WAIT_SECONDS)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, metavar="N", help="default: 20")
    parser.add_argument("--partitions", type=int, default=1, metavar="N", help="of the topic (default: 1)")
    arguments = parser.parse_args()
    with running_cluster(ClusterSpec(brokers=3, managers=3, ports=(0,))) as cluster:
        made = requests.post(f"http://{cluster.bootstrap}/v1/topics", json={"topic": TOPIC, "partitions": arguments.partitions}, timeout=60)
        assert made.status_code == 201, made.text
        assert made.json()["replication_factor"] == 3, made.text
        with MyProducer(topics=[TOPIC], broker=cluster.bootstrap) as producer:
            producer.send(TOPIC, b"first").result(WAIT_SECONDS)
            times = []
            for number in range(arguments.rounds):
                times.append(failover_seconds(cluster, producer, arguments.partitions))
                print(f"round {number + 1}: {times[-1]:.2f} s", flush=True)
    ordered = sorted(times)
    p95 = ordered[int(0.95 * (len(ordered) - 1))]
    print(f"{len(times)} rounds: median {statistics.median(times):.2f} s, p95 {p95:.2f} s, worst {ordered[-1]:.2f} s")


if __name__ == "__main__":
    main()
