"""What a replica that comes back costs producers: ``python -m tests.support.bench_catch_up [--messages N]``.

Starts a cluster with three brokers and a topic with one partition and three replicas, sends as fast as it goes, kills a
follower's broker (-9, all its processes) for so many messages, starts it again, and takes the producers' rate while it is away, while it
catches up, and the time until it holds everything that was acknowledged when it was back.
"""

from __future__ import annotations

import argparse
import time

import requests

from myqueue import MyProducer
from myqueue.protocol import routes
from myqueue.supervisor import Cluster, ClusterSpec
from tests.support.bench_failover import leader_node
from tests.support.clusters import running_cluster
from tests.support.waiting import wait_until

TOPIC = "failover"
CHUNK = 50_000
VALUE = b"x" * 100
WAIT_SECONDS = 120


def send_chunk(producer: MyProducer) -> float:
    """Send a chunk and wait for it; messages a second."""
    began = time.perf_counter()
    for _ in range(CHUNK):
        producer.send(TOPIC, VALUE)
    producer.flush(WAIT_SECONDS)
    return CHUNK / (time.perf_counter() - began)


def end_offset(cluster: Cluster, node: str) -> int:
    """What this broker knows to be committed; -1 where it does not hold or serve the partition now."""
    path = routes.PARTITION.format(topic=TOPIC, partition=0)
    try:
        answer = requests.get(f"{cluster.node(node)['url']}{path}", timeout=5)
    except requests.RequestException:
        return -1
    return int(answer.json()["end_offset"]) if answer.status_code == 200 else -1


def median(rates: list[float]) -> float:
    return sorted(rates)[len(rates) // 2]


def measure(cluster: Cluster, producer: MyProducer, messages: int) -> None:
    leader = wait_until(lambda: leader_node(cluster), what="a leader")
    follower = next(name for name in ("broker-1", "broker-2", "broker-3") if name != leader)
    together = [send_chunk(producer) for _ in range(6)]
    cluster.kill(follower)
    away = [send_chunk(producer) for _ in range(-(-messages // CHUNK))]
    goal = end_offset(cluster, leader)
    cluster.start(follower)
    wait_until(lambda: cluster.node(follower)["ready"], timeout_seconds=WAIT_SECONDS, what="the broker to be ready")
    began, during = time.perf_counter(), []
    while end_offset(cluster, follower) < goal:
        during.append(send_chunk(producer))
        assert time.perf_counter() - began < WAIT_SECONDS, f"{follower} is at {end_offset(cluster, follower)}, {goal} is the goal"
    print(f"{messages:,} messages missed, made up for in {time.perf_counter() - began:.1f} s while {len(during) * CHUNK:,} more were sent")
    print(f"messages a second: {median(together):,.0f} with all, {median(away):,.0f} while it was away, "
          f"{median(during):,.0f} while it caught up (least {min(during):,.0f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000, metavar="N", help="that the follower misses (default: 1000000)")
    arguments = parser.parse_args()
    with running_cluster(ClusterSpec(brokers=3, managers=1, ports=(0,))) as cluster:
        made = requests.post(f"http://{cluster.bootstrap}/v1/topics", json={"topic": TOPIC}, timeout=10)
        assert made.status_code == 201, made.text
        assert made.json()["replication_factor"] == 3, made.text
        with MyProducer(topics=[TOPIC], broker=cluster.bootstrap) as producer:
            measure(cluster, producer, arguments.messages)


if __name__ == "__main__":
    main()
