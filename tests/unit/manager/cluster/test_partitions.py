"""The commands of elections: epochs are handed out once, voters change one slot at a time, and a disk is never exchanged in one step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from manager.cluster import commands as c
from manager.cluster.draft import MajorityForced, TopicDeleted
from manager.cluster.memory import MemoryMetadata
from manager.cluster.partitions import changed_slots
from manager.cluster.state import apply
from tests.support.metadata import DATABASE

DISK = {number: f"disk-{number}" for number in range(1, 6)}
VOTERS = {"1": "disk-1", "2": "disk-2", "3": "disk-3"}


@pytest.fixture
def view() -> MemoryMetadata:
    """Five brokers and a topic with one partition on 1 (the leader), 2 and 3."""
    view = MemoryMetadata()
    for number, disk in DISK.items():
        do(view, c.AddBroker(disk, "127.0.0.1", 8000 + number, DATABASE))
    do(view, c.CreateReplicatedTopic("t", live_brokers=(1, 2, 3)))
    return view


def do(view: MemoryMetadata, command: c.Command) -> dict:
    change = apply(view, command)
    view.write(change.changes)
    return change.reply


def item(reply: dict, number: int = 0) -> tuple:
    """(done, error code) of one item of a reply."""
    one = reply["result"]["items"][number]
    return one["ok"], one.get("error")


def row(view: MemoryMetadata) -> dict:
    found = view.get("partition", topic_id=1, partition=0)
    assert found is not None
    return found


def begin(view: MemoryMetadata, epoch: int, voters: dict = VOTERS) -> tuple:
    return item(do(view, c.BeginElections((c.BeginElection(1, 0, epoch, voters),))))


def appoint(view: MemoryMetadata, epoch: int, leader: int) -> tuple:
    return item(do(view, c.AppointLeaders((c.AppointLeader(1, 0, epoch, leader),))))


def learn(view: MemoryMetadata, epoch: int, *learners: int) -> tuple:
    return item(do(view, c.SetLearners((c.Learners(1, 0, epoch, learners),))))


def test_a_new_partition_begins_in_the_first_epoch_with_a_leader_and_all_voters(view):
    assert row(view) == {"topic_id": 1, "partition": 0, "replication_factor": 3, "epoch": 1, "status": "ACTIVE", "leader": 1,
                         "voters": VOTERS, "learners": [], "wanted": None}


def test_an_epoch_is_handed_out_once(view):
    """Of two coordinators that begin an election of the same partition one gets the epoch."""
    both = c.BeginElections((c.BeginElection(1, 0, 1, VOTERS), c.BeginElection(1, 0, 1, VOTERS)))
    assert [item(do(view, both), number) for number in (0, 1)] == [(True, None), (False, "conflict")]
    assert (row(view)["epoch"], row(view)["status"], row(view)["leader"]) == (2, "ELECTING", None)
    assert begin(view, 1) == (False, "conflict")


def test_a_leader_is_appointed_once_and_only_in_the_epoch_of_its_election(view):
    assert appoint(view, 1, 2) == (False, "conflict")
    begin(view, 1)
    assert appoint(view, 1, 2) == (False, "conflict")
    assert appoint(view, 2, 4) == (False, "refused")
    assert appoint(view, 2, 2) == (True, None)
    assert appoint(view, 2, 3) == (False, "conflict")
    assert (row(view)["status"], row(view)["leader"]) == ("ACTIVE", 2)


def test_one_item_that_is_refused_does_not_keep_the_others_from_being_done(view):
    reply = do(view, c.BeginElections((c.BeginElection(9, 0, 1, VOTERS), c.BeginElection(1, 0, 1, VOTERS))))
    assert [item(reply, number) for number in (0, 1)] == [(False, "unknown_partition"), (True, None)]


@pytest.mark.parametrize(("after", "slots"), [
    ({"1": "a", "2": "b"}, 0), ({"1": "a"}, 1), ({"1": "a", "2": None}, 1), ({"1": "a", "2": "b", "3": None}, 1),
    ({"1": "a", "2": "b", "3": "c"}, 1), ({"1": "a", "2": "x"}, 2), ({"1": "a", "3": "c"}, 2), ({"1": None, "2": None}, 2),
])
def test_how_many_slots_change(after, slots):
    assert changed_slots({"1": "a", "2": "b"}, after) == changed_slots(after, {"1": "a", "2": "b"}) == slots


def test_voters_change_one_slot_at_a_time(view):
    assert begin(view, 1, {"1": "disk-1"}) == (False, "refused")
    assert begin(view, 1, {"1": "disk-1", "2": "disk-2"}) == (True, None)
    assert begin(view, 2, {"1": "disk-1"}) == (False, "refused"), "the last election has found no leader yet"
    appoint(view, 2, 1)
    assert begin(view, 2, {"1": "disk-1"}) == (True, None)
    appoint(view, 3, 1)
    assert begin(view, 3, {"1": None}) == (False, "refused"), "somebody must be left"


def test_only_a_learner_with_its_registered_disk_becomes_a_voter(view):
    four = {**VOTERS, "4": "disk-4"}
    assert begin(view, 1, four) == (False, "refused")
    assert learn(view, 1, 4) == (True, None)
    assert begin(view, 1, {**VOTERS, "4": "another"}) == (False, "refused")
    assert begin(view, 1, four) == (True, None)
    assert (row(view)["voters"], row(view)["learners"], row(view)["epoch"]) == (four, [], 2)


def test_learners_are_known_brokers_that_do_not_vote_and_change_no_epoch(view):
    assert learn(view, 1, 2) == (False, "refused")
    assert learn(view, 1, 9) == (False, "unknown_broker")
    assert learn(view, 2, 4) == (False, "conflict")
    assert learn(view, 1, 4, 4) == (False, "bad_request")
    assert learn(view, 1, 5, 4) == (True, None)
    assert (row(view)["learners"], row(view)["epoch"]) == ([4, 5], 1)
    begin(view, 1)
    assert learn(view, 2) == (False, "conflict"), "there is no leader to learn from"


def test_a_replaced_disk_goes_out_learns_and_comes_in_again(view):
    do(view, c.ReplaceDisk(3, "disk-3", "new", "127.0.0.1", 9003, DATABASE))
    assert view.get("broker", broker_id=3)["disk_id"] == "new"
    assert begin(view, 1, {**VOTERS, "3": "new"}) == (False, "refused")
    assert begin(view, 1, {**VOTERS, "3": None}) == (True, None)
    appoint(view, 2, 1)
    assert learn(view, 2, 3) == (True, None)
    assert begin(view, 2, {**VOTERS, "3": "new"}) == (True, None)


@pytest.mark.parametrize("voters", [{"x": "disk-1"}, {"01": "disk-1"}, {"1": 5}, {"1": None}, {}])
def test_what_is_no_set_of_voters_is_refused(view, voters):
    assert begin(view, 1, voters)[0] is False
    assert row(view)["epoch"] == 1


def test_a_majority_is_forced_only_among_the_voters_that_there_were(view):
    def force(voters: dict) -> tuple[tuple, tuple]:
        change = apply(view, c.ForceElections((c.BeginElection(1, 0, row(view)["epoch"], voters),)))
        view.write(change.changes)
        return item(change.reply), change.events

    for voters in ({}, {"4": "disk-4"}, {"1": "another"}, {"1": None}):
        assert force(voters) == ((False, "refused"), ())
    assert force({"3": "disk-3"}) == ((True, None), (MajorityForced(1, 0, 2, {"3": "disk-3"}, (1, 2)),))
    assert row(view)["voters"] == {"3": "disk-3"}
    assert appoint(view, 2, 3) == (True, None)


def test_all_who_hold_something_are_told_of_a_deleted_topic(view):
    learn(view, 1, 5)
    assert apply(view, c.DeleteTopic("t")).events == (TopicDeleted(1, (1, 2, 3, 5)),)


def test_a_draining_broker_gets_nothing_new_and_is_removed_once_it_holds_nothing(view):
    do(view, c.DrainBroker(4))
    assert do(view, c.CreateReplicatedTopic("u", replication_factor=1, live_brokers=(4,)))["error"]["code"] == "unavailable"
    do(view, c.AddBroker("disk-4", "127.0.0.1", 9004, DATABASE))
    assert view.get("broker", broker_id=4)["status"] == "DRAINING", "a restart does not end it"
    assert do(view, c.RemoveBroker(4)) == {"result": {"broker_id": 4}}
    assert do(view, c.RemoveBroker(2))["error"]["code"] == "refused"
    do(view, c.DrainBroker(2))
    do(view, c.DrainBroker(2, draining=False))
    assert view.get("broker", broker_id=2)["status"] == "ACTIVE"


@pytest.mark.parametrize(("wanted", "live", "factor"), [(None, 5, 3), (None, 2, 2), (None, 1, 1), (1, 5, 1), (2, 5, 2), (5, 5, 5)])
def test_the_replication_factor_is_three_where_there_are_three_brokers(view, wanted, live, factor):
    made = do(view, c.CreateReplicatedTopic("u", replication_factor=wanted, live_brokers=tuple(range(1, live + 1))))["result"]
    partition = view.get("partition", topic_id=made["topic_id"], partition=0)
    assert (made["replication_factor"], partition["replication_factor"], len(partition["voters"])) == (factor, factor, factor)


def test_a_topic_that_producers_create_is_replicated_only_if_the_command_says_so(view):
    do(view, c.RegisterProducers(("old",), live_brokers=(1, 2, 3)))
    do(view, c.RegisterProducers(("new",), live_brokers=(1, 2, 3), replicate=True))
    factors = {topic["name"]: topic["replication_factor"] for topic in view.find("topic")}
    assert (factors["old"], factors["new"]) == (1, 3)
    assert "replicate" not in c.to_json(c.RegisterProducers(("old",))), "older logs are written as they were"


@pytest.mark.parametrize("command", [c.CreateReplicatedTopic("u", 2), c.RegisterProducers(("u",), replicate=True), c.AddPartition("t"),
                                     c.AddPartitions("t", 1, 3)])
def test_new_partitions_are_not_led_by_a_broker_for_which_nobody_listens(view, command):
    """It leads the fewest since it died, and would get every one of them until its silence is noticed."""
    do(view, c.RegisterProducers(("other",), live_brokers=(1,)))  # now broker 2 leads less than 1
    assert "absent_brokers" not in c.to_json(command), "older logs are written as they were"
    do(view, replace(command, live_brokers=(1, 2), absent_brokers=(2,)))
    new = [row for row in view.find("partition") if (row["topic_id"], row["partition"]) not in ((1, 0), (2, 0))]
    assert new
    assert {(1, ("1", "2"))} == {(row["leader"], tuple(row["voters"])) for row in new}


# --- moves ---


def wanted(view: MemoryMetadata, *brokers: int) -> tuple:
    """Whether a partition may be moved to these brokers; without any the move is stopped."""
    return item(do(view, c.MovePartitions((c.Move(1, 0, brokers or None),))))


def goal(view: MemoryMetadata) -> tuple:
    return row(view)["wanted"], row(view)["replication_factor"]


def test_a_wish_changes_where_a_partition_is_to_be_and_nothing_else(view):
    before = row(view)
    assert wanted(view, 5, 4) == (True, None)
    assert row(view) == {**before, "wanted": [4, 5], "replication_factor": 2}
    assert wanted(view, 1) == (True, None), "the last word counts"
    assert goal(view) == ([1], 1)
    begin(view, 1)
    assert wanted(view, 1, 4) == (True, None), "an election is no obstacle"
    assert goal(view) == ([1, 4], 2)


def test_what_cannot_be_wanted_is_refused_and_the_earlier_wish_stays(view):
    do(view, c.DrainBroker(3))
    wanted(view, 4)
    for brokers, error in (((1, 1), "bad_request"), ((9,), "unknown_broker"), ((1, 3), "refused"), (tuple(range(1, 9)), "bad_request")):
        assert wanted(view, *brokers) == (False, error)
    reply = do(view, c.MovePartitions((c.Move(1, 0, ()), c.Move(1, 7, (1,)), c.Move(9, 0, (1,)))))
    assert [item(reply, number) for number in range(3)] == [(False, "bad_request"), (False, "unknown_partition"), (False, "unknown_partition")]
    assert goal(view) == ([4], 1)


def test_a_wish_ends_with_the_voters_that_it_names_each_with_its_disk(view):
    """And where they are that already it never begins."""
    assert (wanted(view, 3, 2, 1), goal(view)) == ((True, None), (None, 3))
    wanted(view, 1, 2, 4)
    learn(view, 1, 4)
    begin(view, 1, {**VOTERS, "4": "disk-4"})
    assert goal(view) == ([1, 2, 4], 3)
    appoint(view, 2, 1)
    begin(view, 2, {"1": "disk-1", "2": "disk-2", "4": "disk-4"})
    assert goal(view) == (None, 3)
    appoint(view, 3, 1)
    begin(view, 3, {"1": "disk-1", "2": None, "4": "disk-4"})
    appoint(view, 4, 1)
    assert (wanted(view, 1, 2, 4), goal(view)) == ((True, None), ([1, 2, 4], 3)), "a slot without a disk is none that it asks for"


def test_a_forced_majority_may_be_what_was_wanted(view):
    wanted(view, 3)
    do(view, c.ForceElections((c.BeginElection(1, 0, 1, {"3": "disk-3"}),)))
    assert goal(view) == (None, 1)


def test_a_move_that_is_stopped_adds_and_takes_nothing_more(view):
    assert (wanted(view), goal(view)) == ((True, None), (None, 3))
    wanted(view, 5)
    assert (wanted(view), goal(view)) == ((True, None), (None, 3)), "not the one that was wanted: all that are there stay"
    wanted(view, 1, 2, 3, 4, 5)
    learn(view, 1, 4)
    begin(view, 1, {**VOTERS, "4": "disk-4"})
    assert (wanted(view), goal(view)) == ((True, None), (None, 4))


def test_nothing_is_wanted_of_a_broker_that_is_drained_or_removed(view):
    """The others need not be moved to either; as many replicas as were wanted are wanted still."""
    wanted(view, 1, 4)
    do(view, c.DrainBroker(5))
    do(view, c.DrainBroker(4, draining=False))
    assert goal(view) == ([1, 4], 2)
    do(view, c.DrainBroker(4))
    assert goal(view) == (None, 2)
    do(view, c.DrainBroker(4, draining=False))
    wanted(view, 4, 2)
    assert do(view, c.RemoveBroker(4)) == {"result": {"broker_id": 4}}
    assert goal(view) == (None, 2)
