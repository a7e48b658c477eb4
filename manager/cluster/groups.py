"""Consumer groups in the replicated state: what joining, leaving, assigning and releasing do to the rows.

What must never happen: two members own a partition at the same time, or a partition passes from one member to another without
a rise of the generation that goes with it. So what a member is to read (``wanted``) and what it reads (``owned``) are two columns: a partition
that is to move stays owned until its owner releases it, or is gone, and only then its next owner gets it, with the generation of
that moment. Commits carry that generation into the partition's log, which refuses an older one.

Who is to read what is decided by the write manager (``assignors.py``) and stands in the command.
"""

from __future__ import annotations

from collections.abc import Iterable

from manager.cluster import commands
from manager.cluster.assignors import STRATEGIES
from manager.cluster.draft import Delete, Draft, Row
from myqueue.errors import BadRequestError, ConflictError, RefusedError, UnknownGroupError, UnknownTopicError
from myqueue.protocol.names import check_group_name, check_topic_name
from myqueue.protocol.types import PartitionId

SESSION_MS_MIN, SESSION_MS_MAX = 6_000, 3_600_000
INSTANCE_MAX = 255


def join(draft: Draft, command: commands.JoinGroup) -> Row:
    """Into the group with a member, and what the same instance owned under a new generation: its older self can commit nothing more."""
    _check(draft, command)
    found = draft.find("consumer_group", name=command.group)
    group = found[0] if found else {"group_id": draft.next_id("group"), "name": command.group, "generation": 0, "strategy": command.strategy,
                                    "start": command.start, "created_at": command.created_at}
    members = _members(draft, group)
    if members and group["strategy"] != command.strategy:
        raise ConflictError(f"the members of group '{command.group}' share their partitions by {group['strategy']}, not by {command.strategy}",
                            strategy=group["strategy"])
    generation = group["generation"] + 1
    before = next((row for row in members.values() if row["instance_id"] == command.instance_id), None)
    member = {"member_id": draft.next_id("group_member"), "wanted": [], "owned": {}, "created_at": command.created_at} if before is None else before
    after = {**member, "group_id": group["group_id"], "instance_id": command.instance_id, "topics": sorted(set(command.topics)),
             "session_timeout_ms": command.session_timeout_ms, "owned": dict.fromkeys(member["owned"], generation)}
    _put_group(draft, {**group, "strategy": command.strategy, "generation": generation})
    _put_member(draft, after)
    return {"group_id": group["group_id"], "member_id": after["member_id"], "generation": generation}


def leave(draft: Draft, command: commands.LeaveGroup) -> Row:
    """What they owned is free; those for whom it was meant get it at once."""
    group = _group(draft, command.group_id)
    members = _members(draft, group)
    gone = [members.pop(member_id) for member_id in dict.fromkeys(command.member_ids) if member_id in members]
    if not gone:
        return {"group_id": command.group_id, "generation": group["generation"]}
    draft.changes += [Delete("group_member", {"member_id": member["member_id"]}) for member in gone]
    return _settled(draft, group, members)


def assign(draft: Draft, command: commands.AssignPartitions) -> Row:
    """Refused in another generation, and where a partition is given twice or to nobody of the group."""
    group = _group(draft, command.group_id)
    if group["generation"] != command.expected_generation:
        raise ConflictError(f"generation {group['generation']} has begun, {command.expected_generation} is over", generation=group["generation"])
    members = _members(draft, group)
    wanted: dict[int, list[tuple[int, int]]] = {member_id: [] for member_id in members}
    if len({(item.topic_id, item.partition) for item in command.items}) < len(command.items):
        raise BadRequestError("a partition is assigned twice")
    for item in command.items:
        if item.member_id not in wanted:
            raise BadRequestError(f"group '{group['name']}' has no member {item.member_id}")
        wanted[item.member_id].append((item.topic_id, item.partition))
    return _settled(draft, group, {member_id: {**row, "wanted": [spelt(*pair) for pair in sorted(wanted[member_id])], "owned": _there(draft, row)}
                                   for member_id, row in members.items()})


