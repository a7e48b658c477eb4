"""``scripts/simulate``: run seeds of the managers' consensus, or of a partition's replication, and say what was found."""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from tests.simulation import chaos, jobs, mutants
from tests.simulation.mutant import UNCHANGED, Mutant
from tests.simulation.partitions import chaos as partitions_chaos
from tests.simulation.partitions import mutants as partitions_mutants
from tests.simulation.partitions.scenario import Scenario as PartitionsScenario
from tests.simulation.run import Result
from tests.simulation.scenario import Scenario

SHOWN_MAX = 5
TOLD_EVERY = 10_000  # seeds: a long run says how far it is
SEEDS_AT_A_TIME = 20  # that a process takes
NODES = 3


class Simulation(ABC):
    """What can be run from seeds."""

    mutants: Mapping[str, Mutant]
    leaderships: str  # what is led
    chaos_seconds: float

    def __init__(self, options: argparse.Namespace) -> None:
        self.mutant = self.mutants[options.mutant] if options.mutant else UNCHANGED
        self.seconds = self.chaos_seconds if options.seconds is None else options.seconds

    def run(self, seed: int, *, trace: bool = False) -> Result:
        """One schedule."""
        with self.mutant.planted() as kinds:
            return self.run_seed(seed, kinds, trace=trace)

    def run_told(self, seed: int) -> Result:
        """One schedule of many; an error names it."""
        try:
            return self.run(seed)
        except Exception:
            print(f"seed {seed} ended with an error; replay: {self.replay(seed)}", file=sys.stderr)
            raise

    def replay(self, seed: int) -> str:
        """The command that runs this seed again and prints its trace."""
        words = ["scripts/simulate", *self.words(seed)]
        if self.seconds != self.chaos_seconds:
            words.append(f"--seconds {self.seconds:g}")
        if self.mutant is not UNCHANGED:
            words.append(f"--mutant {self.mutant.name}")
        return " ".join(words)

    @abstractmethod
    def run_seed(self, seed: int, kinds: Any, *, trace: bool) -> Result: ...

    @abstractmethod
    def words(self, seed: int) -> list[str]:
        """The arguments that name this simulation and a seed."""

    @abstractmethod
    def __str__(self) -> str:
        """What is simulated, for a summary."""


class Managers(Simulation):
    """The managers' consensus."""

    mutants, leaderships, chaos_seconds = mutants.MUTANTS, "terms", chaos.CHAOS_SECONDS

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(options)
        self.nodes = NODES if options.nodes is None else options.nodes

    def run_seed(self, seed: int, kinds: Any, *, trace: bool) -> Result:
        return chaos.run_seed(seed, chaos.Options(nodes=self.nodes, seconds=self.seconds), kinds, trace=trace)

    def words(self, seed: int) -> list[str]:
        return [f"--seed {seed}", f"--nodes {self.nodes}"]

    def __str__(self) -> str:
        return f"{self.nodes} managers"


class Partitions(Simulation):
    """A partition's replication, its elections and its clients."""

    mutants, leaderships, chaos_seconds = partitions_mutants.MUTANTS, "epochs", partitions_chaos.CHAOS_SECONDS

    def run_seed(self, seed: int, kinds: Any, *, trace: bool) -> Result:
        return partitions_chaos.run_seed(seed, partitions_chaos.Options(seconds=self.seconds), kinds, trace=trace)

    def words(self, seed: int) -> list[str]:
        return ["--partitions", f"--seed {seed}"]

    def __str__(self) -> str:
        return "a partition"


def main(argv: list[str] | None = None) -> int:
    """Exit code 0: nothing found. 1: an invariant was violated, or the run was interrupted. 2: usage."""
    parser = _arguments()
    options = parser.parse_args(argv)
    _check(parser, options)
    if options.rewrite_scenarios:
        print(f"simulate: {Scenario.rewrite() + PartitionsScenario.rewrite()} scenario files changed; read the diff")
        return 0
    simulation = simulation_of(options)
    if options.seed is not None:
        return _one(simulation, options.seed)
    return _many(simulation, range(options.first, options.first + options.seeds), options)


