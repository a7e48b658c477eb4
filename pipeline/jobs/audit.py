"""spark-submit audit: check the logs of all brokers and the metadata of all managers; a JSON report, a table, an exit code."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.audit import report as reports
from pipeline.audit.data_source import execute_in_spark
from pipeline.audit.logs import LogAudit, audit_logs
from pipeline.audit.managers import audit_managers
from pipeline.cluster import Cluster, choose_topics, fetch_cluster
from pipeline.jobs import arguments
from pipeline.session import build_session
from pipeline.settings import PipelineSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPORT_NAME = "audit.json"


def main(argv: Sequence[str]) -> int:
    """Audit the cluster. Gives the exit code."""
    settings, _ = arguments.parse(arguments.job_parser("audit", __doc__ or ""), argv)

    def work() -> int:
        cluster = fetch_cluster(settings.bootstrap, timeout_seconds=settings.request_timeout_seconds)
        choose_topics(cluster, settings.topics)  # a wrong name ends here, before Spark has started
        spark = build_session("myqueue audit")
        try:
            report, _ = audit(spark, cluster, settings)
        finally:
            spark.stop()
        print(reports.to_text(report))
        return report.exit_code

    return arguments.run("audit", work)


def audit(spark: SparkSession, cluster: Cluster, settings: PipelineSettings) -> tuple[reports.AuditReport, LogAudit]:
    """Run all checks and write the JSON report."""
    began, limits = time.monotonic(), arguments.limits_of(settings)
    partitions = [info for infos in choose_topics(cluster, settings.topics).values() for info in infos]
    logs = audit_logs(cluster, partitions, limits, lambda tasks, bounds: execute_in_spark(spark, tasks, bounds),
                      range_bytes=settings.range_bytes, tasks_per_broker=settings.tasks_per_broker)
    managers = audit_managers(cluster.managers, limits)
    at = datetime.now(UTC).isoformat(timespec="seconds")
    report = reports.build_report(cluster.cluster_id, cluster.version, at, time.monotonic() - began, logs, managers)
    reports.write(report, Path(settings.out) / REPORT_NAME)
    return report, logs


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
