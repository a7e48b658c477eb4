"""Which receipts count, and as what."""

from __future__ import annotations

from pathlib import Path

import pytest

from myqueue.errors import BadRequestError
from myqueue.protocol.receipts import BatchReceipt, line_of
from myqueue.protocol.types import TopicPartition
from pipeline.reconcile.coverage import Coverage, Stretch
from pipeline.reconcile.receipts import Acknowledged, find_files, merged, read_receipts
from pipeline.report.figures import Window
from pipeline.transforms.reconcile import PERIOD_US

pytestmark = pytest.mark.timeout(30)
A = TopicPartition("a", 0)
FIRST = 1_700_000_000_000_000 // PERIOD_US * PERIOD_US


def receipt(base: int | None, count: int = 10, *, topic: str = "a", after: int = 0, topic_id: int | None = 1) -> BatchReceipt:
    return BatchReceipt(topic, 0, count, base, None if base is None else FIRST + after, topic_id)


def read(folder: Path, *receipts: BatchReceipt, chosen: tuple[str, ...] = (), window: Window | None = None, torn: bytes = b"") -> Acknowledged:
    (folder / "r").write_bytes(b"".join(map(line_of, receipts)) + torn)
    return read_receipts([str(folder / "r")], {"a": 1, "b": 2}, chosen, window or Window())


def test_receipts_become_ranges_by_ten_minutes(tmp_path: Path) -> None:
    """Of the append time; ranges that touch are one."""
    made = read(tmp_path, receipt(0), receipt(20, after=PERIOD_US), receipt(10, after=PERIOD_US - 1))
    assert {A: {FIRST: [Stretch(0, 20)], FIRST + PERIOD_US: [Stretch(20, 30)]}} == {
        name: {period: coverage.stretches() for period, coverage in by.items()} for name, by in made.ranges.items()}
    assert (3, 30, 0, 30, 0) == (made.batches, made.messages, made.torn, made.end_of(A), made.end_of(TopicPartition("a", 1)))


def test_receipts_of_another_identity_are_counted_apart(tmp_path: Path) -> None:
    """As are those of a topic that is gone; one without an identity goes by the name."""
    made = read(tmp_path, receipt(0), receipt(0, 3, topic_id=9), receipt(3, 3, topic_id=9), receipt(0, 5, topic="gone"), receipt(10, topic_id=None))
    assert {("a", 9): 6, ("gone", 1): 5} == made.elsewhere
    assert [Stretch(0, 20)] == merged(made.ranges[A])


def test_what_has_no_place_is_counted_apart(tmp_path: Path) -> None:
    assert {A: 4} == read(tmp_path, receipt(None, 4), receipt(0)).placeless


def test_only_the_chosen_topics_and_the_window_count(tmp_path: Path) -> None:
    """From since (included) to until (excluded)."""
    made = read(tmp_path, receipt(0, after=4), receipt(10, after=5), receipt(20, after=6), receipt(30, after=7), receipt(40, topic="b", after=5),
                receipt(50, topic="gone", after=5), chosen=("a",), window=Window(FIRST + 5, FIRST + 7))
    assert ([Stretch(10, 30)], {}, 2) == (merged(made.ranges[A]), made.elsewhere, made.batches)
    assert [A] == list(made.ranges)


def test_a_line_that_is_torn_is_counted(tmp_path: Path) -> None:
    """And hides no other."""
    made = read(tmp_path, receipt(0), torn=line_of(receipt(10))[:30] + line_of(receipt(20)) + line_of(receipt(30))[:-2])
    assert ([Stretch(0, 10), Stretch(20, 30)], 2) == (merged(made.ranges[A]), made.torn)


def test_a_file_that_is_no_receipts_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadRequestError, match=r"--receipts .*/r: line 2 is no receipt: b'hello'"):
        read(tmp_path, receipt(0), torn=b"hello\n")
    with pytest.raises(BadRequestError, match=r"--receipts .*/none: No such file or directory"):
        read_receipts([str(tmp_path / "none")], {}, (), Window())


def test_a_file_is_read_once_however_often_it_is_named(tmp_path: Path) -> None:
    """By a pattern and its name, by another name; a pattern may be a name."""
    for name in ("one.ndjson", "two.ndjson", "[x].ndjson"):
        (tmp_path / name).touch()
    (tmp_path / "link.ndjson").symlink_to(tmp_path / "one.ndjson")
    found = find_files([f"{tmp_path}/*.ndjson", f"{tmp_path}/one.ndjson", f"{tmp_path}/[x].ndjson"])
    assert ["[x].ndjson", "link.ndjson", "two.ndjson"] == sorted(Path(path).name for path in found)
    with pytest.raises(BadRequestError, match=r"none\*: there is no such file"):
        find_files([f"{tmp_path}/none*"])


def test_an_empty_coverage_has_no_stretches() -> None:
    assert [] == merged({FIRST: Coverage()})
