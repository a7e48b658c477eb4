"""``scripts/simulate``: run seeds of the managers' consensus and say what was found."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.simulation.chaos import CHAOS_SECONDS, Options, run_seed
from tests.simulation.mutant import UNCHANGED
from tests.simulation.mutants import MUTANTS
from tests.simulation.partitions.scenario import Scenario as PartitionsScenario
from tests.simulation.run import Result
from tests.simulation.scenario import Scenario

SHOWN_MAX = 5


def main(argv: list[str] | None = None) -> int:
    """Exit code 0: nothing found. 1: an invariant was violated. 2: usage."""
    parser = _arguments()
    options = parser.parse_args(argv)
    if not 2 <= options.nodes <= 9 or options.seeds < 1 or options.seconds <= 0:
        parser.error("--nodes must be 2 to 9, --seeds at least 1, --seconds above 0")
    if options.rewrite_scenarios:
        print(f"simulate: {Scenario.rewrite() + PartitionsScenario.rewrite()} scenario files changed; read the diff")
        return 0
    if options.seed is not None:
        return _one(options)
    return _many(options)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/simulate", description="Run the managers' consensus through seeded schedules of faults: lost, "
                                     "doubled, late messages, cuts, crashes at any step, lost disks, snapshots, membership changes. The invariants "
                                     "R1-R8 are checked after every step, and everything must converge after healing.")
    parser.add_argument("--seeds", type=int, default=2_000, metavar="N", help="how many seeds (default 2000)")
    parser.add_argument("--first", type=int, default=0, metavar="S", help="the first seed (default 0)")
    parser.add_argument("--seed", type=int, metavar="S", help="run one seed and print its whole trace")
    parser.add_argument("--nodes", type=int, default=3, metavar="N", help="managers, 2 to 9 (default 3)")
    parser.add_argument("--seconds", type=float, default=CHAOS_SECONDS, metavar="T", help=f"simulated seconds of faults (default {CHAOS_SECONDS:g})")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), metavar="NAME",
                        help="take one rule out; the run should fail. Names: " + ", ".join(sorted(MUTANTS)))
    parser.add_argument("--rewrite-scenarios", action="store_true", help="write the scenario files' traces as they are now")
    return parser


def _run(options: argparse.Namespace, seed: int, *, trace: bool = False) -> Result:
    mutant = MUTANTS[options.mutant] if options.mutant else UNCHANGED
    with mutant.planted() as kinds:
        return run_seed(seed, Options(nodes=options.nodes, seconds=options.seconds), kinds, trace=trace)


def _replay(options: argparse.Namespace, seed: int) -> str:
    words = ["scripts/simulate", f"--seed {seed}", f"--nodes {options.nodes}"]
    if options.seconds != CHAOS_SECONDS:
        words.append(f"--seconds {options.seconds:g}")
    if options.mutant:
        words.append(f"--mutant {options.mutant}")
    return " ".join(words)


def _one(options: argparse.Namespace) -> int:
    result = _run(options, options.seed, trace=True)
    print("\n".join(result.trace))
    outcome = f"VIOLATION {result.violation}" if result.violation else "no violation"
    print(f"simulate: seed {options.seed}, {options.nodes} managers, {result.steps} steps, {result.committed} committed: {outcome}")
    return 1 if result.violation else 0


def _many(options: argparse.Namespace) -> int:
    began = time.monotonic()
    steps = committed = terms = faults = 0
    seen: Counter[str] = Counter()
    violations: list[Result] = []
    for seed in range(options.first, options.first + options.seeds):
        try:
            result = _run(options, seed)
        except Exception:
            print(f"seed {seed} ended with an error; replay: {_replay(options, seed)}", file=sys.stderr)
            raise
        steps, committed = steps + result.steps, committed + result.committed
        terms, faults = terms + result.leaderships, faults + result.faults
        seen.update(result.seen)
        if result.violation:
            violations.append(result)
            if len(violations) <= SHOWN_MAX:
                print(f"seed {seed}: {result.violation}\n  replay: {_replay(options, seed)}", flush=True)
        elif sys.stderr.isatty() and seed % 100 == 99:
            print(f"\r{seed + 1 - options.first} seeds", end="\r", file=sys.stderr, flush=True)
    print("seen: " + ", ".join(f"{name} {count}" for name, count in sorted(seen.items())))
    outcome = f"{len(violations)} VIOLATIONS" if violations else "no violation"
    print(f"simulate: {options.seeds} seeds, {options.nodes} managers, {steps} steps, {faults} faults, {terms} terms led, {committed} committed, "
          f"{time.monotonic() - began:.1f} s: {outcome}")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
