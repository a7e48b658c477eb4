"""spark-submit audit: check the logs of all brokers and the metadata of all managers; reports as JSON, HTML, metrics,
a row of a Parquet history and a table, an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.audit import report as reports
from pipeline.audit.data_source import execute_in_spark
from pipeline.audit.history import keep
from pipeline.audit.logs import LogAudit
from pipeline.audit.run import audit_cluster
from pipeline.cluster import Cluster, choose_topics, fetch_cluster
from pipeline.jobs import arguments
from pipeline.session import build_session
from pipeline.settings import PipelineSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(argv: Sequence[str]) -> int:
    """Audit the cluster. Gives the exit code."""
    settings, _ = arguments.parse(arguments.job_parser("audit", __doc__ or ""), argv)

    def work() -> int:
        cluster = fetch_cluster(settings.bootstrap, timeout_seconds=settings.request_timeout_seconds)
        choose_topics(cluster, settings.topics)  # a wrong name ends here, before Spark has started
        spark = build_session("myqueue audit")
        try:
            report, _ = audit(spark, cluster, settings)
            print(reports.to_text(report))  # first: what was found is told, whatever becomes of the history
            keep(spark, report, Path(settings.out))
        finally:
            spark.stop()
        return report.exit_code

    return arguments.run("audit", work)


def audit(spark: SparkSession, cluster: Cluster, settings: PipelineSettings) -> tuple[reports.AuditReport, LogAudit]:
    """Run all checks, the plan of the logs on Spark's executors, and write the reports."""
    return audit_cluster(cluster, settings, lambda tasks, bounds: execute_in_spark(spark, tasks, bounds))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
