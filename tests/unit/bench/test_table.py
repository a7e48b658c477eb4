"""What is printed."""

from __future__ import annotations

from dataclasses import replace

from tests.bench.figures import Row
from tests.bench.plan import OURS, POSTGRES, SKETCH, THOUSANDS
from tests.bench.table import flushes_told, headline, remarks, table

ROW = Row("produce", THOUSANDS, OURS, "fsync", 3, 123_456.0, 0.1, {POSTGRES: 0.519, SKETCH: 0.98}, None, None,
          {"client": 1.5, "server": 1.0, "postgres": 0.5, "other": 0.0}, {"client": 0.9, "servers": 0.8, "else": 0.1}, {})


def test_the_one_figure_is_told_first() -> None:
    assert "ratio to PostgreSQL alone: 0.52" == headline([replace(ROW, workload="consume"), ROW])
    assert headline([replace(ROW, who=SKETCH)]) is None
    assert headline([]) is None


def test_a_table_has_a_column_for_each_baseline_and_one_for_the_first_of_a_case() -> None:
    lines = table([ROW, replace(ROW, who="MyQueue, 3 replicas", ratios={"MyQueue, 1 replica": 0.25}, spread=0.3)]).splitlines()
    assert ["workload", "case", "who", "a second", "/ PostgreSQL alone", "/ sketch", "/ the first"] == [
        head for head in lines[0].split("  ") if head][:2] + [head.strip() for head in lines[0].split("  ") if head][2:7]
    assert "123,456 " in lines[1] and " 0.52  " in lines[1] and lines[1].endswith("fsync")
    assert "123,456~" in lines[2] and " 0.25 " in lines[2]
    assert "other" not in lines[0], "a kind that nobody used has no column"


def test_what_has_no_column_is_a_line() -> None:
    row = replace(ROW, workload="memory", case="a backlog", extra={"broker_while_read_MiB": 12.34, "consumer_MiB": 3.0}, spread=0.5)
    assert ["memory, a backlog, MyQueue: broker while read 12.3 MiB, consumer 3.0 MiB",
            "~ the rounds lie further apart than 20% of their median"] == remarks([row])
    assert [] == remarks([ROW])


def test_syncs_are_told_by_the_group() -> None:
    [line] = flushes_told({OURS: {"groups": 200, "fsyncs": 203}})
    assert line.startswith("fsync: MyQueue: 200 groups") and line.endswith("1.01 a group")
