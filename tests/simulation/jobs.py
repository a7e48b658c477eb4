"""A process that runs seeds for another one. A module of its own: what ``python -m tests.simulation`` is called there, no other process can load."""

from __future__ import annotations

import argparse
import signal
from typing import TYPE_CHECKING

from tests.simulation.run import Result

if TYPE_CHECKING:
    from tests.simulation.__main__ import Simulation

_mine: list[Simulation] = []


def begin(options: argparse.Namespace) -> None:
    """Know what is simulated; once in each process."""
    from tests.simulation.__main__ import simulation_of

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started it ends it
    _mine.append(simulation_of(options))


def run(seed: int) -> Result:
    return _mine[0].run_told(seed)
