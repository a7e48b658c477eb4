from __future__ import annotations

from myqueue.cli import workload
from myqueue.cli.workload import Line
from myqueue.protocol.types import Message


def message(offset: int, source: str, line: int, value: bytes) -> Message:
    return Message("T-1", 0, offset, value, None, ((workload.SOURCE, source.encode()), (workload.LINE, str(line).encode())))


def test_a_file_is_split_at_lf_only() -> None:
    assert [b"a\r", b"", b"b\x0bc\x85d\rz", b"last"] == workload.split_lines(b"a\r\n\nb\x0bc\x85d\rz\nlast")


def test_nothing_stands_behind_the_last_lf_and_an_empty_file_has_no_line() -> None:
    assert [b"a", b""] == workload.split_lines(b"a\n\n")
    assert [] == workload.split_lines(b"")


def test_six_columns_ending_in_a_topic_go_there_and_all_else_to_the_files_topic() -> None:
    content = b"1\t2\t3\t4\t5\tT-7\n1\t2\t3\t4\tT-7\n1\t2\t3\t4\t5\tT-7\r\n1\t2\t3\t4\t5\tT-x\n"
    source = workload.source_from("1:my log.txt", "my log.txt", content)
    assert ["T-7", "my_log", "my_log", "my_log"] == [line.topic for line in source.lines]


def test_a_consumer_that_saw_every_line_once_and_in_order_has_no_fault() -> None:
    one = workload.Source("1:a", (Line("T-1", 1, b"x"), Line("T-2", 2, b"y"), Line("T-1", 3, b"z")))
    two = workload.Source("2:b", (Line("T-1", 1, b"x"),))
    assert [] == workload.check_received("T-1", [one, two], [message(0, "1:a", 1, b"x"), message(1, "2:b", 1, b"x"), message(2, "1:a", 3, b"z")])


def test_a_lost_a_doubled_a_swapped_and_a_changed_line_are_each_told() -> None:
    source = workload.Source("1:a", (Line("T-1", 1, b"x"), Line("T-1", 2, b"y")))
    first, second = message(0, "1:a", 1, b"x"), message(1, "1:a", 2, b"y")
    changed, stranger = message(1, "1:a", 2, b"Y"), message(2, "9:q", 1, b"")
    for received in ([first], [first, first, second], [second, first], [first, changed], [first, second, stranger]):
        assert workload.check_received("T-1", [source], received)


def test_a_row_agrees_only_when_all_its_counts_do() -> None:
    rows = workload.results({"a": 2, "b": 1}, {"a": 2, "b": 1}, {"a": [2, 2], "b": [1, 0]}, {"a": 2, "b": 1}, {"a": 2, "b": 1, "c": 4})
    assert [("a", True), ("b", False), ("c", False)] == [(row.topic, row.agrees) for row in rows]


def test_the_table_ends_with_the_total() -> None:
    shown = workload.table(workload.results({"a": 1200}, {"a": 1200}, {"a": [1200, 1200]}, {"a": 1200}, {"a": 1200}))
    assert shown.splitlines()[-1].split() == ["total", "1,200", "1,200", "1,200", "1,200", "1,200", "ok"]
