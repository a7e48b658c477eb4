"""Messages of a cut → what of each partition was appended in which ten minutes; and the Parquet data set of a reconciliation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from myqueue.protocol.types import OffsetRange, TopicPartition

from ..schemas import PERIODS, PLACED
from ..settings import PipelineSettings
from ..source.cut_reader import cut_reader
from ..source.cuts import Cut, cut_of
from ..transforms.reconcile import by_period, stretches
from .coverage import Coverage, Stretch, Tally, tally
from .exported import ranges_of
from .figures import Row
from .folder import PERIODS_NAME
from .judge import StoredPeriod

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_stored(spark: SparkSession, settings: PipelineSettings, part: Cut) -> dict[TopicPartition, list[StoredPeriod]]:
    """The periods of each partition, in order. Messages are counted; their offsets are looked at only in partitions that lack some of the cut."""
    found: dict[TopicPartition, list[tuple[int, Stretch, Tally]]] = {}
    for row in by_period(_messages(spark, settings, part)).collect() if part.messages() else ():
        one = row["period"], Stretch(row["first_offset"], row["last_offset"] + 1), Tally(row["messages"], int(row["offset_sum"]))
        found.setdefault(TopicPartition(row["topic"], row["partition"]), []).append(one)
    stored = {name: [StoredPeriod(period, (run,)) for period, run, _ in sorted(periods)] for name, periods in found.items()
              if is_whole(part.partitions[name].offsets, periods)}
    faulty = cut_of(part.cluster_id, (one for name, one in part.partitions.items() if name in found and name not in stored))
    if faulty.messages():
        stored |= {name: periods_of(by) for name, by in ranges_of(stretches(_messages(spark, settings, faulty))).items()}
    return stored


def _messages(spark: SparkSession, settings: PipelineSettings, part: Cut) -> DataFrame:
    """Where messages are and when they were appended; whether all are there, the counts say."""
    return cut_reader(spark, settings, part, fail_on_data_loss=False).schema(PLACED).load()


def is_whole(offsets: OffsetRange, periods: Iterable[tuple[int, Stretch, Tally]]) -> bool:
    """Whether the periods are runs of offsets side by side and these offsets together, each counted once."""
    runs = sorted((run, counted) for _, run, counted in periods)
    return all(tally((run,)) == counted for run, counted in runs) and [Stretch(offsets.start, offsets.end)] == Coverage(
        run for run, _ in runs).stretches()


def periods_of(by: dict[int, Coverage]) -> list[StoredPeriod]:
    """The stretches of each period, in order."""
    return [StoredPeriod(period, tuple(coverage.stretches())) for period, coverage in sorted(by.items())]


def write_periods(spark: SparkSession, rows: Sequence[Row], folder: Path) -> None:
    """One sorted file."""
    values = [(row.name.topic, row.name.partition, _EPOCH + timedelta(microseconds=row.period_us), row.stored.messages, row.first_offset,
               row.last_offset, Decimal(row.stored.offset_sum), *_of(row.acknowledged), dict(row.consumed), *_of(row.exported)) for row in rows]
    frame = spark.createDataFrame(values, PERIODS)
    frame.repartition(1).sortWithinPartitions("topic", "partition", "period").write.parquet(str(folder / PERIODS_NAME))


def _of(tallied: Tally | None) -> tuple[int | None, Decimal | None]:
    return (None, None) if tallied is None else (tallied.messages, Decimal(tallied.offset_sum))
