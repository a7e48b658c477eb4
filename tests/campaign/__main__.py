"""``scripts/faults``: run a campaign and say what it found."""

from __future__ import annotations

import argparse
import json
import random
import shlex
import sys
from pathlib import Path

from myqueue.errors import MyQueueError
from tests.campaign.lab import Shape
from tests.campaign.run import Plan, run
from tests.campaign.schedule import KINDS
from tests.campaign.verdict import judge, told


def main(argv: list[str] | None = None) -> int:
    """Exit code 0: clean. 1: a violation, or the campaign could not be run. 2: usage."""
    parser = _arguments()
    options = parser.parse_args(argv)
    only = tuple(filter(None, options.only.split(",")))
    unknown = sorted(set(only) - set(KINDS))
    if unknown:
        parser.error(f"--only: there is no kind {', '.join(unknown)}; there are {', '.join(KINDS)}")
    if options.minutes <= 0 or options.rate < 1 or options.pause <= 0:
        parser.error("--minutes, --rate and --pause must be above 0")
    seed = random.SystemRandom().randrange(1_000_000) if options.seed is None else options.seed
    try:
        shape = Shape(options.brokers, options.managers, options.postgres, tuple(filter(None, options.broken.split(","))))
        plan = Plan(seconds=options.minutes * 60, seed=seed, rate=options.rate, pause_seconds=options.pause, only=only,
                    replication_factor=options.replication_factor, shape=shape, logs=None if options.logs is None else Path(options.logs))
        shape.spec  # noqa: B018 (reading it checks it)
    except MyQueueError as error:
        parser.error(str(error))
    print(f"faults: seed {seed}, {options.minutes:g} minutes of faults", flush=True)
    history = run(plan, say=lambda line: print(line, flush=True))
    verdict = judge(history)
    print("\n" + told(verdict, replay=_replay(options, seed)))
    if options.json:
        Path(options.json).write_text(json.dumps({"seed": seed, "minutes": options.minutes, **verdict.to_json()}, indent=1) + "\n")
    if options.history:
        Path(options.history).write_text("".join(f"{line}\n" for line in history.to_lines()))
    return 0 if verdict.is_clean else 1


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/faults", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Run a cluster of real processes under load of every face, strike it with faults drawn from a seed, heal it, and judge the\n"
                    "recorded history: nothing acknowledged is lost, doubled or reordered, replicas agree, nobody is stuck.",
        epilog="kinds of faults:\n  " + "\n  ".join(KINDS) + "\n\nexit codes: 0 clean, 1 a violation was found, 2 usage\n\n"
               "examples:\n  scripts/faults --minutes 2 --seed 1\n  scripts/faults --minutes 10 --only kill_broker,pause --json verdict.json")
    parser.add_argument("--minutes", type=float, default=2.0, metavar="M", help="how long faults strike (default 2); the rest comes on top")
    parser.add_argument("--seed", type=int, metavar="S", help="the schedule of faults; one is drawn and told by default")
    parser.add_argument("--only", default="", metavar="KIND,…", help="draw from these kinds only")
    parser.add_argument("--pause", type=float, default=5.0, metavar="T", help="seconds between two faults, on average (default 5)")
    parser.add_argument("--rate", type=float, default=300.0, metavar="R", help="messages a second that the SDK's producers send (default 300)")
    parser.add_argument("--replication-factor", type=int, metavar="N", help="of the topics; by default what the cluster gives")
    parser.add_argument("--brokers", type=int, default=3, metavar="N", help="brokers (default 3)")
    parser.add_argument("--managers", type=int, default=3, metavar="N", help="managers (default 3)")
    parser.add_argument("--postgres", choices=("per-node", "shared"), default="per-node", help="one PostgreSQL per node (default), or one for all")
    parser.add_argument("--broken", default="", metavar="POINT,…",
                        help="break rules on purpose, the campaign should fail: append_before_disk, vote_not_stored")
    parser.add_argument("--json", metavar="FILE", help="write the verdict there")
    parser.add_argument("--history", metavar="FILE", help="write everything that was seen there, as JSON lines")
    parser.add_argument("--logs", metavar="DIR", help="keep the nodes' logs there")
    return parser


def _replay(options: argparse.Namespace, seed: int) -> str:
    words = ["scripts/faults", "--minutes", f"{options.minutes:g}", "--seed", str(seed)]
    defaults = vars(_arguments().parse_args([]))
    for name in ("only", "pause", "rate", "replication_factor", "brokers", "managers", "postgres", "broken"):
        value = getattr(options, name)
        if value != defaults[name]:
            words += [f"--{name.replace('_', '-')}", f"{value:g}" if isinstance(value, float) else str(value)]
    return shlex.join(words)


if __name__ == "__main__":
    sys.exit(main())
