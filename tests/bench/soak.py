"""``scripts/soak``: a steady load for hours, a line a minute, a verdict at the end."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg2

from myqueue.client.consumer import MyConsumer
from myqueue.client.producer import MyProducer
from myqueue.errors import MyQueueError

from .chart import lines
from .contenders.base import CALL_SECONDS
from .contenders.myqueue import MyQueue
from .contenders.postgres import connect
from .figures import quantile
from .machine import described, memory_bytes, tree
from .stage import Stage, say
from .verdict import HELD, Minute, Verdict, judge, phase_at, told
from .workloads.latency import PER_SECOND, send_at_pace, sent_at

LOG = "soak"
RETENTION_MIB = 16  # a segment is a quarter: dropped every minute or so
INTERVAL_SECONDS = 60.0
QUIET_SECONDS = 1.0  # how long the consumer's thread waits before it looks whether all is over
MIB = 1 << 20
DEAD = "SELECT coalesce(sum(n_dead_tup), 0), coalesce(sum(autovacuum_count), 0) FROM pg_stat_user_tables"
SIZES = """SELECT coalesce(sum(pg_total_relation_size(oid)) FILTER (WHERE relname NOT LIKE 'log\\_%'), 0),
                  coalesce(sum(pg_total_relation_size(oid)) FILTER (WHERE relname LIKE 'log\\_%'), 0)
           FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"""
DROPPED = "SELECT coalesce(max(segment_id), 0) - count(*) FROM segment"
# A transaction that looked at something and then does nothing: no dead row may go that it could still see.
HOLD = "SET idle_in_transaction_session_timeout = 0; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM partition_state"


def main(argv: list[str] | None = None) -> int:
    """Exit code 0: good. 1: something creeps, or did not work. 2: usage."""
    arguments = _options(argv)
    try:
        verdict = soak(arguments.hours * 3600, arguments.interval, arguments.folder)
    except KeyboardInterrupt:
        say("ended before its time; everything it started is gone")
        return 130
    except (MyQueueError, OSError, AssertionError, psycopg2.Error) as error:
        say(f"failed: {type(error).__name__}: {error}")
        return 1
    for remark in verdict.remarks:
        print(f"  {remark}")
    for finding in verdict.findings:
        print(f"  * {finding}")
    print(f"soak: {'good' if verdict.is_good else f'{len(verdict.findings)} findings'}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": described(), **verdict.to_json()}, indent=1) + "\n")
    if arguments.chart:
        _draw(verdict, arguments.chart)
    return 0 if verdict.is_good else 1


def soak(seconds: float, interval_seconds: float, parent: Path | None = None) -> Verdict:
    minutes: list[Minute] = []
    with Stage(parent=parent) as stage, ExitStack() as stack:
        ours = stage.ours
        ours.create(LOG, config={"retention_bytes": RETENTION_MIB * MIB})
        database = _Database(ours, stack)
        load = stack.enter_context(_load(ours))
        began = time.monotonic()
        while (passed := time.monotonic() - began) < seconds:
            phase = phase_at(passed / seconds)
            database.hold(phase == HELD)
            load.sleep(min(interval_seconds, max(1.0, seconds - passed)))
            minutes.append(_look(ours, database, load, phase, time.monotonic() - began))
            print(told(minutes[-1]), flush=True)
    return judge(minutes, retention_mib=RETENTION_MIB)


class _Load:
    """A producer that keeps its pace and a consumer behind it, a thread each, until ``over``."""

    def __init__(self, ours: MyQueue, stack: ExitStack) -> None:
        self.over, self._failed = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        self._latencies: list[float] = []
        self._consumer = stack.enter_context(MyConsumer([LOG], ours.bootstrap))
        self._producer = stack.enter_context(MyProducer([LOG], ours.bootstrap))
        self.threads = [threading.Thread(target=self._run, args=(work,), daemon=True) for work in (self._consume, self._produce)]

    def sleep(self, seconds: float) -> None:
        """Raises what ended the load meanwhile."""
        self._failed.wait(seconds)
        if self._error is not None:
            raise self._error

    def take_latencies(self) -> list[float]:
        """Seconds of each message since the last call; there is one at least. Raises AssertionError where nothing arrived."""
        taken, self._latencies = self._latencies, []
        assert taken, "no message arrived in a whole interval"
        return taken

    def _run(self, work: Any) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 (told by sleep)
            self._error = error
            self._failed.set()

    def _produce(self) -> None:
        send_at_pace(self._producer, LOG, sys.maxsize, self.over)

    def _consume(self) -> None:
        while not self.over.is_set():
            for message in self._consumer.get_next(QUIET_SECONDS):
                self._latencies.append(time.monotonic() - sent_at(message.value))
                if self.over.is_set():
                    return


@contextmanager
def _load(ours: MyQueue) -> Iterator[_Load]:
    with ExitStack() as stack:
        load = _Load(ours, stack)
        for thread in load.threads:
            thread.start()
        try:
            yield load
        finally:
            load.over.set()
            for thread in load.threads:
                thread.join(CALL_SECONDS)


class _Database:
    """The broker's database: what it says of itself, and the transaction that is held open in it."""

    def __init__(self, ours: MyQueue, stack: ExitStack) -> None:
        url = ours.database(ours.nodes["broker-1"]["database"]["name"])
        self._url, self._stack = url, stack
        self._cursor = connect(url, stack).cursor()
        self._holding = ExitStack()
        stack.callback(self._holding.close)
        self._is_held = False

    def hold(self, wanted: bool) -> None:
        if wanted and not self._is_held:
            connect(self._url, self._holding).cursor().execute(HOLD)
        elif self._is_held and not wanted:
            self._holding.close()
        self._is_held = wanted

    def one(self, statement: str) -> tuple[Any, ...]:
        self._cursor.execute(statement)
        return self._cursor.fetchone()


