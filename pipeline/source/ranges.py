"""PURE: which offsets each Spark task reads, bounded by bytes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from myqueue.protocol.types import OffsetRange, TopicPartition

from ..cluster import DatabaseAddress
from .positions import Position


@dataclass(frozen=True, slots=True)
class ReadRange:
    """Offsets ``start`` (included) to ``end`` (excluded) of one partition, all in one segment of one database."""

    database: DatabaseAddress
    name: TopicPartition
    topic_id: int
    segment_id: int
    start: int
    end: int
    bytes_per_record: float = 0.0
    day: int = 0  # days since 1970 of the append time, UTC, where a read asks for it

    @property
    def bytes(self) -> float:
        return (self.end - self.start) * self.bytes_per_record


def plan_ranges(database: DatabaseAddress, name: TopicPartition, position: Position, offsets: OffsetRange, range_bytes: int, *,
                day: int = 0) -> list[ReadRange]:
    """Cut a partition's offsets at its segments' borders, and each piece so that it holds about ``range_bytes``."""
    ranges = []
    for segment in position.segments:
        start, end = max(offsets.start, segment.first_offset), min(offsets.end, segment.end_offset)
        if start < end:
            width = max(1, int(range_bytes / max(1.0, segment.bytes_per_record)))
            ranges += [ReadRange(database, name, position.id.topic_id, segment.segment_id, at, min(at + width, end), segment.bytes_per_record, day)
                       for at in range(start, end, width)]
    return ranges


def pack(ranges: Iterable[ReadRange], bytes_max: int, *, least: int) -> list[tuple[ReadRange, ...]]:
    """Tasks of one topic and day each, of several ranges where these are small, up to ``bytes_max``; ``least`` tasks where there are so many ranges.

    A partition's ranges stay in the order of its log, within a task and from task to task.
    """
    ordered = sorted(ranges, key=lambda of: (of.name.topic, of.day, of.name.partition, of.start))
    tasks: list[list[ReadRange]] = []
    size = 0.0  # of the last task
    for number, of in enumerate(ordered):
        last = tasks[-1] if tasks else []
        enough_follow = len(tasks) + len(ordered) - number > least
        if last and enough_follow and (last[0].name.topic, last[0].day) == (of.name.topic, of.day) and size + of.bytes <= bytes_max:
            last.append(of)
            size += of.bytes
        else:
            tasks.append([of])
            size = of.bytes
    return [tuple(task) for task in tasks]


@dataclass(frozen=True, slots=True)
class Span:
    """Offsets of one partition whose storage is looked up when they are read: what a stream's tasks get, so that a plan made anew is the same."""

    name: TopicPartition
    topic_id: int
    start: int
    end: int


class _Ranged(Protocol):
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


R = TypeVar("R", bound=_Ranged)


def _part(of: R, start: int, end: int) -> R:
    return dataclasses.replace(of, start=start, end=end)  # type: ignore[type-var]


def cut_to(ranges: Iterable[R], records_max: int) -> list[R]:
    """None longer than ``records_max`` offsets."""
    return [_part(of, at, min(at + records_max, of.end)) for of in ranges for at in range(of.start, of.end, records_max)]


def split_to(ranges: Sequence[R], wanted: int) -> list[R]:
    """Halve the largest ranges until there are ``wanted`` (or nothing is left to halve). They stay in the order of the log."""
    ranges = list(ranges)
    while ranges and len(ranges) < wanted:
        at = max(range(len(ranges)), key=lambda place: ranges[place].end - ranges[place].start)
        largest = ranges[at]
        middle = math.ceil((largest.start + largest.end) / 2)
        if middle >= largest.end:
            break
        ranges[at:at + 1] = [_part(largest, largest.start, middle), _part(largest, middle, largest.end)]
    return ranges


def windows(start: int, end: int) -> Iterator[OffsetRange]:
    """Stretch by stretch through a range. ``send`` the bytes that the last stretch had; the next ones aim at WINDOW_BYTES.

    The first is so narrow that even records of 1 MiB stay within bounds, so no statement runs long on a wrong average.
    """
    width = WINDOW_RECORDS_FIRST
    while start < end:
        stop = min(end, start + width)
        had_bytes = yield OffsetRange(start, stop)
        per_record = max(1.0, (had_bytes or 0) / (stop - start))
        width = max(1, min(width * WINDOW_GROWTH_MAX, int(WINDOW_BYTES / per_record)))
        start = stop


WINDOW_RECORDS_FIRST = 64
WINDOW_GROWTH_MAX = 16
WINDOW_BYTES = 32 << 20
