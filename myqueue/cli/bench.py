"""``myqueue bench``: what the SDK moves through a real cluster on this machine, and where the CPU time goes.

A cluster of its own (one manager, so that little else runs; fsync on, as always) in a folder that is removed afterwards;
one client process, this one. A figure is the median of the rounds. The machine's cores are shared by client, broker and
PostgreSQL, so compare CPU per message first.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..client.admin import AdminClient
from ..client.consumer import MyConsumer
from ..client.producer import MyProducer
from ..errors import InternalError
from ..supervisor import Cluster, ClusterSpec
from ..supervisor.process import descendants
from . import render
from .connecting import number

WORKLOADS = ("produce", "consume")
PROC = Path("/proc")
FLUSH_SECONDS = 300.0
SILENCE_SECONDS = 30.0
COLUMNS = ("workload", "messages_per_second", "megabytes_per_second", "cpu_us_client_caller", "cpu_us_client_threads", "cpu_us_broker",
           "cpu_us_postgres", "cpu_us_other")


@dataclass(frozen=True, slots=True)
class Round:
    """One measurement. CPU times are microseconds a message."""

    workload: str
    messages_per_second: float
    megabytes_per_second: float
    cpu_us_client_caller: float  # the thread that calls send or get_next
    cpu_us_client_threads: float  # packing, HTTP, fetching
    cpu_us_broker: float
    cpu_us_postgres: float
    cpu_us_other: float  # managers, balancer


def add_parser(groups: Any) -> None:
    parser = groups.add_parser("bench", help="measure the SDK against a cluster of its own",
                               description=__doc__.replace("``", "").strip(), formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"{' or '.join(WORKLOADS)}; without any: both")
    parser.add_argument("--messages", type=number(1), default=1_000_000, metavar="N", help="a round (default: 1000000)")
    parser.add_argument("--size", type=number(0), default=100, metavar="BYTES", help="of a message (default: 100)")
    parser.add_argument("--rounds", type=number(1), default=3, metavar="N", help="the figures are medians over them (default: 3)")
    parser.add_argument("--partitions", type=number(1), default=1, metavar="N", help="of the topic (default: 1)")
    parser.add_argument("--brokers", type=number(1), default=1, metavar="N", help="default: 1")
    parser.add_argument("--batch-records", type=number(1), default=10_000, metavar="N", help="most records a request (default: the SDK's, 10000)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rounds there")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Exit code 0 once every message was counted at both ends."""
    wanted = arguments.workloads or list(WORKLOADS)
    unknown = sorted(set(wanted) - set(WORKLOADS))
    if unknown:
        print(f"bench: there is no workload {', '.join(unknown)}: there are {', '.join(WORKLOADS)}", file=sys.stderr)
        return 2
    with _cluster(arguments.brokers) as cluster:
        print(f"{arguments.rounds} rounds of {arguments.messages:,} messages of {arguments.size} bytes, {arguments.partitions} partition(s), "
              f"{arguments.brokers} broker(s), 1 client process, {os.cpu_count()} cores shared by all, fsync on", flush=True)
        rounds = [measured for turn in range(arguments.rounds) for measured in _round(cluster, arguments, turn, wanted)]
    medians = [_median([measured for measured in rounds if measured.workload == workload]) for workload in WORKLOADS if workload in wanted]
    print(render.table(COLUMNS, [[getattr(median, column) for column in COLUMNS] for median in medians]), end="")
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": {"cores": os.cpu_count(), "system": platform.platform()}, "messages": arguments.messages,
                                              "size": arguments.size, "rounds": [asdict(measured) for measured in rounds]}, indent=2) + "\n")
    print("bench: " + ", ".join(f"{median.workload} {median.messages_per_second:,.0f} messages/s" for median in medians))
    return 0


def _round(cluster: Cluster, arguments: argparse.Namespace, turn: int, wanted: list[str]) -> list[Round]:
    topic, count, value = f"bench-{turn}", arguments.messages, b"x" * arguments.size
    produced = _measured("produce", cluster, count, arguments.size, lambda: _produce(cluster, topic, count, value, arguments))
    rounds = [produced]
    if "consume" in wanted:
        rounds.append(_measured("consume", cluster, count, arguments.size, lambda: _consume(cluster, topic, count)))
    return [measured for measured in rounds if measured.workload in wanted]


def _produce(cluster: Cluster, topic: str, count: int, value: bytes, arguments: argparse.Namespace) -> float:
    """Returns the CPU seconds of this thread from the first send to the last acknowledgement."""
    with AdminClient(cluster.bootstrap) as admin:
        admin.create_topic(topic, partitions=arguments.partitions)
    with MyProducer([topic], cluster.bootstrap, batch_records_max=arguments.batch_records) as producer:
        began, send = time.thread_time(), producer.send
        for _ in range(count):
            send(topic, value)
        producer.flush(FLUSH_SECONDS)
        return time.thread_time() - began


def _consume(cluster: Cluster, topic: str, count: int) -> float:
    with MyConsumer([topic], cluster.bootstrap) as consumer:
        began, seen = time.thread_time(), 0
        for _ in consumer.get_next(SILENCE_SECONDS):
            seen += 1
            if seen == count:
                break
        if seen != count:
            raise InternalError(f"{count} messages were acknowledged and {seen} could be read")
        return time.thread_time() - began


def _measured(workload: str, cluster: Cluster, count: int, size: int, work: Callable[[], float]) -> Round:
    before, client_before, began = _cpu_by_kind(cluster), time.process_time(), time.perf_counter()
    caller = work()
    seconds, client = time.perf_counter() - began, time.process_time() - client_before
    used = {kind: at_end - before[kind] for kind, at_end in _cpu_by_kind(cluster).items()}
    per_message = 1_000_000 / count
    other = sum(cpu for kind, cpu in used.items() if kind not in ("broker", "postgres"))
    return Round(workload, round(count / seconds), round(count * size / seconds / 1e6, 1), *(
        round(cpu * per_message, 2) for cpu in (caller, max(0.0, client - caller), used["broker"], used["postgres"], other)))


def _median(rounds: list[Round]) -> Round:
    return Round(rounds[0].workload, *(statistics.median(getattr(measured, column) for measured in rounds) for column in COLUMNS[1:]))


def _cpu_by_kind(cluster: Cluster) -> dict[str, float]:
    """CPU seconds so far of each kind of node, with all processes below it."""
    ticks_per_second = os.sysconf("SC_CLK_TCK")
    seconds: dict[str, float] = {}
    for node in cluster.status()["nodes"]:
        if node["pid"]:
            ticks = sum(_ticks(pid) for pid in (node["pid"], *descendants(node["pid"])))
            seconds[node["kind"]] = seconds.get(node["kind"], 0.0) + ticks / ticks_per_second
    return seconds


def _ticks(pid: int) -> int:
    """User and system time of a process and of its children that have ended."""
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0  # it has ended meanwhile: its parent counts it
    return sum(map(int, fields[11:15]))


@contextmanager
def _cluster(brokers: int) -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="myqueue-bench-", dir="/var/tmp" if os.geteuid() == 0 else None))  # noqa: S108
    folder.chmod(0o711)  # PostgreSQL runs as another user where we are root
    try:
        with Cluster(folder / "cluster", ClusterSpec(brokers=brokers, managers=1, ports=(0,))) as cluster:
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)
