"""PURE: small SVG charts. Each is a card with a ground of its own, so that it can be read on a light and on a dark page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape

from .figures import Row
from .plan import OURS

WIDTH, MARGIN, LABEL_WIDTH, NUMBER_WIDTH = 800, 20, 280, 150
BAR_HEIGHT, BAR_STEP, TITLE_HEIGHT, LINES_HEIGHT = 18, 28, 46, 220
HUES = (("#0969da", "#58a6ff"), ("#bc4c00", "#f0883e"), ("#1a7f37", "#3fb950"), ("#8250df", "#bc8cff"))  # of lines: (light, dark)
STYLE = """text{font:13px -apple-system,Segoe UI,Helvetica,Arial,sans-serif;fill:#1f2328}.t{font-size:15px;font-weight:600}.s{fill:#59636e}
.g{fill:#fff;stroke:#d1d9e0}.o{fill:#0969da}.p{fill:#afb8c1}.a{stroke:#d1d9e0}polyline{fill:none;stroke-width:2}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.s{fill:#9198a1}.g{fill:#0d1117;stroke:#3d444d}.o{fill:#58a6ff}.p{fill:#656c76}.a{stroke:#3d444d}}"""


def charts(rows: Sequence[Row]) -> dict[str, str]:
    """File names and SVG texts: a chart for each case in which more than one contender was measured, of its rates."""
    cases: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        cases.setdefault((row.workload, row.case), []).append(row)
    return {f"{_file_name(f'{workload}-{case}')}.svg": bars(f"{workload}: {case}", "a second", [(row.who, row.per_second) for row in of_case])
            for (workload, case), of_case in cases.items() if len(of_case) > 1}


def bars(title: str, unit: str, values: Sequence[tuple[str, float]]) -> str:
    """Horizontal bars, one a value, ours in a colour of its own. All values are 0 or more."""
    most = max((value for _, value in values), default=0.0) or 1.0
    room = WIDTH - 2 * MARGIN - LABEL_WIDTH - NUMBER_WIDTH
    parts = []
    for at, (label, value) in enumerate(values):
        top, length = TITLE_HEIGHT + at * BAR_STEP, max(1.0, value / most * room)
        x, base = MARGIN + LABEL_WIDTH, top + BAR_HEIGHT - 4
        parts.append(f'<text x="{x - 8}" y="{base}" text-anchor="end">{escape(label)}</text>'
                     f'<rect class="{"o" if label.startswith(OURS) else "p"}" x="{x}" y="{top}" width="{length:.1f}" height="{BAR_HEIGHT}" rx="2"/>'
                     f'<text class="s" x="{x + length + 8:.1f}" y="{base}">{value:,.0f} {escape(unit)}</text>')
    return _card(title, TITLE_HEIGHT + len(values) * BAR_STEP + MARGIN // 2, parts)


def lines(title: str, unit: str, series: Mapping[str, Sequence[float]]) -> str:
    """One polyline a series over the same evenly spaced moments, from 0 at the bottom to the largest value. At most four series."""
    assert len(series) <= len(HUES), "there are as many hues as series"
    most = max((value for values in series.values() for value in values), default=0.0) or 1.0
    bottom, left, right = TITLE_HEIGHT + LINES_HEIGHT, MARGIN + 60, WIDTH - MARGIN
    parts = [f'<line class="a" x1="{left}" y1="{y}" x2="{right}" y2="{y}"/><text class="s" x="{left - 8}" y="{y + 4}" text-anchor="end">{told}</text>'
             for y, told in ((TITLE_HEIGHT, f"{most:,.4g}"), (bottom, "0"))]
    for at, (name, values) in enumerate(series.items()):
        step = (right - left) / max(1, len(values) - 1)
        points = " ".join(f"{left + step * place:.1f},{bottom - value / most * LINES_HEIGHT:.1f}" for place, value in enumerate(values))
        parts.append(f'<polyline class="l{at}" points="{points}"/>'
                     f'<text class="k{at}" x="{left + at * 170}" y="{bottom + 24}">{escape(name)}</text>')
    return _card(f"{title} ({unit})", bottom + 40, parts)


def _card(title: str, height: int, parts: Sequence[str]) -> str:
    hues = "".join(f".l{at}{{stroke:{light}}}.k{at}{{fill:{light}}}" for at, (light, _) in enumerate(HUES))
    dark = "".join(f".l{at}{{stroke:{shade}}}.k{at}{{fill:{shade}}}" for at, (_, shade) in enumerate(HUES))
    style = f"{STYLE}\n{hues}@media(prefers-color-scheme:dark){{{dark}}}"
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img">\n'
            f"<title>{escape(title)}</title><style>{style}</style>\n"
            f'<rect class="g" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>\n'
            f'<text class="t" x="{MARGIN}" y="28">{escape(title)}</text>\n' + "\n".join(parts) + "\n</svg>\n")


def _file_name(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
