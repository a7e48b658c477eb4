"""Where a log may begin: never above what is folded, trimmed or lacked by a follower."""

from __future__ import annotations

from dataclasses import replace

from broker.core.retention import plan_begin
from db.log_store import Head
from myqueue.protocol.entry import Border, LogEnd

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
