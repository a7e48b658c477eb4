"""What the commands of elections do to a partition's row.

What must never happen: an epoch that is handed out twice, a leader of an epoch whose election was not begun, and voters of
two following epochs of which two majorities share nobody. So every item is compare-and-set on the epoch, and voters change
one slot at a time: it is filled, emptied, added or removed. A disk is not exchanged in one step: a majority with the
old disk and one with the new one need not meet. Nor do voters change while an election is under way: two changes with no
leader in between are a change of two slots. (A leader that has committed nothing yet in its epoch is no better; that only
its broker knows, so whoever proposes the command asks it: ``reassignment.next_step``.)

Where an operator wants the replicas is ``wanted`` in the row, a wish that the steps of the coordinator follow. It ends here, in the step with
which the voters are those brokers and no others, so that nobody has to take note of the end; or when one of the brokers is not to be used any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from manager.cluster import commands
from manager.cluster.draft import Draft, MajorityForced, Row
from myqueue.errors import BadRequestError, ConflictError, MyQueueError, RefusedError, UnknownPartitionError
from myqueue.protocol.limits import FACTOR_MAX

Voters = Mapping[str, str | None]


def begin_elections(draft: Draft, command: commands.BeginElections) -> Row:
    return {"items": [_each(draft, item, _begin) for item in command.items]}


def appoint_leaders(draft: Draft, command: commands.AppointLeaders) -> Row:
    return {"items": [_each(draft, item, _appoint) for item in command.items]}


def set_learners(draft: Draft, command: commands.SetLearners) -> Row:
    return {"items": [_each(draft, item, _learners) for item in command.items]}


def force_elections(draft: Draft, command: commands.ForceElections) -> Row:
    return {"items": [_each(draft, item, _force) for item in command.items]}


def move_partitions(draft: Draft, command: commands.MovePartitions) -> Row:
    return {"items": [_each(draft, item, _move) for item in command.items]}


def drop_wishes(draft: Draft, broker_id: int) -> None:
    """No partition is to move to this broker any more. Each keeps its replication factor, wherever its replicas are then."""
    for row in draft.find("partition"):
        if broker_id in (row["wanted"] or ()):
            draft.put_partition({**row, "wanted": None})


def holders(row: Row) -> set[int]:
    """Every broker that may hold something of the partition."""
    return {*map(int, row["voters"]), *row["learners"], *([] if row["leader"] is None else [row["leader"]])}


def changed_slots(before: Voters, after: Voters) -> int:
    """In how many slots two sets of voters differ; a disk that is exchanged for another one is emptied and filled, that is two."""
    added_or_removed = len(before.keys() ^ after.keys())
    return added_or_removed + sum(_steps(before[slot], after[slot]) for slot in before.keys() & after.keys())


def _steps(before: str | None, after: str | None) -> int:
    return 0 if before == after else 1 if before is None or after is None else 2


def _each(draft: Draft, item: Any, handle: Callable[[Draft, Any, Row], Row]) -> Row:
    """One item's answer; one that is refused does not keep the others from being done."""
    answer: Row = {"topic_id": item.topic_id, "partition": item.partition}
    row = draft.partition(item.topic_id, item.partition)
    try:
        if row is None:
            raise UnknownPartitionError(f"there is no partition {item.topic_id}/{item.partition}")
        row = {**row, **handle(draft, item, row)}
    except MyQueueError as error:
        return {**answer, "ok": False, "error": error.code, "message": error.message, "epoch": row["epoch"] if row else None}
    draft.put_partition(row)
    return {**answer, "ok": True, "epoch": row["epoch"]}


def _begin(draft: Draft, item: commands.BeginElection, row: Row) -> Row:
    _check_epoch(row, item.expected_epoch)
    _check_voters(draft, row, item.voters)
    changed = changed_slots(row["voters"], item.voters)
    if changed > 1:
        raise RefusedError("voters change one slot at a time")
    if changed and row["status"] == "ELECTING":
        raise RefusedError("voters do not change before the last election has found a leader")
    return _next_epoch(row, item.voters)


