"""Which step comes next for a partition's voters and learners."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from manager.cluster.election import Broker, Outlook, Replicas
from manager.cluster.partitions import changed_slots
from manager.cluster.reassignment import ChangeLearners, ChangeVoters, Step, leaving, needs_attention, next_step
from myqueue.protocol.types import PartitionId

VOTERS = {1: "d1", 2: "d2", 3: "d3"}
BROKERS = {number: Broker(number, f"d{number}") for number in range(1, 6)}
ROW = Replicas(PartitionId(1, 0), epoch=4, electing=False, leader=1, voters=VOTERS, replication_factor=3)
ALL_UP = Outlook(BROKERS)


def step(row: Replicas, outlook: Outlook = ALL_UP, *, caught_up: Iterable[int] = (), settled: bool = True, held: dict | None = None) -> Step | None:
    return next_step(row, outlook, settled=settled, caught_up=frozenset(caught_up), held=held or {})


def draining(*numbers: int) -> Outlook:
    return Outlook({**BROKERS, **{number: Broker(number, f"d{number}", draining=True) for number in numbers}})


def run(row: Replicas, outlook: Outlook) -> list[str]:
    """Take steps until there is none, as if every learner caught up at once; what the voters were after each."""
    shown = []
    for _ in range(12):
        taken = step(row, outlook, caught_up=row.learners)
        if taken is None:
            return shown
        if isinstance(taken, ChangeLearners):
            row = replace(row, learners=taken.learners)
            shown.append(f"learn {list(taken.learners)}")
            continue
        one, other = ({str(number): disk for number, disk in voters.items()} for voters in (row.voters, taken.voters))
        assert changed_slots(one, other) == 1, "every change is of one slot"
        learners = tuple(number for number in row.learners if taken.voters.get(number) != outlook.brokers[number].disk_id)
        leader = next(number for number in taken.voters if outlook.disk(number) == taken.voters[number])
        row = replace(row, voters=taken.voters, learners=learners, epoch=row.epoch + 1, leader=leader)
        shown.append(" ".join(f"{number}:{disk}" for number, disk in sorted(row.voters.items())))
    raise AssertionError(f"no end: {shown}")


def test_a_whole_partition_needs_nothing():
    assert step(ROW) is None
    assert not needs_attention(ROW, ALL_UP)


def test_a_damaged_replica_loses_its_vote_and_is_made_anew_on_the_same_broker():
    """Only where the leader has committed in its epoch and the others are a majority without it."""
    def damaged(row: Replicas = ROW, outlook: Outlook = ALL_UP, *, settled: bool = True) -> Step | None:
        return next_step(row, outlook, settled=settled, caught_up=frozenset(), held={}, damaged=frozenset({2}))

    emptied = {1: "d1", 2: None, 3: "d3"}
    assert damaged() == ChangeVoters(emptied)
    assert damaged(settled=False) is None
    assert damaged(replace(ROW, electing=True, leader=None)) is None
    assert damaged(outlook=Outlook(BROKERS, dead=frozenset({3}))) is None
    two = replace(ROW, voters={1: "d1", 2: "d2"}, replication_factor=2)
    assert damaged(two) is None
    assert damaged(two, draining(2)) == ChangeLearners((3,)), "it is no obstacle to its own removal"
    assert damaged(replace(ROW, voters={2: "d2"}, leader=2, replication_factor=1)) is None
    assert run(replace(ROW, voters=emptied), ALL_UP) == ["learn [2]", "1:d1 2:d2 3:d3"]


def test_a_drained_broker_is_replaced_first_and_then_released():
    assert run(ROW, draining(3)) == ["learn [4]", "1:d1 2:d2 3:d3 4:d4", "1:d1 2:d2 4:d4"]
    assert run(ROW, draining(1)) == ["learn [4]", "1:d1 2:d2 3:d3 4:d4", "2:d2 3:d3 4:d4"]


def test_two_brokers_may_be_drained_at_once():
    assert run(ROW, draining(2, 3))[-1] == "1:d1 4:d4 5:d5"


def test_a_partition_with_one_replica_moves():
    row = replace(ROW, voters={1: "d1"}, replication_factor=1)
    assert run(row, draining(1)) == ["learn [2]", "1:d1 2:d2", "2:d2"]


def test_a_drained_broker_that_nobody_can_stand_in_for_is_released_unless_it_is_the_last():
    three = Outlook({number: draining(3).brokers[number] for number in (1, 2, 3)})
    assert run(ROW, three) == ["1:d1 2:d2"]
    alone = Outlook({1: Broker(1, "d1", draining=True)})
    assert run(replace(ROW, voters={1: "d1"}, replication_factor=1), alone) == []


def test_replicas_of_a_broker_that_is_dead_for_long_are_made_elsewhere():
    dead = replace(ALL_UP, dead=frozenset({3}))
    assert run(ROW, dead) == [], "it may come back"
    assert run(ROW, replace(dead, lost=frozenset({3}))) == ["learn [4]", "1:d1 2:d2 3:d3 4:d4", "1:d1 2:d2 4:d4"]


def test_a_lost_broker_keeps_its_slot_where_nobody_can_take_its_place():
    outlook = Outlook({number: BROKERS[number] for number in (1, 2, 3)}, dead=frozenset({3}), lost=frozenset({3}))
    assert run(ROW, outlook) == []
    assert leaving(ROW, outlook) == [3]


def test_a_replaced_disk_goes_out_then_learns_then_comes_in():
    assert run(ROW, Outlook({**BROKERS, 3: Broker(3, "new")})) == ["1:d1 2:d2 3:None", "learn [3]", "1:d1 2:d2 3:new"]


def test_a_disk_that_is_lost_with_the_majority_is_left_to_the_operator():
    two = replace(ROW, voters={1: "d1", 2: "d2"}, replication_factor=2)
    assert step(two, Outlook({**BROKERS, 2: Broker(2, "new")})) is None
    assert step(replace(ROW, voters={1: "d1"}), Outlook({1: Broker(1, "new")})) is None


def test_replicas_are_added_one_after_the_other_until_the_goal():
    assert run(replace(ROW, voters={1: "d1"}), ALL_UP) == ["learn [2]", "1:d1 2:d2", "learn [3]", "1:d1 2:d2 3:d3"]


def test_who_holds_the_fewest_learns():
    assert step(replace(ROW, voters={1: "d1"}), held={2: 5, 3: 1, 4: 3, 5: 1}) == ChangeLearners((3,))


def test_one_voter_too_many_goes_and_not_the_leader():
    assert step(replace(ROW, leader=3, replication_factor=2)) == ChangeVoters({1: "d1", 3: "d3"})
    assert step(replace(ROW, replication_factor=2), replace(ALL_UP, dead=frozenset({2}))) == ChangeVoters({1: "d1", 3: "d3"})


def test_a_learner_becomes_a_voter_only_when_it_has_caught_up():
    learning = replace(ROW, voters={1: "d1", 2: "d2"}, learners=(3,))
    assert step(learning) is None
    assert step(learning, caught_up=(3,)) == ChangeVoters(VOTERS)


def test_voters_do_not_change_before_the_leader_has_committed_in_its_epoch():
    """Else two changes with nothing committed in between are a change of two slots."""
    assert step(replace(ROW, voters={1: "d1", 2: "d2"}, learners=(3,)), caught_up=(3,), settled=False) is None
    assert step(replace(ROW, replication_factor=2), settled=False) is None


def test_learners_that_make_no_sense_any_more_are_let_go():
    row = replace(ROW, learners=(4,))
    assert step(row, draining(4)) == ChangeLearners(())
    assert step(row, replace(ALL_UP, dead=frozenset({4}))) is None, "it may come back"
    assert step(row, replace(ALL_UP, dead=frozenset({4}), lost=frozenset({4}))) == ChangeLearners(())


def test_nothing_is_changed_during_an_election_or_without_a_leader_or_a_majority():
    row = replace(ROW, replication_factor=2)
    assert step(replace(row, electing=True, leader=None)) is None
    assert step(row, replace(ALL_UP, dead=frozenset({1}))) is None
    assert step(row, replace(ALL_UP, dead=frozenset({2, 3}))) is None
