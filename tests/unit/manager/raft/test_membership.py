"""Who belongs to the group."""

from __future__ import annotations

import itertools

import pytest

from db.replication import has_majority
from manager.cluster import commands
from manager.raft.bootstrap import FIRST_TERM, plan_bootstrap
from manager.raft.log import NOOP, Proposal, entries_behind
from manager.raft.membership import (
    DISK_LOST,
    INIT_CLUSTER,
    REMOVE_MEMBER,
    SET_MEMBER,
    Member,
    Membership,
    after_command,
    check_one_slot,
    in_force,
    repairs,
)
from manager.raft.state import Contact, Held, RaftState, TermVote
from myqueue.errors import RefusedError
from tests.unit.manager.raft.desk import log_of, members


def _init(*nodes: int) -> dict:
    return {"type": INIT_CLUSTER, "cluster_id": "c", "members": [{"node_id": node, "url": f"m{node}", "disk_id": f"d{node}"} for node in nodes]}


def _set(node: int, disk_id: str, *, voter: bool) -> dict:
    return {"type": SET_MEMBER, "node_id": node, "url": f"m{node}", "disk_id": disk_id, "voter": voter}


def test_the_words_are_those_of_the_metadata_commands() -> None:
    """What the WAL stores is read here and there."""
    assert NOOP == commands.Noop.TYPE
    command = commands.to_json(commands.InitCluster("c", (commands.Member(1, "m1", "d1"), commands.Member(2, "m2", "d2"))))
    assert after_command(Membership(), command, 1) == members(2, index=1)


def test_a_member_command_is_in_force_from_its_place_in_the_log_on() -> None:
    """Thesis 4.1: committed or not; without its entry the one before is in force again."""
    asked = _set(3, "new", voter=False), {"type": "x"}, {"type": REMOVE_MEMBER, "node_id": 2}
    entries = entries_behind(log_of(1), 1, map(Proposal, asked))
    assert in_force(members(3), entries).voters == {1: "d1"}
    assert in_force(members(3), entries).index == 4
    assert in_force(members(3), entries[:2]).members[3] == Member(3, "m3", "new", voter=False)
    assert in_force(members(3), entries[:2]).index == 2
    assert in_force(members(3), ()) == members(3)


def test_a_group_is_founded_once() -> None:
    """A second founding changes nothing, here as in ``apply``."""
    assert after_command(members(3), _init(7, 8), 5) == members(3)


@pytest.mark.parametrize("command", [_set(4, "d4", voter=True), _set(4, "d4", voter=False), _set(3, "new", voter=False),
                                     {"type": REMOVE_MEMBER, "node_id": 3}, {"type": REMOVE_MEMBER, "node_id": 9}])
def test_changes_of_one_slot_are_allowed(command: dict) -> None:
    """And any two majorities of before and after share a member with its disk."""
    old, new = members(3), after_command(members(3), command, 9)
    check_one_slot(old, new)
    for left in _majorities(old):
        assert all(set(left) & set(right) for right in _majorities(new))


def _majorities(membership: Membership) -> list[tuple[tuple[int, str], ...]]:
    voters = list(membership.voters.items())
    return [chosen for size in range(1, len(voters) + 1) for chosen in itertools.combinations(voters, size)
            if has_majority(membership.voters, dict(chosen))]


def test_a_voter_does_not_change_its_disk_in_one_step() -> None:
    """{1, 3 on a} and {2, 3 on b} would be two majorities that share nobody."""
    with pytest.raises(RefusedError, match="another disk"):
        check_one_slot(members(3), after_command(members(3), _set(3, "new", voter=True), 9))


def test_two_slots_at_once_and_no_slot_at_all_are_refused() -> None:
    """One at a time, and somebody must be left."""
    with pytest.raises(RefusedError, match="one slot"):
        check_one_slot(members(3), members(5))
    with pytest.raises(RefusedError, match="last voter"):
        check_one_slot(members(1), members(0))


def _held(**state: object) -> Held:
    return Held(RaftState(1, "d1", **state), log_of(), Membership(), Contact(0.0))


def test_the_first_entry_names_the_members() -> None:
    """It waits for a majority like any other entry."""
    changes = plan_bootstrap(_held(), _init(1, 2, 3))
    assert (changes.term_vote, changes.commit_index) == (TermVote(FIRST_TERM, None), None)
    assert in_force(Membership(), changes.insert) == members(3, index=1)


@pytest.mark.parametrize("command", [_init(2, 3), {"type": "x"}, {**_init(1), "members": [{"node_id": 1, "url": "m1", "disk_id": "other"}]}])
def test_a_founder_is_among_the_members_with_its_disk(command: dict) -> None:
    """Otherwise nobody could be elected."""
    with pytest.raises(RefusedError, match="include"):
        plan_bootstrap(_held(), command)


def test_nothing_is_founded_over_a_log_or_a_term() -> None:
    """There may be a group already."""
    with pytest.raises(RefusedError, match="already"):
        plan_bootstrap(_held(current_term=1), _init(1))
    with pytest.raises(RefusedError, match="already"):
        plan_bootstrap(Held(RaftState(1, "d1"), log_of(1), Membership(), Contact(0.0)), _init(1))


def test_a_lost_disk_leaves_its_slot_while_it_is_the_members() -> None:
    """A word that comes late, about a disk that was replaced already, changes nothing."""
    lost = {"type": DISK_LOST, "node_id": 3, "disk_id": "d3"}
    after = after_command(members(3), lost, 9)
    assert after == Membership({**members(2).members, 3: Member(3, "m3", None, voter=False)}, 9)
    check_one_slot(members(3), after)
    assert after_command(members(3), {**lost, "disk_id": "older"}, 9).members == members(3).members
    assert after_command(members(3), {**lost, "node_id": 9}, 9).members == members(3).members


def test_repairs_take_lost_disks_out_first_then_register_new_ones_then_give_votes() -> None:
    """Each is one change of one slot; what answers in nobody's name is not registered."""
    membership = Membership({1: Member(1, "m1", "d1", True), 2: Member(2, "m2", "d2", True), 3: Member(3, "m3", "d3", False),
                             4: Member(4, "m4", "d4", True), 5: Member(5, "m5", None, False)})
    shown = {2: "d2", 3: "d3", 4: "new", 5: ""}
    assert list(repairs(membership, shown, {"d2"})) == [
        {"type": DISK_LOST, "node_id": 2, "disk_id": "d2"}, _set(4, "new", voter=False), _set(3, "d3", voter=True)]
    assert list(repairs(members(3), {2: "d2", 3: "d3"}, {"old"})) == []
