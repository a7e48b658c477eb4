"""How fast three managers agree: ``python -m tests.support.bench_managers [--clients N] [--seconds S] [--elections N]``.

Starts them with databases of their own on one durable PostgreSQL, registers consumers one after the other, then from N
clients at once, then looks at the CPU time of the idle managers. With ``--elections`` it kills the leader so many times instead, and
takes the time to the next acknowledged command at one of the others.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import threading
import time

import requests

from tests.support.broker_stub import BrokerStub
from tests.support.managers import ManagerCluster, manager_cluster, register
from tests.support.postgres import postgres_for_tests

ONE_BY_ONE = 200
IDLE_SECONDS = 10


def register_consumer(session: requests.Session, url: str) -> float:
    """One metadata command; its seconds."""
    began = time.perf_counter()
    answer = session.post(f"{url}/consumer/register", json={"topic": "bench"}, timeout=10)
    assert answer.status_code == 200, answer.text
    return time.perf_counter() - began


def commands_per_second(cluster: ManagerCluster, clients: int, seconds: float) -> float:
    counts, url = [0] * clients, cluster.write.url
    end = time.monotonic() + seconds

    def run(number: int) -> None:
        with requests.Session() as session:
            while time.monotonic() < end:
                register_consumer(session, url)
                counts[number] += 1

    threads = [threading.Thread(target=run, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / seconds


def cpu_seconds(cluster: ManagerCluster) -> list[float]:
    """Of each manager, all of its processes."""
    used = {manager.process.pid: 0.0 for manager in cluster.managers if manager.process is not None}
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                fields = file.read().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it ended meanwhile
        if int(fields[2]) in used:  # its process group
            used[int(fields[2])] += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return list(used.values())


def seconds_to_next_command(cluster: ManagerCluster, turn: int) -> float:
    """From kill -9 of the leader; then it is started again."""
    leader, (reader, _) = cluster.write, cluster.reads
    reader.post("/v1/topics", {"topic": f"before-{turn}"})  # all is settled: what was there before the last death is applied here
    time.sleep(random.uniform(0, 0.5))  # at any moment between two rounds
    leader.kill()
    began = time.perf_counter()
    while (answer := reader.post("/v1/topics", {"topic": f"after-{turn}-{time.monotonic_ns()}"})).status_code != 201:
        assert answer.status_code == 503, answer.text
        assert time.perf_counter() - began < 30, reader.log()
    taken = time.perf_counter() - began
    leader.start()
    cluster.wait_ready()
    return taken


def elections(cluster: ManagerCluster, count: int) -> None:
    taken = sorted(seconds_to_next_command(cluster, turn) for turn in range(count))
    print(f"{count} deaths of the leader, to the next acknowledged command: median {statistics.median(taken):.2f} s, "
          f"p95 {taken[math.ceil(count * 0.95) - 1]:.2f} s, worst {taken[-1]:.2f} s; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--elections", type=int, default=0)
    options = parser.parse_args()
    with postgres_for_tests() as postgres, manager_cluster(postgres) as cluster, BrokerStub() as stub, requests.Session() as session:
        cluster.start()
        register(cluster.write, stub)
        stub.beat_to([manager.url for manager in cluster.managers])  # it is alive for every leader to come
        assert cluster.write.post("/topics", {"topic": "bench"}).status_code == 200
        if options.elections:
            elections(cluster, options.elections)
            return
        for name, manager in (("write", cluster.write), ("read", cluster.reads[0])):
            taken = sorted(register_consumer(session, manager.url) for _ in range(ONE_BY_ONE))
            p95 = taken[int(ONE_BY_ONE * 0.95)]
            print(f"one command at the {name} manager: median {statistics.median(taken) * 1e3:.1f} ms, p95 {p95 * 1e3:.1f} ms")
        before = cpu_seconds(cluster)
        rate = commands_per_second(cluster, options.clients, options.seconds)
        spent = [(after - was) / (rate * options.seconds) * 1e3 for was, after in zip(before, cpu_seconds(cluster), strict=True)]
        print(f"{options.clients} clients: {rate:.0f} commands/s; CPU a command: {', '.join(f'{one:.1f}' for one in spent)} ms")
        time.sleep(2)
        before = cpu_seconds(cluster)
        time.sleep(IDLE_SECONDS)
        idle = [(after - was) / IDLE_SECONDS * 100 for was, after in zip(before, cpu_seconds(cluster), strict=True)]
        print(f"idle: {', '.join(f'{one:.1f}' for one in idle)} % of a core")
        print(f"load average meanwhile: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
