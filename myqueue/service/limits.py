"""What the clients of one worker may hold of it, and the settings that say so, which are the same for every node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..settings import setting


@dataclass(frozen=True, slots=True)
class Limits:
    """What the clients of one worker may hold of it."""

    connections_max: int = 2_000  # open at once
    request_seconds: float = 10.0  # for a request to arrive
    stalled_seconds: float = 60.0  # for a reader to take nothing of its answer


_DEFAULTS = Limits()


def connections_max() -> Any:
    return setting(_DEFAULTS.connections_max, help="connections that a worker keeps open; at the bound the one that is idle for longest is closed",
                   minimum=16, maximum=100_000)


def request_seconds() -> Any:
    return setting(_DEFAULTS.request_seconds, minimum=0.5, maximum=600,
                   help="time for a request to arrive, and a second more for every 4 KiB of it; then it is refused with 408")


def stalled_seconds() -> Any:
    return setting(_DEFAULTS.stalled_seconds, help="time for which a client may take nothing of its answer; then the connection ends", minimum=1,
                   maximum=3_600)
