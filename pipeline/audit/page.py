"""PURE: the audit as one HTML page that needs nothing else: no script, no font, no picture from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from .findings import CHECKS, Finding
from .report import AuditReport, result_line, topic_rows

ROWS_SHOWN_MAX = 500
_BAR = 320  # pixels of the longest bar
_STYLE = """
:root{--ink:#1c2330;--soft:#5b6575;--line:#dde2ea;--page:#fff;--bar:#3b6fb5;--clean:#1f7a4d;--findings:#b3261e;--incomplete:#8a5a00}
@media(prefers-color-scheme:dark){:root{--ink:#e7ebf2;--soft:#9aa5b8;--line:#333c4b;--page:#151a22;--bar:#79a7e3;--clean:#5fc795;--findings:#ff8a80;--incomplete:#f0bf6a}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:64rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem;margin:0}h2{font-size:1.05rem;margin:2rem 0 .4rem}p{margin:.3rem 0;color:var(--soft)}
.result{font-size:1.15rem;font-weight:600;margin:.6rem 0}.clean{color:var(--clean)}
.findings{color:var(--findings)}.incomplete{color:var(--incomplete)}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.25rem .8rem .25rem 0;border-bottom:1px solid var(--line);vertical-align:top}th{color:var(--soft);font-weight:500}
td.n,th.n{text-align:right}code{font-size:.9em}svg rect{fill:var(--bar)}
"""


def to_html(report: AuditReport) -> str:
    """The whole page."""
    parts = [f"<h1>Audit of cluster {escape(report.cluster_id)}</h1>",
             f"<p>{escape(report.at)}, metadata at index {report.version}</p>",
             f'<p class="result {report.result}">{escape(result_line(report))}</p>',
             *_findings(report.findings), *_skipped(report), *_topics(report), *_replicas(report), *_managers(report)]
    return (f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f"<title>Audit: {report.result}</title><style>{_STYLE}</style></head>\n<body>\n" + "\n".join(parts) + "\n</body></html>\n")


def _findings(findings: Sequence[Finding]) -> list[str]:
    if not findings:
        return []
    rows = [(finding.id, finding.check, finding.place(), finding.detail or CHECKS[finding.check], f"<code>{escape(finding.remedy())}</code>")
            for finding in findings]
    return ["<h2>Findings</h2>", _table(("id", "check", "where", "what", "what to do"), rows, markup=(4,))]


def _skipped(report: AuditReport) -> list[str]:
    rows = [(skipped.node, skipped.what, skipped.why) for skipped in report.skipped]
    return ["<h2>Not checked</h2>", _table(("node", "what", "why"), rows)] if rows else []


def _topics(report: AuditReport) -> list[str]:
    topics = topic_rows(report.partitions)
    most = max((row.messages for row in topics), default=0)
    rows = [(row.topic, f"{row.partitions:,}", f"{row.messages:,}", _bar(row.messages, most)) for row in topics]
    if not rows:
        return ["<p>There are no topics.</p>"]
    return ["<h2>Topics</h2>", _table(("topic", "partitions", "messages", ""), rows, numbers=(1, 2), markup=(3,))]


def _replicas(report: AuditReport) -> list[str]:
    brokers: dict[int, list[int]] = {}
    for one in report.partitions:
        count = brokers.setdefault(one.broker_id, [0, 0, 0, 0])
        for at, value in enumerate((1, int(one.leads), one.entries, one.records)):
            count[at] += value
    rows = [(f"broker-{broker_id}", *(f"{value:,}" for value in count)) for broker_id, count in sorted(brokers.items())]
    head = ("node", "replicas", "of them leaders", "entries", "messages checked")
    return ["<h2>Brokers</h2>", _table(head, rows, numbers=(1, 2, 3, 4))] if rows else []


def _managers(report: AuditReport) -> list[str]:
    rows = [(one.node, one.role, f"{one.last_index:,}", f"{one.applied_index:,}", f"{one.rows:,}") for one in report.managers]
    return ["<h2>Managers</h2>", _table(("node", "role", "WAL to", "applied", "rows of metadata"), rows, numbers=(2, 3, 4))] if rows else []


def _bar(value: int, most: int) -> str:
    width = round(_BAR * value / most) if most else 0
    return f'<svg width="{_BAR}" height="12" role="img" aria-label="{value:,}"><rect width="{max(width, 1)}" height="12" rx="2"/></svg>'


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Iterable[int] = (), markup: Iterable[int] = ()) -> str:
    """Cells are text and escaped, but for the columns ``markup``."""
    def cells(tag: str, values: Sequence[str], raw: Iterable[int]) -> str:
        return "".join(f'<{tag}{" class=n" if at in numbers else ""}>{value if at in raw else escape(value)}</{tag}>'
                       for at, value in enumerate(values))

    body = "".join(f"<tr>{cells('td', row, markup)}</tr>\n" for row in rows[:ROWS_SHOWN_MAX])
    more = f"<p>and {len(rows) - ROWS_SHOWN_MAX} more, all in audit.json</p>" if len(rows) > ROWS_SHOWN_MAX else ""
    return f'<div class="wide"><table><tr>{cells("th", head, ())}</tr>\n{body}</table></div>{more}'
