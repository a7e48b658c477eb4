"""Which answers to a read are the same for ever, so that whoever passes them on may keep them.

What is committed never changes, nor do the blocks it came in. So an answer that holds the records [offset, end) and nothing else is fixed by these
two numbers and the topic's identity: a topic that is made anew under the same name has another log. Where one read ends depends on the replica too
(each ends its segments where it likes), but every such answer is a true one, and says where to go on.
"""

from __future__ import annotations

from dataclasses import dataclass

from myqueue.protocol.types import PartitionId

NOT_KEPT = "no-store"
ASKED_AGAIN = "no-cache"  # kept, and used once the broker has said that it is still this topic
KEPT = "private, max-age=31536000, immutable"  # by whoever may see it


@dataclass(frozen=True, slots=True)
class Caching:
    """What an answer says of itself: ``etag`` without its quotation marks, None where there is nothing to compare with later."""

    control: str
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """What an answer holds: the records [offset, end) in a form, "json" or "entries". ``epoch`` is that of the last one.

    Offset and epoch of a record tell which one it is, and so all that are before it, even where an operator has accepted the loss of committed ones.
    """

    offset: int
    end: int
    epoch: int
    form: str


def records_wanted(records_max: int, offset: int, until_offset: int | None) -> int:
    """How many records a read from an offset asks for; 0 where it ends before it begins."""
    return records_max if until_offset is None else max(0, min(records_max, until_offset - offset))


def caching_of(partition: PartitionId, answered: Answered, *, wanted: int, committed_end: int, by_number: bool, by_identity: bool) -> Caching:
    """How an answer may be kept: where it would be the same at any later time.

    That is so where more is committed behind it, or where all that was wanted is there. One that ends because the log does will be longer.

    Args:
        wanted: records asked for.
        by_number: the request named the offset. "earliest", "latest" and times mean another one later.
        by_identity: the request named the topic's identity, so that its URL can never mean another topic.
    """
    offset, end = answered.offset, answered.end
    if not by_number or offset >= end or (end >= committed_end and end - offset < wanted):
        return Caching(NOT_KEPT)
    etag = "-".join(map(str, (*partition, offset, end, answered.epoch, answered.form)))
    return Caching(KEPT if by_identity else ASKED_AGAIN, etag)
