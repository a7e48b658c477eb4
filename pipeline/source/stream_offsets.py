"""PURE: a stream's offsets. Each names its topic's identity: offsets of a topic that was made anew mean other messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from myqueue.errors import BadRequestError, ConflictError, LogFaultError, OffsetOutOfRangeError
from myqueue.protocol.types import TopicPartition

from .positions import Position
from .ranges import Span


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a stream has read a partition: the next offset."""

    topic_id: int
    offset: int


Marks = dict[TopicPartition, Mark]


def marks_to_json(marks: Mapping[TopicPartition, Mark]) -> dict[str, Any]:
    """As Spark's checkpoint holds it: sorted, since Spark compares the text."""
    return {str(name): {"offset": mark.offset, "topic_id": mark.topic_id} for name, mark in sorted(marks.items())}


def marks_from_json(body: Mapping[str, Any]) -> Marks:
    """Raises BadRequestError where a checkpoint holds something else."""
    try:
        marks = {}
        for text, fields in body.items():
            topic, _, partition = text.rpartition("/")
            marks[TopicPartition(topic, int(partition))] = Mark(int(fields["topic_id"]), int(fields["offset"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadRequestError(f"the stream's checkpoint holds offsets that cannot be read: {error!r}") from None
    return marks


def check_marks(starts: Marks, positions: Mapping[TopicPartition, Position], *, whole: bool) -> None:
    """What a stream has read must be what the logs hold. ``whole``: they are leaders', which hold all that is committed; followers may be behind.

    Raises:
        ConflictError: a topic is gone, or was made anew.
        OffsetOutOfRangeError: retention took messages that the stream has not read.
        LogFaultError: the stream has read more than there is: this log is an older copy.
    """
    hint = "; failOnDataLoss false goes on without what is lost"
    for name, mark in sorted(starts.items()):
        position = positions.get(name)
        if position is None:
            raise ConflictError(f"{name} is not there any more; the stream had read it to offset {mark.offset}{hint}")
        if position.id.topic_id != mark.topic_id:
            raise ConflictError(f"topic {name.topic} was made anew since the stream read it: "
                                f"it had id {mark.topic_id}, now {position.id.topic_id}{hint}")
        if mark.offset < position.readable.start:
            raise OffsetOutOfRangeError(f"{name}: the stream has read to offset {mark.offset}, the log begins at {position.readable.start}{hint}",
                                        earliest=position.readable.start, latest=position.readable.end)
        if whole and mark.offset > position.end_offset:
            raise LogFaultError(f"{name}: the stream has read to offset {mark.offset}, the log ends at {position.end_offset}: "
                                f"it is an older copy; run an audit{hint}")


def starts_of(starts: Marks, positions: Mapping[TopicPartition, Position]) -> Marks:
    """Where to go on: a partition that is new, or was made anew, is read from its beginning; what retention took is passed over."""
    marks = {}
    for name, position in positions.items():
        first = Mark(position.id.topic_id, position.readable.start)
        marks[name] = Mark(first.topic_id, max(starts[name].offset, first.offset)) if is_known(starts, name, first) else first
    return marks


def is_known(starts: Marks, name: TopicPartition, mark: Mark) -> bool:
    """Whether a stream that is at ``starts`` has this partition, with the same identity."""
    return name in starts and starts[name].topic_id == mark.topic_id


def ends_of(starts: Marks, positions: Mapping[TopicPartition, Position]) -> Marks:
    """The committed ends; never before the start, since a new leader may learn late how far its log is committed."""
    return {name: Mark(position.id.topic_id, max(starts[name].offset, position.readable.end)) for name, position in positions.items()}


def limited(starts: Marks, ends: Marks, records_max: int) -> Marks:
    """At most so many records further than ``starts``, each partition in proportion to what waits in it."""
    waiting = {name: max(0, mark.offset - starts[name].offset) for name, mark in ends.items()}
    total = sum(waiting.values())
    if total <= records_max:
        return dict(ends)
    shares = {name: count * records_max // total for name, count in waiting.items()}
    left = records_max - sum(shares.values())
    for name in sorted(waiting, key=lambda name: (shares[name] - waiting[name], name)):  # the most that is left over first
        more = min(1, left, waiting[name] - shares[name])
        shares[name] += more
        left -= more
    return {name: Mark(mark.topic_id, starts[name].offset + shares[name]) for name, mark in ends.items()}


def records_between(starts: Marks, ends: Marks) -> int:
    """How many records lie between."""
    return sum(max(0, mark.offset - starts[name].offset) for name, mark in ends.items())


def spans_between(starts: Marks, ends: Marks) -> list[Span]:
    """What a micro-batch reads: from these offsets alone, so that it is the same whenever it is planned.

    A partition enters a stream's offsets at its start, before anything of it is read; in a checkpoint where it did not, it is read from 0.
    """
    begun = {name: starts[name].offset if is_known(starts, name, mark) else 0 for name, mark in ends.items()}
    return [Span(name, mark.topic_id, begun[name], mark.offset) for name, mark in sorted(ends.items()) if begun[name] < mark.offset]
