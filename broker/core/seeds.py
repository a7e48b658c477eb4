"""A start for a replica that lies behind its leader's log: where the log begins, and the state that is folded at a later position.

Magic and zlib over one JSON object; db/DESIGN.md says what is in it. It goes whole: a bound holds its size, and a later offer is another one.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from db.replication import AppendRequest, OfferedStart
from myqueue.errors import CorruptBatchError, TooLargeError
from myqueue.protocol.chain import CHAIN_BYTES
from myqueue.protocol.fold import ConsumerState, HandedOut, LogState, ProducerState, StoredRequest
from myqueue.protocol.types import PartitionId

from .appends import BODY_BYTES_MAX, Append

SEED_TYPE = "application/vnd.myqueue.seed.v1"
MAGIC = b"MQS1"
PLAIN = 4  # fields of a consumer that never stamped a commit and is in no group where somebody died: as brokers of the version before know it
STATE_BYTES_MAX = 64 << 20  # of the JSON; about 150,000 producers with all their requests, or 700,000 consumers


@dataclass(frozen=True, slots=True)
class Seed:
    """An offer. ``state`` is folded up to ``applied``, which is at or above the start."""

    partition: PartitionId
    epoch: int  # of the sender's leadership
    round: int
    start: OfferedStart
    offset: int  # of the first record at or behind the start
    append_time: int  # not below that of the entry before the start, microseconds since 1970
    applied: int
    state: LogState
    introduction: bytes = b""  # as of an append

    @property
    def border(self) -> Append:
        """The empty append at the start: whether that is held afterwards is the answer."""
        return Append(self.partition, AppendRequest(self.epoch, self.start.position, self.start.epoch, (), 0, self.round), self.introduction)


def encode(seed: Seed) -> bytes:
    """The body of a request. Raises TooLargeError: so much state cannot be sent."""
    state, start = seed.state, seed.start
    body = json.dumps({
        "partition": seed.partition, "epoch": seed.epoch, "round": seed.round, "start_lsn": start.position, "start_epoch": start.epoch,
        "start_chain": start.chain.hex(), "start_offset": seed.offset, "append_time": seed.append_time, "applied_lsn": seed.applied,
        "introduction": seed.introduction.decode(), "trim_offset": state.trim_offset,
        "producers": [[producer, of.epoch, of.last_seq, of.recent, of.append_time] for producer, of in state.producers.items()],
        "consumers": [[consumer, *(of if any(of[PLAIN:]) else of[:PLAIN])] for consumer, of in state.consumers.items()],
        "requests": [[*request, *of] for request, of in state.requests.items()]}, separators=(",", ":")).encode()
    packed = MAGIC + zlib.compress(body, 1)
    if len(body) > STATE_BYTES_MAX or len(packed) > BODY_BYTES_MAX:
        raise TooLargeError(f"the state of partition {seed.partition} has {len(body)} bytes, {len(packed)} packed: too much to be sent to a replica",
                            size=len(body), maximum=STATE_BYTES_MAX)
    return packed


def decode(body: bytes) -> Seed:
    """The offer of a body. Raises CorruptBatchError for whatever is none."""
    if body[:len(MAGIC)] != MAGIC:
        raise CorruptBatchError("not an offered start of this version")
    try:
        unpacker = zlib.decompressobj()
        raw = unpacker.decompress(body[len(MAGIC):], STATE_BYTES_MAX + 1)
        if len(raw) > STATE_BYTES_MAX or not unpacker.eof or unpacker.unused_data:
            raise CorruptBatchError("an offered start is cut off, or too long")
        return _seed(json.loads(raw))
    except (zlib.error, ValueError, TypeError, LookupError, RecursionError) as error:
        raise CorruptBatchError(f"an offered start that cannot be read: {str(error)[:200]}") from None


def _seed(body: Mapping[str, Any]) -> Seed:
    state = LogState({int(producer): ProducerState(epoch, last_seq, tuple(StoredRequest(*one) for one in recent), append_time)
                      for producer, epoch, last_seq, recent, append_time in body["producers"]},
                     {str(consumer): _consumer(of) for consumer, *of in body["consumers"]},
                     {(str(consumer), str(request_id)): HandedOut(*of) for consumer, request_id, *of in body["requests"]},
                     int(body["trim_offset"]))
    chain, topic_id, partition = bytes.fromhex(body["start_chain"]), *body["partition"]
    start = OfferedStart(int(body["start_lsn"]), int(body["start_epoch"]), chain)
    seed = Seed(PartitionId(int(topic_id), int(partition)), int(body["epoch"]), int(body["round"]), start, int(body["start_offset"]),
                int(body["append_time"]), int(body["applied_lsn"]), state, str(body["introduction"]).encode())
    if len(chain) != CHAIN_BYTES or not 0 < start.position <= seed.applied or min(seed.offset, start.epoch, seed.epoch) < 0:
        raise ValueError("its positions contradict each other")
    return seed


def _consumer(fields: list[int]) -> ConsumerState:
    if len(fields) not in (PLAIN, len(ConsumerState._fields)):
        raise ValueError("a consumer of another version")
    return ConsumerState(*fields)
