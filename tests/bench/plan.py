"""PURE: what is measured, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from .figures import Outcome

WORKLOADS = ("produce", "consume", "single", "latency", "replicated", "growth", "memory")
PEERS = ("redis", "rabbitmq", "nats")
POSTGRES, SKETCH, OURS = "PostgreSQL alone", "sketch", "MyQueue"
THOUSANDS = "100 B, batches of 1,000"  # the case of the figure that is told first
# Prepares what is not measured (topics, connections, packed batches; ended by the stack) and returns what is.
Prepare = Callable[[int, ExitStack], Callable[[], Outcome]]


@dataclass(frozen=True, slots=True)
class Options:
    """How much is measured.

    Attributes:
        messages: of 100 bytes in a round of the fast contenders; the slow ones and larger messages get fewer.
        seconds: how long one round of a latency lasts.
        millions: messages in the log that growth calls large, in millions.
        backlog_mib: what memory writes before it is read.
    """

    workloads: tuple[str, ...] = WORKLOADS
    peers: tuple[str, ...] = ()
    messages: int = 500_000
    rounds: int = 3
    seconds: float = 10.0
    millions: float = 2.0
    backlog_mib: int = 300


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a case.

    Attributes:
        acknowledged: what holds when it is told that a message is stored.
        roots: the processes whose trees are its servers, by kind.
    """

    who: str
    acknowledged: str
    roots: Mapping[str, Sequence[int]]
    prepare: Prepare


@dataclass(frozen=True, slots=True)
class Case:
    """Contenders that do the same work, in turn. ``bases`` are those to which the others are compared."""

    workload: str
    name: str
    entries: Sequence[Entry]
    bases: Sequence[str] = ()


def order(cases: Sequence[Case], rounds: int) -> Iterator[tuple[int, Case, Entry]]:
    """Turn by turn everything once, so that a slow minute of the machine meets all; each turn begins with another contender."""
    for turn in range(rounds):
        for case in cases:
            shift = turn % len(case.entries)
            for entry in (*case.entries[shift:], *case.entries[:shift]):
                yield turn, case, entry
