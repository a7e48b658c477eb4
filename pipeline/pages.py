"""PURE: HTML pages that need nothing else: no script, no font, no picture from elsewhere. What the jobs' pages share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

ROWS_SHOWN_MAX = 500
COLOURS = 8  # of a chart's series
GOOD, BAD, UNSURE = "good", "bad", "unsure"  # how the line with the result looks
_BAR = 320  # pixels of the longest bar
_STYLE = """
:root{--ink:#1c2330;--soft:#5b6575;--line:#dde2ea;--page:#fff;--bar:#3b6fb5;--good:#1f7a4d;--bad:#b3261e;--unsure:#8a5a00;
--c0:#3b6fb5;--c1:#d9822b;--c2:#2e8b74;--c3:#a64d79;--c4:#8f9a2e;--c5:#7358a8;--c6:#b3543c;--c7:#8b95a5}
@media(prefers-color-scheme:dark){:root{--ink:#e7ebf2;--soft:#9aa5b8;--line:#333c4b;--page:#151a22;--bar:#79a7e3;--good:#5fc795;--bad:#ff8a80;--unsure:#f0bf6a;
--c0:#79a7e3;--c1:#f0a860;--c2:#62c3a9;--c3:#dd8fb4;--c4:#c3cd6a;--c5:#ab94dd;--c6:#e58c74;--c7:#77839a}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:64rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem;margin:0}h2{font-size:1.05rem;margin:2rem 0 .4rem}h3{font-size:.95rem;margin:1.2rem 0 .2rem;overflow-wrap:anywhere}
p{margin:.3rem 0;color:var(--soft)}.result{font-size:1.15rem;font-weight:600;margin:.6rem 0}
.good{color:var(--good)}.bad{color:var(--bad)}.unsure{color:var(--unsure)}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.25rem .8rem .25rem 0;border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:break-word}
td:first-child{min-width:9rem;overflow-wrap:anywhere}
th{color:var(--soft);font-weight:500;white-space:nowrap}td.n,th.n{text-align:right;white-space:nowrap}code{font-size:.9em}svg rect{fill:var(--bar)}
figure{margin:.6rem 0;overflow-x:auto}figcaption{color:var(--soft)}
.chart{width:100%;min-width:40rem;height:auto;display:block}.chart text{fill:var(--soft);font-size:12px}
.chart line{stroke:var(--line)}.key{display:inline-block;margin-right:1rem;overflow-wrap:anywhere}.key svg{margin-right:.4rem}
""" + "".join(f"svg .c{number}{{fill:var(--c{number})}}" for number in range(COLOURS)) + "\n"


def page(title: str, parts: Iterable[str]) -> str:
    """The whole page; its parts are markup."""
    return ('<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n" + "\n".join(parts) + "\n</body></html>\n")


def result(look: str, line: str) -> str:
    """The line that says how it ended."""
    return f'<p class="result {look}">{escape(line)}</p>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Iterable[int] = (), markup: Iterable[int] = (), rest_in: str) -> str:
    """Cells are text and escaped, but for the columns ``markup``; ``rest_in`` names where the rows are that are not shown."""
    def cells(tag: str, values: Sequence[str], raw: Iterable[int]) -> str:
        return "".join(f'<{tag}{" class=n" if at in numbers else ""}>{value if at in raw else escape(value)}</{tag}>'
                       for at, value in enumerate(values))

    body = "".join(f"<tr>{cells('td', row, markup)}</tr>\n" for row in rows[:ROWS_SHOWN_MAX])
    more = f"<p>and {len(rows) - ROWS_SHOWN_MAX:,} more, all in {escape(rest_in)}</p>" if len(rows) > ROWS_SHOWN_MAX else ""
    return f'<div class="wide"><table><tr>{cells("th", head, ())}</tr>\n{body}</table></div>{more}'


def bar(value: int, most: int, width: int = _BAR) -> str:
    """A bar for a table's cell, as long as its value's share of the largest."""
    length = max(round(width * value / most), 1) if value else 0
    return f'<svg width="{width}" height="12" role="img" aria-label="{value:,}"><rect width="{length}" height="12" rx="2"/></svg>'


@dataclass(frozen=True, slots=True)
class Series:
    """A chart's values under one name, one for each of its columns."""

    name: str
    values: tuple[int, ...]


_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 960, 190, 76, 10, 24  # pixels of a chart, and what of it is left to the axes
_COLUMN_MAX = 40.0  # pixels
_LABEL = 140.0  # pixels that the text below a column takes


def columns(caption: str, labels: Sequence[str], series: Sequence[Series], shown: Callable[[int], str]) -> str:
    """A chart of columns, the series one on top of the other, at most COLOURS of them. A column says its values where the pointer rests on it."""
    assert len(series) <= COLOURS and all(len(one.values) == len(labels) for one in series), "a colour for each series, a value for each column"
    top = round_up(max((sum(values) for values in zip(*(one.values for one in series), strict=True)), default=0))
    step, height = min(_COLUMN_MAX, (_WIDTH - _LEFT) / max(1, len(labels))), _HEIGHT - _TOP - _BOTTOM
    parts = [_gridline(_TOP + height * (1 - tick / top), shown(tick)) for tick in sorted({0, top // 2, top})]
    for at, label in enumerate(labels):
        parts.append(_column(_LEFT + at * step, step, height / top, label, [(one, one.values[at]) for one in series], shown))
    every = math.ceil(_LABEL / step)
    parts += [f'<text x="{_LEFT + at * step + 1:.1f}" y="{_HEIGHT - 6}">{escape(labels[at])}</text>' for at in range(0, len(labels), every)]
    return (f'<figure><figcaption>{escape(caption)}</figcaption><svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
            f'aria-label="{escape(caption)}">' + "".join(parts) + "</svg></figure>")


def legend(series: Sequence[Series]) -> str:
    """Which colour is whose, for the charts of the same series."""
    return "<p>" + "".join(f'<span class="key"><svg width="12" height="12"><rect class="c{number}" width="12" height="12" rx="2"/></svg>'
                           f"{escape(one.name)}</span>" for number, one in enumerate(series)) + "</p>"


def round_up(value: int) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 10, 20, 30, …: where an axis ends."""
    power = 10 ** (len(str(max(1, value))) - 1)
    return next(power * digit for digit in (1, 2, 3, 4, 6, 8, 10) if power * digit >= value)


def _gridline(y: float, label: str) -> str:
    return (f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{escape(label)}</text>')


def _column(x: float, step: float, scale: float, label: str, values: Sequence[tuple[Series, int]], shown: Callable[[int], str]) -> str:
    y, boxes, told = float(_HEIGHT - _BOTTOM), [], []
    for number, (one, value) in enumerate(values):
        if value:
            y -= value * scale
            told.append(f"{one.name}: {shown(value)}")
            boxes.append(f'<rect class="c{number}" x="{x + step * 0.08:.1f}" y="{y:.1f}" width="{step * 0.84:.1f}" height="{value * scale:.1f}"/>')
    return f"<g><title>{escape(chr(10).join([label, *told]))}</title>{''.join(boxes)}</g>" if boxes else ""


def bytes_text(count: int) -> str:
    """A number of bytes for people, in powers of 1,000."""
    if count < 1000:
        return f"{count} B"
    size, unit = count / 1000, 0
    while size >= 999.95 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:,.1f} {_UNITS[unit]}"


_UNITS = ("kB", "MB", "GB", "TB", "PB")
