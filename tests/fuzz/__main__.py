"""``scripts/fuzz``: draw requests from a seed, send them, and say what was wrong with the answers."""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from urllib.parse import urlsplit

from myqueue.supervisor import ClusterSpec
from tests.support.clusters import running_cluster

from .run import Report, Run, run_on

LOOPBACK = ("127.0.0.1", "localhost")


def main(argv: list[str] | None = None) -> int:
    """Exit code 0: nothing was wrong. 1: something was. 2: usage."""
    parser = _arguments()
    options = parser.parse_args(argv)
    at = urlsplit(options.url or "http://127.0.0.1:1")
    if options.requests < 1:
        parser.error("--requests must be 1 or more")
    if at.scheme != "http" or at.hostname not in LOOPBACK or at.port is None:
        parser.error("the URL must look like http://127.0.0.1:9092: only a cluster on this machine is asked such questions")
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    print(f"fuzz: seed {seed}", flush=True)
    began = time.monotonic()

    def say(line: str) -> None:
        print(line, flush=True)

    if options.url:
        report = Run((at.port,), seed=seed, say=say, token=os.environ.get("MYQUEUE_TOKEN")).do(options.requests)
    else:
        with running_cluster(ClusterSpec(brokers=3, managers=3, ports=(0,))) as cluster:
            report = run_on(cluster, requests=options.requests, seed=seed, say=say)
    print(told(report, seconds=time.monotonic() - began, replay=f"scripts/fuzz --requests {options.requests} --seed {seed}"))
    return 1 if report.findings else 0


def told(report: Report, *, seconds: float, replay: str) -> str:
    """The report for people."""
    statuses = ", ".join(f"{count} × {status or 'ended'}" for status, count in sorted(report.statuses.items()))
    lines = [f"\n{report.requests} requests in {seconds:.0f} s: {statuses}; the slowest took {report.slowest_seconds:.1f} s"]
    for what, (count, example) in sorted(report.findings.items()):
        lines.append(f"\n* {what} ({count} times)\n    {example}")
    lines.append(f"\nfuzz: {'nothing was wrong' if not report.findings else f'{len(report.findings)} kinds of findings; again with {replay}'}")
    return "\n".join(lines)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/fuzz", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Send requests drawn from a seed to a cluster: the native face by its OpenAPI document, the two older faces with every spelling\n"
                    "and place of their arguments, bytes that are no well framed requests, and streams of events. Each answer is checked: in\n"
                    "time, as documented, no 5xx that was not provoked. In the end there are just the messages that were accepted, and no node has\n"
                    "restarted or logged a fault.",
        epilog="exit codes: 0 nothing was wrong, 1 something was, 2 usage\n\n"
               "examples:\n  scripts/fuzz --requests 2000\n  scripts/fuzz --requests 50000 --seed 7\n"
               "  scripts/fuzz --requests 500 http://127.0.0.1:9092")
    parser.add_argument("url", nargs="?", metavar="URL",
                        help="a balancer on this machine; by default a cluster is started, whose databases and logs are looked at too. The topics "
                             "and groups that the run makes are deleted. MYQUEUE_TOKEN is shown where it is set")
    parser.add_argument("--requests", type=int, default=2_000, metavar="N", help="how many (default 2000)")
    parser.add_argument("--seed", type=int, metavar="S", help="what is drawn; one is drawn and told by default")
    return parser


if __name__ == "__main__":
    sys.exit(main())
