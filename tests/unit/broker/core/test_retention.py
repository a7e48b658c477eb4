"""Where a log may begin: never above what is folded, trimmed or lacked by a follower."""

from __future__ import annotations

from dataclasses import replace

from broker.core.retention import plan_begin, plan_expiry
from db.log_store import Head, Part
from myqueue.protocol.entry import Border, LogEnd
from myqueue.protocol.topic_config import Kept

BORDERS = [Border(10, 100), Border(20, 200), Border(30, 300)]
HEAD = Head(start_lsn=5, start_offset=50, end=LogEnd(30, 300), commit_lsn=30, commit_offset=300, applied_lsn=30, trim_offset=250)


def test_a_log_begins_at_the_last_border_that_is_trimmed_folded_and_not_needed():
    assert plan_begin(HEAD, BORDERS, kept_from=30) == (20, 200)
    assert plan_begin(replace(HEAD, trim_offset=300), BORDERS, kept_from=30) == (30, 300)
    assert plan_begin(replace(HEAD, trim_offset=99), BORDERS, kept_from=30) is None
    assert plan_begin(replace(HEAD, applied_lsn=19), BORDERS, kept_from=30) == (10, 100)
    assert plan_begin(HEAD, BORDERS, kept_from=19) == (10, 100)
    assert plan_begin(HEAD, BORDERS, kept_from=5) is None


def test_a_log_never_begins_earlier_or_where_it_does_already():
    assert plan_begin(replace(HEAD, start_lsn=20), BORDERS, kept_from=30) is None
    assert plan_begin(replace(HEAD, start_lsn=25, trim_offset=200), BORDERS, kept_from=30) is None


def test_a_log_that_was_never_trimmed_that_is_seeded_or_damaged_stays():
    """Entries without records before the first message are below no trim."""
    assert plan_begin(replace(HEAD, trim_offset=0), [Border(10, 0)], kept_from=30) is None
    assert plan_begin(replace(HEAD, seeding_until=40), BORDERS, kept_from=30) is None
    assert plan_begin(replace(HEAD, fault="damaged"), BORDERS, kept_from=30) is None


PARTS = [Part(Border(10, 100), 1_000_000, 50), Part(Border(20, 200), 2_000_000, 60), Part(Border(30, 300), 3_000_000, 70)]


def trimmed(kept: Kept, parts: list[Part] = PARTS, *, now_us: int = 4_000_000, committed: int = 1_000) -> int:
    return plan_expiry(kept, parts, now_us=now_us, committed=committed)


def test_parts_go_whose_last_message_is_older_than_what_is_kept():
    assert trimmed(Kept(milliseconds=1_500)) == 200
    assert trimmed(Kept(milliseconds=2_000)) == 100, "as old as that is kept"
    assert trimmed(Kept(milliseconds=10)) == 300
    assert trimmed(Kept(milliseconds=5_000)) == 0
    assert trimmed(Kept(milliseconds=10), now_us=0) == 0, "a clock that went back drops nothing"


def test_parts_go_as_long_as_enough_bytes_are_left():
    assert trimmed(Kept(size_bytes=70)) == 200
    assert trimmed(Kept(size_bytes=71)) == 100
    assert trimmed(Kept(size_bytes=131)) == 0
    assert trimmed(Kept(size_bytes=1)) == 200, "what is written next may be little"


def test_either_bound_is_enough_and_without_any_everything_stays():
    assert trimmed(Kept(milliseconds=2_500, size_bytes=70)) == 200
    assert trimmed(Kept(milliseconds=10, size_bytes=1_000)) == 300
    assert trimmed(Kept()) == trimmed(Kept(milliseconds=1), []) == 0


def test_nothing_goes_that_is_not_committed_or_lies_behind_what_stays():
    """An entry that is not held any more says nothing of its time."""
    assert trimmed(Kept(milliseconds=10), committed=250) == 250
    missing = [PARTS[0], Part(Border(20, 200), None, 60), PARTS[2]]
    assert trimmed(Kept(milliseconds=10), missing) == 100
