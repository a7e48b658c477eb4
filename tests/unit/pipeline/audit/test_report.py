"""What the audit says at the end."""

from __future__ import annotations

import json

from myqueue.protocol.types import OffsetRange
from pipeline.audit.findings import Finding, Skipped
from pipeline.audit.logs import LogAudit, PartitionCoverage
from pipeline.audit.managers import ManagerAudit, ManagerCoverage
from pipeline.audit.report import AuditReport, build_report, result_line, to_json, to_text

COVERAGE = [PartitionCoverage("t", 0, 1, True, OffsetRange(0, 5), 2, 5), PartitionCoverage("t", 1, 1, True, OffsetRange(0, 3), 1, 3),
            PartitionCoverage("t", 0, 2, False, OffsetRange(0, 5), 2, 5)]
FINDING = Finding("gap", "broker-1", "t", 0, 4, 50, 60, "entry 4 is missing")
SKIPPED = Skipped("broker-2", "t/1", "connection refused")
MANAGER = ManagerCoverage("manager-1", "write", 9, 9, 12, "ab")


def _report(findings: list[Finding], skipped: list[Skipped]) -> AuditReport:
    return build_report("c", 9, "2026-01-01T00:00:00+00:00", 1.25, LogAudit(COVERAGE, [], findings, skipped), ManagerAudit([MANAGER], [], []))


def test_the_exit_code_is_clean_findings_or_incomplete() -> None:
    """Findings win over what was not checked; an incomplete audit is never clean."""
    assert [0, 1, 2, 1] == [_report(*case).exit_code for case in (([], []), ([FINDING], []), ([], [SKIPPED]), ([FINDING], [SKIPPED]))]


def test_a_message_counts_once_whatever_its_replicas() -> None:
    """The table adds up the leaders."""
    assert [{"topic": "t", "partitions": 2, "messages": 8, "entries": 3}] == to_json(_report([], []))["topics"]


def test_the_json_report_says_where_and_what() -> None:
    """A finding has its check, meaning and place; the whole is JSON."""
    body = json.loads(json.dumps(to_json(_report([FINDING], [SKIPPED]))))
    assert ("findings", 1, 1) == (body["result"], body["exit_code"], body["schema_version"])
    assert ("gap", "broker-1 t/0 lsn 4 offsets 50-59") == (body["findings"][0]["check"], body["findings"][0]["place"])
    assert [{"node": "broker-2", "what": "t/1", "why": "connection refused"}] == body["skipped"]


def test_the_table_is_for_people_and_ends_with_the_result() -> None:
    """Columns line up; the last line says it all."""
    lines = to_text(_report([FINDING], [SKIPPED])).split("\n")
    assert ["topic  partitions  messages  entries", "t               2         8        3"] == lines[:2]
    assert "FOUND gap at broker-1 t/0 lsn 4 offsets 50-59: entry 4 is missing" in lines
    assert "NOT CHECKED broker-2 t/1: connection refused" in lines
    assert "audit found 1 faults: 8 messages in 3 partitions, 1 managers, 1.2 s, 1 things not checked" == lines[-1]
    assert result_line(_report([], [])).startswith("audit clean: 8 messages")
