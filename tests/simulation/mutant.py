"""One rule taken out. The simulation must notice each of them, or it proves nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch


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


UNCHANGED = Mutant("", "")
