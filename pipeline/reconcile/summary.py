"""PURE: a reconciliation as JSON with a stable schema for machines, and as a table for people."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..audit.report import table
from ..report.shown import time_text
from ..transforms.reconcile import PERIOD_US
from .figures import ACKNOWLEDGED, CONSUMED, EXPORTED, KINDS, STORED, Asked, Difference, Line, Reconciliation
from .folder import RECONCILIATION

SCHEMA_VERSION = 1
DIFFERENCES_TOLD_MAX = 10_000  # in the JSON; by kind all are counted
DIFFERENCES_SHOWN_MAX = 20  # on standard output
NOTHING = "–"  # of a column that was not asked for, or of a group that does not read the topic


def to_json(made: Reconciliation) -> dict[str, Any]:
    """What reconcile.json holds."""
    told = made.judged.differences[:DIFFERENCES_TOLD_MAX]
    return {
        "schema_version": SCHEMA_VERSION, "result": made.result, "exit_code": made.exit_code, "at": made.at, "seconds": round(made.seconds, 3),
        "cluster_id": made.cut.cluster_id, "window": asdict(made.asked.window), "period_us": PERIOD_US, "datasets": list(RECONCILIATION.datasets),
        "asked": {"receipts": list(made.asked.receipts), "groups": list(made.asked.groups), "export": made.asked.export},
        "receipts": None if made.receipts is None else asdict(made.receipts),
        "topics": [_line_json(line, made.asked) for line in made.topic_lines()], "periods": [_line_json(line, made.asked) for line in made.lines()],
        "differences": [_difference_json(one) for one in told], "differences_left_out": len(made.judged.differences) - len(told),
        "differences_by_kind": {kind: {"ranges": ranges, "messages": messages} for kind, (ranges, messages) in made.by_kind().items()},
        "not_judged": [asdict(one) for one in made.judged.not_judged],
        "cut": json.loads(made.cut.to_json()), "part": json.loads(made.part.to_json())}


def _line_json(line: Line, asked: Asked) -> dict[str, Any]:
    equal = {column: line.is_equal(column) for column, wanted in ((ACKNOWLEDGED, asked.receipts), (EXPORTED, asked.export)) if wanted}
    body = {"topic": line.topic, "period_us": line.period_us, "stored": line.stored, "acknowledged": line.acknowledged,
            "consumed": dict(line.consumed), "exported": line.exported, "is_equal": not line.unequal,
            "equal": {**equal, CONSUMED: {group: line.is_equal(CONSUMED, group) for group in line.consumed}}}
    return body if line.period_us is not None else {name: value for name, value in body.items() if name != "period_us"}


def _difference_json(one: Difference) -> dict[str, Any]:
    return {**asdict(one), "column": one.column, "meaning": KINDS[one.kind].meaning}


def to_text(made: Reconciliation, folder: Path) -> str:
    """The reconciliation for people; its last line says the result."""
    unequal = Counter(line.topic for line in made.lines() if line.unequal and line.period_us is not None)
    rows = [(line.topic, *cells(line, made.asked), unequal[line.topic]) for line in made.topic_lines()]
    lines = table(("topic", *heads(made.asked), "differing ten minutes"), rows)
    shown = made.judged.differences[:DIFFERENCES_SHOWN_MAX]
    lines += [f"DIFFERS {sentence(one)}" for one in shown]
    if len(made.judged.differences) > len(shown):
        lines.append(f"… and {len(made.judged.differences) - len(shown)} more, in {RECONCILIATION.summary}")
    lines += [f"NOT JUDGED {one.what}: {one.why}" for one in made.judged.not_judged]
    return "\n".join([*lines, f"{result_line(made)}, {folder / RECONCILIATION.page}, {made.seconds:.1f} s"])


def heads(asked: Asked) -> list[str]:
    """The names of the columns that were asked for, stored first."""
    return ["stored", *(["acknowledged"] if asked.receipts else []), *(f"consumed by {group}" for group in asked.groups),
            *(["exported"] if asked.export else [])]


def cells(line: Line, asked: Asked) -> list[str]:
    """A line's numbers under ``heads``; one that differs is marked."""
    def cell(value: int | None, is_equal: bool) -> str:
        return (NOTHING if value is None else f"{value:,}") + ("" if is_equal else " ≠")

    return [cell(line.stored, line.is_equal(STORED)), *([cell(line.acknowledged, line.is_equal(ACKNOWLEDGED))] if asked.receipts else []),
            *(cell(line.consumed.get(group), line.is_equal(CONSUMED, group)) for group in asked.groups),
            *([cell(line.exported, line.is_equal(EXPORTED))] if asked.export else [])]


def sentence(one: Difference) -> str:
    """A difference in words: where, when, how many, and what it means."""
    details = [*([f"by group {one.group}"] if one.group is not None else []), *([f"({one.times} times)"] if one.times is not None else []),
               *([f"(it had id {one.topic_id})"] if one.topic_id is not None else [])]
    messages = [] if one.messages == 0 else ["1 message"] if one.messages == 1 else [f"{one.messages:,} messages"]
    return f"{place_text(one)}: {' '.join([*messages, KINDS[one.kind].meaning, *details])}"


def place_text(one: Difference) -> str:
    """Topic, partition, offsets, ten minutes."""
    if one.partition is None:
        return one.topic
    offsets = f"offset {one.start_offset}" if one.messages == 1 else f"offsets {one.start_offset} to {(one.end_offset or 0) - 1}"
    return f"{one.topic}/{one.partition} {offsets}" + ("" if one.period_us is None else f" ({period_text(one.period_us)})")


def period_text(period_us: int) -> str:
    """Ten minutes by their beginning, to the minute."""
    return time_text(period_us)[:-3]


def result_line(made: Reconciliation) -> str:
    """The reconciliation in a line."""
    lines = made.topic_lines()
    what = f"{sum(line.stored for line in lines):,} messages of {len(lines)} topic{'s' * (len(lines) != 1)} stored"
    messages = sum(one.messages for one in made.judged.differences)
    verdicts = {"equal": f"reconciled: {_and(heads(made.asked)[1:])} equal what is stored",
                "differs": f"not reconciled: {len(made.judged.differences)} differences of {messages:,} messages",
                "incomplete": f"reconciliation incomplete: {len(made.judged.not_judged)} things could not be judged, the others are equal"}
    return f"{verdicts[made.result]}; {what}"


def _and(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
