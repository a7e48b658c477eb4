"""What may be committed."""

from __future__ import annotations

import random

from myqueue.client.progress import Progress


def handed(progress: Progress, count: int) -> Progress:
    for offset in range(progress.position, progress.position + count):
        progress.handed(offset)
    return progress


def test_a_later_message_done_first_never_acknowledges_an_earlier_one() -> None:
    """Four are handled in parallel, the second fails and the fourth finishes first: only the first may be committed."""
    progress = handed(Progress(0), 4)
    for offset in (3, 0, 2):
        progress.done(offset)
    assert "Progress(position=4, done_up_to=1 +2..4, committed=None)" == repr(progress)
    assert 1 == progress.to_commit()
    progress.done(1)
    assert 4 == progress.to_commit()


def test_nothing_is_to_commit_where_it_is_written_already() -> None:
    progress = handed(Progress(5, committed=5), 1)
    assert progress.to_commit() is None
    progress.done(5)
    assert 6 == progress.to_commit()
    progress.committed = 6
    assert progress.to_commit() is None


def test_a_message_that_was_not_handed_out_cannot_be_done() -> None:
    progress = handed(Progress(0), 2)
    progress.done(2)
    progress.done(-1)
    assert 0 == progress.to_commit()


def test_a_seek_forgets_what_was_handed_out_before() -> None:
    progress = handed(Progress(0), 10)
    progress.done(7)
    progress.seek(3)
    progress.done(7)
    assert "Progress(position=3, done_up_to=3, committed=None)" == repr(progress)


def test_all_done_closes_every_gap() -> None:
    progress = handed(Progress(0), 10)
    progress.done(4)
    progress.all_done()
    assert 10 == progress.to_commit()


def test_any_order_agrees_with_a_set_of_all_offsets() -> None:
    """The ranges against a naive twin, for 200 random orders with repeats."""
    for seed in range(200):
        draw = random.Random(seed)
        progress, twin = handed(Progress(100), 30), set()
        for offset in draw.choices(range(98, 132), k=60):
            progress.done(offset)
            if 100 <= offset < 130:
                twin.add(offset)
            expected = next(offset for offset in range(100, 132) if offset not in twin)
            assert expected == progress.done_up_to, f"seed {seed}"
