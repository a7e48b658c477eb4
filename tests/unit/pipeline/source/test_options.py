"""The source's options: Kafka's names and meanings, and mistakes said plainly."""

from __future__ import annotations

import pytest

from myqueue.errors import BadRequestError
from myqueue.protocol.types import OffsetRange, TopicPartition
from pipeline.source.options import EARLIEST, LATEST, parse_options

BASE = {"myqueue.bootstrap.servers": "h:1", "subscribe": "a,b"}
A0 = TopicPartition("a", 0)
READABLE = OffsetRange(10, 100)


def test_defaults_read_everything_committed() -> None:
    """Earliest to latest, one task, no headers, a loss is an error."""
    options = parse_options(BASE)
    assert (("a", "b"), EARLIEST, LATEST, 1, False, True) == (
        options.topics, options.starting, options.ending, options.min_partitions, options.include_headers, options.fail_on_data_loss)
    assert OffsetRange(10, 100) == options.offsets(A0, READABLE)


def test_option_names_are_read_in_any_case() -> None:
    """Spark hands them on in lower case."""
    options = parse_options({"MYQUEUE.BOOTSTRAP.SERVERS": "h:1", "subscribepattern": "T-.*", "includeheaders": "TRUE", "minpartitions": "5"})
    assert ("T-.*", True, 5) == (options.pattern, options.include_headers, options.min_partitions)
    assert [True, False] == [options.wants(TopicPartition(topic, 0)) for topic in ("T-1", "xT-1")]


def test_assign_names_single_partitions() -> None:
    """Only the named partitions are read."""
    options = parse_options({"myqueue.bootstrap.servers": "h:1", "assign": '{"a": [0, 2]}'})
    assert [True, False, True, False] == [options.wants(p) for p in (A0, TopicPartition("a", 1), TopicPartition("a", 2), TopicPartition("b", 0))]


def test_offsets_by_partition_win_and_the_others_keep_the_default() -> None:
    """-2 is earliest, -1 latest, as Kafka's JSON has it."""
    options = parse_options({**BASE, "startingOffsets": '{"a": {"0": 20, "1": -1}}', "endingOffsets": '{"a": {"0": 30}}'})
    assert OffsetRange(20, 30) == options.offsets(A0, READABLE)
    assert OffsetRange(100, 100) == options.offsets(TopicPartition("a", 1), READABLE)
    assert OffsetRange(10, 100) == options.offsets(TopicPartition("b", 0), READABLE)


def test_an_offset_outside_the_log_is_refused_or_clamped() -> None:
    """failOnDataLoss decides; the refusal names what there is."""
    asked = {**BASE, "startingOffsets": '{"a": {"0": 5}}'}
    with pytest.raises(BadRequestError, match="startingOffsets 5 of a/0 lies outside the log: it has 10 to 100"):
        parse_options(asked).offsets(A0, READABLE)
    assert OffsetRange(10, 100) == parse_options({**asked, "failOnDataLoss": "false"}).offsets(A0, READABLE)


@pytest.mark.parametrize(("changes", "said"), [
    ({"subscribe": None}, "exactly one of subscribe"), ({"assign": "{}"}, "exactly one of subscribe"),
    ({"myqueue.bootstrap.servers": None}, "bootstrap"),
    ({"startingOffsets": "latest"}, "no sense"), ({"endingOffsets": "earliest"}, "no sense"), ({"startingOffsets": "soon"}, "not JSON"),
    ({"startingOffsets": "[]"}, "JSON object"), ({"endingOffsets": '{"a": {"0": -3}}'}, "from -2"), ({"minPartitions": "0"}, "minPartitions"),
    ({"includeHeaders": "perhaps"}, "true or false"), ({"subscribe": "a b"}, "topic name"), ({"topics": "a"}, "no option topics"),
    ({"cut": "{}"}, "cut cannot be read"), ({"subscribe": None, "subscribePattern": "("}, "regular expression")])
def test_a_mistake_is_said_with_the_options_name(changes: dict, said: str) -> None:
    """No option is silently ignored or misread."""
    with pytest.raises(BadRequestError, match=said):
        parse_options({name: value for name, value in {**BASE, **changes}.items() if value is not None})
