"""What a report leaves in its folder."""

from __future__ import annotations

from ..results import ResultFolder

TRAFFIC_NAME, KEYS_NAME, LAG_NAME = "traffic", "top_keys", "lag"
REPORT = ResultFolder("report", (TRAFFIC_NAME, KEYS_NAME, LAG_NAME), "report.html", "report.json", "report-staging")
