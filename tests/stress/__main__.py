"""``scripts/stress``: every operation of every face from many threads at once, counts and order checked."""

from __future__ import annotations

import argparse
import os
import sys
from urllib.parse import urlsplit

from myqueue.supervisor import ClusterSpec
from tests.support.clusters import running_cluster

from .faces import FACES
from .run import Result, Size, run


def main(argv: list[str] | None = None) -> int:
    """Exit code 0: everything agrees. 1: something does not. 2: usage."""
    parser = _arguments()
    options = parser.parse_args(argv)
    size = Size(options.threads, options.topics, options.partitions, options.messages)
    if min(size.threads, size.topics, size.partitions, size.messages) < 1:
        parser.error("--threads, --topics, --partitions and --messages must be 1 or more")
    faces = tuple(filter(None, options.faces.split(","))) or tuple(FACES)
    if unknown := sorted(set(faces) - set(FACES)):
        parser.error(f"--faces: there is no face {', '.join(unknown)}; there are {', '.join(FACES)}")
    at = urlsplit(options.url or "http://127.0.0.1:1")
    if at.scheme != "http" or not at.hostname or at.port is None:
        parser.error("the URL must look like http://127.0.0.1:9092")
    if options.url:
        results = run(at.netloc, size, faces=faces, token=os.environ.get("MYQUEUE_TOKEN"))
    else:
        with running_cluster(ClusterSpec(brokers=3, managers=3, ports=(0,))) as cluster:
            results = run(cluster.bootstrap, size, faces=faces)
    print(told(results))
    return 1 if any(result.faults for result in results) else 0


def told(results: list[Result]) -> str:
    """The results for people."""
    lines = [f"{one.face:>10}: {one.sent} messages sent, {one.read} read in {one.seconds:.1f} s, {len(one.faults)} discrepancies"
             for one in results]
    lines += [f"  * {fault}" for one in results for fault in one.faults[:10]]
    wrong = sum(len(one.faults) for one in results)
    return "\n".join([*lines, f"stress: {f'{wrong} discrepancies' if wrong else 'counts and order agree'}"])


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/stress", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Use every producer and consumer operation of the queue face, the partition face, the native face and the SDK from many threads\n"
                    "at once, and compare what was acknowledged with what is read: every message once, at its place, each producer's in its order.\n"
                    "In consumer groups too, by plain HTTP and by the SDK, while members come and go; in the end a group stands at the ends of its\n"
                    "partitions. Long polls, event streams and searches see all of it while others write.",
        epilog="exit codes: 0 counts and order agree, 1 a discrepancy, 2 usage\n\n"
               "examples:\n  scripts/stress --threads 1\n  scripts/stress --threads 16 --topics 4 --partitions 8 --messages 500\n"
               "  scripts/stress --faces queue,sdk http://127.0.0.1:9092")
    parser.add_argument("url", nargs="?", metavar="URL", help="a balancer; by default a cluster is started. MYQUEUE_TOKEN is shown where it is set")
    parser.add_argument("--threads", type=int, default=8, metavar="N", help="of each face (default 8)")
    parser.add_argument("--topics", type=int, default=2, metavar="N", help="of each face (default 2)")
    parser.add_argument("--partitions", type=int, default=3, metavar="N", help="of each topic (default 3)")
    parser.add_argument("--messages", type=int, default=100, metavar="N", help="that each thread sends to each topic (default 100)")
    parser.add_argument("--faces", default="", metavar="FACE,…", help=f"only these of {', '.join(FACES)}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