def _force(draft: Draft, item: commands.BeginElection, row: Row) -> Row:
    _check_epoch(row, item.expected_epoch)
    if not item.voters or any(disk is None or row["voters"].get(slot) != disk for slot, disk in item.voters.items()):
        raise RefusedError("only voters of the partition can be left, each with its disk")
    changed = _next_epoch(row, item.voters)
    left_out = tuple(sorted(int(slot) for slot in row["voters"].keys() - item.voters.keys()))
    draft.events.append(MajorityForced(item.topic_id, item.partition, changed["epoch"], dict(item.voters), left_out))
    return changed


def _appoint(_draft: Draft, item: commands.AppointLeader, row: Row) -> Row:
    _check_epoch(row, item.epoch)
    if row["status"] != "ELECTING":
        raise ConflictError(f"epoch {item.epoch} has a leader already")
    if row["voters"].get(str(item.leader)) is None:
        raise RefusedError(f"broker {item.leader} is not a voter")
    return {"status": "ACTIVE", "leader": item.leader}


def _learners(draft: Draft, item: commands.Learners, row: Row) -> Row:
    _check_epoch(row, item.epoch)
    if row["status"] == "ELECTING":
        raise ConflictError("there is no leader that they could learn from")
    if len(item.learners) > FACTOR_MAX or len(set(item.learners)) != len(item.learners):
        raise BadRequestError(f"learners are at most {FACTOR_MAX} different brokers")
    for broker_id in item.learners:
        if draft.known_broker(broker_id)["disk_id"] == row["voters"].get(str(broker_id)):
            raise RefusedError(f"broker {broker_id} is a voter")
    return {"learners": sorted(item.learners)}


def _move(draft: Draft, item: commands.Move, row: Row) -> Row:
    if item.brokers is None:  # nothing is added or taken away from here on
        return {} if row["wanted"] is None else {"wanted": None, "replication_factor": min(len(row["voters"]), FACTOR_MAX)}
    if not 1 <= len(item.brokers) <= FACTOR_MAX or len(set(item.brokers)) != len(item.brokers):
        raise BadRequestError(f"a partition's replicas are on 1 to {FACTOR_MAX} different brokers")
    for broker_id in item.brokers:
        if draft.known_broker(broker_id)["status"] == "DRAINING":
            raise RefusedError(f"broker {broker_id} is being drained")
    return {"wanted": _still_wanted(sorted(item.brokers), row["voters"]), "replication_factor": len(item.brokers)}


def _still_wanted(wanted: list[int] | None, voters: Voters) -> list[int] | None:
    """The wish, unless these voters fulfil it: they are on those brokers and no others, each with its disk."""
    fulfilled = wanted is not None and {int(slot) for slot in voters} == set(wanted) and None not in voters.values()
    return None if fulfilled else wanted


def _check_epoch(row: Row, epoch: int) -> None:
    if row["epoch"] != epoch:
        raise ConflictError(f"the epoch is {row['epoch']}, not {epoch}")


def _check_voters(draft: Draft, row: Row, voters: Voters) -> None:
    """Names of brokers, at least one with its disk; a slot that is filled now is filled by a learner with its registered disk."""
    if not all(_is_broker_id(slot) and (disk is None or isinstance(disk, str)) for slot, disk in voters.items()):
        raise BadRequestError("voters are disks by broker id")
    if all(disk is None for disk in voters.values()) or len(voters) > FACTOR_MAX + 1:
        raise RefusedError(f"a partition has from one voter to {FACTOR_MAX}, and one more while it moves")
    for slot, disk in voters.items():
        if disk is None or row["voters"].get(slot) == disk:
            continue
        if int(slot) not in row["learners"]:
            raise RefusedError(f"broker {slot} is not a learner: only who has caught up becomes a voter")
        if draft.known_broker(int(slot))["disk_id"] != disk:
            raise RefusedError(f"broker {slot} is registered with another disk")


def _is_broker_id(slot: str) -> bool:
    return slot.isascii() and slot.isdigit() and slot[0] != "0" and len(slot) <= 18


def _next_epoch(row: Row, voters: Voters) -> Row:
    filled = {int(slot) for slot, disk in voters.items() if disk is not None and row["voters"].get(slot) != disk}
    return {"epoch": row["epoch"] + 1, "status": "ELECTING", "leader": None, "voters": dict(voters),
            "learners": [broker_id for broker_id in row["learners"] if broker_id not in filled], "wanted": _still_wanted(row["wanted"], voters)}
