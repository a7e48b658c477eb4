"""A whole run from one seed: chaos, then healing, after which everything must converge."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from myqueue.errors import LogFaultError
from tests.simulation.checker import Violation, require


@dataclass(frozen=True)
class Result:
    """What a run did, or what it found."""

    seed: int
    steps: int
    committed: int
    leaderships: int  # terms, or epochs, that somebody led
    faults: int
    seen: Mapping[str, int]
    violation: str | None = None
    trace: tuple[str, ...] = ()


class Run(ABC):
    """One seed. What is random comes from ``rng`` alone."""

    heal_seconds: float  # far more than needed: what has not converged by then does not
    world: Any
    rng: random.Random

    def __init__(self, seed: int, seconds: float) -> None:
        self.seed, self.seconds = seed, seconds
        self.healing, self.faults = False, 0

    def go(self) -> Result:
        """Run it to its end."""
        world, violation = self.world, None
        try:
            world.run_until(self.seconds)
            self.heal()
            converged = world.run_until(world.now + self.heal_seconds, self.has_converged)
            require(converged, "convergence", f"not reached within {self.heal_seconds} s after healing: {self.status()}")
        except (Violation, LogFaultError) as error:
            violation = str(error)
            world.note(f"VIOLATION {violation}")
        return Result(self.seed, world.steps, len(world.checker.ledger), len(world.checker.leaders), self.faults, dict(world.checker.seen),
                      violation, tuple(world.trace or ()))

    @abstractmethod
    def heal(self) -> None:
        """No more faults from here on, and everybody is there."""

    @abstractmethod
    def has_converged(self) -> bool:
        """Whether everything is as it should be in the end."""

    @abstractmethod
    def status(self) -> str:
        """Where everybody stands."""

    def split(self, nodes: Sequence[Any]) -> set[Any]:
        """Cut the nodes in two sides, now and then in one direction only. Returns one side."""
        side = set(self.rng.sample(nodes, self.rng.randint(1, len(nodes) - 1)))
        pairs = {(a, b) for a in nodes for b in nodes if (a in side) != (b in side)}
        if self.rng.random() < 0.3:
            pairs = {(a, b) for a, b in pairs if a in side}
        self.world.cut = pairs
        return side

    def mend(self) -> None:
        self.world.cut = set()
        self.world.note("mended")
