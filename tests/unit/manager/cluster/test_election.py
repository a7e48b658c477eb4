"""When an election is due, whose promises count, and who wins."""

from __future__ import annotations

from dataclasses import replace

import pytest

from manager.cluster.election import (
    Ballot,
    Broker,
    Outlook,
    Promise,
    Replicas,
    choose_leader,
    choose_next_leader,
    damaged_leaderships,
    damaged_voters,
    election_due,
    retry_seconds,
    unbalanced,
)
from myqueue.errors import BadRequestError, MyQueueError, RefusedError, UnavailableError
from myqueue.protocol.types import PartitionId

VOTERS = {1: "d1", 2: "d2", 3: "d3"}
BROKERS = {number: Broker(number, f"d{number}") for number in (1, 2, 3)}
ROW = Replicas(PartitionId(1, 0), epoch=4, electing=False, leader=1, voters=VOTERS, replication_factor=3)
ALL_UP = Outlook(BROKERS)


def ballot(*promises: tuple[int, Promise], voters: dict = VOTERS) -> Ballot:
    found = Ballot(5, voters)
    for broker_id, promise in promises:
        found = found.with_promise(broker_id, promise)
    return found


def test_nobody_wins_without_a_majority_of_the_named_voters():
    assert choose_leader(ballot(), {}) is None
    assert choose_leader(ballot((1, Promise("d1", 4, 10))), {}) is None
    assert choose_leader(ballot((1, Promise("d1", 4, 10)), (9, Promise("d9", 4, 99))), {}) is None
    assert choose_leader(ballot((1, Promise("d1", 4, 10)), voters={1: "d1"}), {}) == 1


def test_an_empty_slot_is_counted_among_the_voters():
    assert choose_leader(ballot((1, Promise("d1", 4, 10)), voters={1: "d1", 2: None}), {}) is None
    assert choose_leader(ballot((1, Promise("d1", 4, 10)), (2, Promise("d2", 4, 10)), voters={**VOTERS, 3: None}), {}) == 1


def test_a_promise_of_another_disk_or_of_a_log_that_is_being_filled_does_not_count():
    good = (1, Promise("d1", 4, 10))
    assert choose_leader(ballot(good, (2, Promise("new", 4, 90))), {}) is None
    assert choose_leader(ballot(good, (2, Promise("d2", 4, 90, seeding=True))), {}) is None


def test_the_furthest_log_wins_by_the_epoch_of_its_last_entry_first():
    assert choose_leader(ballot((1, Promise("d1", 3, 99)), (2, Promise("d2", 4, 10)), (3, Promise("d3", 4, 9))), {}, preferred=1) == 2


def test_among_equal_logs_the_preferred_broker_wins_then_the_one_that_leads_the_fewest():
    same = ballot(*[(number, Promise(f"d{number}", 4, 10)) for number in (1, 2, 3)])
    assert choose_leader(same, {1: 5, 2: 1, 3: 1}) == 2
    assert choose_leader(same, {1: 5, 2: 1, 3: 1}, preferred=1) == 1


@pytest.mark.parametrize(("row", "outlook", "due"), [
    (ROW, ALL_UP, None),
    (ROW, replace(ALL_UP, dead=frozenset({1})), "broker 1 is dead"),
    (ROW, replace(ALL_UP, dead=frozenset({2})), None),
    (ROW, replace(ALL_UP, dead=frozenset({1, 2})), None),  # no majority: nothing to be gained
    (ROW, Outlook({**BROKERS, 1: Broker(1, "new")}), "broker 1 has lost the disk with which it led"),
    (ROW, Outlook({2: BROKERS[2], 3: BROKERS[3]}), "there is no leader"),
    (replace(ROW, electing=True, leader=None), ALL_UP, "an election was left behind"),
    (replace(ROW, electing=True, leader=None), replace(ALL_UP, dead=frozenset({1, 2})), None),
    (replace(ROW, voters={1: "d1"}), replace(ALL_UP, dead=frozenset({1})), None),
])
def test_when_an_election_is_due(row, outlook, due):
    assert election_due(row, outlook) == due


def test_an_election_that_is_under_way_here_is_not_begun_again():
    assert election_due(replace(ROW, electing=True, leader=None), ALL_UP, begun_here=True) is None


def test_a_leader_that_refuses_its_appointment_is_replaced():
    assert election_due(ROW, ALL_UP, refused=True) == "broker 1 cannot lead"


def test_a_leader_whose_replica_is_damaged_is_replaced():
    """It took its appointment before, and nobody asks it to take it again: what it says of itself is enough."""
    def damaged(row, fault="an entry lacks its digest"):
        return damaged_leaderships(1, [{"topic_id": 1, "partition": 0, "fault": fault}], {ROW.partition: row})

    assert {ROW.partition: 4} == damaged(ROW)
    assert {} == damaged(ROW, fault=None)
    assert {} == damaged(replace(ROW, leader=2)), "a follower's damage costs no election"
    assert {} == damaged(replace(ROW, electing=True, leader=None)), "one is under way"
    assert {} == damaged(replace(ROW, voters={1: "d1", 2: "d2"})), "the others are no majority"
    assert {} == damaged_leaderships(1, [{"topic_id": 9, "partition": 0, "fault": "x"}], {ROW.partition: ROW}), "its topic is deleted"


