"""The data set that an export wrote: which files count, of which topics they are, and what lies in them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from myqueue.errors import BadRequestError
from myqueue.protocol.types import TopicPartition

from ..export.folder import DATASET_NAME, MANIFEST_NAME, read_manifest
from ..report.figures import Window
from ..source.cuts import Cut, cut_from_json
from ..transforms.reconcile import stretches
from .coverage import Coverage
from .receipts import Ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SUMMARY_NAME = "export.json"  # of a whole export; an incremental one has a manifest
TIME_COLUMN = "appendTime"


@dataclass(frozen=True, slots=True)
class DataSet:
    """An export's files, and the cut that it was made at (None where it does not say)."""

    folder: Path
    files: tuple[str, ...]
    cut: Cut | None

    def topic_ids(self) -> dict[str, int]:
        """The identity of each topic that was exported."""
        return {} if self.cut is None else {name.topic: one.id.topic_id for name, one in self.cut.partitions.items()}


def find_data_set(folder: Path, cluster_id: str) -> DataSet:
    """The files that count: those of the manifest where there is one, else all.

    Raises:
        BadRequestError: there is no data set, it is another cluster's, or its files have no append times.
        LogFaultError: files that the manifest names are gone.
    """
    data_set = _incremental(folder) if (folder / MANIFEST_NAME).exists() else _whole(folder)
    if data_set.cut is not None and data_set.cut.cluster_id not in ("", cluster_id):
        raise BadRequestError(f"--export {folder}: it is of cluster {data_set.cut.cluster_id}, this is {cluster_id}")
    without = [name for name in data_set.files if not _has_times(folder / name)]
    if without:
        raise BadRequestError(f"--export {folder}: {len(without)} of {len(data_set.files)} files have no column {TIME_COLUMN} "
                              f"({without[0]}): they were exported by an earlier version; export anew into another folder")
    return data_set


def _incremental(folder: Path) -> DataSet:
    manifest = read_manifest(folder)
    return DataSet(folder, manifest.files, manifest.cut)


def _whole(folder: Path) -> DataSet:
    if not (folder / DATASET_NAME).is_dir():
        raise BadRequestError(f"--export {folder}: there is no data set {DATASET_NAME}: give the folder that an export wrote")
    files = tuple(sorted(str(path.relative_to(folder)) for path in (folder / DATASET_NAME).rglob("*.parquet")))
    summary = folder / SUMMARY_NAME
    try:
        cut = cut_from_json(json.dumps(json.loads(summary.read_text(encoding="utf-8"))["cut"])) if summary.exists() else None
    except (KeyError, TypeError, ValueError):
        raise BadRequestError(f"{summary} cannot be read: it is not an export's") from None
    return DataSet(folder, files, cut)


def _has_times(path: Path) -> bool:
    import pyarrow.parquet

    return TIME_COLUMN in pyarrow.parquet.read_schema(path).names


def read_exported(spark: SparkSession, data_set: DataSet, cut: Cut, window: Window) -> Ranges:
    """What of the topics of the cut was exported within the window. Files' times are used to leave out what lies outside of it."""
    ids = data_set.topic_ids()
    topics = sorted({name.topic for name, one in cut.partitions.items() if ids.get(name.topic, one.id.topic_id) == one.id.topic_id})
    if not data_set.files or not topics:
        return {}
    files = [str(data_set.folder / name) for name in data_set.files]
    messages = spark.read.option("basePath", str(data_set.folder / DATASET_NAME)).parquet(*files)
    return ranges_of(stretches(within(messages.select("topic", "partition", "offset", TIME_COLUMN), window, topics)))


def within(messages: DataFrame, window: Window, topics: list[str]) -> DataFrame:
    """The messages of these topics whose append times lie in the window."""
    from pyspark.sql import functions as F

    wanted = messages.where(F.col("topic").isin(topics))
    if window.since_us is not None:
        wanted = wanted.where(F.col(TIME_COLUMN) >= F.timestamp_micros(F.lit(window.since_us)))
    if window.until_us is not None:
        wanted = wanted.where(F.col(TIME_COLUMN) < F.timestamp_micros(F.lit(window.until_us)))
    return wanted


def ranges_of(stretches: DataFrame) -> Ranges:
    """The rows of ``stretches`` as coverages by partition and period."""
    ranges: Ranges = {}
    for row in stretches.collect():
        by_period = ranges.setdefault(TopicPartition(row["topic"], row["partition"]), {})
        by_period.setdefault(row["period"], Coverage()).add(row["start"], row["end"], row["times"])
    return ranges


def elsewhere(data_set: DataSet, cut: Cut) -> Mapping[str, int]:
    """The topics of the cut of which the data set holds an earlier identity, and its number."""
    ids = data_set.topic_ids()
    return {name.topic: ids[name.topic] for name, one in cut.partitions.items() if ids.get(name.topic, one.id.topic_id) != one.id.topic_id}
