"""PURE: a report as JSON with a stable schema for machines, and as a table for people."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..audit.report import table
from ..pages import bytes_text
from .figures import Report, Window
from .folder import REPORT
from .shown import time_text

SCHEMA_VERSION = 1


def to_json(report: Report) -> dict[str, Any]:
    """What report.json holds."""
    return {
        "schema_version": SCHEMA_VERSION, "result": report.result, "exit_code": report.exit_code, "at": report.at,
        "seconds": round(report.seconds, 3), "cluster_id": report.cut.cluster_id, "window": asdict(report.window), "datasets": list(REPORT.datasets),
        "messages": report.messages, "bytes": report.bytes,
        "topics": [{**asdict(topic), "bytes": topic.bytes} for topic in report.traffic.topics],
        "lag": [asdict(line) for line in report.readers.by_topic()], "consumers_left_out": report.readers.left_out,
        "differences": list(report.traffic.differences), "not_asked": [asdict(one) for one in report.readers.not_asked],
        "cut": json.loads(report.cut.to_json()), "part": json.loads(report.part.to_json())}


def to_text(report: Report, folder: Path) -> str:
    """The report for people; its last line says the result."""
    rows = [(topic.topic, topic.partitions, topic.messages, topic.bytes, topic.largest_bytes, topic.without_key, time_text(topic.first_us),
             time_text(topic.last_us)) for topic in report.traffic.topics]
    lines = table(("topic", "partitions", "messages", "bytes", "largest", "without key", "first", "last"), rows)
    readers = [(f"{line.kind} {line.name}", line.topic, line.partitions, line.lag) for line in report.readers.by_topic()]
    if readers:
        lines += ["", *table(("reader", "topic", "partitions", "lag"), readers), ""]
    lines += [f"DIFFERS {sentence}" for sentence in report.traffic.differences]
    lines += [f"NOT ASKED {one.what}: {one.why}" for one in report.readers.not_asked]
    return "\n".join([*lines, f"{result_line(report)}, {folder / REPORT.page}, {report.seconds:.1f} s"])


def result_line(report: Report) -> str:
    """The report in a line."""
    what = f"{report.messages} messages of {len(report.traffic.topics)} topics, {bytes_text(report.bytes)}"
    verdicts = {"complete": "report complete", "differs": f"report differs in {len(report.traffic.differences)} partitions from the cut",
                "incomplete": f"report incomplete: {len(report.readers.not_asked)} things could not be asked"}
    return f"{verdicts[report.result]}: {what}"


def window_text(window: Window) -> str:
    """Which times are reported."""
    since, until = window.since_us, window.until_us
    if since is None and until is None:
        return "everything that is stored"
    return " ".join([*(["from", time_text(since)] if since is not None else []), *(["until", time_text(until)] if until is not None else [])])
