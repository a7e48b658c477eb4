"""The audit's report: JSON with a stable schema for machines, a table for people. PURE but for ``write``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..files import write_text
from .findings import CHECKS, CLEAN, FINDINGS, Finding, Skipped, exit_code
from .logs import LogAudit, PartitionCoverage
from .managers import ManagerAudit, ManagerCoverage

SCHEMA_VERSION = 1
FINDINGS_SHOWN_MAX = 30
RESULTS = {CLEAN: "clean", FINDINGS: "findings"}


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Everything that one audit says."""

    cluster_id: str
    version: int
    at: str  # ISO 8601, UTC
    seconds: float
    partitions: tuple[PartitionCoverage, ...] = ()
    managers: tuple[ManagerCoverage, ...] = ()
    findings: tuple[Finding, ...] = ()
    skipped: tuple[Skipped, ...] = field(default=())

    @property
    def exit_code(self) -> int:
        return exit_code(self.findings, self.skipped)

    @property
    def result(self) -> str:
        return RESULTS.get(self.exit_code, "incomplete")


def build_report(cluster_id: str, version: int, at: str, seconds: float, logs: LogAudit, managers: ManagerAudit) -> AuditReport:
    return AuditReport(cluster_id, version, at, seconds, tuple(logs.partitions), tuple(managers.managers),
                       tuple(sorted([*logs.findings, *managers.findings], key=Finding.order)), tuple(sorted([*logs.skipped, *managers.skipped])))


def to_json(report: AuditReport) -> dict[str, Any]:
    """The report as JSON values."""
    return {
        "schema_version": SCHEMA_VERSION, "result": report.result, "exit_code": report.exit_code, "cluster_id": report.cluster_id,
        "metadata_version": report.version, "at": report.at, "seconds": round(report.seconds, 3),
        "topics": [asdict(row) for row in topic_rows(report.partitions)],
        "partitions": [_partition_json(coverage) for coverage in report.partitions],
        "managers": [asdict(manager) for manager in report.managers],
        "findings": [{"id": finding.id, **asdict(finding), "meaning": CHECKS[finding.check], "place": finding.place(), "remedy": finding.remedy()}
                     for finding in report.findings],
        "skipped": [asdict(skipped) for skipped in report.skipped],
    }


def _partition_json(coverage: PartitionCoverage) -> dict[str, Any]:
    body = asdict(coverage)
    offsets = body.pop("offsets")
    return {**body, "start_offset": offsets["start"], "end_offset": offsets["end"]}


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A line of the table: leaders only, so that a message counts once."""

    topic: str
    partitions: int
    messages: int
    entries: int


def topic_rows(partitions: Iterable[PartitionCoverage]) -> list[TopicRow]:
    rows: dict[str, TopicRow] = {}
    for coverage in sorted(partitions, key=lambda one: (one.topic, one.partition)):
        if coverage.leads:
            row = rows.get(coverage.topic, TopicRow(coverage.topic, 0, 0, 0))
            rows[coverage.topic] = TopicRow(row.topic, row.partitions + 1, row.messages + coverage.records, row.entries + coverage.entries)
    return list(rows.values())


def to_text(report: AuditReport) -> str:
    """The report for people; its last line says the result."""
    topics = topic_rows(report.partitions)
    lines = table(("topic", "partitions", "messages", "entries"), [(row.topic, row.partitions, row.messages, row.entries) for row in topics])
    lines += [f"{manager.node}: {manager.role}, WAL to {manager.last_index}, applied {manager.applied_index}, {manager.rows} rows of metadata checked"
              for manager in report.managers]
    for finding in report.findings[:FINDINGS_SHOWN_MAX]:
        lines.append(f"FOUND {finding.check} at {finding.place()}: {finding.detail or CHECKS[finding.check]}")
    if len(report.findings) > FINDINGS_SHOWN_MAX:
        lines.append(f"… and {len(report.findings) - FINDINGS_SHOWN_MAX} findings more, all in the JSON report")
    lines += [f"NOT CHECKED {skipped.node} {skipped.what}: {skipped.why}" for skipped in report.skipped]
    return "\n".join([*lines, result_line(report)])


def result_line(report: AuditReport) -> str:
    messages = sum(row.messages for row in topic_rows(report.partitions))
    what = f"{messages} messages in {len(report.partitions)} partitions, {len(report.managers)} managers, {report.seconds:.1f} s"
    verdicts = {"clean": "audit clean", "findings": f"audit found {len(report.findings)} faults", "incomplete": "audit incomplete"}
    return f"{verdicts[report.result]}: {what}" + (f", {len(report.skipped)} things not checked" if report.skipped else "")


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Aligned columns: the first to the left, the others to the right."""
    cells = [list(head), *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    return ["  ".join(cell.ljust(width) if column == 0 else cell.rjust(width)
                      for column, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip() for row in cells]


def write(report: AuditReport, path: Path) -> None:
    """The JSON report, whole or not at all."""
    write_text(json.dumps(to_json(report), indent=2, sort_keys=True) + "\n", path)
