"""Where a log may begin: nothing is dropped that is served, not folded yet, or lacked by a follower that will come for it soon.

What a topic's config does not keep is trimmed by its leader; a trim says below which offset nothing is served any more; what is
stored begins later only at a border between segments.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from myqueue.protocol.entry import Border
from myqueue.protocol.topic_config import Kept


class LogPart(Protocol):
    """What of a part of the log this rule looks at."""

    @property
    def end(self) -> Border: ...

    @property
    def append_time(self) -> int | None: ...

    @property
    def size_bytes(self) -> int | None: ...


class TrimmedHead(Protocol):
    """What of a head row this rule looks at."""

    @property
    def start_lsn(self) -> int: ...

    @property
    def applied_lsn(self) -> int: ...

    @property
    def trim_offset(self) -> int: ...

    @property
    def seeding_until(self) -> int | None: ...

    @property
    def fault(self) -> str | None: ...


def plan_expiry(kept: Kept, parts: Iterable[LogPart], *, now_us: int, committed: int) -> int:
    """The offset below which nothing is to be kept any more; 0 where that is nothing.

    Whole parts only, so that what is trimmed gives the disk back: what lies in a part is kept as long as any of it is to be.

    Args:
        parts: of the log, in its order, with their sizes where those are bounded.
        now_us: the leader's wall clock, microseconds since 1970; so is the time of appending.
        committed: the committed end, an offset: nothing above it is trimmed.
    """
    parts = list(parts)
    found, left = 0, sum(part.size_bytes or 0 for part in parts)
    for part in parts:
        left -= part.size_bytes or 0
        is_old = kept.milliseconds is not None and part.append_time is not None and part.append_time < now_us - 1_000 * kept.milliseconds
        if not is_old and not (kept.size_bytes is not None and left >= kept.size_bytes):
            break
        found = part.end.offset
    return min(found, committed)


def plan_begin(head: TrimmedHead, borders: Iterable[Border], *, kept_from: int) -> Border | None:
    """The furthest border at which this log may begin now; None where it stays as it is.

    Args:
        borders: of the log, see ``HeldLog.borders``.
        kept_from: entries from this lsn on are kept for followers.
    """
    if head.fault is not None or head.seeding_until is not None or head.trim_offset == 0:
        return None
    limit = min(head.applied_lsn, kept_from)
    return max((border for border in borders if head.start_lsn < border.lsn <= limit and border.offset <= head.trim_offset), default=None)
