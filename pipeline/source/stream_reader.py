"""The stream reader: how far there is something to read, how much of it now, and who reads which part.

A micro-batch's tasks follow from its two offsets and the options alone, not from how the log is stored today, so that a micro-batch that is
run again is made of the same tasks: the sink's exactly-once rests on it. Where a span is stored is looked up when it is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from myqueue.clock import SystemClock
from myqueue.errors import ConflictError, LogFaultError
from myqueue.protocol.types import OffsetRange, TopicPartition

from ..databases import Databases, limits_of
from .filters import EQUAL, Pruning
from .options import LEADER, ReadOptions
from .planner import edge_offsets, locate, retrying
from .positions import Position
from .progress import publish
from .ranges import ReadRange, Span, cut_to, plan_ranges, split_to
from .reader import read_range
from .stream_offsets import (
    Mark,
    Marks,
    check_marks,
    ends_of,
    is_known,
    limited,
    marks_from_json,
    marks_to_json,
    records_between,
    spans_between,
    starts_of,
)

if TYPE_CHECKING:
    import pyarrow as pa

UNBOUNDED = 1 << 62
QUIET_SECONDS = 0.2  # Spark asks an idle stream again after milliseconds; the databases are looked at so often


class SpanPartition(InputPartition):
    """A Spark task: one span."""

    def __init__(self, span: Span) -> None:
        super().__init__(span)


class MyQueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what is committed, micro-batch by micro-batch."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema
        self._clock = SystemClock()
        self._target: Marks | None = None  # of Trigger.AvailableNow
        self._latest: Marks = {}
        self._waiting_since: float | None = None
        self._quiet: tuple[dict[str, Any], float] | None = None  # where nothing was to be read, and when that was seen
        self._databases = Databases(limits_of(options))  # the driver's; connected on first use

    # --- in the driver ---

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query starts: ``startingOffsets`` and its kin, resolved once and kept in the checkpoint."""
        located = retrying(self._options, lambda: locate(self._options))
        times = edge_offsets(self._options.starting, located, self._options)
        return marks_to_json({name: Mark(position.id.topic_id, self._options.starting.resolve(
            name, position.readable, times.get(name), strict=self._options.fail_on_data_loss)) for name, (_, position) in located.items()})

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far the next micro-batch goes. Raises as :func:`stream_offsets.check_marks` where messages are lost."""
        now = self._clock.monotonic()
        if self._target is None and self._quiet is not None and self._quiet[0] == start and now < self._quiet[1] + QUIET_SECONDS:
            return start
        end = self._end_of(start, limit)
        self._quiet = (start, now) if end == start else None
        return end

    def _end_of(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        before = marks_from_json(start)
        positions = self._positions()
        if self._options.fail_on_data_loss:
            check_marks(before, positions, whole=self._options.read_from == LEADER)
        starts = starts_of(before, positions)
        self._latest = ends_of(starts, positions)
        ends = {name: mark if is_known(before, name, mark) else starts[name] for name, mark in self._latest.items()}
        if self._target is not None:
            ends = _not_beyond(ends, starts, self._target)
        elif not self._is_due(records_between(starts, ends)):
            return start
        if isinstance(limit, ReadMaxRows):
            ends = limited(starts, ends, limit.max_rows)
        return marks_to_json(ends)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return marks_to_json(self._latest) or None

    def prepareForTriggerAvailableNow(self) -> None:
        positions = self._positions()
        self._target = ends_of(starts_of({}, positions), positions)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[SpanPartition]:
        """The spans of a micro-batch, one per task."""
        spans = spans_between(marks_from_json(start), marks_from_json(end))
        if self._options.max_records_per_partition is not None:
            spans = cut_to(spans, self._options.max_records_per_partition)
        return [SpanPartition(span) for span in split_to(spans, self._options.min_partitions)]

    def commit(self, end: dict[str, Any]) -> None:
        """Tell the cluster how far the consumers of ``consumers`` are, for whoever watches their lag."""
        if self._options.consumers:
            publish(self._options.bootstrap, self._options.consumers, {name: mark.offset for name, mark in marks_from_json(end).items()})

    def _positions(self) -> dict[TopicPartition, Position]:
        located = retrying(self._options, lambda: locate(self._options, look=self._databases.snapshot))
        return {name: position for name, (_, position) in located.items()}

    def stop(self) -> None:
        """Spark has no further questions."""
        self._databases.close()

    def _is_due(self, records: int) -> bool:
        """Whether enough is waiting, or has been waiting for long enough (``minOffsetsPerTrigger``)."""
        least, now = self._options.min_offsets_per_trigger, self._clock.monotonic()
        if records == 0 or least is None or records >= least:
            self._waiting_since = None
            return True
        self._waiting_since = now if self._waiting_since is None else self._waiting_since
        if now - self._waiting_since < self._options.max_trigger_delay_seconds:
            return False
        self._waiting_since = None
        return True

    # --- in the tasks ---

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The messages of one span. Raises LogFaultError where some are missing and ``failOnDataLoss`` is on."""
        if partition is None or partition.value is None:
            return
        for part in stored(partition.value, self._options):
            yield from read_range(part, self._options, self._schema)


def stored(span: Span, options: ReadOptions) -> list[ReadRange]:
    """Where the leader stores a span now.

    Raises:
        ConflictError: the topic was made anew.
        LogFaultError: the log does not hold all of it, and ``failOnDataLoss`` is on.
    """
    database, position = retrying(options, lambda: locate(options, _only(span.name)))[span.name]
    if position.id.topic_id != span.topic_id:
        raise ConflictError(f"topic {span.name.topic} was made anew while the stream read it: it had id {span.topic_id}, now {position.id.topic_id}")
    ranges = plan_ranges(database, span.name, position, OffsetRange(span.start, span.end), UNBOUNDED)
    if options.fail_on_data_loss and sum(part.end - part.start for part in ranges) != span.end - span.start:
        raise LogFaultError(f"{span.name}: the log has {position.readable.start} to {position.readable.end}, "
                            f"the stream wants {span.start} to {span.end}")
    return ranges


def _only(name: TopicPartition) -> Pruning:
    return Pruning((("topic", EQUAL, name.topic), ("partition", EQUAL, name.partition)))


def _not_beyond(ends: Marks, starts: Marks, target: Mapping[TopicPartition, Mark]) -> Marks:
    """Up to the target; a partition that it does not hold stays where it is."""
    return {name: Mark(mark.topic_id, max(starts[name].offset, min(mark.offset, target[name].offset))) if name in target else starts[name]
            for name, mark in ends.items()}
