"""The leader's side of replication: what it knows of a follower, and what it sends next.

``matched`` is what the follower acknowledged in this epoch; it never falls, and an answer of another epoch never touches it.
``next`` is a guess, moved by acknowledgements and hints, and never below ``matched``. A follower whose guess lies below
the leader's start is first asked for the border at the start itself; only when that is refused does it need a snapshot.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace

from db.replication.append import AppendReply, Refusal
from db.replication.log import LogView, epoch_before
from db.replication.quorum import Holder


@dataclass(frozen=True, slots=True)
class Progress:
    """One follower, in one epoch of the leader."""

    next: int  # the border from which to send
    matched: int = 0
    disk_id: str | None = None  # under which it acknowledged
    counts: bool = True  # False while it says that it is seeding
    needs_snapshot: bool = False  # it refused the border at our start
    matched_round: int = -1  # the latest round begun when ``matched`` was learnt
    disk_lost: bool = False  # it no longer holds what it acknowledged in this epoch

    @property
    def holder(self) -> Holder | None:
        """Its part in a majority, if it has acknowledged anything that counts."""
        if self.disk_id is None or not self.counts or self.disk_lost:
            return None
        return Holder(self.disk_id, self.matched)


@dataclass(frozen=True, slots=True)
class SendPlan:
    """The next append to a follower: entries ``position`` … ``end`` - 1, whole requests; none where they are equal."""

    position: int
    prev_epoch: int
    end: int


def after_reply(progress: Progress, reply: AppendReply, *, epoch: int, rounds: int, log: LogView) -> Progress:
    """What is known of a follower after its answer.

    Args:
        epoch: of the leader. An answer of another epoch changes nothing here; a higher one ends the leadership (the caller's part).
        rounds: the latest round the leader has begun.
    """
    if reply.epoch != epoch:
        return progress
    if reply.matched is not None:
        return _after_match(progress, reply, rounds)
    if reply.refusal is Refusal.NO_MATCH and reply.hint is not None:
        return _after_mismatch(progress, reply, log)
    return progress


def _after_match(progress: Progress, reply: AppendReply, rounds: int) -> Progress:
    assert reply.matched is not None
    if progress.disk_id not in (None, reply.disk_id):  # another disk under the same name has shown nothing yet
        return Progress(next=reply.matched, matched=reply.matched, disk_id=reply.disk_id, counts=reply.counts, matched_round=rounds)
    matched = max(progress.matched, reply.matched)
    return replace(progress, disk_id=reply.disk_id, matched=matched, next=max(matched, reply.matched), counts=reply.counts,
                   needs_snapshot=False, matched_round=rounds if matched > progress.matched else progress.matched_round)


def _after_mismatch(progress: Progress, reply: AppendReply, log: LogView) -> Progress:
    assert reply.hint is not None
    if reply.disk_id == progress.disk_id and reply.position <= progress.matched and reply.round > progress.matched_round:
        return replace(progress, disk_lost=True)  # asked after the acknowledgement, it refuses what it acknowledged
    if reply.position != max(progress.next, log.start):
        return progress  # the answer to an older question
    if reply.position == log.start:
        return replace(progress, needs_snapshot=True)
    known = progress.matched if reply.disk_id == progress.disk_id else 0
    hinted = min(reply.hint.next, reply.position - 1)
    border = log.start if hinted <= log.start else log.request_start(hinted)
    return replace(progress, next=max(known, log.start, border))


def after_snapshot(progress: Progress, position: int) -> Progress:
    """The follower was offered our state up to ``position``: go on from there. What it holds is known when it answers."""
    return replace(progress, next=position, needs_snapshot=False)


def plan_send(progress: Progress, log: LogView, *, entries_max: int, end: int | None = None) -> SendPlan | None:
    """The next append to a follower, or None where it needs a snapshot first.

    Args:
        entries_max: send about so many entries; a request is never split, so that a long one is sent whole. A shell that
            bounds bytes instead passes ``end``.
        end: do not send beyond this border.
    """
    if progress.needs_snapshot:
        return None
    position = max(progress.next, log.start)
    last = log.end if end is None else max(position, min(end, log.end))
    return SendPlan(position, epoch_before(log, position), _whole(log, position, min(last, position + entries_max)))


def _whole(log: LogView, position: int, end: int) -> int:
    """``end`` lowered to a request's border, or raised to the end of the first request where it would be none at all."""
    border = log.request_start(end)
    if border > position or end == position:
        return max(border, position)
    behind = range(end + 1, log.end)  # ``end`` lies in the request that begins at ``position``
    return end + 1 + bisect_left(behind, True, key=lambda at: log.request_start(at) > position)


def holders(own: tuple[int, Holder], followers: Iterable[tuple[int, Progress]]) -> dict[int, Holder]:
    """Who holds what, as ``commit_position`` wants it."""
    shown = {node: progress.holder for node, progress in followers}
    return {own[0]: own[1], **{node: holder for node, holder in shown.items() if holder is not None}}
