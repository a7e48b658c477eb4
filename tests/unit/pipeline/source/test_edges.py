"""Where a read starts and ends."""

from __future__ import annotations

import pytest

from myqueue.errors import BadRequestError
from myqueue.protocol.types import OffsetRange, TopicPartition
from pipeline.source.edges import Edge, parse_edge

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
READABLE = OffsetRange(10, 100)


def edge(side: str = "starting", **given: str) -> Edge:
    return parse_edge({name.lower(): value for name, value in given.items()}, side, default="earliest" if side == "starting" else "latest")


def resolve(of: Edge, partition: TopicPartition, at_time: int | None = None) -> int:
    return of.resolve(partition, READABLE, at_time, strict=True)


def test_a_time_for_all_wins_over_times_by_partition_and_those_over_offsets() -> None:
    """Kafka's order."""
    given = {"startingOffsets": '{"a": {"0": 20, "1": 30}, "b": {"0": 40}}', "startingOffsetsByTimestamp": '{"a": {"1": 5000}}'}
    assert [None, 5000, None] == [edge(**given).time_of(partition) for partition in (A0, A1, B0)]
    assert [20, 77, 40] == [resolve(edge(**given), A0), resolve(edge(**given), A1, 77), resolve(edge(**given), B0)]
    assert [9, 9] == [edge(**given, startingTimestamp="9").time_of(partition) for partition in (A0, A1)]


def test_without_a_message_at_that_time_a_start_is_an_error_or_the_end() -> None:
    """startingOffsetsByTimestampStrategy; an end is then the latest."""
    with pytest.raises(BadRequestError, match="a/0 has no message at or after 9 ms"):
        resolve(edge(startingTimestamp="9"), A0)
    assert 100 == resolve(edge(startingTimestamp="9", startingOffsetsByTimestampStrategy="latest"), A0)
    assert 100 == resolve(edge("ending", endingTimestamp="9"), A0)


def test_the_words_in_json_mean_the_ends() -> None:
    """-2 is earliest, -1 latest."""
    assert [10, 100] == [resolve(edge(startingOffsets='{"a": {"0": -2, "1": -1}}'), partition) for partition in (A0, A1)]
