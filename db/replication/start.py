"""A follower behind the leader's start: when an offered new start is taken, and what it replaces."""

from __future__ import annotations

from dataclasses import dataclass

from db.replication.log import LogView, holds_border


@dataclass(frozen=True, slots=True)
class OfferedStart:
    """Where a log would begin: everything below ``position`` is committed and comes as state instead of entries."""

    position: int
    epoch: int  # of the entry before ``position``
    chain: bytes  # of the entry before ``position``


def accepts_start(log: LogView, offered: OfferedStart) -> bool:
    """Whether to replace this log by the offered start.

    Only where it is above ours and we do not hold its border: a log that holds the border holds all below, and perhaps more
    behind it that was acknowledged; replacing it would lose that. An old offer that comes late changes nothing.
    """
    return offered.position > log.start and not holds_border(log, offered.position, offered.epoch)
