"""Files of CSV with a header. A line break may lie inside quotation marks, so where a row begins only the rows before it say: a file is one split."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import partial
from typing import BinaryIO

from myqueue.errors import BadRequestError, ConflictError, MyQueueError, TooLargeError
from myqueue.protocol.batch import RECORD_BYTES_MAX
from myqueue.protocol.types import Record

from .fields import Fields, record_of
from .splits import Reading, Row, Split

ROW_BYTES_MAX = 16 << 20


def read_csv(split: Split, fields: Fields) -> Reading[dict[str, str]]:
    """The rows by column name, all of them text, and what makes a message of one."""
    return csv_rows(split, fields), partial(_row, fields=fields)


def _row(row: dict[str, str], fields: Fields) -> Row:
    record = record_of(row, fields)
    return Record(record.value, record.key or None), None  # CSV cannot tell an empty text from none


def csv_rows(split: Split, fields: Fields) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows behind the header, counted from 1. A line without anything is none.

    Raises:
        BadRequestError: the file is not CSV in UTF-8, a row has not as many fields as the header, or a column that is wanted is not there.
        TooLargeError: a row has more than ROW_BYTES_MAX.
        ConflictError: the file is shorter than when the load was planned.
    """
    csv.field_size_limit(RECORD_BYTES_MAX)
    number = 0  # of the row that is read; the header is 0
    with open(split.path, "rb") as file:
        lines = _Lines(file)
        reader = csv.reader(lines, strict=True)
        try:
            names = _header(next(reader, []), fields)
            number, lines.row_bytes = 1, 0
            for values in reader:
                if values:
                    yield number, _by_name(names, values)
                    number += 1
                lines.row_bytes = 0
        except MyQueueError as error:
            raise type(error)(f"{split.place(number)} (line {reader.line_num}): {error.message}") from None
        except (csv.Error, UnicodeDecodeError) as error:
            raise BadRequestError(f"{split.place(number)} (line {reader.line_num}): {error}") from None
        if file.tell() < split.end:
            raise ConflictError(f"{split.path} became shorter while it was loaded: it ends at byte {file.tell()}, not {split.end}")


def _header(names: list[str], fields: Fields) -> list[str]:
    twice = sorted({name for name in names if names.count(name) > 1})
    missing = [name for name in fields.named if name not in names]
    if twice:
        raise BadRequestError(f"the header has more than one column {', '.join(twice)}")
    if missing:
        raise BadRequestError(f"there is no column {', '.join(missing)}; there are {', '.join(names)}")
    return names


def _by_name(names: list[str], values: list[str]) -> dict[str, str]:
    if len(values) != len(names):
        raise BadRequestError(f"{len(values)} fields, the header has {len(names)}")
    return dict(zip(names, values, strict=True))


class _Lines:
    """A file's lines as text, with their ends. ``row_bytes`` bounds what a row without an end may take; who reads sets it back."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._encoding, self.row_bytes = file, "utf-8-sig", 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._file.readline(ROW_BYTES_MAX + 1)
        if not line:
            raise StopIteration
        self.row_bytes += len(line)
        if self.row_bytes > ROW_BYTES_MAX:
            raise TooLargeError(f"the row has more than {ROW_BYTES_MAX} bytes", maximum=ROW_BYTES_MAX)
        text, self._encoding = line.decode(self._encoding), "utf-8"
        return text
