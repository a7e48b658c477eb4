"""Consumer groups in the replicated state: a partition has one owner, and the next one only once that has let go."""

from __future__ import annotations

import pytest

from manager.cluster import commands as c
from manager.cluster.memory import MemoryMetadata
from manager.cluster.state import apply
from tests.support.metadata import DATABASE, DISKS


@pytest.fixture
def view() -> MemoryMetadata:
    """A topic with four partitions, and the group ``g`` (1) with the members 1 and 2."""
    view = MemoryMetadata()
    for command in (c.AddBroker(DISKS[4], "127.0.0.1", 8001, DATABASE), c.CreateTopic("t", partitions=4, live_brokers=(1,)),
                    join("one"), join("two")):
        done(view, command)
    return view


def join(instance: str, **changes) -> c.JoinGroup:
    return c.JoinGroup(**{"group": "g", "instance_id": instance, "topics": ("t",), "strategy": "sticky", "start": "earliest",
                          "session_timeout_ms": 10_000, **changes})


def answer(view: MemoryMetadata, command: c.Command) -> dict:
    change = apply(view, command)
    view.write(change.changes)
    return change.reply


def done(view: MemoryMetadata, command: c.Command) -> dict:
    return answer(view, command)["result"]


def assign(view: MemoryMetadata, **wanted: list[int]) -> dict:
    items = tuple(c.Assigned(1, partition, int(member[1:])) for member, partitions in wanted.items() for partition in partitions)
    return done(view, c.AssignPartitions(1, generation(view), items))


def generation(view: MemoryMetadata) -> int:
    return view.get("consumer_group", group_id=1)["generation"]


def owned(view: MemoryMetadata) -> dict[int, dict[int, int]]:
    """By member: partition → the generation in which it got it."""
    return {row["member_id"]: {int(name.partition("/")[2]): since for name, since in row["owned"].items()} for row in view.find("group_member")}


def test_what_is_free_is_owned_at_once(view):
    assert assign(view, m1=[0, 1], m2=[2, 3])["generation"] == 3
    assert owned(view) == {1: {0: 3, 1: 3}, 2: {2: 3, 3: 3}}


def test_what_another_member_owns_waits_for_its_release(view):
    assign(view, m1=[0, 1, 2, 3])
    assign(view, m1=[0, 1], m2=[2, 3])
    assert owned(view) == {1: {0: 3, 1: 3, 2: 3, 3: 3}, 2: {}}
    done(view, c.ReleasePartitions(1, (c.Assigned(1, 2, 1),)))
    assert owned(view) == {1: {0: 3, 1: 3, 3: 3}, 2: {2: 5}}
    done(view, c.ReleasePartitions(1, (c.Assigned(1, 3, 1),)))
    assert owned(view) == {1: {0: 3, 1: 3}, 2: {2: 5, 3: 6}}


def test_a_release_of_what_is_wanted_or_not_owned_changes_nothing(view):
    assign(view, m1=[0, 1], m2=[2, 3])
    before = generation(view), owned(view)
    done(view, c.ReleasePartitions(1, (c.Assigned(1, 0, 1), c.Assigned(1, 2, 1), c.Assigned(9, 0, 1), c.Assigned(1, 0, 7))))
    assert before == (generation(view), owned(view))


def test_a_member_that_is_gone_leaves_its_partitions_to_whom_they_are_meant_for(view):
    assign(view, m1=[0, 1, 2, 3])
    assign(view, m1=[0, 1], m2=[2, 3])
    done(view, c.LeaveGroup(1, (1,)))
    assert owned(view) == {2: {2: 5, 3: 5}}
    assign(view, m2=[0, 1, 2, 3])
    assert owned(view) == {2: {0: 6, 1: 6, 2: 5, 3: 5}}


def test_the_same_instance_is_the_same_member_in_a_newer_generation(view):
    """Its older self, which knows an older generation, can commit nothing any more."""
    assign(view, m1=[0, 1], m2=[2, 3])
    assert done(view, join("one", topics=("t",), session_timeout_ms=20_000)) == {"group_id": 1, "member_id": 1, "generation": 4}
    assert owned(view) == {1: {0: 4, 1: 4}, 2: {2: 3, 3: 3}}
    assert view.get("group_member", member_id=1)["session_timeout_ms"] == 20_000


def test_an_assignment_from_an_older_generation_is_refused(view):
    stale = generation(view)
    done(view, join("three"))
    reply = answer(view, c.AssignPartitions(1, stale, (c.Assigned(1, 0, 1),)))
    assert (reply["error"]["code"], reply["error"]["details"]) == ("conflict", {"generation": 3})
    assert owned(view) == {1: {}, 2: {}, 3: {}}


def test_a_group_keeps_its_strategy_while_it_has_members(view):
    assert answer(view, join("three", strategy="range"))["error"]["details"] == {"strategy": "sticky"}
    done(view, c.LeaveGroup(1, (1, 2)))
    assert done(view, join("three", strategy="range"))["generation"] == 4
    assert view.get("consumer_group", group_id=1)["strategy"] == "range"


def test_a_group_of_the_same_name_is_another_group(view):
    """Its number is new, so that no offset of the old one is taken for its own."""
    done(view, c.LeaveGroup(1, (1, 2)))
    done(view, c.DeleteGroup("g"))
    assert done(view, join("one")) == {"group_id": 2, "member_id": 3, "generation": 1}


def test_partitions_of_a_deleted_topic_are_nobodys_with_the_next_assignment(view):
    assign(view, m1=[0, 1], m2=[2, 3])
    done(view, c.DeleteTopic("t"))
    assert answer(view, join("one"))["error"]["code"] == "unknown_topic"
    done(view, c.AssignPartitions(1, generation(view), ()))
    assert owned(view) == {1: {}, 2: {}}
