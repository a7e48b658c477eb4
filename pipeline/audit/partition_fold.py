"""PURE: what the commands of elections and moves make of a partition's row. A second opinion, like the rest of the metadata fold.

Each item of an election's command is compare-and-set on the partition's epoch; each item is done or refused by itself. Voters change one slot at
a time: filled by a learner with its registered disk, emptied, added or removed; a disk that is exchanged counts as two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Row = dict[str, Any]
Brokers = Mapping[tuple, Row]
FACTOR_MAX = 7


def begun(row: Row, item: Mapping[str, Any], brokers: Brokers) -> Row | None:
    """The row after BeginElection; None where it is refused."""
    before, after = row["voters"], item["voters"]
    changed = sum(_steps(before.get(slot, ...), after.get(slot, ...)) for slot in {*before, *after})
    if row["epoch"] != item["expected_epoch"] or not _may_vote(row, after, brokers) or changed > (0 if row["status"] == "ELECTING" else 1):
        return None
    return _next_epoch(row, after)


def forced(row: Row, item: Mapping[str, Any], _brokers: Brokers) -> Row | None:
    """The row after an operator let some of the voters go on alone; None where it is refused."""
    after = item["voters"]
    left = bool(after) and all(disk is not None and row["voters"].get(slot) == disk for slot, disk in after.items())
    return _next_epoch(row, after) if left and row["epoch"] == item["expected_epoch"] else None


def appointed(row: Row, item: Mapping[str, Any], _brokers: Brokers) -> Row | None:
    """The row after AppointLeader; None where it is refused."""
    electing = row["epoch"] == item["epoch"] and row["status"] == "ELECTING"
    if not electing or row["voters"].get(str(item["leader"])) is None:
        return None
    return {**row, "status": "ACTIVE", "leader": item["leader"]}


def learning(row: Row, item: Mapping[str, Any], brokers: Brokers) -> Row | None:
    """The row after SetLearners; None where it is refused."""
    learners = item["learners"]
    if row["epoch"] != item["epoch"] or row["status"] == "ELECTING" or len(learners) > FACTOR_MAX or len(set(learners)) != len(learners):
        return None
    for broker_id in learners:
        broker = _known(brokers, broker_id)
        if broker is None or broker["disk_id"] == row["voters"].get(str(broker_id)):
            return None
    return {**row, "learners": sorted(learners)}


def moving(row: Row, item: Mapping[str, Any], brokers: Brokers) -> Row | None:
    """The row after Move; None where it is refused."""
    wanted = item["brokers"]
    if wanted is None:
        return row if row["wanted"] is None else {**row, "wanted": None, "replication_factor": min(FACTOR_MAX, len(row["voters"]))}
    usable = [broker_id for broker_id in wanted if (broker := _known(brokers, broker_id)) is not None and broker["status"] == "ACTIVE"]
    if not wanted or len(usable) > FACTOR_MAX or len(set(usable)) < len(wanted):
        return None
    return _at_its_goal({**row, "wanted": sorted(wanted), "replication_factor": len(wanted)})


def without_wish(row: Row, broker_id: int) -> Row | None:
    """The row where the broker is not to be used any more; None where nobody wanted it to be."""
    return {**row, "wanted": None} if broker_id in (row["wanted"] or []) else None


def _at_its_goal(row: Row) -> Row:
    """A move ends with the voters that it asked for, all of them with a disk."""
    voting = sorted(int(slot) for slot, disk in row["voters"].items() if disk is not None)
    return {**row, "wanted": None} if voting == row["wanted"] and len(voting) == len(row["voters"]) else row


def _steps(before: Any, after: Any) -> int:
    """Of one slot: ``...`` where there is none."""
    if before == after:
        return 0
    return 2 if ... not in (before, after) and None not in (before, after) else 1


def _may_vote(row: Row, voters: Mapping[str, Any], brokers: Brokers) -> bool:
    if len(voters) > FACTOR_MAX + 1 or all(disk is None for disk in voters.values()):
        return False
    if not all(slot.isascii() and slot.isdigit() and slot[0] != "0" and len(slot) <= 18 for slot in voters):
        return False
    for slot, disk in voters.items():
        if disk is not None and row["voters"].get(slot) != disk:
            broker = _known(brokers, int(slot))
            if int(slot) not in row["learners"] or broker is None or broker["disk_id"] != disk:
                return False
    return True


def _known(brokers: Brokers, broker_id: int) -> Row | None:
    broker = brokers.get((broker_id,))
    return None if broker is None or broker["status"] == "REMOVED" else broker


def _next_epoch(row: Row, voters: Mapping[str, Any]) -> Row:
    now_voting = {int(slot) for slot, disk in voters.items() if disk is not None and row["voters"].get(slot) != disk}
    return _at_its_goal({**row, "epoch": row["epoch"] + 1, "status": "ELECTING", "leader": None, "voters": dict(voters),
                         "learners": [broker_id for broker_id in row["learners"] if broker_id not in now_voting]})


ITEMS: dict[str, Callable[[Row, Mapping[str, Any], Brokers], Row | None]] = {
    "begin_elections": begun, "appoint_leaders": appointed, "set_learners": learning, "force_elections": forced,
    "move_partitions": moving,
}
