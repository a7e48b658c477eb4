"""What all audits found, one row each, as a Parquet data set that grows: how clusters and their faults went over months."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .report import AuditReport, topic_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HISTORY_NAME = "history"


def history_row(report: AuditReport) -> dict[str, Any]:
    """PURE: an audit as a row of ``schemas.AUDITS``."""
    topics = topic_rows(report.partitions)
    return {"at": datetime.fromisoformat(report.at), "cluster_id": report.cluster_id, "result": report.result, "metadata_version": report.version,
            "seconds": report.seconds, "replicas": len(report.partitions), "managers": len(report.managers),
            "messages": sum(row.messages for row in topics),
            "topics": [(row.topic, row.partitions, row.messages, row.entries) for row in topics],
            "findings": [(finding.id, finding.check, finding.place()) for finding in report.findings],
            "skipped": [(skipped.node, skipped.what, skipped.why) for skipped in report.skipped]}


def keep(spark: SparkSession, report: AuditReport, folder: Path) -> None:
    """Add this audit to the history in the folder, as a file of its own. Raises PySparkException where it cannot be written."""
    from ..schemas import AUDITS

    row = history_row(report)
    rows = spark.createDataFrame([tuple(row[name] for name in AUDITS.names)], AUDITS)
    rows.coalesce(1).write.mode("append").parquet(str(folder / HISTORY_NAME))
