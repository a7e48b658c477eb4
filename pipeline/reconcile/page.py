"""PURE: the reconciliation as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from .. import pages
from ..report.summary import window_text
from .figures import KINDS, Line, Reconciliation
from .folder import PERIODS_NAME, RECONCILIATION
from .summary import cells, heads, period_text, place_text, result_line

_LOOKS = {"equal": pages.GOOD, "differs": pages.BAD, "incomplete": pages.UNSURE}


def to_html(made: Reconciliation) -> str:
    """The whole page: what differs first."""
    parts = [f"<h1>Reconciliation of cluster {escape(made.cut.cluster_id)}</h1>",
             f"<p>{escape(made.at)}, {escape(window_text(made.asked.window))}; by ten minutes of the brokers' append times, in UTC</p>",
             pages.result(_LOOKS[made.result], result_line(made)), *_receipts(made), *_differences(made), *_not_judged(made),
             "<h2>Topics</h2>", _table(made, "topic", [(line.topic, line) for line in made.topic_lines()], RECONCILIATION.summary), *_periods(made)]
    return pages.page(f"Reconciliation: {made.result}", parts)


def _receipts(made: Reconciliation) -> list[str]:
    if made.receipts is None:
        return []
    one = made.receipts
    torn = f"; {one.torn:,} lines were not finished, as a producer leaves one that dies" if one.torn else ""
    return [f"<p>{one.batches:,} receipts of {one.messages:,} messages in {len(one.files):,} file{'s' * (len(one.files) != 1)}{torn}.</p>"]


def _differences(made: Reconciliation) -> list[str]:
    if not made.judged.differences:
        return []
    kinds = [(kind, KINDS[kind].meaning, f"{ranges:,}", f"{messages:,}") for kind, (ranges, messages) in made.by_kind().items()]
    rows = [(one.kind, place_text(one), f"{one.messages:,}", one.group or "", str(one.times or "")) for one in made.judged.differences]
    return ["<h2>Differences</h2>",
            pages.table(("kind", "what it means", "ranges", "messages"), kinds, numbers=(2, 3), rest_in=RECONCILIATION.summary),
            "<h2>Where they are</h2>",
            pages.table(("kind", "where", "messages", "group", "times"), rows, numbers=(2, 4), rest_in=RECONCILIATION.summary)]


def _not_judged(made: Reconciliation) -> list[str]:
    rows = [(one.what, one.why) for one in made.judged.not_judged]
    return ["<h2>Not judged</h2>", pages.table(("what", "why"), rows, rest_in=RECONCILIATION.summary)] if rows else []


def _periods(made: Reconciliation) -> list[str]:
    lines = sorted(made.lines(), key=lambda line: not line.unequal)  # what differs first, else by topic and time as they come
    rows = [(f"{line.topic}, {'' if line.period_us is None else period_text(line.period_us)}".removesuffix(", "), line) for line in lines]
    return ["<h2>Ten minutes</h2>", _table(made, "topic, from", rows, f"the data set {PERIODS_NAME}")] if rows else []


def _table(made: Reconciliation, first: str, rows: Sequence[tuple[str, Line]], rest_in: str) -> str:
    head = (first, *heads(made.asked))
    return pages.table(head, [(name, *cells(line, made.asked)) for name, line in rows], numbers=range(1, len(head)), rest_in=rest_in)