def _look(ours: MyQueue, database: _Database, load: _Load, phase: str, at_seconds: float) -> Minute:
    latencies = load.take_latencies()
    dead, autovacuums = database.one(DEAD)
    tables, log = database.one(SIZES)
    [dropped] = database.one(DROPPED)
    memory = {"client": memory_bytes([os.getpid()]), **{name: memory_bytes(tree([node["pid"]])) for name, node in ours.nodes.items()}}
    return Minute(round(at_seconds, 1), phase, len(latencies), quantile(latencies, 0.5) * 1e3, quantile(latencies, 0.99) * 1e3,
                  {name: round(size / MIB, 1) for name, size in memory.items()}, int(dead), int(autovacuums), float(tables) / MIB, float(log) / MIB,
                  int(dropped))


def _draw(verdict: Verdict, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    minutes = verdict.minutes
    (folder / "soak-latency.svg").write_text(lines("soak: send to get_next", "ms", {
        "p50": [one.p50_ms for one in minutes], "p99": [one.p99_ms for one in minutes]}))
    names = [name for name in minutes[-1].memory_mib if name in ("client", "broker-1", "manager-1", "postgres")]
    (folder / "soak-memory.svg").write_text(lines("soak: memory", "MiB", {name: [one.memory_mib[name] for one in minutes] for name in names}))
    (folder / "soak-rows.svg").write_text(lines("soak: dead rows", "rows", {"dead rows": [one.dead_rows for one in minutes]}))


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/soak", formatter_class=argparse.RawDescriptionHelpFormatter,
        description=f"Send {PER_SECOND:,} messages a second through a cluster of its own for hours, to a topic that keeps {RETENTION_MIB} MiB,\n"
                    "and watch latency, the memory of every process, dead rows and table sizes. After 60 % of the time somebody keeps a\n"
                    "transaction open in the broker's database, for 20 %. A line a minute, and a verdict at the end.",
        epilog="exit codes: 0 good, 1 something creeps or did not work, 2 usage\n\n"
               "example:\n  scripts/soak --hours 8 --json soak.json --chart charts")
    parser.add_argument("--hours", type=float, default=1.0, metavar="H", help="how long (default 1)")
    parser.add_argument("--interval", type=float, default=INTERVAL_SECONDS, metavar="T", help="seconds between two lines (default 60)")
    parser.add_argument("--folder", type=Path, metavar="FOLDER", help="on the disk that is to be used (default /var/tmp)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the verdict and every interval there")
    parser.add_argument("--chart", type=Path, metavar="FOLDER", help="draw SVGs of latency, memory and dead rows there")
    found = parser.parse_args(argv)
    if min(found.hours, found.interval) <= 0:
        parser.error("--hours and --interval must be above 0")
    return found


if __name__ == "__main__":
    sys.exit(main())
