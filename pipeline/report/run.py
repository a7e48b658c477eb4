"""A report from beginning to end, and the files that it leaves."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from myqueue.protocol.types import PartitionInfo

from ..cluster import Cluster, choose_topics
from ..databases import limits_of
from ..files import alone_in
from ..settings import PipelineSettings
from ..source.planner import take_cut_between
from . import page, summary
from .data import read_figures, read_messages, write_data
from .figures import Report, Window
from .folder import REPORT
from .readers import fetch_readers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def report_cluster(spark: SparkSession, cluster: Cluster, settings: PipelineSettings, *, top: int, window: Window) -> Report:
    """Count what the wanted topics hold now and write the report into the settings' folder.

    Raises:
        BadRequestError: a topic is not there, or the folder has a report. Nothing was written.
        ConflictError: another report is being written there. Nothing was written.
        UnavailableError: a partition has no leader now, or a database cannot be reached. No report was written.
    """
    folder = Path(settings.out)
    with alone_in(folder):
        REPORT.check_free(folder)
        partitions = [info for infos in choose_topics(cluster, settings.topics).values() for info in infos]
        report = _counted(spark, cluster, settings, partitions, top, window)
        REPORT.publish(folder, page.to_html(report), json.dumps(summary.to_json(report), indent=2, sort_keys=True) + "\n")
    return report


def _counted(spark: SparkSession, cluster: Cluster, settings: PipelineSettings, partitions: Sequence[PartitionInfo], top: int,
             window: Window) -> Report:
    began, limits, staging = time.monotonic(), limits_of(settings), REPORT.staging_in(Path(settings.out))
    at = datetime.now(UTC).isoformat(timespec="seconds")
    cut, part = take_cut_between(cluster, partitions, limits, since_us=window.since_us, until_us=window.until_us)
    readers = fetch_readers(settings.bootstrap, cluster.managers, cut, limits)
    write_data(spark, read_messages(spark, settings, part), readers.standings, top, staging)
    traffic = read_figures(spark, part, staging)
    return Report(at, time.monotonic() - began, window, cut, part, traffic, readers)
