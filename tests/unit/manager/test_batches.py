"""A batch to a topic: which record goes where, and what is answered when some partitions have stored their part and others have not."""

from __future__ import annotations

from zlib import crc32

import pytest

from manager.batches import Addressed, Outcome, plan_batch, verdict
from myqueue.errors import MyQueueError, NotLeaderError, OutcomeUnknownError, PartlyStoredError, UnknownTopicError
from myqueue.protocol.types import Record


def test_records_go_where_they_say_or_their_key_says_and_the_others_stay_together() -> None:
    batch = [Addressed(Record(b"a")), Addressed(Record(b"b", b"g")), Addressed(Record(b"c", b"g"), 0), Addressed(Record(b"d")),
             Addressed(Record(b"e", b"")), Addressed(Record(b"f"), 3)]
    assert (crc32(b"g") % 4, crc32(b"") % 4) == (2, 0)
    assert plan_batch(batch, partitions=4, turn=5) == {0: [2, 4], 1: [0, 3], 2: [1], 3: [5]}


def test_the_turn_decides_only_for_those_that_have_neither_key_nor_partition() -> None:
    batch = [Addressed(Record(b"v")) for _ in range(3)]
    assert [list(plan_batch(batch, partitions=3, turn=turn)) for turn in range(4)] == [[0], [1], [2], [0]]


STORED, REFUSED, UNKNOWN = Outcome(0, (0, 2), 7), Outcome(1, (1,), NotLeaderError("moved", component="broker-1")), Outcome(
    2, (3,), OutcomeUnknownError("no answer"))


def test_a_batch_that_is_stored_is_no_error() -> None:
    assert verdict([STORED]) is None
    assert STORED.to_json() == {"partition": 0, "record_count": 2, "records": [0, 2], "base_offset": 7}


@pytest.mark.parametrize(("outcomes", "kind", "retriable"), [
    ([STORED, REFUSED], PartlyStoredError, False), ([STORED, UNKNOWN], PartlyStoredError, False), ([REFUSED, UNKNOWN], OutcomeUnknownError, True),
    ([REFUSED], NotLeaderError, True), ([UNKNOWN], OutcomeUnknownError, True),
    ([Outcome(0, (0,), UnknownTopicError("gone"))], UnknownTopicError, False)])
def test_what_is_not_stored_as_a_whole_is_an_error_that_tells_all(outcomes: list[Outcome], kind: type[MyQueueError], retriable: bool) -> None:
    """Half a success is never taken for one, nor called safe to send again."""
    error = verdict(outcomes)
    assert type(error) is kind
    assert error.retriable is retriable
    assert error.status >= 400
    assert [(one["partition"], one["records"]) for one in error.details["partitions"]] == [(one.partition, list(one.places)) for one in outcomes]


def test_which_records_to_send_again_is_told() -> None:
    [_, told] = verdict([STORED, REFUSED]).details["partitions"]
    assert (told["partition"], told["records"], told["error"]["code"]) == (1, [1], "not_leader")
    assert "base_offset" not in told
