"""Which stretches of a log a task checks."""

from __future__ import annotations

from myqueue.protocol.types import PartitionId
from pipeline.audit.stretches import plan_stretches, spread, tasks_from_json, tasks_to_json
from pipeline.cluster import DatabaseAddress
from pipeline.source.positions import Position, Segment

DATABASE = DatabaseAddress("h", 1, "d", "u")
POSITION = Position(PartitionId(3, 0), 2, 20, 1, b"\x01" * 32, 30, 300, 25, 250,
                    (Segment(4, 0, 10, 0, 100, 1000.0, 100.0), Segment(7, 10, 30, 100, 300, 1000.0, 100.0)))


def test_stretches_tile_the_log_from_its_start_to_its_end() -> None:
    """From the first entry kept to the last stored, the uncommitted tail included; at most range_bytes each."""
    stretches = plan_stretches(1, DATABASE, "t", POSITION, 6000)
    assert [(4, 2, 8), (4, 8, 10), (7, 10, 16), (7, 16, 22), (7, 22, 28), (7, 28, 30)] == [(s.segment_id, s.from_lsn, s.to_lsn) for s in stretches]
    assert {25} == {s.commit_lsn for s in stretches}


def test_tasks_are_bounded_per_broker_and_take_turns() -> None:
    """So many statements run in one database at a time, and no broker waits for another's."""
    stretches = [stretch for broker in (1, 2) for stretch in plan_stretches(broker, DATABASE, "t", POSITION, 6000)]
    tasks = spread(stretches, 2)
    assert [1, 2, 1, 2] == [task[0].broker_id for task in tasks]
    assert sorted(map(repr, stretches)) == sorted(repr(s) for task in tasks for s in task)
    assert 3 == len(spread(stretches[:3], 64))


def test_a_plan_survives_its_text() -> None:
    """Spark's options are strings: the plan comes out as it went in."""
    tasks = spread(plan_stretches(1, DATABASE, "t", POSITION, 6000), 2)
    assert tasks == tasks_from_json(tasks_to_json(tasks))
