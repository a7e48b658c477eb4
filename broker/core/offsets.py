"""Consumer offsets: commits, and the dequeue that reads a message and moves the offset in one step. And trims.

What must never happen: two dequeues of one consumer get the same message, one message is passed over, an offset beyond
what is committed, an offset of an older generation, an offset that goes back because a commit arrives late.
"""

from __future__ import annotations

from dataclasses import dataclass

from myqueue.errors import MemberFencedError, OffsetOutOfRangeError
from myqueue.protocol.fold import REQUEST_TTL_US, LogState, OffsetCommit, Trim, after_commit
from myqueue.protocol.types import CommitStamp


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """Set a consumer's offset; None stands for the committed end ("latest")."""

    consumer: str
    offset: int | None
    generation: int | None = None  # None: whatever the consumer has
    handed_end: int | None = None  # messages below it may be in a member's hands from now on; None: none is
    stamp: CommitStamp | None = None  # None: whenever it arrives it counts


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """A member of a consumer group begins to read: where the group stands here, and from now on nothing of an older generation is taken.

    A group that has committed nothing yet begins at ``start``, which is committed by that.
    """

    consumer: str
    generation: int
    start: str = "earliest"  # or "latest": the committed end


@dataclass(frozen=True, slots=True)
class DequeueRequest:
    """Hand out the consumer's next message. The same ``request_id`` gets the same message again for 5 minutes.

    ``known_only`` asks for that repetition alone and hands out nothing new: with a request id and no partition, every
    leader is asked so before one of them may hand out another message.
    """

    consumer: str
    request_id: str | None = None
    known_only: bool = False


@dataclass(frozen=True, slots=True)
class TrimRequest:
    """Serve nothing below ``before_offset`` any more, for anybody."""

    before_offset: int


@dataclass(frozen=True, slots=True)
class LogRange:
    """What of a log may be handed out: ``start`` to the committed ``end``, exclusive."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Since:
    """Where to begin a read: at the first record appended at or after a time (microseconds since 1970), at the end where there is none."""

    append_time: int


@dataclass(frozen=True, slots=True)
class OffsetPlan:
    """The answer (an offset, or None: nothing left), and the body to append for it, if any. Of a claim also what is suspect."""

    offset: int | None
    body: bytes | None
    handed_end: int = 0
    deaths: int = 0


def next_offset(state: LogState, consumer: str, readable: LogRange) -> int:
    """The first offset this consumer has not consumed; a new one starts at the earliest."""
    known = state.consumers.get(consumer)
    return readable.start if known is None else known.next_offset


def plan_commit(state: LogState, request: CommitRequest, readable: LogRange, *, log_end: int) -> OffsetPlan:
    """What the consumer has then. A commit that a later one of its client has overtaken, or that is there already, writes nothing.

    Args:
        log_end: where the log ends, what is not known to be committed included: a follower that knew first may have served it. The
            commit stands behind it in the log, and is never committed without it.

    Raises:
        MemberFencedError: an older generation.
        OffsetOutOfRangeError: above the log's end.
    """
    current = _generation(state, request.consumer)
    generation = current if request.generation is None else request.generation
    _check_generation(generation, current)
    known = state.consumers.get(request.consumer)
    if known is not None and known.has(request.stamp):
        return OffsetPlan(known.next_offset, None)
    offset = readable.end if request.offset is None else request.offset
    if offset > log_end:
        raise out_of_range(offset, readable)
    handed_end = request.handed_end if request.handed_end is not None and request.handed_end > offset else None
    stamp = {} if request.stamp is None else request.stamp._asdict()
    return OffsetPlan(offset, OffsetCommit(request.consumer, offset, generation, handed_end=handed_end, **stamp).to_body())


def plan_claim(state: LogState, request: ClaimRequest, readable: LogRange) -> OffsetPlan:
    """The first offset that the group has not committed, and what the members before may have died of. A repeat writes nothing.

    Raises:
        MemberFencedError: an older generation.
    """
    current = _generation(state, request.consumer)
    _check_generation(request.generation, current)
    known = state.consumers.get(request.consumer)
    if known is not None and current == request.generation:
        return OffsetPlan(known.next_offset, None, known.handed_end, known.deaths)
    offset = known.next_offset if known is not None else readable.end if request.start == "latest" else readable.start
    commit = OffsetCommit(request.consumer, offset, request.generation)
    taken = after_commit(known, commit, lsn=0, append_time=0)
    return OffsetPlan(offset, commit.to_body(), taken.handed_end, taken.deaths)


def _generation(state: LogState, consumer: str) -> int:
    known = state.consumers.get(consumer)
    return 0 if known is None else known.generation


def _check_generation(asked: int, current: int) -> None:
    if asked < current:
        raise MemberFencedError(f"generation {asked} is over, the present one is {current}", generation=current)


def plan_dequeue(state: LogState, request: DequeueRequest, readable: LogRange, *, now_us: int) -> OffsetPlan:
    """The consumer's next message; one whose next message was trimmed goes on at the first that is left.

    Raises:
        OffsetOutOfRangeError: the message that this request id got before is gone.
    """
    if request.request_id is not None:
        before = state.requests.get((request.consumer, request.request_id))
        if before is not None and before.append_time > now_us - REQUEST_TTL_US:
            if before.message_offset < readable.start:
                raise OffsetOutOfRangeError(f"the message that this request got before, offset {before.message_offset}, was trimmed: earliest is "
                                            f"{readable.start}; another request gets the next one",
                                            offset=before.message_offset, earliest=readable.start, latest=readable.end)
            return OffsetPlan(before.message_offset, None)
    if request.known_only:
        return OffsetPlan(None, None)
    offset = max(readable.start, next_offset(state, request.consumer, readable))
    if offset >= readable.end:
        return OffsetPlan(None, None)
    commit = OffsetCommit(request.consumer, offset + 1, _generation(state, request.consumer), offset, request.request_id)
    return OffsetPlan(offset, commit.to_body())


def plan_trim(request: TrimRequest, readable: LogRange) -> OffsetPlan:
    """The first offset that is served afterwards; nothing is written where that is so already.

    Raises:
        OffsetOutOfRangeError: above the committed end.
    """
    if request.before_offset > readable.end:
        raise out_of_range(request.before_offset, readable)
    if request.before_offset <= readable.start:
        return OffsetPlan(readable.start, None)
    return OffsetPlan(request.before_offset, Trim(request.before_offset).to_body())


def out_of_range(offset: int, readable: LogRange) -> OffsetOutOfRangeError:
    """The error that names what there is."""
    return OffsetOutOfRangeError(f"offset {offset} lies outside the log: earliest is {readable.start}, latest is {readable.end}",
                                 offset=offset, earliest=readable.start, latest=readable.end)
