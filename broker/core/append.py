"""What storing a request does to a partition's log: sequence check, de-duplication, offsets, chain.

What must never happen: one request of a producer stored twice, two requests stored in the wrong order, a gap in offsets or
lsns, an append time that falls. The state given here holds every request before this one, committed or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from myqueue.errors import DuplicateSequenceError, EndOffsetMismatchError, ProducerFencedError, SequenceGapError
from myqueue.protocol.batch import Block
from myqueue.protocol.entry import LogEnd, LogEntry, record_entries
from myqueue.protocol.fold import ProducerState, StoredRequest
from myqueue.protocol.types import PartitionId, ProducerSequence

FIRST_SEQ = 0  # of a producer in a partition, and of each new epoch of it


@dataclass(frozen=True, slots=True)
class AppendRequest:
    """Blocks whose framing was checked, stored all or nothing. ``sequence`` makes a retry safe.

    With ``expected_end_offset`` they are stored only where they begin at this offset.
    """

    blocks: Sequence[Block]
    sequence: ProducerSequence | None = None
    expected_end_offset: int | None = None

    @property
    def record_count(self) -> int:
        return sum(block.count for block in self.blocks)


@dataclass(frozen=True, slots=True)
class AppendResult:
    """Where the records stand. Of a duplicate: where they stood already."""

    base_offset: int
    record_count: int
    append_time: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class AppendPlan:
    """What to write, where the log ends then, and the answer that may leave once it is committed."""

    result: AppendResult
    entries: Sequence[LogEntry]
    end: LogEnd


def plan_append(partition: PartitionId, end: LogEnd, producer: ProducerState | None, request: AppendRequest, *, epoch: int,
                now_us: int) -> AppendPlan:
    """Decide what an append does.

    Args:
        end: where the log ends, earlier requests of the same group included.
        producer: what is known of the request's producer, the same way; None for a new one.
        epoch: of this leadership.

    Raises:
        SequenceGapError: an earlier request of this producer is missing; ``expected_seq`` is the next one to store.
        DuplicateSequenceError: stored before, too long ago to know where.
        ProducerFencedError: a newer epoch of this producer is known.
        EndOffsetMismatchError: the log does not end where the request expects it to. One that was stored before is a duplicate all the same.
    """
    if request.sequence is not None:
        stored = check_sequence(producer, request.sequence)
        if stored is not None:
            return AppendPlan(AppendResult(stored.base_offset, stored.record_count, stored.append_time, duplicate=True), (), end)
    if request.expected_end_offset not in (None, end.offset):
        raise EndOffsetMismatchError(f"the partition ends at offset {end.offset}, not at {request.expected_end_offset}; nothing was stored",
                                     end_offset=end.offset)
    append_time = max(now_us, end.append_time)
    entries, after = record_entries(partition, end, epoch=epoch, append_time=append_time, blocks=list(request.blocks),
                                    sequence=request.sequence)
    return AppendPlan(AppendResult(end.offset, after.offset - end.offset, append_time), entries, after)


def check_sequence(producer: ProducerState | None, sequence: ProducerSequence) -> StoredRequest | None:
    """None where the request is the next one of its producer; where it was stored before, how. Raises as :func:`plan_append`."""
    if producer is not None and sequence.epoch < producer.epoch:
        raise ProducerFencedError(f"producer {sequence.producer_id} has epoch {producer.epoch}, the request {sequence.epoch}", epoch=producer.epoch)
    known = producer is not None and producer.epoch == sequence.epoch
    expected = producer.last_seq + 1 if known else FIRST_SEQ
    if sequence.seq == expected:
        return None
    if sequence.seq > expected:
        raise SequenceGapError(f"producer {sequence.producer_id} sent sequence {sequence.seq}, the next one to store is {expected}",
                               expected_seq=expected)
    stored = producer.find(sequence.seq) if known else None
    if stored is None:
        raise DuplicateSequenceError(expected_seq=expected)
    return stored
