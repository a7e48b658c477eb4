"""Which answers are the same for ever."""

from __future__ import annotations

import pytest

from broker.core.ranges import ASKED_AGAIN, KEPT, NOT_KEPT, Answered, Caching, caching_of, records_wanted
from myqueue.protocol.types import PartitionId


def caching(offset: int, end: int, *, wanted: int = 100, committed_end: int = 50, epoch: int = 1, form: str = "json", by_number: bool = True,
            by_identity: bool = False, partition: PartitionId = PartitionId(7, 0)) -> Caching:
    return caching_of(partition, Answered(offset, end, epoch, form), wanted=wanted, committed_end=committed_end, by_number=by_number,
                      by_identity=by_identity)


@pytest.mark.parametrize(("records_max", "offset", "until_offset", "wanted"), [
    (100, 10, None, 100), (100, 10, 30, 20), (100, 10, 500, 100), (100, 10, 10, 0), (100, 10, 0, 0)])
def test_records_wanted(records_max: int, offset: int, until_offset: int | None, wanted: int):
    assert records_wanted(records_max, offset, until_offset) == wanted


@pytest.mark.parametrize(("offset", "end", "wanted", "is_fixed"), [
    (10, 40, 100, True),  # a bound in bytes, or the end of a segment: more is committed behind it
    (10, 50, 100, False),  # the end of the log: later there is more
    (10, 50, 41, False), (10, 50, 40, True), (10, 50, 7, True),  # everything that was wanted, in whole blocks
    (50, 50, 100, False), (10, 10, 0, False)])  # nothing
def test_what_does_not_end_because_the_log_does_is_fixed(offset: int, end: int, wanted: int, is_fixed: bool):
    found = caching(offset, end, wanted=wanted)
    assert (found.control, found.etag is not None) == ((ASKED_AGAIN, True) if is_fixed else (NOT_KEPT, False))
    assert caching(offset, end, wanted=wanted, by_identity=True).control == (KEPT if is_fixed else NOT_KEPT)


def test_a_word_or_a_time_means_another_offset_later():
    assert caching(10, 40, by_number=False, by_identity=True) == Caching(NOT_KEPT)


def test_each_range_topic_and_form_has_a_tag_of_its_own():
    """Also a record that stands where one was lost: it is of another epoch."""
    answers = [caching(10, 40), caching(10, 41), caching(11, 40), caching(1, 40), caching(10, 40, epoch=2), caching(10, 40, form="entries"),
               caching(10, 40, partition=PartitionId(8, 0)), caching(10, 40, partition=PartitionId(7, 1))]
    assert len({answer.etag for answer in answers}) == len(answers)
    assert caching(10, 40) == caching(10, 40, committed_end=10**6, wanted=31)