def release(draft: Draft, command: commands.ReleasePartitions) -> Row:
    """What is not owned, or is still wanted of its owner, is passed over: a repeat changes nothing."""
    group = _group(draft, command.group_id)
    members, released = _members(draft, group), False
    for item in command.items:
        member, name = members.get(item.member_id), spelt(item.topic_id, item.partition)
        if member is not None and name in member["owned"] and name not in member["wanted"]:
            members[item.member_id] = {**member, "owned": {one: since for one, since in member["owned"].items() if one != name}}
            released = True
    if not released:
        return {"group_id": command.group_id, "generation": group["generation"]}
    return _settled(draft, group, members)


def delete(draft: Draft, command: commands.DeleteGroup) -> Row:
    """Only a group without members."""
    found = draft.find("consumer_group", name=check_group_name(command.group))
    if not found:
        raise UnknownGroupError(f"There is no group '{command.group}'", group=command.group)
    members = draft.find("group_member", group_id=found[0]["group_id"])
    if members:
        raise RefusedError(f"Group '{command.group}' has {len(members)} member(s): they leave first", members=len(members))
    draft.changes.append(Delete("consumer_group", {"group_id": found[0]["group_id"]}))
    return {"group": command.group, "group_id": found[0]["group_id"]}


def settle(members: Iterable[Row], generation: int) -> list[Row]:
    """Everybody gets what is meant for them and owned by nobody, in this generation."""
    rows = list(members)
    taken = {name for row in rows for name in row["owned"]}
    return [{**row, "owned": {**row["owned"], **{name: generation for name in row["wanted"] if name not in taken}}} for row in rows]


def _settled(draft: Draft, group: Row, members: dict[int, Row]) -> Row:
    """The group's next generation, with these members in it."""
    generation = group["generation"] + 1
    _put_group(draft, {**group, "generation": generation})
    for row in settle((members[member_id] for member_id in sorted(members)), generation):
        _put_member(draft, row)
    return {"group_id": group["group_id"], "generation": generation}


def _check(draft: Draft, command: commands.JoinGroup) -> None:
    check_group_name(command.group)
    if command.strategy not in STRATEGIES:
        raise BadRequestError(f"strategy must be one of {', '.join(STRATEGIES)}, not {command.strategy[:40]!r}", argument="strategy")
    if command.start not in ("earliest", "latest"):
        raise BadRequestError("start must be earliest or latest", argument="start")
    if not SESSION_MS_MIN <= command.session_timeout_ms <= SESSION_MS_MAX:
        raise BadRequestError(f"session_timeout_ms must be from {SESSION_MS_MIN} to {SESSION_MS_MAX}, not {command.session_timeout_ms}",
                              argument="session_timeout_ms")
    if not 1 <= len(command.instance_id) <= INSTANCE_MAX or not command.instance_id.isprintable():
        raise BadRequestError(f"instance_id must be 1 to {INSTANCE_MAX} printable characters", argument="instance_id")
    if not command.topics:
        raise BadRequestError("topics must have one name at least", argument="topics")
    unknown = sorted({name for name in map(check_topic_name, command.topics) if draft.topic(name) is None})
    if unknown:
        listed = ", ".join(f"'{name}'" for name in unknown)
        raise UnknownTopicError(f"Topic {listed} does not exist" if len(unknown) == 1 else f"Topics {listed} do not exist", topics=unknown)


def _group(draft: Draft, group_id: int) -> Row:
    row = draft.get("consumer_group", group_id=group_id)
    if row is None:
        raise UnknownGroupError(f"There is no group {group_id} any more", group_id=group_id)
    return row


def _members(draft: Draft, group: Row) -> dict[int, Row]:
    return {row["member_id"]: row for row in draft.find("group_member", group_id=group["group_id"])}


def _put_group(draft: Draft, row: Row) -> None:
    draft.put("consumer_group", {"group_id": row["group_id"]}, **{name: value for name, value in row.items() if name != "group_id"})


def _put_member(draft: Draft, row: Row) -> None:
    draft.put("group_member", {"member_id": row["member_id"]}, **{name: value for name, value in row.items() if name != "member_id"})


def _there(draft: Draft, member: Row) -> Row:
    """What a member owns, without the partitions of topics that were deleted."""
    return {name: since for name, since in member["owned"].items() if draft.get("topic", topic_id=read_partition(name).topic_id) is not None}


def spelt(topic_id: int, partition: int) -> str:
    """A partition as the rows name it."""
    return f"{topic_id}/{partition}"


def read_partition(name: str) -> PartitionId:
    """The partition that a row names."""
    topic_id, _, partition = name.partition("/")
    return PartitionId(int(topic_id), int(partition))
