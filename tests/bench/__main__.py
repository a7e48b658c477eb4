"""``scripts/bench``: measure, print one table, write JSON and charts."""

from __future__ import annotations

import argparse
import http.client
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psycopg2
from pika.exceptions import AMQPError
from redis.exceptions import RedisError

from myqueue.errors import MyQueueError

from .chart import charts
from .figures import Round, Row, rows
from .machine import NO_DISK_MS, described, disk
from .plan import PEERS, WORKLOADS, Options
from .run import flushes, run
from .stage import Stage, say
from .table import flushes_told, headline, remarks, table
from .workloads import MAKERS

FAILURES = (MyQueueError, OSError, AssertionError, psycopg2.Error, RedisError, AMQPError, http.client.HTTPException)  # of a contender
GROUPS, GROUP_SHARE = 200, 100  # acknowledged one by one where syncs are counted; of a short run fewer


def main(argv: list[str] | None = None) -> int:
    """Exit code 0: measured. 1: something did not work. 2: usage."""
    options, arguments = _options(argv)
    try:
        result = measure(options, arguments.folder)
    except KeyboardInterrupt:
        say("ended before its time; everything it started is gone")
        return 130
    print(result.told(), end="")
    if arguments.json:
        arguments.json.write_text(json.dumps(result.to_json(), indent=1) + "\n")
    if arguments.chart:
        arguments.chart.mkdir(parents=True, exist_ok=True)
        for name, svg in charts(result.rows).items():
            (arguments.chart / name).write_text(svg)
    return 1 if result.failure else 0


@dataclass
class Result:
    """What a run found. Where something failed, what was measured before is there."""

    options: Options
    machine: dict[str, Any] = field(default_factory=described)
    disk: dict[str, float] = field(default_factory=dict)
    rounds: list[Round] = field(default_factory=list)
    bases: dict[tuple[str, str], Sequence[str]] = field(default_factory=dict)
    fsyncs: dict[str, dict[str, float]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    failure: str | None = None

    @property
    def rows(self) -> list[Row]:
        return rows(self.rounds, self.bases)

    def to_json(self) -> dict[str, Any]:
        return {"machine": self.machine, "disk": self.disk, "options": asdict(self.options), "failure": self.failure, "left_out": self.left_out,
                "rows": [row.to_json() for row in self.rows], "fsyncs": self.fsyncs, "rounds": [asdict(one) for one in self.rounds]}

    def told(self) -> str:
        """For people. Nothing stands before the one figure that is looked for."""
        shown, machine, disk = self.rows, self.machine, self.disk
        first = headline(shown)
        lines = [*([first, ""] if first else []), table(shown), *remarks(shown), *flushes_told(self.fsyncs),
                 f"disk: one 8 KiB write with fdatasync takes {disk['fsync_p50_ms']} ms (median), {disk['fsync_p99_ms']} ms (p99)"
                 + ("; THIS IS NO DISK" if disk["fsync_p50_ms"] < NO_DISK_MS else ""),
                 f"machine: {machine['cores']} cores shared by client and servers, {machine['cpu']}, load {machine['load_before']} before; "
                 f"commit {machine['commit']}", *(f"left out: {name}: {reason}" for name, reason in self.left_out.items()),
                 *([f"FAILED, the rest was not measured: {self.failure}"] if self.failure else [])]
        return "\n".join(lines) + "\n"


def measure(options: Options, parent: Path | None = None) -> Result:
    """Start what is needed, measure all, end all."""
    result = Result(options)
    with Stage(options.peers, parent) as stage:
        result.disk = disk(stage.folder)
        try:
            for workload in options.workloads:
                cases = MAKERS[workload](stage, options)
                result.bases |= {(case.workload, case.name): case.bases for case in cases}
                result.rounds.extend(run(stage, cases, options.rounds))
            if "produce" in options.workloads:
                result.fsyncs = flushes([stage.ours, stage.postgres], min(GROUPS, options.messages // GROUP_SHARE + 1))
        except FAILURES as error:
            result.failure = f"{type(error).__name__}: {error}"
        result.left_out = stage.left_out
        say("ending")
    return result


def _options(argv: list[str] | None) -> tuple[Options, argparse.Namespace]:
    parser = _parser()
    found = parser.parse_args(argv)
    workloads, peers = tuple(found.workloads) or WORKLOADS, tuple(filter(None, found.peers.split(",")))
    for what, given, known in (("workload", workloads, WORKLOADS), ("peer", peers, PEERS)):
        if unknown := sorted(set(given) - set(known)):
            parser.error(f"there is no {what} {', '.join(unknown)}: there are {', '.join(known)}")
    if min(found.messages, found.rounds, found.backlog) < 1 or min(found.seconds, found.millions) <= 0:
        parser.error("numbers must be above 0")
    return Options(workloads, peers, found.messages, found.rounds, found.seconds, found.millions, found.backlog), found


def _parser() -> argparse.ArgumentParser:
    default = Options()
    parser = argparse.ArgumentParser(
        prog="scripts/bench", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Measure MyQueue, PostgreSQL alone, a bare sketch of the same path and other brokers in turn on this machine: medians, ratios,\n"
                    "CPU time, and what each acknowledgement means. Starts all that it needs by itself and leaves nothing behind.",
        epilog="workloads:\n"
               "  produce     one process, 100 B and 1 KiB, in batches; its first line is the ratio to PostgreSQL alone\n"
               "  consume     one process, 100 B, from the beginning of a log\n"
               "  single      one message a call: 1 and 32 callers that wait for their own acknowledgement\n"
               "  latency     1,000 messages a second from send to get_next\n"
               "  replicated  three replicas against one, three brokers on one disk\n"
               "  growth      a long log, many partitions, many producers, against few\n"
               "  memory      of broker and SDK with a backlog\n\n"
               "exit codes: 0 measured, 1 something did not work, 2 usage\n\n"
               "examples:\n  scripts/bench produce\n"
               "  scripts/bench produce consume single --peers redis,rabbitmq,nats --json figures.json --chart charts")
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="all of them by default")
    parser.add_argument("--peers", default="", metavar="PEER,…", help=f"{', '.join(PEERS)}: where they are installed on this machine")
    parser.add_argument("--messages", type=int, default=default.messages, metavar="N", help=f"of 100 B in a round (default {default.messages})")
    parser.add_argument("--rounds", type=int, default=default.rounds, metavar="N", help=f"figures are medians over them (default {default.rounds})")
    parser.add_argument("--seconds", type=float, default=default.seconds, metavar="T", help=f"of a round of latency (default {default.seconds:g})")
    parser.add_argument("--millions", type=float, default=default.millions, metavar="N",
                        help=f"messages in growth's long log, in millions (default {default.millions:g})")
    parser.add_argument("--backlog", type=int, default=default.backlog_mib, metavar="MIB", help=f"of memory (default {default.backlog_mib})")
    parser.add_argument("--folder", type=Path, metavar="FOLDER", help="on the disk that is to be measured (default /var/tmp)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write rows, rounds, machine and disk there")
    parser.add_argument("--chart", type=Path, metavar="FOLDER", help="draw an SVG for each case there")
    return parser


if __name__ == "__main__":
    sys.exit(main())
