"""What a trace says about messages, answers and logs: one line each."""

from __future__ import annotations

from typing import Any

from broker.core.append import AppendRequest as Produce
from broker.core.append import AppendResult
from broker.core.group import Handed, Request
from broker.core.offsets import DequeueRequest, TrimRequest
from broker.core.replica import Appointment
from db.replication import AppendReply, AppendRequest
from myqueue.errors import MyQueueError
from myqueue.protocol.chain import MARKER, RECORDS, TRIM
from tests.simulation.partitions.broker import Promised, Seed, Status
from tests.simulation.partitions.disk import Disk


def describe(message: Any) -> str:
    """A question between brokers and coordinators, or its answer."""
    match message:
        case AppendRequest():
            entries = " ".join(f"{entry.head.lsn}@{entry.epoch}" for entry in message.entries)  # type: ignore[attr-defined]
            return f"append epoch={message.epoch} at={message.position}@{message.prev_epoch} entries=[{entries}] commit={message.commit}"
        case Seed():
            return f"seed epoch={message.epoch} start={message.start.position}@{message.start.epoch} applied={message.applied}"
        case AppendReply():
            if message.matched is not None:
                return f"matched {message.matched} epoch={message.epoch}" + ("" if message.counts else " seeding")
            return f"{message.refusal} epoch={message.epoch}" + (f" next={message.hint.next}" if message.hint else "")
        case Promised():
            seeding = " serves nothing" if message.seeding else ""
            return f"promised epoch={message.epoch} {message.disk_id} end={message.end_lsn}@{message.end_epoch} commit={message.commit_lsn}{seeding}"
        case Appointment():
            return f"appoint epoch={message.epoch} voters=[{voters(message.voters)}] learners={list(message.learners)}"
        case Status(fault=str()):
            return f"damaged: {message.fault}"
        case Status():
            settled = "settled" if message.settled else "not settled"
            return f"{settled} epoch={message.epoch} caught up={sorted(message.caught_up)}"
        case int():
            return f"leads epoch={message}"
        case MyQueueError():
            return f"refused {message.code}: {message.message}"
        case _:
            return str(message)


def voters(named: Any) -> str:
    """Voters with their disks; a slot without one is empty."""
    return " ".join(f"{broker_id}:{disk_id or '-'}" for broker_id, disk_id in named.items())


def name_of(request: Request) -> str:
    """A client's request, as its client names it."""
    if isinstance(request, Produce) and request.sequence is not None:
        return f"p{request.sequence.producer_id}/{request.sequence.seq}"
    if isinstance(request, TrimRequest):
        return f"trim below {request.before_offset}"
    assert isinstance(request, DequeueRequest)
    return f"{request.consumer}/{request.request_id}"


def outcome_of(outcome: Any) -> str:
    """What a client is told."""
    match outcome:
        case None:
            return "unknown"
        case AppendResult():
            return f"stored at offset {outcome.base_offset}" + (", as before" if outcome.duplicate else "")
        case Handed():
            return "nothing left" if outcome.offset is None else f"gets offset {outcome.offset}"
        case _:
            return describe(outcome)


def log_of(disk: Disk) -> str:
    """Every entry: m is a marker, r a request's records, o a consumer's offset, t a trim."""
    kinds = {MARKER: "m", RECORDS: "r", TRIM: "t"}
    entries = (disk.entry(lsn) for lsn in range(disk.log.start, disk.log.end))
    return f"{disk.log.start}|" + " ".join(f"{kinds.get(entry.head.kind, 'o')}@{entry.epoch}" for entry in entries)
