"""A reconciliation from beginning to end, and the files that it leaves."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ..cluster import Cluster, choose_topics
from ..databases import limits_of
from ..files import alone_in
from ..report.figures import NotAsked
from ..settings import PipelineSettings
from ..source.cuts import Cut
from ..source.planner import take_cut_between
from . import page, summary
from .data import read_stored, write_periods
from .exported import DataSet, elsewhere, find_data_set, read_exported
from .figures import Asked, Judged, ReceiptsRead, Reconciliation
from .folder import RECONCILIATION
from .groups import Standing, fetch_standings
from .judge import Columns, Exported, judge
from .receipts import Acknowledged, find_files, read_receipts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOKS_MAX, LOOK_INTERVAL_SECONDS = 4, 0.5  # for a log that ends before what was acknowledged: a new leader learns its commit position a moment later


@dataclass(frozen=True, slots=True)
class Gathered:
    """What needs no Spark: what producers were told, how far groups are, which files were exported, and the cut."""

    at: str
    began: float  # of the monotonic clock
    asked: Asked
    cut: Cut
    part: Cut
    files: tuple[str, ...]
    acknowledged: Acknowledged | None
    standings: dict[str, Standing]
    not_asked: tuple[NotAsked, ...]
    data_set: DataSet | None


def gather(cluster: Cluster, settings: PipelineSettings, asked: Asked) -> Gathered:
    """Read the receipts and the export's manifest, then take the cut, then ask the groups: so what was acknowledged or exported must be in the cut.

    Raises:
        BadRequestError: a topic, file, group or data set is not there, or is not what it should be.
        LogFaultError: files of the export are gone.
        UnavailableError: a partition has no leader now, or a database cannot be reached.
    """
    began, at, limits = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds"), limits_of(settings)
    partitions = [info for infos in choose_topics(cluster, settings.topics).values() for info in infos]
    files = find_files(asked.receipts)
    topic_ids = {info.topic: info.topic_id for info in cluster.partitions}
    acknowledged = read_receipts(files, topic_ids, settings.topics, asked.window) if asked.receipts else None
    data_set = None if asked.export is None else find_data_set(Path(asked.export), cluster.cluster_id)

    def take() -> tuple[Cut, Cut]:
        return take_cut_between(cluster, partitions, limits, since_us=asked.window.since_us, until_us=asked.window.until_us)

    cut, part = take()
    for _ in range(LOOKS_MAX - 1):
        if acknowledged is None or all(acknowledged.end_of(name) <= one.offsets.end for name, one in cut.partitions.items()):
            break
        time.sleep(LOOK_INTERVAL_SECONDS)
        cut, part = take()
    standings, not_asked = fetch_standings(settings.bootstrap, asked.groups, cut, limits)
    return Gathered(at, began, asked, cut, part, tuple(files), acknowledged, standings, tuple(not_asked), data_set)


def reconcile_cluster(spark: SparkSession, settings: PipelineSettings, gathered: Gathered) -> Reconciliation:
    """Compare what was gathered with what is stored, and write the reconciliation into the settings' folder.

    Raises:
        BadRequestError: the folder has a reconciliation. Nothing was written.
        ConflictError: another run works there. Nothing was written.
    """
    folder = Path(settings.out)
    with alone_in(folder):
        RECONCILIATION.check_free(folder)
        staging = RECONCILIATION.staging_in(folder)
        made = _compared(spark, settings, gathered)
        write_periods(spark, made.judged.rows, staging)
        RECONCILIATION.publish(folder, page.to_html(made), json.dumps(summary.to_json(made), indent=2, sort_keys=True) + "\n")
    return made


def _compared(spark: SparkSession, settings: PipelineSettings, of: Gathered) -> Reconciliation:
    exported = None if of.data_set is None else Exported(read_exported(spark, of.data_set, of.cut, of.asked.window), elsewhere(of.data_set, of.cut))
    judged = judge(of.cut, of.part, read_stored(spark, settings, of.part), Columns(of.acknowledged, of.standings, exported))
    told = of.acknowledged
    return Reconciliation(of.at, time.monotonic() - of.began, of.asked, of.cut, of.part,
                          Judged(judged.rows, judged.differences, (*of.not_asked, *judged.not_judged)),
                          None if told is None else ReceiptsRead(of.files, told.batches, told.messages, told.torn))
