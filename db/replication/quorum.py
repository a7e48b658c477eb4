"""Who counts, and what is committed.

A voter counts only with the disk identity under which it is registered: a voter whose database was replaced has another
one, holds nothing of what its predecessor acknowledged, and is therefore as good as silent. A slot whose identity is
None is empty and still counted in the number of slots, so that a majority of the old set and one of the new set share a member
as long as one slot changes at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from db.replication.log import LogView

Voters = Mapping[int, str | None]  # node id -> registered disk identity; None: an empty slot


@dataclass(frozen=True, slots=True)
class Holder:
    """What a node has shown in this epoch: the disk it spoke for, and up to where that holds the leader's log."""

    disk_id: str
    matched: int


def majority(slots: int) -> int:
    """The smallest number of slots such that any two sets of it share one."""
    return slots // 2 + 1


def counts(voters: Voters, node: int, disk_id: str | None) -> bool:
    """Whether this node, speaking for this disk, is one of the voters."""
    return disk_id is not None and voters.get(node) == disk_id


def has_majority(voters: Voters, answers: Mapping[int, str] | Iterable[tuple[int, str]]) -> bool:
    """Whether the answers (node, disk identity) are those of a majority. Nobody named: no majority."""
    counted = {node for node, disk_id in dict(answers).items() if counts(voters, node, disk_id)}
    return bool(voters) and len(counted) >= majority(len(voters))


def majority_position(voters: Voters, holders: Mapping[int, Holder]) -> int:
    """The highest position that a majority of the named voters hold, with their registered disks; 0 where there is none."""
    held = sorted((holders[node].matched if node in holders and counts(voters, node, holders[node].disk_id) else 0 for node in voters),
                  reverse=True)
    return held[majority(len(held)) - 1] if held else 0


def commit_position(voters: Voters, holders: Mapping[int, Holder], *, epoch: int, log: LogView, commit: int) -> int:
    """The leader's commit after these acknowledgements; never below the present one.

    Args:
        holders: the acknowledgements of **this** epoch, the leader's own (after its own commit to disk) among them.
        epoch: the leader's. What a majority holds is committed only behind an entry of this epoch (Raft 5.4.2): entries of
            older epochs on a majority can still be replaced by a leader that does not hold them.
        commit: the present commit position.
    """
    position = majority_position(voters, holders)
    assert position <= log.end, f"a majority acknowledged {position}, beyond the leader's end {log.end}"
    if position > commit and log.epoch_at(position - 1) == epoch:
        return position
    return commit
