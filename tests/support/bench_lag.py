"""How soon a consumer that is far behind begins: ``python -m tests.support.bench_lag [--messages N]``.

Starts a cluster with one broker and one manager, fills two topics of one partition each, one with many messages and one with a thousand, and takes
the time from a consumer's constructor to its first message, for each in turn; and for the long one the rate of the messages after it.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time

from myqueue import AdminClient, MyConsumer, MyProducer
from myqueue.supervisor import Cluster, ClusterSpec
from tests.support.clusters import running_cluster

VALUE = b"x" * 100
FEW = 1_000
ROUNDS = 5
READ_ON = 500_000


def fill(cluster: Cluster, topic: str, messages: int) -> None:
    began = time.perf_counter()
    with MyProducer([topic], cluster.bootstrap) as producer:
        for _ in range(messages):
            producer.send(topic, VALUE)
        producer.flush(600)
    print(f"{messages:,} messages of {len(VALUE)} bytes were sent in {time.perf_counter() - began:.1f} s")


def first_message(cluster: Cluster, topic: str) -> float:
    """From the constructor to the first message, in seconds."""
    began = time.perf_counter()
    with MyConsumer([topic], cluster.bootstrap) as consumer:
        next(consumer.get_next(60))
        return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=10_000_000, metavar="N", help="in the long topic (default: 10000000)")
    options = parser.parse_args()
    with running_cluster(ClusterSpec(brokers=1, managers=1, ports=(0,))) as cluster:
        counts = {"few": FEW, "many": options.messages}
        for topic, count in counts.items():
            fill(cluster, topic, count)
        times = {topic: [first_message(cluster, topic) for _ in range(ROUNDS)] for topic in counts}
        for topic, count in counts.items():
            print(f"behind by {count:,}: the first message {statistics.median(times[topic]) * 1e3:.0f} ms after the constructor was called, "
                  f"{max(times[topic]) * 1e3:.0f} at worst of {ROUNDS}")
        with MyConsumer(["many"], cluster.bootstrap) as consumer, AdminClient(cluster.bootstrap) as admin:
            began = time.perf_counter()
            read = sum(1 for _ in itertools.islice(consumer.get_next(60), min(READ_ON, options.messages)))
            print(f"then {read / (time.perf_counter() - began):,.0f} messages a second")
            consumer.commit()
            asked = time.perf_counter()
            lag = admin.lag("many", consumer.consumer_ids["many"])[0].lag
            print(f"its lag, {lag:,}, is told in {(time.perf_counter() - asked) * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
