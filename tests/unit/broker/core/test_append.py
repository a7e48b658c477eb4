"""plan_append and plan_group: sequences, offsets, chain, time."""

from __future__ import annotations

import pytest

from broker.core.append import AppendRequest, AppendResult, check_sequence, plan_append
from broker.core.group import Handed, in_sequence_order, plan_group
from broker.core.offsets import CommitRequest, DequeueRequest, LogRange, TrimRequest
from myqueue.errors import DuplicateSequenceError, EndOffsetMismatchError, OffsetOutOfRangeError, ProducerFencedError, SequenceGapError
from myqueue.protocol.chain import GENESIS, MARKER, OFFSET_COMMIT, RECORDS, TRIM
from myqueue.protocol.entry import UNCHAINED, LogEnd, chained, end_chained, marker_entry
from myqueue.protocol.fold import ConsumerState, HandedOut, LogState, ProducerState, StoredRequest
from myqueue.protocol.types import ProducerSequence
from tests.support.factories import PARTITION, blocks, sequence

MARKER_ENTRIES, BEGUN = marker_entry(PARTITION, LogEnd(), epoch=3, append_time=1_000)
KNOWN = ProducerState(0, 9, tuple(StoredRequest(seq, seq * 10, seq, 2, 50 + seq) for seq in range(2, 10)), 59)


def request(*values: bytes, seq: int | None = None, **more: int) -> AppendRequest:
    return AppendRequest(blocks(*(values or (b"x",))), None if seq is None else sequence(seq, **more))


def plan(request: AppendRequest, producer: ProducerState | None = None, end: LogEnd = BEGUN, now_us: int = 2_000):
    return plan_append(PARTITION, end, producer, request, epoch=3, now_us=now_us)


def test_the_marker_begins_the_log():
    assert [(entry.head.kind, entry.head.lsn, entry.head.record_count) for entry in MARKER_ENTRIES] == [(MARKER, 0, 0)]
    assert (BEGUN.lsn, BEGUN.offset, BEGUN.epoch) == (1, 0, 3)


def test_positions_go_on_without_gaps():
    """lsn counts blocks, offsets count records, and a request says how many entries it has."""
    planned = plan(AppendRequest(blocks(b"a" * 5_000, b"b" * 5_000, b"c")))
    assert [(e.head.lsn, e.head.base_offset, e.head.record_count, e.head.request_index, e.head.request_count) for e in planned.entries] == [
        (1, 0, 1, 0, 2), (2, 1, 2, 1, 2)]
    assert planned.end[:3] == (3, 3, 3)
    assert planned.result == AppendResult(0, 3, 2_000)


def test_each_entry_chains_on_the_one_before_once_it_is_written():
    planned = plan(AppendRequest(blocks(b"a" * 5_000, b"b" * 5_000, b"c")))
    assert {UNCHAINED} == {planned.end.chain, *(entry.chain for entry in planned.entries)}
    written, chain = list(chained(GENESIS, planned.entries)), GENESIS
    for entry, before in zip(written, planned.entries, strict=True):
        assert entry == before._replace(chain=entry.chain_after(chain))
        chain = entry.chain
    assert chain == end_chained(planned.end, written, GENESIS).chain
    assert written == list(chained(b"not looked at", written)), "what has a chain keeps it"
    assert end_chained(planned.end, [], chain).chain == chain


def test_append_time_never_falls():
    """A clock that jumps back does not put an entry before the last one."""
    assert plan(request(), now_us=500).result.append_time == 1_000


def test_the_next_sequence_is_stored():
    assert plan(request(seq=10), KNOWN).result == AppendResult(0, 1, 2_000)
    assert plan(request(seq=0)).result.duplicate is False


def test_a_duplicate_answers_its_first_offset():
    """Of the last eight requests the first answer is given again, and nothing is written."""
    planned = plan(request(seq=4), KNOWN)
    assert planned.result == AppendResult(40, 2, 54, duplicate=True)
    assert (planned.entries, planned.end) == ((), BEGUN)


def test_an_older_duplicate_is_known_but_not_where():
    with pytest.raises(DuplicateSequenceError):
        plan(request(seq=1), KNOWN)


@pytest.mark.parametrize(("state", "seq", "epoch", "expected"), [(KNOWN, 11, 0, 10), (None, 1, 0, 0), (KNOWN, 1, 1, 0)])
def test_a_gap_is_refused_and_says_what_is_expected(state: ProducerState | None, seq: int, epoch: int, expected: int):
    """Also the first request of a producer, and of a new epoch, has sequence 0: a later one may have overtaken it."""
    with pytest.raises(SequenceGapError) as error:
        check_sequence(state, ProducerSequence(7, epoch, seq))
    assert error.value.details == {"expected_seq": expected}


