"""The fold: what a log says about producers and consumers."""

from __future__ import annotations

import pytest

from myqueue.errors import LogFaultError
from myqueue.protocol.entry import LogEnd, offset_entry, record_entries, trim_entry
from myqueue.protocol.fold import RECENT_REQUESTS, ConsumerState, HandedOut, LogState, OffsetCommit, StoredRequest, Trim, after_commit
from myqueue.protocol.types import CommitStamp
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


def consumer_after(*commits: OffsetCommit) -> tuple[int, int, int, int]:
    """next_offset, generation, handed_end and deaths once these are folded."""
    state: ConsumerState | None = None
    for lsn, commit in enumerate(commits):
        state = after_commit(state, commit, lsn=lsn, append_time=9)
    assert state is not None
    return state.next_offset, state.generation, state.handed_end, state.deaths


def announced(offset: int, end: int, generation: int) -> OffsetCommit:
    return OffsetCommit("@1", offset, generation, handed_end=end)


def test_who_died_with_one_message_alone_in_its_hands_is_counted_once():
    """Also where the next one ends before it has handed anything out, or claims twice."""
    first, claim = announced(5, 6, 1), [OffsetCommit("@1", 5, generation) for generation in range(2, 6)]
    assert consumer_after(first) == (5, 1, 6, 0)
    assert consumer_after(first, claim[0]) == (5, 2, 0, 1)
    assert consumer_after(first, *claim) == (5, 5, 0, 1)
    assert consumer_after(first, claim[0], announced(5, 6, 2), claim[1], announced(5, 6, 3), claim[2]) == (5, 4, 0, 3)


def test_of_several_messages_none_is_counted_and_all_stay_suspect():
    window, claim = announced(5, 9, 1), [OffsetCommit("@1", 5, generation) for generation in (2, 3)]
    assert consumer_after(window, *claim) == (5, 3, 9, 0)
    assert consumer_after(window, claim[0], announced(5, 6, 2), claim[1]) == (5, 3, 0, 1)


def test_who_lets_go_in_good_order_is_no_death_and_what_was_counted_before_stays():
    alone, released, claim = announced(5, 6, 1), OffsetCommit("@1", 5, 1), OffsetCommit("@1", 5, 2)
    assert consumer_after(alone, released, claim) == (5, 2, 0, 0)
    assert consumer_after(alone, claim, announced(5, 6, 2), OffsetCommit("@1", 5, 2), OffsetCommit("@1", 5, 3)) == (5, 3, 0, 1)


def test_a_message_that_is_done_takes_what_was_counted_with_it():
    assert consumer_after(announced(5, 6, 1), OffsetCommit("@1", 5, 2), OffsetCommit("@1", 6, 2), OffsetCommit("@1", 6, 3)) == (6, 3, 0, 0)
    assert consumer_after(announced(5, 6, 1), OffsetCommit("@1", 5, 2), announced(6, 8, 2)) == (6, 2, 8, 0)


def test_members_that_never_announce_are_never_counted():
    """As all were before, and those without a dead-letter topic are."""
    assert consumer_after(*(OffsetCommit("@1", 5, generation) for generation in range(1, 50))) == (5, 49, 0, 0)


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
    announcement = OffsetCommit("@1", 5, 2, handed_end=9)
    assert announcement.to_body() == b'{"consumer":"@1","generation":2,"handed_end":9,"next_offset":5}'
    assert OffsetCommit.from_body(announcement.to_body()) == announcement
    stamped = OffsetCommit("#1", 5, committer=7, sequence=3)
    assert stamped.to_body() == b'{"committer":7,"consumer":"#1","generation":0,"next_offset":5,"sequence":3}'
    assert (OffsetCommit.from_body(stamped.to_body()), stamped.stamp) == (stamped, CommitStamp(7, 3))
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
