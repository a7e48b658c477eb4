"""PURE: the audit as one HTML page that needs nothing else: no script, no font, no picture from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from .. import pages
from .findings import CHECKS, Finding
from .report import AuditReport, result_line, topic_rows

_LOOKS = {"clean": pages.GOOD, "findings": pages.BAD}
_REST_IN = "audit.json"


def to_html(report: AuditReport) -> str:
    """The whole page."""
    parts = [f"<h1>Audit of cluster {escape(report.cluster_id)}</h1>",
             f"<p>{escape(report.at)}, metadata at index {report.version}</p>",
             pages.result(_LOOKS.get(report.result, pages.UNSURE), result_line(report)),
             *_findings(report.findings), *_skipped(report), *_topics(report), *_replicas(report), *_managers(report)]
    return pages.page(f"Audit: {report.result}", parts)


def _findings(findings: Sequence[Finding]) -> list[str]:
    if not findings:
        return []
    rows = [(finding.id, finding.check, finding.place(), finding.detail or CHECKS[finding.check], f"<code>{escape(finding.remedy())}</code>")
            for finding in findings]
    return ["<h2>Findings</h2>", pages.table(("id", "check", "where", "what", "what to do"), rows, markup=(4,), rest_in=_REST_IN)]


def _skipped(report: AuditReport) -> list[str]:
    rows = [(skipped.node, skipped.what, skipped.why) for skipped in report.skipped]
    return ["<h2>Not checked</h2>", pages.table(("node", "what", "why"), rows, rest_in=_REST_IN)] if rows else []


def _topics(report: AuditReport) -> list[str]:
    topics = topic_rows(report.partitions)
    most = max((row.messages for row in topics), default=0)
    rows = [(row.topic, f"{row.partitions:,}", f"{row.messages:,}", pages.bar(row.messages, most)) for row in topics]
    if not rows:
        return ["<p>There are no topics.</p>"]
    return ["<h2>Topics</h2>", pages.table(("topic", "partitions", "messages", ""), rows, numbers=(1, 2), markup=(3,), rest_in=_REST_IN)]


def _replicas(report: AuditReport) -> list[str]:
    brokers: dict[int, list[int]] = {}
    for one in report.partitions:
        count = brokers.setdefault(one.broker_id, [0, 0, 0, 0])
        for at, value in enumerate((1, int(one.leads), one.entries, one.records)):
            count[at] += value
    rows = [(f"broker-{broker_id}", *(f"{value:,}" for value in count)) for broker_id, count in sorted(brokers.items())]
    head = ("node", "replicas", "of them leaders", "entries", "messages checked")
    return ["<h2>Brokers</h2>", pages.table(head, rows, numbers=(1, 2, 3, 4), rest_in=_REST_IN)] if rows else []


def _managers(report: AuditReport) -> list[str]:
    rows = [(one.node, one.role, f"{one.last_index:,}", f"{one.applied_index:,}", f"{one.rows:,}") for one in report.managers]
    head = ("node", "role", "WAL to", "applied", "rows of metadata")
    return ["<h2>Managers</h2>", pages.table(head, rows, numbers=(2, 3, 4), rest_in=_REST_IN)] if rows else []
