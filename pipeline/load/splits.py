"""A split: the part of a file that one writer loads by itself. It is the same in every run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from myqueue.protocol.types import Record

LINES, NDJSON, CSV, PARQUET = "lines", "ndjson", "csv", "parquet"
FORMATS = (LINES, NDJSON, CSV, PARQUET)
T = TypeVar("T")
Row = tuple[Record, int | None]  # a message and, where the file says so, its partition
Reading = tuple[Iterator[tuple[int, T]], Callable[[T], Row]]  # what a split holds, each with its place, and what makes a message of it


@dataclass(frozen=True, slots=True)
class Split:
    """From ``start`` (included) to ``end`` (excluded): bytes in which lines begin, all bytes of a file of CSV, or row groups of Parquet."""

    number: int
    path: str
    start: int
    end: int
    format: str = LINES

    def place(self, at: int) -> str:
        """Where something is, for people: a line by its first byte, a row by its number in the file, from 1; 0 is the header."""
        if self.format in (LINES, NDJSON):
            return f"{self.path}: the line at byte {at}"
        return f"{self.path}: row {at}" if at else f"{self.path}: the header"
