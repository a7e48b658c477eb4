"""Life numbers: how a copy of a manager's database that was put back is told from the database itself.

Each database counts its life: one more, on disk, only after another manager has the present number on its own disk. So whoever
runs on an older copy shows a number that others have seen passed, and cannot have come up to it in silence. Such a copy
forgot what it voted for and what it acknowledged: it speaks for no disk that counts, until it has taken a new identity.
A copy younger than one exchange of numbers (about two seconds) cannot be told.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from db.wal import Command, RaftState
from manager.raft.membership import DISK_LOST, Membership

Seen = Mapping[str, int]  # disk identity -> the highest life number that it has shown


@dataclass(frozen=True, slots=True)
class LifeSign:
    """What a manager says of itself now and then. All of it is on its disk."""

    node_id: int
    disk_id: str
    life: int
    seen: Seen


def is_copy(seen: Seen, disk_id: str, life: int) -> bool:
    """Whether who shows this number is an older copy of that disk."""
    return life < seen.get(disk_id, 0)


def loses_disk(command: Command, state: RaftState) -> bool:
    """Whether a committed command says that this manager's present disk is lost: who applies it takes a new identity in the same transaction."""
    return command.get("type") == DISK_LOST and (command["node_id"], command["disk_id"]) == (state.node_id, state.disk_id)


def is_registered_lost(membership: Membership, node_id: int) -> bool:
    """Whether this membership says that the disk of a manager was lost: who takes it as a state, and not as entries, takes a new identity too."""
    member = membership.members.get(node_id)
    return member is not None and member.disk_id is None


def sign_of(state: RaftState) -> LifeSign:
    """What this manager may say of itself, once ``state`` is on disk."""
    return LifeSign(state.node_id, state.disk_id, state.life, state.lives)


def shown_by(sign: LifeSign) -> dict[str, int]:
    """Every number that a sign proves: its sender's own, and what that has seen."""
    return {**sign.seen, sign.disk_id: max(sign.life, sign.seen.get(sign.disk_id, 0))}


def highest(*views: Seen) -> dict[str, int]:
    """The highest number of each disk."""
    merged: dict[str, int] = {}
    for view in views:
        for disk_id, life in view.items():
            merged[disk_id] = max(life, merged.get(disk_id, 0))
    return merged


def plan_life(state: RaftState, shown: Seen, *, disks: Collection[str]) -> tuple[int, Seen]:
    """This manager's next life number and what it has seen, to be written together.

    Args:
        shown: what other managers' signs have proved since the last time; the own number among it means that it is on their disk, a higher
            one that this is an older copy, which raises nothing.
        disks: those of the members. What others show is forgotten, as it counts for nothing.
    """
    acknowledged = shown.get(state.disk_id, -1)
    seen = highest({disk_id: life for disk_id, life in state.lives.items() if disk_id in disks},
                   {disk_id: life for disk_id, life in shown.items() if disk_id in disks and disk_id != state.disk_id})
    return state.life + (state.life == acknowledged), seen
