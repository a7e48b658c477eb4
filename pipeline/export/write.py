"""Messages of a cut → Parquet files, and an export that adds to what is there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..cluster import Cluster, choose_topics
from ..databases import limits_of
from ..files import alone_in
from ..schemas import READABLE
from ..settings import PipelineSettings
from ..source.cut_reader import cut_reader
from ..source.cuts import Cut
from ..source.planner import take_cut
from ..transforms.counts import collect_counts, differences
from .folder import STAGING_NAME, clear_left_overs, publish, read_manifest
from .manifest import Manifest, rest_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROW_GROUP_BYTES = 32 << 20  # what a task has in memory while it writes, and what a load reads at a time


def write_messages(spark: SparkSession, settings: PipelineSettings, cut: Cut, dataset: Path, fail_on_data_loss: bool) -> None:
    """One Parquet data set, partitioned by topic and by date (UTC) of the append time, with all columns of the source; a task writes a file."""
    from pyspark.sql import functions as F

    reader = cut_reader(spark, settings, cut, fail_on_data_loss=fail_on_data_loss).option("fileBytes", str(settings.file_bytes))
    messages = reader.schema(READABLE).load().withColumn("date", F.to_date("appendTime"))  # in the session's time zone, UTC
    messages.write.partitionBy("topic", "date").option("parquet.block.size", str(ROW_GROUP_BYTES)).parquet(str(dataset))


@dataclass(frozen=True, slots=True)
class Added:
    """What an incremental export added; nothing where ``wrong`` says what differs."""

    manifest: Manifest
    messages: int
    wrong: tuple[str, ...] = ()


def export_more(spark: SparkSession, cluster: Cluster, settings: PipelineSettings) -> Added:
    """Add what was committed since the last export.

    The new files are written aside, counted against the cut, moved in and then named by a new manifest in one step. Cut off anywhere, the
    data set is what the last manifest says, and the next run takes the left-overs away: each message is in it exactly once.

    Raises:
        ConflictError: another export works in this folder. Nothing was added.
        ConflictError, LogFaultError: the data set and the logs do not fit together; nothing was added.
    """
    with alone_in(Path(settings.out)):
        return _add(spark, cluster, settings, Path(settings.out))


def _add(spark: SparkSession, cluster: Cluster, settings: PipelineSettings, folder: Path) -> Added:
    before = read_manifest(folder)
    clear_left_overs(folder, before)
    partitions = [info for infos in choose_topics(cluster, settings.topics).values() for info in infos]
    cut = take_cut(cluster, partitions, limits_of(settings))
    rest = rest_of(cut, before.cut)
    if not rest.messages():
        return Added(before, 0)
    write_messages(spark, settings, rest, folder / STAGING_NAME, fail_on_data_loss=True)
    wrong = tuple(differences(rest, collect_counts(spark.read.parquet(str(folder / STAGING_NAME)))))
    return Added(before, 0, wrong) if wrong else Added(publish(folder, before, cut), rest.messages())
