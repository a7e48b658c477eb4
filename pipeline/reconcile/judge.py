"""PURE: what is stored against what was acknowledged, consumed and exported: by partition, ten minutes and offset.

In a partition append times never fall, so ten minutes are one range of offsets. What receipts, groups and an export say are ranges of offsets
too; they are laid over those, and where they do not cover what is stored exactly once there is a difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from myqueue.protocol.types import OffsetRange, TopicPartition

from ..report.figures import NotAsked
from ..source.cuts import Cut
from .coverage import Coverage, Stretch, Tally, clipped, mismatches, tally
from .figures import Difference, Judged, Row
from .receipts import Acknowledged, Ranges, merged

Standings = Mapping[str, Mapping[TopicPartition, int]]  # by group: the offset before which all is consumed, in the topics that it reads


@dataclass(frozen=True, slots=True)
class StoredPeriod:
    """What of a partition was appended in ten minutes: ``stretches`` between the first and the last offset."""

    period_us: int
    stretches: tuple[Stretch, ...]


@dataclass(frozen=True, slots=True)
class Exported:
    """What a data set holds, and of which of its topics it holds an earlier identity (its number)."""

    ranges: Ranges = field(default_factory=dict)
    elsewhere: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Columns:
    """What is compared with what is stored; None and no group: it was not asked for."""

    acknowledged: Acknowledged | None = None
    consumed: Standings = field(default_factory=dict)
    exported: Exported | None = None


def judge(cut: Cut, part: Cut, stored: Mapping[TopicPartition, Sequence[StoredPeriod]], columns: Columns) -> Judged:
    """Compare. ``stored`` are the periods, in order, of the part of the cut that lies in the window.

    Nothing is said of offsets that the log holds outside the window, nor of what was exported and has left the log since.
    """
    told, copied = columns.acknowledged, columns.exported
    places = {*part.partitions, *(told.ranges if told else ()), *(copied.ranges if copied else ())}
    partitions = [_Partition(name, _offsets(cut, name), _offsets(part, name), stored.get(name, ()), columns) for name in sorted(places)]
    differences = [one for partition in partitions for one in partition.differences()]
    not_judged = [one for partition in partitions for one in partition.not_judged()]
    if told is not None:
        differences += [Difference("acknowledged_elsewhere", topic, messages, topic_id=topic_id)
                        for (topic, topic_id), messages in sorted(told.elsewhere.items(), key=str)]
        not_judged += [NotAsked(f"{name}: {messages} messages acknowledged", "they had been stored before, where is not known any more")
                       for name, messages in sorted(told.placeless.items())]
    if copied is not None:
        differences += [Difference("exported_elsewhere", topic, 0, topic_id=topic_id) for topic, topic_id in sorted(copied.elsewhere.items())]
    return Judged(tuple(row for partition in partitions for row in partition.rows()), tuple(differences), tuple(not_judged))


def _offsets(cut: Cut, name: TopicPartition) -> OffsetRange:
    """Those that a cut holds of a partition: none of one that is not there."""
    return cut.partitions[name].offsets if name in cut.partitions else OffsetRange(0, 0)


@dataclass(frozen=True, slots=True)
class _Span:
    """The offsets of a period: from its first one to the next period's. What is missing in between belongs to the earlier one."""

    period_us: int | None  # None: nothing of the partition is there to tell the time
    offsets: OffsetRange
    stored: tuple[Stretch, ...] = ()

    @property
    def once(self) -> list[Stretch]:
        """What is stored, however often."""
        return [Stretch(one.start, one.end) for one in self.stored]

    def part_of(self, stretches: Sequence[Stretch]) -> list[Stretch]:
        return clipped(stretches, self.offsets.start, self.offsets.end)


def spans_of(part: OffsetRange, stored: Sequence[StoredPeriod]) -> list[_Span]:
    """Periods as ranges of offsets that lie side by side and are the part together."""
    if not stored:
        return [_Span(None, part)] if len(part) else []
    starts = [part.start, *(one.stretches[0].start for one in stored[1:]), part.end]
    return [_Span(one.period_us, OffsetRange(start, max(start, end)), one.stretches)
            for one, start, end in zip(stored, starts, starts[1:], strict=False)]


