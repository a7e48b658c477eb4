"""PURE: rows as text for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .figures import CALLER, CLIENT, Row
from .plan import OURS, POSTGRES, SKETCH, THOUSANDS

NOTHING = "-"
SERVER_KINDS = ("server", "postgres", "other")
SPREAD_MAX = 0.2


def headline(rows: Sequence[Row]) -> str | None:
    """The one figure that says whether the hot path is near what the disk and PostgreSQL allow; None where it was not measured."""
    for row in rows:
        if (row.workload, row.case, row.who) == ("produce", THOUSANDS, OURS) and POSTGRES in row.ratios:
            return f"ratio to {POSTGRES}: {row.ratios[POSTGRES]:.2f}"
    return None


def table(rows: Sequence[Row]) -> str:
    """One table of all rows: ratios to what they are compared with, what they cost, and what an acknowledgement means."""
    bases = list(dict.fromkeys(_column(base) for row in rows for base in row.ratios))
    compared = [{_column(base): ratio for base, ratio in row.ratios.items()} for row in rows]
    kinds = [kind for kind in (CLIENT, CALLER, *SERVER_KINDS) if any(row.cpu_us.get(kind) for row in rows)]
    heads = ["workload", "case", "who", "a second", *(f"/ {base}" for base in bases), "p50 ms", "p99 ms", *(f"{kind} µs" for kind in kinds),
             "cores: client", "servers", "else", "acknowledged means"]
    cells = [[row.workload, row.case, row.who, f"{row.per_second:,.0f}{'~' if row.spread > SPREAD_MAX else ''}",
              *(_number(ratios.get(base), 2) for base in bases), _number(row.p50_ms, 2), _number(row.p99_ms, 2),
              *(_number(row.cpu_us.get(kind), 2) for kind in kinds), *(_number(used, 2) for used in row.cores.values()), row.acknowledged]
             for row, ratios in zip(rows, compared, strict=True)]
    return _aligned(heads, cells, left={0, 1, 2, len(heads) - 1})


def remarks(rows: Sequence[Row]) -> list[str]:
    """What does not fit into a column, a line each."""
    lines = [f"{row.workload}, {row.case}, {row.who}: " + ", ".join(f"{_words(name)} {value:,.1f} {name.rpartition('_')[2]}"
                                                                   for name, value in row.extra.items()) for row in rows if row.extra]
    if any(row.spread > SPREAD_MAX for row in rows):
        lines.append(f"~ the rounds lie further apart than {SPREAD_MAX:.0%} of their median")
    return lines


def flushes_told(flushes: Mapping[str, Mapping[str, float]]) -> list[str]:
    """That every acknowledgement waited for the disk, in PostgreSQL's own count."""
    return [f"fsync: {who}: {counted['groups']:.0f} groups acknowledged one after the other, {counted['fsyncs']:.0f} syncs of the write-ahead log by "
            f"the backends that commit: {counted['fsyncs'] / counted['groups']:.2f} a group" for who, counted in flushes.items()]


def _column(base: str) -> str:
    """The two baselines have columns of their own; whatever else is compared with is the first of its case."""
    return base if base in (POSTGRES, SKETCH) else "the first"


def _words(name: str) -> str:
    return name.rpartition("_")[0].replace("_", " ")


def _number(value: float | None, digits: int) -> str:
    return NOTHING if value is None else f"{value:,.{digits}f}"


def _aligned(heads: Sequence[str], cells: Sequence[Sequence[str]], *, left: set[int]) -> str:
    lines = [list(heads), *map(list, cells)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "".join("  ".join(cell.ljust(width) if at in left else cell.rjust(width)
                             for at, (cell, width) in enumerate(zip(line, widths, strict=True))).rstrip() + "\n" for line in lines)
