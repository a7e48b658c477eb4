"""Who is up: a pure function of how long ago each actor was heard of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    ALIVE = "alive"
    SUSPECT = "suspect"
    DEAD = "dead"


class Actor(NamedTuple):
    """Whoever sends heartbeats."""

    type: str  # broker, manager, producer or consumer
    actor_id: int

    def __str__(self) -> str:
        return f"{self.type} {self.actor_id}"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Silence in seconds from which on an actor is suspect, then dead."""

    suspect_after_seconds: float
    dead_after_seconds: float

    def state(self, age_seconds: float) -> State:
        if age_seconds >= self.dead_after_seconds:
            return State.DEAD
        return State.SUSPECT if age_seconds >= self.suspect_after_seconds else State.ALIVE


@dataclass(frozen=True, slots=True)
class Turn:
    """An actor changed from one state to another. ``before`` is None for one that was not known."""

    actor: Actor
    before: State | None
    after: State
    age_seconds: float


def heard_age(age_seconds: float, *, leading_seconds: float) -> float:
    """The age that counts for a write manager: a heartbeat is at least as young as its leadership, and never of the future."""
    return max(0.0, min(age_seconds, leading_seconds))


def observe(before: Mapping[Actor, State], ages: Mapping[Actor, float],
            thresholds: Mapping[str, Thresholds]) -> tuple[dict[Actor, State], list[Turn]]:
    """The states now, and what changed since ``before``: each change is told once.

    An actor seen for the first time is told of only if it is not alive. One that is gone from ``ages`` is forgotten.
    """
    states = {actor: thresholds[actor.type].state(age) for actor, age in ages.items()}
    turns = [Turn(actor, before.get(actor), state, ages[actor]) for actor, state in sorted(states.items())
             if state is not before.get(actor, State.ALIVE)]
    return states, turns