def simulation_of(options: argparse.Namespace) -> Simulation:
    return Partitions(options) if options.partitions else Managers(options)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/simulate", description="Run the managers' consensus, or a partition's replication, through seeded "
                                     "schedules of faults: lost, doubled, late messages, cuts, crashes at any step, lost disks, snapshots or dropped "
                                     "logs, changes of members or voters. The invariants R1-R8 are checked after every step, and everything must "
                                     "converge after healing.")
    parser.add_argument("--partitions", action="store_true", help="a partition with its replicas (1, 2, 3 or 5 by the seed), two coordinators that "
                        "elect its leaders, producers and consumers. Without it: the managers")
    parser.add_argument("--seeds", type=int, default=2_000, metavar="N", help="how many seeds (default 2000)")
    parser.add_argument("--first", type=int, default=0, metavar="S", help="the first seed (default 0)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes that share the seeds (default 1)")
    parser.add_argument("--seed", type=int, metavar="S", help="run one seed and print its whole trace")
    parser.add_argument("--nodes", type=int, metavar="N", help=f"managers, 2 to 9 (default {NODES})")
    parser.add_argument("--seconds", type=float, metavar="T", help=f"simulated seconds of faults (default {chaos.CHAOS_SECONDS:g})")
    parser.add_argument("--mutant", metavar="NAME", help="take one rule out; the run should fail, unless only a directed scenario finds it. "
                        f"Names: {_names(Managers)}; with --partitions: {_names(Partitions)}")
    parser.add_argument("--rewrite-scenarios", action="store_true", help="write the scenario files' traces as they are now")
    return parser


def _names(simulation: type[Simulation]) -> str:
    return ", ".join(sorted(simulation.mutants))


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.jobs < 1:
        parser.error("--jobs must be at least 1")
    if options.seeds < 1 or (options.seconds is not None and options.seconds <= 0):
        parser.error("--seeds must be at least 1, --seconds above 0")
    if options.nodes is not None and (options.partitions or not 2 <= options.nodes <= 9):
        parser.error("--nodes must be 2 to 9, and is of managers only")
    simulation = Partitions if options.partitions else Managers
    if options.mutant is not None and options.mutant not in simulation.mutants:
        parser.error(f"there is no mutant {options.mutant}; names: {_names(simulation)}")


def _one(simulation: Simulation, seed: int) -> int:
    result = simulation.run(seed, trace=True)
    print("\n".join(result.trace))
    outcome = f"VIOLATION {result.violation}" if result.violation else "no violation"
    print(f"simulate: seed {seed}, {simulation}, {result.steps} steps, {result.committed} committed: {outcome}")
    return 1 if result.violation else 0


def _many(simulation: Simulation, seeds: range, options: argparse.Namespace) -> int:
    began = time.monotonic()
    done = steps = committed = led = faults = 0
    seen: Counter[str] = Counter()
    violations: list[Result] = []
    interrupted = ""
    try:
        with contextlib.closing(_results(simulation, seeds, options)) as results:
            for result in results:
                done, steps, committed = done + 1, steps + result.steps, committed + result.committed
                led, faults = led + result.leaderships, faults + result.faults
                seen.update(result.seen)
                if result.violation:
                    violations.append(result)
                    if len(violations) <= SHOWN_MAX:
                        print(f"seed {result.seed}: {result.violation}\n  replay: {simulation.replay(result.seed)}", flush=True)
                if done % TOLD_EVERY == 0 and done < len(seeds):
                    print(f"{done} seeds, {time.monotonic() - began:.0f} s: {_outcome(violations)} so far", flush=True)
                elif done % 100 == 0 and sys.stderr.isatty():
                    print(f"\r{done} seeds", end="\r", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        interrupted = f"; interrupted, {len(seeds) - done} seeds were not run"
    print("seen: " + ", ".join(f"{name} {count}" for name, count in sorted(seen.items())))
    print(f"simulate: {done} seeds, {simulation}, {steps} steps, {faults} faults, {led} {simulation.leaderships} led, {committed} committed, "
          f"{time.monotonic() - began:.1f} s: {_outcome(violations)}{interrupted}")
    return 1 if violations or interrupted else 0


def _outcome(violations: list[Result]) -> str:
    return f"{len(violations)} VIOLATIONS" if violations else "no violation"


def _results(simulation: Simulation, seeds: range, options: argparse.Namespace) -> Iterator[Result]:
    """In the order of the seeds, by as many processes as are wanted."""
    if options.jobs == 1:
        for seed in seeds:
            yield simulation.run_told(seed)
        return
    pool = ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn"), jobs.begin, (options,))
    try:
        yield from pool.map(jobs.run, seeds, chunksize=SEEDS_AT_A_TIME)
    finally:
        pool.shutdown(cancel_futures=True)


if __name__ == "__main__":
    sys.exit(main())
