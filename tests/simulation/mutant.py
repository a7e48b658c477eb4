"""One rule taken out. The simulation must notice each of them, or it proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from tests.simulation.run import Result


@dataclass(frozen=True)
class Mutant:
    """A function or a class of the product (or of the shell) is replaced while a run lasts; the product itself has no switch."""

    name: str
    rule: str  # what is missing, in words
    patches: tuple[tuple[str, Any], ...] = ()  # what to put at which path
    kinds: Any = None  # the world's classes to run with; None: its own

    @contextmanager
    def planted(self) -> Iterator[Any]:
        """The classes to run with, while the functions are replaced."""
        with ExitStack() as stack:
            for path, broken in self.patches:
                stack.enter_context(patch(path, broken))
            yield self.kinds

    def first_violation(self, run: Callable[[int, Any], Result], seeds: int) -> str | None:
        """What is found within so many seeds, each run with the classes it is given."""
        with self.planted() as kinds:
            return next((result.violation for seed in range(seeds) if (result := run(seed, kinds)).violation), None)


UNCHANGED = Mutant("", "")