def test_a_conditional_append_is_stored_where_it_expects_to_begin():
    """Anywhere else it is refused, and the error says where the log ends; nothing is written."""
    end = LogEnd(20, 10, 3, BEGUN.chain, 1_000)
    assert plan(AppendRequest(blocks(b"a", b"b"), None, 10), end=end).result == AppendResult(10, 2, 2_000)
    for expected in (0, 9, 11, 2**63 - 1):
        with pytest.raises(EndOffsetMismatchError) as error:
            plan(AppendRequest(blocks(b"a"), None, expected), end=end)
        assert (error.value.details, error.value.outcome, error.value.retriable) == ({"end_offset": 10}, "not_done", False)
    assert plan(AppendRequest(blocks(b"a"), None, 0)).result == AppendResult(0, 1, 2_000)


def test_a_repeat_is_a_duplicate_before_it_is_compared_with_the_end():
    """The first one moved the end itself: a retry of a conditional append must not look as if somebody else had been quicker."""
    planned = plan(AppendRequest(blocks(b"x"), sequence(9), 90), KNOWN, LogEnd(20, 92, 3, BEGUN.chain, 1_000))
    assert planned.result == AppendResult(90, 2, 59, duplicate=True)
    with pytest.raises(EndOffsetMismatchError):
        plan(AppendRequest(blocks(b"x"), sequence(10), 90), KNOWN, LogEnd(20, 92, 3, BEGUN.chain, 1_000))


def test_a_lower_epoch_is_fenced():
    with pytest.raises(ProducerFencedError):
        check_sequence(ProducerState(2, 0, (), 0), ProducerSequence(7, 1, 1))


# --- groups ---

RANGE = LogRange(0, 10)


def group(*requests, state: LogState | None = None, readable: LogRange = RANGE):
    end = LogEnd(20, 10, 3, BEGUN.chain, 1_000)
    return plan_group(PARTITION, end, state or LogState(), readable, requests, epoch=3, now_us=2_000)


def test_each_request_sees_the_ones_before():
    """A retry that comes with its original is a duplicate of it; the next sequence is not a gap."""
    planned = group(request(seq=0), request(seq=0), request(b"a", b"b", seq=1))
    assert planned.outcomes == [AppendResult(10, 1, 2_000), AppendResult(10, 1, 2_000, duplicate=True), AppendResult(11, 2, 2_000)]
    assert planned.end[:2] == (22, 13)
    assert planned.changes.producers[7].last_seq == 1


def test_a_refused_request_leaves_no_trace():
    """The others are stored as if it had not come."""
    planned = group(request(b"a"), request(seq=5), request(b"b"))
    assert [type(outcome).__name__ for outcome in planned.outcomes] == ["AppendResult", "SequenceGapError", "AppendResult"]
    assert planned.end[:2] == (22, 12)
    assert planned.changes == LogState()


def test_of_several_conditional_appends_to_one_end_one_is_stored():
    """Those behind it see its records; a refused one takes no sequence, so that its producer goes on with the same."""
    planned = group(AppendRequest(blocks(b"a", b"b"), None, 10), AppendRequest(blocks(b"c"), sequence(0), 10), AppendRequest(blocks(b"d"), None, 12),
                    AppendRequest(blocks(b"e"), sequence(0), 13))
    assert [outcome.details if isinstance(outcome, EndOffsetMismatchError) else outcome.base_offset for outcome in planned.outcomes] \
        == [10, {"end_offset": 12}, 12, 13]
    assert planned.end[:2] == (23, 14)


def test_requests_of_one_producer_are_put_in_order():
    """Those of others keep their place."""
    requests = [request(seq=2), request(b"other"), request(seq=0), request(seq=0, producer_id=8), request(seq=1)]
    assert in_sequence_order(requests) == [2, 1, 4, 3, 0]
    assert all(isinstance(outcome, AppendResult) for outcome in group(*requests).outcomes)


def test_two_dequeues_get_two_messages():
    """The second sees the first one's entry, though it is not committed."""
    planned = group(DequeueRequest("#1"), DequeueRequest("#1"), DequeueRequest("#2"))
    assert planned.outcomes == [Handed(0), Handed(1), Handed(0)]
    assert [entry.head.kind for entry in planned.entries] == [OFFSET_COMMIT] * 3
    assert (planned.changes.consumers["#1"].next_offset, planned.changes.consumers["#2"].next_offset) == (2, 1)


