"""An audit from beginning to end, whoever executes its plan, and the files that it leaves."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

from ..cluster import Cluster, choose_topics
from ..databases import limits_of
from ..files import write_text
from ..settings import PipelineSettings
from . import metrics, page
from . import report as reports
from .logs import Execute, LogAudit, audit_logs
from .managers import audit_managers

REPORT_NAME, PAGE_NAME, METRICS_NAME = "audit.json", "audit.html", "audit.prom"


def audit_cluster(cluster: Cluster, settings: PipelineSettings, execute: Execute) -> tuple[reports.AuditReport, LogAudit]:
    """Run all checks and write the reports into the settings' folder. Raises BadRequestError where a topic is not there."""
    began, limits = time.monotonic(), limits_of(settings)
    partitions = [info for infos in choose_topics(cluster, settings.topics).values() for info in infos]
    logs = audit_logs(cluster, partitions, limits, execute, range_bytes=settings.range_bytes, tasks_per_broker=settings.tasks_per_broker)
    managers = audit_managers(cluster.managers, limits)
    at = datetime.now(UTC)
    report = reports.build_report(cluster.cluster_id, cluster.version, at.isoformat(timespec="seconds"), time.monotonic() - began, logs, managers)
    folder = Path(settings.out)
    reports.write(report, folder / REPORT_NAME)
    write_text(page.to_html(report), folder / PAGE_NAME)
    write_text(metrics.to_prometheus(report, at.timestamp()), folder / METRICS_NAME)
    return report, logs
