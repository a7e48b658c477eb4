"""The fold: what a log says about producers and consumers."""

from __future__ import annotations

import pytest

from myqueue.errors import LogFaultError
from myqueue.protocol.entry import LogEnd, offset_entry, record_entries, trim_entry
from myqueue.protocol.fold import RECENT_REQUESTS, HandedOut, LogState, OffsetCommit, StoredRequest, Trim
from tests.support.factories import PARTITION, blocks, sequence


def folded(state: LogState, seq: int, *values: bytes, end: LogEnd, epoch: int = 0) -> LogEnd:
    entries, end = record_entries(PARTITION, end, epoch=1, append_time=5, blocks=blocks(*values), sequence=sequence(seq, epoch=epoch))
    state.fold(entries[0].head, len(values), None)
    return end


def test_a_producer_keeps_its_last_requests():
    """The last eight requests are known with their first offset, older ones only by number."""
    state, end = LogState(), LogEnd()
    for seq in range(RECENT_REQUESTS + 2):
        end = folded(state, seq, b"a", b"b", end=end)
    producer = state.producers[7]
    assert [request.seq for request in producer.recent] == list(range(2, RECENT_REQUESTS + 2))
    assert producer.find(3) == StoredRequest(3, 6, 3, 2, 5)
    assert producer.find(1) is None
    assert producer.last_seq == RECENT_REQUESTS + 1


def test_a_new_epoch_forgets_the_requests_of_the_old_one():
    state = LogState()
    end = folded(state, 0, b"a", end=LogEnd())
    folded(state, 0, b"b", end=end, epoch=1)
    assert (state.producers[7].epoch, [request.base_offset for request in state.producers[7].recent]) == (1, [1])


def test_an_offset_commit_of_an_older_generation_changes_nothing():
    """A member of an older generation may still write; it moves nobody."""
    state, end = LogState(), LogEnd()
    for commit in (OffsetCommit("#1", 5, generation=2), OffsetCommit("#1", 3, generation=1)):
        entries, end = offset_entry(PARTITION, end, epoch=1, append_time=9, body=commit.to_body())
        state.fold(entries[0].head, 0, entries[0].body)
    assert state.consumers["#1"][:2] == (5, 2)


def test_a_dequeue_remembers_what_it_handed_out():
    state = LogState()
    entries, _ = offset_entry(PARTITION, LogEnd(), epoch=1, append_time=9,
                              body=OffsetCommit("#1", 5, message_offset=4, request_id="r").to_body())
    state.fold(entries[0].head, 0, entries[0].body)
    assert state.requests == {("#1", "r"): HandedOut(4, 9)}


def test_the_body_of_an_offset_commit_is_canonical():
    """One spelling for one commit: it is digested."""
    body = OffsetCommit("#1", 5, message_offset=4, request_id="r").to_body()
    assert body == b'{"consumer":"#1","generation":0,"message_offset":4,"next_offset":5,"request_id":"r"}'
    assert OffsetCommit.from_body(body) == OffsetCommit("#1", 5, 0, 4, "r")
    assert OffsetCommit("#1", 5).to_body() == b'{"consumer":"#1","generation":0,"next_offset":5}'


@pytest.mark.parametrize("body", [b"", b"[]", b'{"consumer":"#1"}', b'{"consumer":"#1","next_offset":1,"more":2}'])
def test_a_body_that_cannot_be_read_is_a_fault(body: bytes):
    with pytest.raises(LogFaultError):
        OffsetCommit.from_body(body)


def test_changed_since_names_what_the_fold_changed():
    state = LogState()
    end = folded(state, 0, b"a", end=LogEnd())
    before = state.copy()
    state.producers[8] = state.producers[7]
    folded(state, 1, b"a", end=end)
    assert set(state.changed_since(before).producers) == {7, 8}
    assert before.producers[7].last_seq == 0


def test_trims_move_the_beginning_and_never_back():
    """The highest one counts, whatever came last."""
    state, end = LogState(), LogEnd()
    for offset in (5, 3):
        entries, end = trim_entry(PARTITION, end, epoch=1, append_time=9, body=Trim(offset).to_body())
        state.fold(entries[0].head, 0, entries[0].body)
    assert (state.trim_offset, state.copy().trim_offset, state.changed_since(LogState()).trim_offset) == (5, 5, 5)


def test_the_body_of_a_trim_is_canonical():
    """One spelling: it is digested. What cannot be read is a fault of the log."""
    assert Trim(7).to_body() == b'{"start_offset":7}'
    assert Trim.from_body(b'{"start_offset":7}') == Trim(7)
    for body in (b"", b"[]", b"{}", b'{"start_offset":null}'):
        with pytest.raises(LogFaultError):
            Trim.from_body(body)
