"""The source's options: Kafka's names and meanings, and mistakes said plainly."""

from __future__ import annotations

import pytest

from myqueue.errors import BadRequestError
from myqueue.protocol.types import OffsetRange, TopicPartition
from pipeline.source.edges import LATEST
from pipeline.source.options import ReadOptions, parse_options

BASE = {"myqueue.bootstrap.servers": "h:1", "subscribe": "a,b"}
A0 = TopicPartition("a", 0)
READABLE = OffsetRange(10, 100)


def offsets(options: ReadOptions, partition: TopicPartition, at_time: int | None = None) -> OffsetRange:
    """What is read of a partition that holds READABLE."""
    return OffsetRange(*(edge.resolve(partition, READABLE, at_time, strict=options.fail_on_data_loss) for edge in (options.starting, options.ending)))


def test_defaults_read_everything_committed() -> None:
    """Earliest to latest, one task, no headers, a loss is an error."""
    options = parse_options(BASE)
    assert (("a", "b"), 1, False, True, "leader") == (
        options.topics, options.min_partitions, options.include_headers, options.fail_on_data_loss, options.read_from)
    assert OffsetRange(10, 100) == offsets(options, A0)


def test_tasks_by_topic_and_day_are_asked_for_by_their_size() -> None:
    """Only then, and only by a batch read."""
    assert (None, 1 << 20) == (parse_options(BASE).file_bytes, parse_options({**BASE, "fileBytes": "1048576"}).file_bytes)
    with pytest.raises(BadRequestError, match="fileBytes"):
        parse_options({**BASE, "fileBytes": "0"})
    with pytest.raises(BadRequestError, match="a stream of the myqueue source has no option filebytes"):
        parse_options({**BASE, "fileBytes": "1048576"}, stream=True)


def test_a_stream_starts_at_the_end_and_has_no_end() -> None:
    """Kafka's defaults, and its options for rates; what only one of the two has is refused in the other."""
    options = parse_options({**BASE, "maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "2", "maxTriggerDelay": "90s",
                             "consumers": '{"a": 7}', "checkpointLocation": "/x"}, stream=True)
    assert (LATEST, 5, 2, 90.0, {"a": 7}) == (options.starting.default, options.max_offsets_per_trigger, options.min_offsets_per_trigger,
                                             options.max_trigger_delay_seconds, options.consumers)
    assert LATEST == parse_options({**BASE, "startingOffsets": "latest"}, stream=True).starting.default
    with pytest.raises(BadRequestError, match="a stream of the myqueue source has no option endingoffsets"):
        parse_options({**BASE, "endingOffsets": "latest"}, stream=True)
    with pytest.raises(BadRequestError, match="the myqueue source has no option maxoffsetspertrigger"):
        parse_options({**BASE, "maxOffsetsPerTrigger": "5"})


def test_the_copy_to_read_is_the_leaders_unless_another_is_named() -> None:
    """A follower where there is one, or a broker by its number."""
    assert ["leader", "follower", 3] == [parse_options({**BASE, "readFrom": text}).read_from for text in ("leader", "follower", "replica=3")]


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
    assert OffsetRange(20, 30) == offsets(options, A0)
    assert OffsetRange(100, 100) == offsets(options, TopicPartition("a", 1))
    assert OffsetRange(10, 100) == offsets(options, TopicPartition("b", 0))


def test_an_offset_outside_the_log_is_refused_or_clamped() -> None:
    """failOnDataLoss decides; the refusal names what there is."""
    asked = {**BASE, "startingOffsets": '{"a": {"0": 5}}'}
    with pytest.raises(BadRequestError, match="startingOffsets 5 of a/0 lies outside the log: it has 10 to 100"):
        offsets(parse_options(asked), A0)
    assert OffsetRange(10, 100) == offsets(parse_options({**asked, "failOnDataLoss": "false"}), A0)


@pytest.mark.parametrize(("changes", "said"), [
    ({"subscribe": None}, "exactly one of subscribe"), ({"assign": "{}"}, "exactly one of subscribe"),
    ({"myqueue.bootstrap.servers": None}, "bootstrap"),
    ({"startingOffsets": "latest"}, "no sense"), ({"endingOffsets": "earliest"}, "no sense"), ({"startingOffsets": "soon"}, "not JSON"),
    ({"startingOffsets": "[]"}, "JSON object"), ({"endingOffsets": '{"a": {"0": -3}}'}, "from -2"), ({"minPartitions": "0"}, "minPartitions"),
    ({"includeHeaders": "perhaps"}, "true or false"), ({"subscribe": "a b"}, "topic name"), ({"topics": "a"}, "no option topics"),
    ({"readFrom": "broker 3"}, "readFrom must be"), ({"startingTimestamp": "soon"}, "startingTimestamp"),
    ({"startingOffsetsByTimestampStrategy": "nearest"}, "error or latest"), ({"maxRecordsPerPartition": "0"}, "maxRecordsPerPartition"),
    ({"cut": "{}"}, "cut cannot be read"), ({"subscribe": None, "subscribePattern": "("}, "regular expression")])
def test_a_mistake_is_said_with_the_options_name(changes: dict, said: str) -> None:
    """No option is silently ignored or misread."""
    with pytest.raises(BadRequestError, match=said):
        parse_options({name: value for name, value in {**BASE, **changes}.items() if value is not None})
