"""Which step comes next for a partition's voters and learners."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

import pytest

from db.replication import has_majority
from manager.cluster.election import Broker, Outlook, Replicas
from manager.cluster.partitions import changed_slots
from manager.cluster.reassignment import ChangeLearners, ChangeVoters, Step, leaving, needs_attention, next_step
from myqueue.protocol.types import PartitionId

VOTERS = {1: "d1", 2: "d2", 3: "d3"}
BROKERS = {number: Broker(number, f"d{number}") for number in range(1, 6)}
ROW = Replicas(PartitionId(1, 0), epoch=4, electing=False, leader=1, voters=VOTERS, replication_factor=3)
ALL_UP = Outlook(BROKERS)


def step(row: Replicas, outlook: Outlook = ALL_UP, *, caught_up: Iterable[int] = (), settled: bool = True, held: dict | None = None) -> Step | None:
    """The next one, where every voter follows."""
    return next_step(row, outlook, settled=settled, caught_up=frozenset(caught_up), held=held or {}, following=frozenset(row.voters))


def move(row: Replicas, *wanted: int) -> Replicas:
    return replace(row, wanted=tuple(sorted(wanted)), replication_factor=len(wanted))


def draining(*numbers: int) -> Outlook:
    return Outlook({**BROKERS, **{number: Broker(number, f"d{number}", draining=True) for number in numbers}})


def run(row: Replicas, outlook: Outlook) -> list[str]:
    """Take steps until there is none, as if every learner caught up at once; what the voters were after each."""
    shown = []
    for _ in range(30):
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
        leader = row.leader if row.leader in taken.voters else next(
            number for number in taken.voters if outlook.disk(number) == taken.voters[number])
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


# --- moves to named brokers ---


def test_a_partition_moves_to_the_named_brokers_and_nobody_leaves_before_they_are_there():
    assert run(move(ROW, 1, 2, 4), ALL_UP) == ["learn [4]", "1:d1 2:d2 3:d3 4:d4", "1:d1 2:d2 4:d4"]
    assert run(move(ROW, 4, 5), ALL_UP) == ["learn [4]", "1:d1 2:d2 3:d3 4:d4", "learn [5]", "1:d1 2:d2 3:d3 4:d4 5:d5",
                                            "1:d1 3:d3 4:d4 5:d5", "1:d1 4:d4 5:d5", "4:d4 5:d5"], "the leader goes last"


def test_it_grows_and_shrinks_to_the_named_brokers():
    one = replace(ROW, voters={1: "d1"}, replication_factor=1)
    assert run(move(one, 1, 5, 2), ALL_UP) == ["learn [2]", "1:d1 2:d2", "learn [5]", "1:d1 2:d2 5:d5"]
    assert run(move(one, 3), ALL_UP) == ["learn [3]", "1:d1 3:d3", "3:d3"]
    assert run(move(ROW, 2), ALL_UP) == ["1:d1 2:d2", "2:d2"]


def test_a_wanted_broker_that_is_away_is_waited_for_with_all_replicas_there_are():
    """Whether it is not a voter yet or one already; others that are wanted come in meanwhile."""
    gone = replace(ALL_UP, dead=frozenset({4}), lost=frozenset({4}))
    assert run(move(ROW, 4), gone) == []
    assert run(move(ROW, 4, 5), gone) == ["learn [5]", "1:d1 2:d2 3:d3 5:d5"]
    assert step(replace(move(ROW, 4), learners=(4,)), gone) == ChangeLearners(())
    four = replace(ROW, voters={**VOTERS, 4: "d4"})
    assert step(move(four, 1, 4), gone) is None
    assert step(move(four, 1, 4)) == ChangeVoters({1: "d1", 3: "d3", 4: "d4"})


def test_nobody_leaves_while_a_wanted_replica_has_shown_nothing_in_this_epoch_or_is_damaged():
    four = move(replace(ROW, voters={**VOTERS, 4: "d4"}), 2, 4)

    def taken(following: set[int], *damaged: int) -> Step | None:
        return next_step(four, ALL_UP, settled=True, caught_up=frozenset(), held={}, following=frozenset(following), damaged=frozenset(damaged))

    assert taken({3, 4}) is None
    assert taken({2, 4}) == ChangeVoters({1: "d1", 2: "d2", 4: "d4"})
    assert taken({2, 4}, 4) == ChangeVoters({**four.voters, 4: None}), "it is made anew first"
    assert next_step(replace(four, leader=2), ALL_UP, settled=True, caught_up=frozenset(), held={}, following=frozenset({4})) is not None
    assert next_step(four, ALL_UP, settled=False, caught_up=frozenset(), held={}, following=frozenset({2, 4})) is None


def test_learners_and_empty_slots_of_others_are_let_go_in_a_move():
    assert step(replace(move(ROW, 1, 2, 4), learners=(5,))) == ChangeLearners(())
    assert run(replace(move(ROW, 1, 2, 4), voters={**VOTERS, 3: None}), ALL_UP) == ["learn [4]", "1:d1 2:d2 3:None 4:d4", "1:d1 2:d2 4:d4"]
    assert run(replace(move(ROW, 1, 2, 3), voters={**VOTERS, 3: None}), ALL_UP) == ["learn [3]", "1:d1 2:d2 3:d3"]


def test_a_move_needs_attention_until_it_is_done():
    assert needs_attention(move(ROW, 1, 2, 4), ALL_UP)
    assert step(replace(move(ROW, 1, 2, 4), electing=True, leader=None)) is None


def test_where_no_slot_is_left_somebody_leaves_for_the_next_one():
    """Seven replicas to seven other brokers; and two of seven that are drained."""
    many = {number: Broker(number, f"d{number}") for number in range(1, 15)}
    seven = replace(ROW, voters={number: f"d{number}" for number in range(1, 8)}, replication_factor=7)
    shown = run(move(seven, *range(8, 15)), Outlook(many))
    assert set(shown[-1].split()) == {f"{number}:d{number}" for number in range(8, 15)}
    assert {len(one.split()) for one in shown if not one.startswith("learn")} == {7, 8}
    drained = Outlook({**many, **{number: Broker(number, f"d{number}", draining=True) for number in (1, 2)}})
    assert set(run(seven, drained)[-1].split()) == {f"{number}:d{number}" for number in range(3, 10)}


def test_a_leader_s_followers_are_a_majority_of_those_that_are_left():
    """Who has shown nothing leaves first; where that is not enough, nobody leaves."""
    def taken(row: Replicas, *following: int) -> Step | None:
        return next_step(row, ALL_UP, settled=True, caught_up=frozenset(), held={}, following=frozenset(following))

    assert taken(move(replace(ROW, leader=3), 3), 1) == ChangeVoters({1: "d1", 3: "d3"})
    assert taken(move(replace(ROW, leader=3), 3), 2) == ChangeVoters({2: "d2", 3: "d3"})
    five = replace(ROW, voters={**VOTERS, 4: "d4", 5: "d5"})
    assert taken(move(five, 1, 2)) is None
    assert taken(move(five, 1, 2), 2) is None
    assert taken(move(five, 1, 2), 2, 3) == ChangeVoters({1: "d1", 2: "d2", 3: "d3", 5: "d5"})


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_every_move_ends_whatever_goes_down_on_the_way(first: int):
    """Any start, wish and brokers that come and go: one slot at a time, always behind a majority that follows, never fewer replicas than there
    were until all wanted ones are voters; and once the brokers stay up, the voters are those that are wanted and no others.
    """
    for seed in range(first, first + 100):
        rng = random.Random(seed)
        start, wish = (set(rng.sample(range(1, 10), rng.randint(1, 7))) for _ in range(2))
        row = move(replace(ROW, voters={one: f"d{one}" for one in start}, leader=min(start), replication_factor=len(start)), *wish)
        for turn in range(100):
            row, taken = turned(row, rng, is_calm=turn >= 30)
            if isinstance(taken, ChangeVoters) and not wish <= row.voters.keys():
                assert len(row.voters) >= min(7, len(start)), f"seed {seed}"
        assert row.voters.keys() == wish, f"seed {seed}"


def turned(row: Replicas, rng: random.Random, *, is_calm: bool) -> tuple[Replicas, Step | None]:
    """A partition after one step, with some of nine brokers dead; an election where its leader is. What was done."""
    dead = frozenset() if is_calm else frozenset(rng.sample(range(1, 10), rng.randint(0, 4)))
    outlook = Outlook({number: Broker(number, f"d{number}") for number in range(1, 10)}, dead, frozenset(one for one in dead if rng.random() < 0.5))
    up = [one for one in row.voters if one not in dead]
    if row.leader in dead and outlook.can_elect(row.voters):
        row = replace(row, leader=rng.choice(up), epoch=row.epoch + 1)
    following = frozenset(one for one in up if is_calm or rng.random() < 0.9)
    taken = next_step(row, outlook, settled=is_calm or rng.random() < 0.8, caught_up=frozenset(row.learners), held={}, following=following)
    if isinstance(taken, ChangeLearners):
        return replace(row, learners=taken.learners), taken
    if taken is None:
        return row, None
    before, after = ({str(number): disk for number, disk in voters.items()} for voters in (row.voters, taken.voters))
    assert changed_slots(before, after) == 1
    assert outlook.can_elect(taken.voters)
    if len(taken.voters) < len(row.voters):
        assert has_majority(taken.voters, {one: f"d{one}" for one in following | {row.leader}})
    leader = row.leader if row.leader in taken.voters else rng.choice([one for one in taken.voters if one not in dead])
    learners = tuple(one for one in row.learners if one not in taken.voters)
    return replace(row, voters=taken.voters, leader=leader, epoch=row.epoch + 1, learners=learners), taken
