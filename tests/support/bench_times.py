"""What it costs to find a time in a log: ``python -m tests.support.bench_times [--entries N] [--segments N]``.

Fills one partition's log in a PostgreSQL of its own, so many small entries in one segment and then a thousand in each of the others, and looks
for random times: before and after the planner was told of the tables (ANALYZE).
"""

from __future__ import annotations

import argparse
import random
import time

from broker.core.append import AppendRequest
from broker.core.group import plan_group
from broker.core.offsets import LogRange
from db.engine import make_engine
from db.postgres_log import PostgresLogStore
from db.segments import RollPolicy
from tests.support.factories import PARTITION, blocks
from tests.support.postgres import postgres_for_tests

GROUP = 1_000
LOOK_UPS = 500


def fill(store: PostgresLogStore, entries: int, first_time: int) -> int:
    """Append so many entries, a microsecond apart by thousands; the next free time."""
    for when in range(first_time, first_time + entries, GROUP):
        with store.locked(PARTITION) as held:
            plan = plan_group(PARTITION, held.head.end, held.state, LogRange(0, held.head.commit_offset), [AppendRequest(blocks(b"x" * 100))] * GROUP,
                              epoch=1, now_us=when)
            held.append(plan.entries, plan.end)
            held.commit(plan.end.lsn, plan.end.offset, plan.changes)
    return first_time + entries


def measure(store: PostgresLogStore, end_time: int, what: str) -> None:
    rng, seconds = random.Random(1), []
    for _ in range(LOOK_UPS):
        when, began = rng.randrange(end_time), time.perf_counter()
        store.first_offset_since(PARTITION, when)
        seconds.append(time.perf_counter() - began)
    seconds.sort()
    print(f"{what}: median {seconds[LOOK_UPS // 2] * 1e3:.2f} ms, 95 % within {seconds[LOOK_UPS * 95 // 100] * 1e3:.2f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=500_000, metavar="N", help="of the first segment (default: 500000)")
    parser.add_argument("--segments", type=int, default=64, metavar="N", help="in all (default: 64)")
    arguments = parser.parse_args()
    with postgres_for_tests() as server, server.database("broker") as url:
        engines = [make_engine(url, application_name="bench", pool_size=2) for _ in range(2)]
        store = PostgresLogStore(*engines)
        store.create(PARTITION, topic="t", config={})
        end = fill(store, arguments.entries, 1)
        measure(store, end, f"one segment of {arguments.entries:,} entries")
        for _ in range(arguments.segments - 1):
            store.maintain_segments(RollPolicy(1, 1e9))
            end = fill(store, GROUP, end)
        measure(store, end, f"{arguments.segments} segments")
        with store.transaction() as cursor:
            cursor.execute("ANALYZE")
        measure(store, end, f"{arguments.segments} segments, analysed")
        for engine in engines:
            engine.dispose()


if __name__ == "__main__":
    main()
