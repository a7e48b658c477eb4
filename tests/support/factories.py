"""Small makers of what many tests need."""

from __future__ import annotations

from collections.abc import Sequence

from myqueue.protocol.batch import Block, blocks_of, pack, pack_values
from myqueue.protocol.types import PartitionId, ProducerSequence, Record

PARTITION = PartitionId(1, 0)


def blocks(*values: bytes) -> list[Block]:
    """A batch of values, cut into blocks."""
    return blocks_of(pack_values(values))


def record_blocks(records: Sequence[Record]) -> list[Block]:
    """A batch of whole records, cut into blocks."""
    return blocks_of(pack(records))


def sequence(seq: int, *, producer_id: int = 7, epoch: int = 0) -> ProducerSequence:
    return ProducerSequence(producer_id, epoch, seq)
