"""A schedule is a function of its seed, and strikes nobody twice at a time."""

from __future__ import annotations

import itertools

import pytest

from tests.campaign.schedule import KINDS, LINKS, Nodes, make_schedule

NODES = Nodes(tuple(f"broker-{n}" for n in (1, 2, 3)), tuple(f"manager-{n}" for n in (1, 2, 3)), ("postgres-broker-1", "postgres-manager-1"))
SMALL = Nodes(("broker-1",), ("manager-1",), ())
SEEDS = range(40)


def test_the_same_seed_gives_the_same_schedule_and_another_seed_another() -> None:
    assert make_schedule(7, NODES, seconds=600) == make_schedule(7, NODES, seconds=600)
    assert make_schedule(7, NODES, seconds=600) != make_schedule(8, NODES, seconds=600)


@pytest.mark.parametrize("seed", SEEDS)
def test_faults_come_in_order_end_in_time_and_never_strike_a_victim_twice_at_once(seed: int) -> None:
    faults = make_schedule(seed, NODES, seconds=300, pause_seconds=2.0)
    assert faults == sorted(faults, key=lambda fault: fault.at_seconds)
    for place, fault in enumerate(faults):
        assert fault.at_seconds + fault.seconds <= 300
        for other in faults[:place]:
            if other.at_seconds + other.seconds > fault.at_seconds + 0.001:
                if (KINDS[fault.kind].pick in LINKS) == (KINDS[other.kind].pick in LINKS):
                    both_links = KINDS[fault.kind].pick in LINKS
                    assert fault.victims != other.victims if both_links else not set(fault.victims) & set(other.victims), (fault, other)
                assert not (KINDS[fault.kind].is_big or KINDS[other.kind].is_big), (fault, other)


def test_a_long_schedule_has_every_kind_about_equally_often() -> None:
    faults = make_schedule(1, NODES, seconds=3_000)
    counts = {kind: sum(fault.kind == kind for fault in faults) for kind in KINDS}
    assert set(counts) == set(KINDS)
    assert max(counts.values()) - min(counts.values()) <= 1
    assert any(fault.at_seconds + fault.seconds > after.at_seconds for fault, after in itertools.pairwise(faults)), "none overlap"


def test_only_the_kinds_asked_for_and_only_what_a_small_cluster_can_have() -> None:
    assert {"kill_broker", "pause"} == {fault.kind for fault in make_schedule(1, NODES, seconds=200, only=("kill_broker", "pause"))}
    kinds = {fault.kind for fault in make_schedule(1, SMALL, seconds=3_000)}
    assert not kinds & {"kill_postgres", "kill_manager_majority", "slow_managers", "kill_write_manager"}
    assert "kill_managers" in kinds


def test_a_fault_tells_itself() -> None:
    assert "kill_broker" in str(make_schedule(1, NODES, seconds=60, only=("kill_broker",))[0])
    assert "→" in str(make_schedule(1, NODES, seconds=60, only=("slow_link",))[0])
