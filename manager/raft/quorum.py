"""What a majority has said: votes, life signs, rounds. By node and disk identity, like every majority."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from db.replication import Voters, has_majority


@dataclass(slots=True)
class Tally:
    """The grants of one election. Each node counts once, with the disk it spoke for last."""

    term: int
    granted: dict[int, str] = field(default_factory=dict)

    def won(self, voters: Voters) -> bool:
        return has_majority(voters, self.granted)


@dataclass(frozen=True, slots=True)
class Heard:
    """The latest answer of a node in a leader's term: when it came, for which disk, to which round."""

    at: float
    disk_id: str
    round: int


def heard_since(voters: Voters, heard: Mapping[int, Heard], moment: float) -> bool:
    """Whether a majority has answered at or after ``moment``."""
    return has_majority(voters, {node: answer.disk_id for node, answer in heard.items() if answer.at >= moment})


def heard_round(voters: Voters, heard: Mapping[int, Heard], round: int) -> bool:
    """Whether a majority has answered ``round`` or a later one: at some moment after that round began, nobody else could lead."""
    return has_majority(voters, {node: answer.disk_id for node, answer in heard.items() if answer.round >= round})
