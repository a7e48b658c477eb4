"""The audit's page and its metrics."""

from __future__ import annotations

import re

from myqueue.protocol.types import OffsetRange
from pipeline.audit.findings import CHECKS, OF_LOGS, Finding, Skipped
from pipeline.audit.logs import LogAudit, PartitionCoverage
from pipeline.audit.managers import ManagerAudit, ManagerCoverage
from pipeline.audit.metrics import HELP, to_prometheus
from pipeline.audit.page import to_html
from pipeline.audit.report import AuditReport, build_report
from pipeline.pages import ROWS_SHOWN_MAX
from tests.support.markup import check_page

FINDING = Finding("gap", "broker-1", "t", 0, 4, 50, 60, "<b>entry</b> 4 & 5 are missing")


def report(*findings: Finding) -> AuditReport:
    coverage = [PartitionCoverage("t", 0, 1, True, OffsetRange(0, 5000), 2, 5000), PartitionCoverage("t", 0, 2, False, OffsetRange(0, 5000), 2, 5000)]
    return build_report("c", 9, "2026-01-01T00:00:00+00:00", 1.25, LogAudit(coverage, [], list(findings), [Skipped("broker-2", "u/1", "refused")]),
                        ManagerAudit([ManagerCoverage("manager-1", "write", 9, 9, 12, "ab")], [], []))


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    """Every tag is closed, what comes from data is escaped, nothing is fetched."""
    page = to_html(report(FINDING))
    check_page(page)
    assert "&lt;b&gt;entry&lt;/b&gt; 4 &amp; 5 are missing" in page and "<b>" not in page
    assert all(text in page for text in (FINDING.id, "broker-1 t/0 lsn 4", "5,000", "refused", "manager-1", 'class="result bad"'))


def test_many_findings_are_cut_off_and_said() -> None:
    """A page stays a page."""
    page = to_html(report(*(Finding("gap", "broker-1", "t", 0, lsn) for lsn in range(ROWS_SHOWN_MAX + 7))))
    assert "and 7 more, all in audit.json" in page


def test_a_finding_has_the_same_id_in_every_audit() -> None:
    """Of the check and the place, not of the words; and a command that helps."""
    assert "bad4f2480bed" == FINDING.id
    assert FINDING.id == Finding("gap", "broker-1", "t", 0, 4, 50, 60, "other words").id != Finding("gap", "broker-2", "t", 0, 4, 50, 60).id
    assert "myqueue topics repair t --partition 0 --broker-id 1" == FINDING.remedy()
    assert set(CHECKS) >= OF_LOGS and "manager-2" in Finding("wal_gap", "manager-2").remedy()


def test_the_metrics_have_a_line_for_each_check_and_help_for_each_name() -> None:
    """An alert can be written before the first finding; the form is Prometheus's."""
    lines = to_prometheus(report(FINDING), 1_700_000_000.4).split("\n")
    assert all(f'myqueue_audit_findings{{check="{check}"}} {int(check == "gap")}' in lines for check in CHECKS)
    assert {"myqueue_audit_exit_code 1", "myqueue_audit_timestamp_seconds 1700000000", "myqueue_audit_skipped 1",
            'myqueue_audit_messages{topic="t"} 5000'} <= set(lines)
    assert set(HELP) == {line.split()[2] for line in lines if line.startswith("# HELP")}
    assert all(re.fullmatch(r'myqueue_audit_\w+(\{\w+="[\w.-]+"\})? [\d.]+', line) for line in lines if line and line[0] != "#")