def test_a_voter_whose_replica_is_damaged_is_told_with_the_epoch():
    def damaged(row, broker_id=2, fault="an entry lacks its digest"):
        return damaged_voters(broker_id, [{"topic_id": 1, "partition": 0, "fault": fault}], {ROW.partition: row})

    assert {ROW.partition: 4} == damaged(ROW)
    assert {} == damaged(ROW, fault=None)
    assert {} == damaged(ROW, broker_id=1), "the leader: another one has to lead first"
    assert {} == damaged(replace(ROW, electing=True, leader=None)), "nobody knows who will lead"
    assert {} == damaged(replace(ROW, voters={1: "d1", 2: None, 3: "d3"})), "its slot is empty already"
    assert {} == damaged_voters(2, [{"topic_id": 9, "partition": 0, "fault": "x"}], {ROW.partition: ROW}), "its topic is deleted"


def test_retries_are_backed_off_to_a_bound():
    waits = [retry_seconds(attempt) for attempt in range(8)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (0.25, 5.0)


def partitions(*leaders: int) -> list[Replicas]:
    return [replace(ROW, partition=PartitionId(1, number), leader=leader) for number, leader in enumerate(leaders)]


def test_leaderships_move_to_a_broker_that_came_back():
    moves = unbalanced(partitions(2, 3, 2, 3, 2, 3), ALL_UP)
    assert sorted(moves.values()) == [1, 1]
    after = [moves.get(one.partition, one.leader) for one in partitions(2, 3, 2, 3, 2, 3)]
    assert sorted(after) == [1, 1, 2, 2, 3, 3]


def test_what_is_nearly_even_stays():
    assert unbalanced(partitions(1, 2, 3, 1), ALL_UP) == {}
    assert unbalanced(partitions(2, 2, 3), replace(ALL_UP, dead=frozenset({1}))) == {}


def test_leaderships_do_not_move_to_a_broker_that_is_dead_draining_or_has_another_disk():
    row = partitions(2, 2, 2)
    assert set(unbalanced(row, ALL_UP).values()) == {1, 3}
    for outlook in (replace(ALL_UP, dead=frozenset({1, 3})),
                    Outlook({**BROKERS, 1: Broker(1, "d1", draining=True), 3: Broker(3, "new")})):
        assert unbalanced(row, outlook) == {}


def test_a_partition_with_one_replica_stays_where_it_is():
    assert unbalanced([replace(one, voters={2: "d2"}) for one in partitions(2, 2, 2)], ALL_UP) == {}


def test_an_operator_s_leader_is_the_wanted_one_or_that_which_leads_the_fewest_others():
    """The present leader stays where it is as good as any."""
    assert choose_next_leader(ROW, ALL_UP, {1: 3, 2: 9, 3: 9}, wanted=2) == 2
    assert choose_next_leader(ROW, ALL_UP, {1: 3, 2: 2, 3: 1}) == 3
    assert choose_next_leader(ROW, ALL_UP, {1: 3, 2: 2, 3: 2}) == 1
    assert choose_next_leader(ROW, ALL_UP, {1: 1}) == 1
    draining = Outlook({**BROKERS, 3: Broker(3, "d3", draining=True)})
    assert choose_next_leader(ROW, draining, {1: 9, 2: 5}) == 2
    assert choose_next_leader(replace(ROW, leader=None), ALL_UP, {}) == 1


@pytest.mark.parametrize(("row", "outlook", "wanted", "kind"), [
    (ROW, ALL_UP, 9, BadRequestError), (replace(ROW, voters={**VOTERS, 3: None}), ALL_UP, 3, BadRequestError),
    (replace(ROW, electing=True, leader=None), ALL_UP, 2, UnavailableError), (ROW, replace(ALL_UP, dead=frozenset({2})), 2, RefusedError),
    (ROW, Outlook({**BROKERS, 2: Broker(2, "d2", draining=True)}), 2, RefusedError),
    (ROW, Outlook({**BROKERS, 2: Broker(2, "new")}), 2, RefusedError),
    (ROW, replace(ALL_UP, dead=frozenset({2, 3})), None, RefusedError), (ROW, replace(ALL_UP, dead=frozenset({2, 3})), 1, RefusedError)])
def test_who_cannot_lead_is_refused(row: Replicas, outlook: Outlook, wanted: int | None, kind: type[MyQueueError]):
    with pytest.raises(kind):
        choose_next_leader(row, outlook, {}, wanted=wanted)
