"""Files of lines, text or NDJSON: a split has the lines that begin in its bytes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from myqueue.errors import ConflictError, TooLargeError
from myqueue.protocol.batch import RECORD_BYTES_MAX
from myqueue.protocol.types import Record

from .fields import Fields, ndjson_record
from .splits import Reading, Row, Split


def read_lines(split: Split, fields: Fields) -> Reading[bytes]:
    """The lines and what makes a message of one; they are only looked into where a field is wanted."""
    return lines_of(split), partial(_object_row, fields=fields) if fields.named else _line_row


def _line_row(line: bytes) -> Row:
    return Record(line), None


def _object_row(line: bytes, fields: Fields) -> Row:
    return ndjson_record(line, fields), None


def lines_of(split: Split) -> Iterator[tuple[int, bytes]]:
    """The split's lines without their line feeds, each with the byte at which it begins.

    Raises:
        TooLargeError: a line that no record can hold.
        ConflictError: the file is shorter than when the load was planned.
    """
    with open(split.path, "rb") as file:
        at = split.start
        if at:  # the line that begins before the split belongs to the split before
            file.seek(at - 1)
            at += len(_line(file.readline(RECORD_BYTES_MAX + 2), split, at)) - 1
        while at < split.end:
            line = _line(file.readline(RECORD_BYTES_MAX + 2), split, at)
            if not line:
                raise ConflictError(f"{split.path} became shorter while it was loaded: it ends at byte {at}, not {split.end}")
            yield at, line.removesuffix(b"\n")
            at += len(line)


def _line(line: bytes, split: Split, at: int) -> bytes:
    if len(line) > RECORD_BYTES_MAX + 1:
        raise TooLargeError(f"{split.place(at)} has more than {RECORD_BYTES_MAX} bytes", maximum=RECORD_BYTES_MAX)
    return line
