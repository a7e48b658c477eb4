"""Who belongs to the group of managers, and how that changes: one slot at a time, as commands in the log.

The membership in force is that of the last member command **in the log**, committed or not (Ongaro's thesis, 4.1); if that
entry is truncated, the one before it is in force again. What must never happen: two majorities that share nobody. So one
command changes one slot; the next one waits until it is committed; a leader begins none before its own marker is
committed; and a node becomes a voter only after it holds everything that is committed, on the disk that is registered.
A voter with a new disk is therefore first made a non-voter with that disk, caught up, and then a voter again. A disk that
lost what it had (``DISK_LOST``) leaves its slot at once; whoever runs on it takes a new identity when it reads that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from db.replication import Voters
from db.wal import Command, WalEntry
from myqueue.errors import RefusedError

INIT_CLUSTER = "init_cluster"  # {"type", "cluster_id", "members": [{"node_id", "url", "disk_id"}]}: the first entry, all are voters
SET_MEMBER = "set_member"  # {"type", "node_id", "url", "disk_id", "voter"}
REMOVE_MEMBER = "remove_member"  # {"type", "node_id"}
DISK_LOST = "disk_lost"  # {"type", "node_id", "disk_id"}: changes something only while this is the member's disk
MEMBER_COMMANDS = (INIT_CLUSTER, SET_MEMBER, REMOVE_MEMBER, DISK_LOST)
NO_SLOT = ""  # no disk identity is empty


@dataclass(frozen=True, slots=True)
class Member:
    """A manager of the group. One that is not a voter gets the log and counts for nothing."""

    node_id: int
    url: str
    disk_id: str | None
    voter: bool


@dataclass(frozen=True, slots=True)
class Membership:
    """The members, and the index of the command that made them so (0: from the beginning)."""

    members: Mapping[int, Member] = field(default_factory=dict)
    index: int = 0

    @property
    def voters(self) -> Voters:
        return {node: member.disk_id for node, member in self.members.items() if member.voter}

    def is_voter(self, node_id: int, disk_id: str) -> bool:
        """Whether this node votes with this disk."""
        return self.voters.get(node_id) == disk_id

    def others(self, node_id: int) -> tuple[int, ...]:
        """All members but this one, in order."""
        return tuple(sorted(node for node in self.members if node != node_id))


def changes_membership(command: Command) -> bool:
    """Whether a command is one of these; everything else leaves the membership as it is."""
    return command.get("type") in MEMBER_COMMANDS


def after_command(membership: Membership, command: Command, index: int) -> Membership:
    """The membership with this command in force. ``apply`` must come to the same: it may refuse none that changes something here."""
    if not changes_membership(command) or (command["type"] == INIT_CLUSTER and membership.members):
        return membership
    if command["type"] == INIT_CLUSTER:
        founders = (Member(int(each["node_id"]), each["url"], each["disk_id"], voter=True) for each in command["members"])
        return Membership({member.node_id: member for member in founders}, index)
    members, node = dict(membership.members), int(command["node_id"])
    if command["type"] == REMOVE_MEMBER:
        members.pop(node, None)
    elif command["type"] == DISK_LOST:
        if node in members and members[node].disk_id == command["disk_id"]:
            members[node] = Member(node, members[node].url, None, voter=False)
    else:
        members[node] = Member(node, command["url"], command["disk_id"], bool(command["voter"]))
    return Membership(members, index)


def in_force(applied: Membership, entries: Iterable[WalEntry]) -> Membership:
    """The membership of the applied state with the member commands of the entries above it, committed or not."""
    for entry in entries:
        applied = after_command(applied, entry.command, entry.index)
    return applied


def check_one_slot(old: Membership, new: Membership) -> None:
    """Raise RefusedError unless any majority of the old voters shares a member with any of the new ones."""
    changed = {node for node in {*old.voters, *new.voters} if old.voters.get(node, NO_SLOT) != new.voters.get(node, NO_SLOT)}
    if len(changed) > 1:
        raise RefusedError(f"a membership change may touch one slot, this one touches {sorted(changed)}")
    for node in changed:
        if old.voters.get(node) is not None and new.voters.get(node) is not None:
            raise RefusedError(f"manager {node} votes with another disk: make it a non-voter with the new disk first")
    if not new.voters:
        raise RefusedError("the last voter cannot leave")


def repairs(membership: Membership, shown: Mapping[int, str], lost: Collection[str]) -> Iterator[Command]:
    """The changes that would make every member a voter with the disk it has, the most urgent first; each is to be checked before it is made.

    Args:
        shown: the disks under which the members answer now.
        lost: disks that do not hold any more what they acknowledged.
    """
    members = [membership.members[node] for node in sorted(membership.members)]
    for member in members:
        if member.disk_id is not None and member.disk_id in lost:
            yield {"type": DISK_LOST, "node_id": member.node_id, "disk_id": member.disk_id}
    for member in members:
        disk_id = shown.get(member.node_id, NO_SLOT)
        if disk_id not in (NO_SLOT, member.disk_id) and disk_id not in lost:
            yield {"type": SET_MEMBER, "node_id": member.node_id, "url": member.url, "disk_id": disk_id, "voter": False}
    for member in members:
        if not member.voter and member.disk_id is not None and shown.get(member.node_id) == member.disk_id:
            yield {"type": SET_MEMBER, "node_id": member.node_id, "url": member.url, "disk_id": member.disk_id, "voter": True}
