"""Everything that waits for one partition, planned as one transaction: each request sees the ones before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from myqueue.errors import MyQueueError
from myqueue.protocol.entry import LogEnd, LogEntry, offset_entry, trim_entry
from myqueue.protocol.fold import LogState
from myqueue.protocol.types import PartitionId

from .append import AppendRequest, AppendResult, plan_append
from .offsets import ClaimRequest, CommitRequest, DequeueRequest, LogRange, TrimRequest, plan_claim, plan_commit, plan_dequeue, plan_trim

Request = AppendRequest | CommitRequest | ClaimRequest | DequeueRequest | TrimRequest


@dataclass(frozen=True, slots=True)
class Handed:
    """The answer to a commit (the offset set), a claim (where to begin, and what is suspect), a trim (the first one served) or a dequeue
    (the one handed out; None: nothing left).
    """

    offset: int | None
    handed_end: int = 0
    deaths: int = 0


Outcome = AppendResult | Handed | MyQueueError


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What to write, and an outcome per request, in the order given. None may be told before the commit.

    Entries and end have no chain before they are appended.
    """

    outcomes: Sequence[Outcome]
    entries: Sequence[LogEntry]
    end: LogEnd
    changes: LogState  # what folding the entries changes


def plan_group(partition: PartitionId, end: LogEnd, state: LogState, readable: LogRange, requests: Sequence[Request], *, epoch: int,
               now_us: int) -> GroupPlan:
    """Plan requests one after the other. A refused one leaves no trace in the others.

    Args:
        end: where the log ends.
        state: what is folded and what lies above, for the producers and consumers of these requests.
        readable: what is stored and committed; only that is handed out, and nothing of it that the state says is trimmed.
        epoch: of this leadership.
    """
    after, entries = state.copy(), []
    outcomes: list[Outcome | None] = [None] * len(requests)
    for place in in_sequence_order(requests):
        try:
            outcome, written, end = _plan_one(partition, end, after, readable, requests[place], epoch, now_us)
        except MyQueueError as error:
            outcomes[place] = error
            continue
        outcomes[place] = outcome
        if written:
            head = written[0].head
            after.fold(head, end.offset - head.base_offset, written[0].body)  # type: ignore[arg-type]
            entries += written
    return GroupPlan(outcomes, entries, end, after.changed_since(state))  # type: ignore[arg-type]


def _plan_one(partition: PartitionId, end: LogEnd, state: LogState, readable: LogRange, request: Request, epoch: int,
              now_us: int) -> tuple[Outcome, Sequence[LogEntry], LogEnd]:
    if isinstance(request, AppendRequest):
        producer = None if request.sequence is None else state.producers.get(request.sequence.producer_id)
        append = plan_append(partition, end, producer, request, epoch=epoch, now_us=now_us)
        return append.result, append.entries, append.end
    now_us, readable = max(now_us, end.append_time), replace(readable, start=max(readable.start, state.trim_offset))
    if isinstance(request, DequeueRequest):
        plan = plan_dequeue(state, request, readable, now_us=now_us)
    elif isinstance(request, TrimRequest):
        plan = plan_trim(request, readable)
    elif isinstance(request, ClaimRequest):
        plan = plan_claim(state, request, readable)
    else:
        plan = plan_commit(state, request, readable, log_end=end.offset)
    if plan.body is None:
        return Handed(plan.offset, plan.handed_end, plan.deaths), (), end
    entry = trim_entry if isinstance(request, TrimRequest) else offset_entry
    return Handed(plan.offset, plan.handed_end, plan.deaths), *entry(partition, end, epoch=epoch, append_time=now_us, body=plan.body)


def in_sequence_order(requests: Sequence[Request]) -> list[int]:
    """The places of the requests in the order to plan them: as they came, but those of one producer by epoch and sequence."""
    order = list(range(len(requests)))
    places: dict[int, list[int]] = {}
    for place, request in enumerate(requests):
        if isinstance(request, AppendRequest) and request.sequence is not None:
            places.setdefault(request.sequence.producer_id, []).append(place)
    for mine in places.values():
        by_sequence = sorted(mine, key=lambda place: (requests[place].sequence.epoch, requests[place].sequence.seq))  # type: ignore[union-attr]
        for place, chosen in zip(mine, by_sequence, strict=True):
            order[place] = chosen
    return order