class _Partition:
    """One partition's comparison."""

    def __init__(self, name: TopicPartition, whole: OffsetRange, part: OffsetRange, stored: Sequence[StoredPeriod], columns: Columns) -> None:
        self._name, self._whole = name, whole
        self._spans = spans_of(part, stored)
        self._consumed = {group: offsets[name] for group, offsets in columns.consumed.items() if name in offsets}
        self._acknowledged = None if columns.acknowledged is None else columns.acknowledged.ranges.get(name, {})
        self._exported = None if columns.exported is None else columns.exported.ranges.get(name, {})
        self._told, self._copied = (None if ranges is None else merged(ranges) for ranges in (self._acknowledged, self._exported))

    # --- rows ---

    def rows(self) -> list[Row]:
        """Of the periods in which something is stored, and of those in which receipts or an export have something behind the log's end."""
        rows = {span.period_us: self._row(span) for span in self._spans if span.period_us is not None}
        for period_us, told, copied in self._behind_the_end():
            row = rows.get(period_us, Row(self._name, period_us, Tally(), None, None, _none_of(self._told), dict.fromkeys(self._consumed, 0),
                                          _none_of(self._copied)))
            rows[period_us] = replace(row, acknowledged=_and(row.acknowledged, told), exported=_and(row.exported, copied))
        return [row for _, row in sorted(rows.items())]

    def _row(self, span: _Span) -> Row:
        told, copied = (None if covered is None else tally(span.part_of(covered)) for covered in (self._told, self._copied))
        consumed = {group: tally(clipped(span.once, 0, offset)).messages for group, offset in self._consumed.items()}
        return Row(self._name, span.period_us or 0, tally(span.stored), span.stored[0].start, span.stored[-1].end - 1, told, consumed, copied)

    def _behind_the_end(self) -> Iterator[tuple[int, Tally, Tally]]:
        told, copied = ({period_us: tally(_behind(coverage, self._whole.end)) for period_us, coverage in (ranges or {}).items()}
                        for ranges in (self._acknowledged, self._exported))
        for period_us in sorted({*told, *copied}):
            both = told.get(period_us, Tally()), copied.get(period_us, Tally())
            if both != (Tally(), Tally()):
                yield period_us, *both

    # --- differences ---

    def differences(self) -> Iterator[Difference]:
        for span in self._spans:
            yield from self._in_the_log(span)
            yield from self._covered(span, self._told, "lost", "unacknowledged", "acknowledged_twice")
            yield from self._not_consumed(span)
            yield from self._covered(span, self._copied, "exported_only", "not_exported", "exported_twice")
        for kind, ranges in (("lost", self._acknowledged), ("exported_only", self._exported)):
            for period_us, coverage in sorted((ranges or {}).items()):
                for one in _behind(coverage, self._whole.end):
                    yield self._difference(kind, one.start, one.end, period_us)

    def _in_the_log(self, span: _Span) -> Iterator[Difference]:
        """What the log has not got or has twice. What else says that a message was there says more: that is told instead."""
        whole = [Stretch(span.offsets.start, span.offsets.end)]
        known = Coverage([*span.once, *(Stretch(one.start, one.end) for one in span.part_of(self._told or ())),
                          *(Stretch(one.start, one.end) for one in span.part_of(self._copied or ()))]).stretches()
        yield from (self._difference("missing", one.start, one.end, span.period_us) for one in mismatches(whole, known) if not one.covered)
        for one in span.stored:
            if one.times > 1:
                yield self._difference("stored_twice", one.start, one.end, span.period_us, times=one.times)

    def _covered(self, span: _Span, covered: Sequence[Stretch] | None, extra: str, lacking: str, twice: str) -> Iterator[Difference]:
        if covered is None:
            return
        for one in mismatches(span.once, span.part_of(covered)):
            if not one.stored:
                yield self._difference(extra, one.start, one.end, span.period_us)
            elif not one.covered:
                yield self._difference(lacking, one.start, one.end, span.period_us)
            else:
                yield self._difference(twice, one.start, one.end, span.period_us, times=one.covered)

    def _not_consumed(self, span: _Span) -> Iterator[Difference]:
        for group, offset in self._consumed.items():
            for one in clipped(span.once, offset, span.offsets.end):
                yield self._difference("not_consumed", one.start, one.end, span.period_us, group=group)

    def _difference(self, kind: str, start: int, end: int, period_us: int | None, **more: Any) -> Difference:
        return Difference(kind, self._name.topic, end - start, self._name.partition, start, end, period_us, **more)

    def not_judged(self) -> Iterator[NotAsked]:
        """Receipts of what retention or a trim has taken."""
        below = tally(clipped(self._told or (), 0, self._whole.start)).messages
        if below:
            yield NotAsked(f"{self._name}: {below} messages acknowledged",
                           f"they lie below offset {self._whole.start}, at which the log begins: dropped since")


def _behind(coverage: Coverage, end: int) -> list[Stretch]:
    """What of a coverage lies at the end of the log or behind it."""
    return [Stretch(max(one.start, end), one.end, one.times) for one in coverage.stretches() if one.end > end]


def _none_of(covered: Sequence[Stretch] | None) -> Tally | None:
    return None if covered is None else Tally()


def _and(tallied: Tally | None, more: Tally) -> Tally | None:
    return None if tallied is None else tallied + more
