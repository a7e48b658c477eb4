"""What a group needs next: nobody is taken for gone before the time, and nothing is shared anew without need."""

from __future__ import annotations

from manager.cluster.commands import Assigned
from manager.cluster.sharing import NOTICE_SECONDS, Reader, due_assignment, expired


def reader(member_id: int, wanted: tuple[str, ...] = (), owned: tuple[str, ...] | None = None, topics: tuple[str, ...] = ("t",)) -> Reader:
    return Reader(member_id, topics, wanted, wanted if owned is None else owned, 10.0)


def test_the_first_member_gets_everything():
    assert due_assignment("sticky", [reader(1)], {"t": (7, 2), "other": (8, 5)}) == (Assigned(7, 0, 1), Assigned(7, 1, 1))


def test_what_is_as_it_should_be_is_left_alone():
    assert due_assignment("sticky", [reader(1, ("7/0",)), reader(2, ("7/1",))], {"t": (7, 2)}) is None


def test_a_partition_more_and_a_topic_made_anew_are_shared():
    members = [reader(1, ("7/0",)), reader(2, ("7/1",))]
    assert due_assignment("sticky", members, {"t": (7, 3)}) == (Assigned(7, 0, 1), Assigned(7, 2, 1), Assigned(7, 1, 2))
    assert due_assignment("sticky", members, {"t": (9, 1)}) == (Assigned(9, 0, 1),)


def test_partitions_of_a_topic_that_is_gone_are_taken_back():
    assert due_assignment("sticky", [reader(1, (), owned=("7/0",))], {}) == ()
    assert due_assignment("sticky", [reader(1, (), owned=())], {}) is None


def test_a_topic_that_is_not_there_yet_is_nobodys():
    assert due_assignment("range", [reader(1, topics=("absent",))], {"t": (7, 2)}) is None


def test_who_is_silent_for_a_session_less_the_notice_is_gone():
    limit = 10.0 - NOTICE_SECONDS
    assert expired([reader(1), reader(2)], {1: limit - 0.01, 2: limit}, {}) == (2,)


def test_who_does_not_let_go_for_a_whole_session_is_gone():
    assert expired([reader(1), reader(2)], {1: 0.0, 2: 0.0}, {1: 9.9, 2: 10.0}) == (2,)
