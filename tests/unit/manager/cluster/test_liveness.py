from __future__ import annotations

import pytest

from manager.cluster.liveness import Actor, State, Thresholds, heard_age, observe

THRESHOLDS = {"broker": Thresholds(5, 15), "producer": Thresholds(30, 60)}
BROKER, PRODUCER = Actor("broker", 1), Actor("producer", 1)


@pytest.mark.parametrize(("age", "state"), [(0, "alive"), (4.99, "alive"), (5, "suspect"), (14.99, "suspect"), (15, "dead"), (1e9, "dead")])
def test_state_by_age(age, state):
    assert THRESHOLDS["broker"].state(age) == state


def test_each_change_is_told_once():
    """alive, alive, suspect, suspect, dead, dead, alive: three turns."""
    states, told = {}, []
    for age in (0, 1, 6, 7, 16, 17, 0):
        states, turns = observe(states, {BROKER: age}, THRESHOLDS)
        told += [(turn.before, turn.after) for turn in turns]
    assert told == [(State.ALIVE, State.SUSPECT), (State.SUSPECT, State.DEAD), (State.DEAD, State.ALIVE)]


def test_an_actor_first_seen_dead_is_told_once():
    states, turns = observe({}, {BROKER: 100.0}, THRESHOLDS)
    assert [(turn.actor, turn.before, turn.after) for turn in turns] == [(BROKER, None, State.DEAD)]
    assert observe(states, {BROKER: 101.0}, THRESHOLDS)[1] == []


def test_thresholds_go_by_type():
    assert observe({}, {BROKER: 20.0, PRODUCER: 20.0}, THRESHOLDS)[0] == {BROKER: State.DEAD, PRODUCER: State.ALIVE}


def test_an_actor_that_is_gone_is_forgotten():
    assert observe({BROKER: State.DEAD}, {}, THRESHOLDS) == ({}, [])


def test_a_new_write_manager_counts_from_its_own_beginning():
    """Nobody is dead for having been silent before this manager led, and no clock that jumped makes a heartbeat younger than now."""
    assert heard_age(1_000.0, leading_seconds=2.0) == 2.0
    assert heard_age(-5.0, leading_seconds=2.0) == 0.0
    assert heard_age(1.0, leading_seconds=2.0) == 1.0
