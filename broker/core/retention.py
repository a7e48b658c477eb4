"""Where a log may begin: nothing is dropped that is served, not folded yet, or lacked by a follower that will come for it soon.

A trim says below which offset nothing is served any more; what is stored begins later only at a border between segments.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from myqueue.protocol.entry import Border


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
