"""Tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns as wide as their widest cell, numbers to the right; the heads are the field names of the JSON form."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    is_number = [bool(cells) and all(_is_number(row[at]) for row in cells) for at in range(len(columns))]

    def line(values: Sequence[str]) -> str:
        parts = [value.rjust(width) if number else value.ljust(width) for value, width, number in zip(values, widths, is_number, strict=True)]
        return "  ".join(parts).rstrip() + "\n"

    return "".join(line(row) for row in [list(columns), *cells])


def show(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, as_json: bool, nothing: str) -> None:
    """Print rows as one JSON list or as a table; where there are none the table is a sentence."""
    if as_json:
        print(json.dumps(list(rows), indent=2))
    elif rows:
        sys.stdout.write(table(columns, [[row.get(column) for column in columns] for row in rows]))
    else:
        print(nothing)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value)) or "-"
    return str(value)


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(".", "", 1).lstrip("-").isdecimal()
