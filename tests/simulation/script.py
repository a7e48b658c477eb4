"""Scenario files: commands, each with the trace expected below it. Messages move only when a line says so.

A line ``> command`` acts; the lines behind it, up to the next one, are what happened. ``#`` begins a comment, kept as it is.
These commands move messages, in every kind of scenario:

    deliver [A B [COUNT|last]] everything until nothing is left, or what is on its way from A to B now (the first COUNT, the last one)
    exchange A B [COUNT]       what is on its way between the two, and what comes of it (at most COUNT messages)
    double A B                 what is on its way from A to B is so twice
    drop [A B]                 lose what is on its way
"""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from tests.simulation.checker import require

MESSAGES_MAX = 2_000


class Script(ABC):
    """Runs the commands of one file."""

    folder: ClassVar[Path]
    world: Any  # set by the first command

    @abstractmethod
    def __init__(self, kinds: Any = None) -> None:
        """``kinds``: the world's classes to run with; its own without."""

    @classmethod
    def files(cls) -> list[Path]:
        """All scenarios of this kind."""
        return sorted(cls.folder.glob("*.txt"))

    @classmethod
    def rewrite(cls) -> int:
        """Write the traces as they are now into the files; how many changed."""
        changed = 0
        for path in cls.files():
            before = path.read_text()
            after = cls().run(before)
            if after != before:
                path.write_text(after)
                changed += 1
        return changed

    @classmethod
    def play(cls, name: str, kinds: Any = None) -> str:
        """The file of that name with the traces as they are with these classes. Raises as ``run``."""
        return cls(kinds).run((cls.folder / f"{name}.txt").read_text())

    def run(self, text: str) -> str:
        """The file with the traces as they are now.

        Raises:
            Violation: an invariant does not hold.
        """
        lines: list[str] = []
        for line in text.splitlines():
            if line.startswith(">"):
                lines += [line, *self._command(shlex.split(line[1:], comments=True))]
            elif line.startswith("#") or not line.strip():
                lines.append(line)
        return "\n".join(lines) + "\n"

    @abstractmethod
    def commands(self) -> Mapping[str, Callable[..., None]]:
        """What a line may say, beside the commands that move messages."""

    def _command(self, words: list[str]) -> Iterable[str]:
        moving = {"deliver": self._deliver, "exchange": self._exchange, "double": self._double, "drop": self._drop}
        {**moving, **self.commands()}[words[0]](*words[1:])
        trace, self.world.trace = self.world.trace or [], []
        return ["  " + line.split(maxsplit=1)[1] for line in trace]

    # --- network ---

    def _deliver(self, source: str = "", target: str = "", count: str = "") -> None:
        if source:
            chosen = slice(-1, None) if count == "last" else slice(int(count) if count else None)
            for message in self.between((source, target))[chosen]:
                self.pass_on(message)
            return
        for _ in range(MESSAGES_MAX):
            if not self.world.network:
                return
            self.pass_on(self.world.network[0])
        require(False, "convergence", f"{MESSAGES_MAX} messages and no end")

    def _exchange(self, one: str, other: str, count: str = str(MESSAGES_MAX)) -> None:
        for _ in range(int(count)):
            waiting = self.between((one, other), (other, one))
            if not waiting:
                return
            self.pass_on(waiting[0])

    def _double(self, source: str, target: str) -> None:
        self.world.network += self.between((source, target))

    def _drop(self, source: str = "", target: str = "") -> None:
        lost = self.between((source, target)) if source else list(self.world.network)
        self.world.network = [message for message in self.world.network if message not in lost]

    def between(self, *pairs: tuple[str, str]) -> list[Any]:
        """What is on its way between these."""
        return [message for message in self.world.network if (str(message.source), str(message.target)) in pairs]

    def pass_on(self, message: Any) -> None:
        """Let one message arrive."""
        self.world.network.remove(message)
        self.world.deliver(message)
