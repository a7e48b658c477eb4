"""The audit without Spark and Java: ``python -m pipeline.audit``, behind ``myqueue audit``. The same plan, executed by threads."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from myqueue.errors import MyQueueError

from ..cluster import fetch_cluster
from ..jobs import arguments
from . import report as reports
from .logs import execute_here
from .run import audit_cluster


def main(argv: Sequence[str]) -> int:
    """Audit the cluster. Gives the exit code."""
    parser = arguments.job_parser("audit", "check the logs of all brokers and the metadata of all managers", prog="myqueue audit")
    settings, _ = arguments.parse(parser, argv)
    try:
        cluster = fetch_cluster(settings.bootstrap, timeout_seconds=settings.request_timeout_seconds)
        report, _ = audit_cluster(cluster, settings, execute_here)
    except MyQueueError as error:
        return arguments.failed("audit", error)
    print(reports.to_text(report))
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
