"""What is announced before it is handed out, after a claim."""

from __future__ import annotations

from myqueue.client.slow_start import WINDOW_MAX, SlowStart


def announcements(slow_start: SlowStart, offsets: range) -> list[tuple[int, int]]:
    """(offset, end) of each announcement while these messages are handed out."""
    found = []
    for offset in offsets:
        end = slow_start.due(offset)
        if end is not None and not slow_start.is_over:
            slow_start.announced(end, offset)
            found.append((offset, end))
    return found


def test_windows_double_and_end():
    """Some dozen announcements, then none."""
    slow_start = SlowStart()
    found = announcements(slow_start, range(100, 100 + 4 * WINDOW_MAX))
    assert found[:4] == [(100, 101), (101, 103), (103, 107), (107, 115)]
    assert (len(found), found[-1][1]) == (11, 100 + 2 * WINDOW_MAX - 1)
    assert slow_start.is_over


def test_what_is_suspect_goes_one_at_a_time_and_after_it_the_windows_begin():
    assert announcements(SlowStart(suspect_end=5), range(2, 12)) == [(2, 3), (3, 4), (4, 5), (5, 6), (6, 8), (8, 12)]


def test_beside_a_commit_the_last_one_of_several_is_never_alone():
    slow_start = SlowStart()
    assert slow_start.end_beside(0) is None
    announcements(slow_start, range(4))  # 0, then 1 and 2, then 3 to 6
    assert [slow_start.end_beside(offset) for offset in (3, 5, 6, 7)] == [7, 7, 8, None]
