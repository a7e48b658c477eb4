"""A report's figures, and keys and times as people read them."""

from __future__ import annotations

import pytest

from myqueue.errors import BadRequestError
from myqueue.protocol.types import OffsetRange, PartitionId, TopicPartition
from pipeline.report.figures import PERIODS_MAX, ReaderLag, Readers, Standing, TopicTraffic, Window, period_hours_for, topics_of
from pipeline.report.shown import KEY_BYTES_SHOWN, hour_text, key_text, time_text
from pipeline.source.cuts import CutPartition, cut_of


@pytest.mark.parametrize(("key", "text"), [
    (b"", '""'), (b"o-17", '"o-17"'), ("ключ é".encode(), '"ключ é"'), (b'a"b\\', '"a\\"b\\\\"'),
    (b"\x00\xff", "hex 00 ff"), (b"a\nb", "hex 61 0a 62"),
    ("a\u202eb".encode(), "hex 61 e2 80 ae 62"), (b"\x1b[2J", "hex 1b 5b 32 4a"), (b"\xc3", "hex c3"), (b"hex 00", '"hex 00"'),
    (b"k" * 49, '"' + "k" * 48 + '"… (49 bytes)'), (b"k" * 47 + "é".encode() + b"k", '"' + "k" * 47 + '"… (50 bytes)'),
    (b"\xff" * 2000, "hex " + " ".join(["ff"] * 24) + "… (2,000 bytes)")])
def test_a_key_of_any_bytes_is_shown_safely(key: bytes, text: str) -> None:
    """Printable text in quotation marks, all else in hexadecimal; a character that is cut in two does not make a text binary."""
    assert text == key_text(key[:KEY_BYTES_SHOWN], len(key))
    assert text.isprintable()


@pytest.mark.parametrize(("time_us", "text"), [
    (None, ""), (0, "1970-01-01 00:00:00"), (1_700_000_000_999_999, "2023-11-14 22:13:20"), (2**63 - 1, "9223372036854775807 µs")])
def test_a_time_is_shown_to_the_second(time_us: int | None, text: str) -> None:
    """Also one that no calendar has."""
    assert text == time_text(time_us)


def test_an_hour_is_shown_as_its_beginning() -> None:
    assert "2023-11-14 22:00" == hour_text(1_700_000_000 // 3600)


@pytest.mark.parametrize(("hours", "length"), [
    (1, 1), (95, 1), (96, 2), (190, 2), (191, 3), (9000, 168), (95 * 168, 168), (95 * 168 + 1, 336), (1_000_000, 10_584)])
def test_periods_are_as_long_as_a_chart_needs(hours: int, length: int) -> None:
    """Never more columns than a chart may have, wherever the first one begins."""
    assert length == period_hours_for(hours)
    assert all((first + hours - 1) // length - first // length < PERIODS_MAX for first in (0, 1, length - 1, 7))


def test_a_window_that_ends_before_it_begins_is_refused() -> None:
    """An empty one is none."""
    assert 5 == Window(5, 5).since_us
    with pytest.raises(BadRequestError, match="--since lies after --until"):
        Window(6, 5)


def test_every_topic_of_the_cut_has_a_line() -> None:
    """Also the empty ones, in the order of their names."""
    cut = cut_of("c", [CutPartition(TopicPartition(topic, number), PartitionId(1, number), OffsetRange(0, 2))
                       for topic, number in (("b", 0), ("a", 0), ("b", 1))])
    assert (TopicTraffic("a", 1), TopicTraffic("b", 2, 4)) == topics_of(cut, {"b": TopicTraffic("b", 0, 4)})


def test_lag_is_summed_by_reader_and_topic() -> None:
    """Groups first, then consumers by their number; the farthest partition is the one with most to read."""
    def at(kind: str, name: str, partition: int, lag: int, topic: str = "a") -> Standing:
        return Standing(kind, name, topic, partition, None, 10, lag)

    readers = Readers((at("consumer", "12", 0, 1), at("consumer", "9", 0, 0), at("group", "g", 0, 3), at("group", "g", 1, 5),
                       at("group", "g", 0, 2, "b")))
    assert [ReaderLag("group", "g", "a", 2, 8, 1), ReaderLag("group", "g", "b", 1, 2, 0), ReaderLag("consumer", "9", "a", 1, 0, 0),
            ReaderLag("consumer", "12", "a", 1, 1, 0)] == readers.by_topic()
