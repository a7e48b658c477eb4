"""PURE: the audit as a Prometheus text file, for node_exporter's textfile collector."""

from __future__ import annotations

from collections.abc import Iterable

from .findings import CHECKS
from .report import AuditReport, topic_rows

# Name → what it says, and what to do about it.
HELP = {
    "myqueue_audit_exit_code": "0 clean, 1 findings, 2 not everything could be checked. Alert on anything but 0; audit.json says where.",
    "myqueue_audit_timestamp_seconds": "When the audit ended. Alert where it is old: nobody audits.",
    "myqueue_audit_duration_seconds": "How long it took.",
    "myqueue_audit_findings": "Findings by check. Alert above 0.",
    "myqueue_audit_skipped": "Things that could not be checked. Above 0 a database was out of reach.",
    "myqueue_audit_messages": "Messages of a topic that were checked, at their leaders.",
}


def to_prometheus(report: AuditReport, at_seconds: float) -> str:
    """Every check has its line, also where nothing was found, so that an alert can be written before the first finding."""
    counts = dict.fromkeys(CHECKS, 0)
    for finding in report.findings:
        counts[finding.check] += 1
    samples = {
        "myqueue_audit_exit_code": [("", report.exit_code)], "myqueue_audit_timestamp_seconds": [("", round(at_seconds))],
        "myqueue_audit_duration_seconds": [("", round(report.seconds, 3))],
        "myqueue_audit_findings": [(f'check="{check}"', count) for check, count in counts.items()],
        "myqueue_audit_skipped": [("", len(report.skipped))],
        "myqueue_audit_messages": [(f'topic="{row.topic}"', row.messages) for row in topic_rows(report.partitions)],
    }
    return "".join(line for name, values in samples.items() for line in _metric(name, values))


def _metric(name: str, values: Iterable[tuple[str, float]]) -> Iterable[str]:
    yield f"# HELP {name} {HELP[name]}\n# TYPE {name} gauge\n"
    for labels, value in values:  # topic names hold nothing that would have to be escaped
        yield f"{name}{{{labels}}} {value}\n" if labels else f"{name} {value}\n"