def test_only_committed_messages_are_handed_out():
    """A message of the same group is not committed yet: empty, and nothing is written for it."""
    planned = group(request(b"new"), DequeueRequest("#1"), state=LogState(consumers={"#1": ConsumerState(10, 0, 5, 5)}))
    assert planned.outcomes[1] == Handed(None)
    assert [entry.head.kind for entry in planned.entries] == [RECORDS]


def test_a_request_id_gets_the_same_message_again():
    """In the same group and later, for five minutes of the log's time."""
    planned = group(DequeueRequest("#1", "r"), DequeueRequest("#1", "r"), DequeueRequest("#1", "other"), DequeueRequest("#2", "r"))
    assert planned.outcomes == [Handed(0), Handed(0), Handed(1), Handed(0)]
    later = plan_group(PARTITION, planned.end, planned.changes, RANGE, [DequeueRequest("#1", "r")], epoch=3, now_us=2_000 + 299_000_000)
    assert (later.outcomes, later.entries) == ([Handed(0)], [])
    too_late = plan_group(PARTITION, planned.end, planned.changes, RANGE, [DequeueRequest("#1", "r")], epoch=3, now_us=2_000 + 301_000_000)
    assert too_late.outcomes == [Handed(2)]


def test_a_dequeue_keeps_the_generation():
    """Else the fold would refuse it."""
    planned = group(DequeueRequest("#1"), state=LogState(consumers={"#1": ConsumerState(4, 3, 5, 5)}))
    assert planned.changes.consumers["#1"][:2] == (5, 3)


def test_a_consumer_whose_message_was_dropped_goes_on_at_the_first_that_is_left():
    """Were it refused, a client of the queue face could never go on: it cannot seek. A repetition of what is gone is told so."""
    state = LogState(consumers={"#1": ConsumerState(2, 0, 5, 5)}, requests={("#1", "r"): HandedOut(1, 1_999)})
    planned = group(DequeueRequest("#1"), DequeueRequest("#2"), DequeueRequest("#1", "r"), state=state, readable=LogRange(5, 10))
    assert planned.outcomes[:2] == [Handed(5), Handed(5)]
    assert planned.changes.consumers["#1"].next_offset == 6
    assert isinstance(planned.outcomes[2], OffsetOutOfRangeError)
    assert planned.outcomes[2].details == {"offset": 1, "earliest": 5, "latest": 10}


def test_a_trim_is_an_entry_and_the_requests_behind_it_see_it():
    """Answered with the first offset left; again, or lower, it writes nothing; above the committed end it is refused, with the bounds."""
    planned = group(TrimRequest(6), TrimRequest(6), TrimRequest(2), TrimRequest(11), DequeueRequest("#1"), TrimRequest(10), DequeueRequest("#1"))
    assert planned.outcomes[:3] == [Handed(6)] * 3
    assert isinstance(planned.outcomes[3], OffsetOutOfRangeError)
    assert planned.outcomes[3].details == {"offset": 11, "earliest": 6, "latest": 10}
    assert planned.outcomes[4:] == [Handed(6), Handed(10), Handed(None)]
    assert [(entry.head.kind, entry.head.record_count, entry.head.base_offset, entry.body) for entry in planned.entries if entry.head.kind == TRIM] \
        == [(TRIM, 0, 10, b'{"start_offset":6}'), (TRIM, 0, 10, b'{"start_offset":10}')]
    assert planned.changes.trim_offset == 10


def test_a_trim_that_is_not_folded_yet_counts():
    """Decisions see the folded state and the entries above: the offset never falls."""
    planned = group(TrimRequest(4), DequeueRequest("#1"), state=LogState(trim_offset=7))
    assert (planned.outcomes, planned.changes.trim_offset) == ([Handed(7), Handed(7)], 7)


def test_an_offset_is_set_up_to_what_another_replica_may_have_served():
    """A follower that heard of the commit first has; the entry stands behind those messages. No offset means the committed end."""
    planned = group(CommitRequest("#1", 10), CommitRequest("#2", None), CommitRequest("#3", 11), readable=LogRange(0, 7))
    assert planned.outcomes[:2] == [Handed(10), Handed(7)]
    assert isinstance(planned.outcomes[2], OffsetOutOfRangeError)


def test_offsets_are_set_up_to_the_committed_end():
    planned = group(CommitRequest("#1", 10), CommitRequest("#2", None), CommitRequest("#3", 11), CommitRequest("#4", 0))
    assert planned.outcomes[:2] == [Handed(10), Handed(10)]
    assert isinstance(planned.outcomes[2], OffsetOutOfRangeError)
    assert planned.outcomes[3] == Handed(0)
