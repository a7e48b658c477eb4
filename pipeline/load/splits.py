"""Files of lines → splits that are loaded each by itself, and a split → its lines. A split is the same in every run: it has a number and a writer."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from myqueue.errors import BadRequestError, ConflictError, TooLargeError
from myqueue.protocol.batch import RECORD_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Split:
    """The lines of a file that begin at ``start`` (included) to ``end`` (excluded)."""

    number: int
    path: str
    start: int
    end: int


def plan_splits(paths: Sequence[str], split_bytes: int) -> list[Split]:
    """The splits of these files, in order. Raises BadRequestError where one is not a file that can be read."""
    borders = []
    for path in paths:
        if not os.path.isfile(path) or not os.access(path, os.R_OK):
            raise BadRequestError(f"{path} is not a file that can be read")
        size = os.path.getsize(path)
        borders += [(os.path.abspath(path), start, min(start + split_bytes, size)) for start in range(0, size, split_bytes)]
    return [Split(number, *border) for number, border in enumerate(borders)]


def load_id(cluster_id: str, topic_id: int, splits: Sequence[Split], key_field: str | None) -> str:
    """Names a load: the same for the same files, as they are now, into the same topic. A file that changed, or a topic made anew, is another load."""
    stats = {path: os.stat(path) for path in {split.path for split in splits}}
    as_they_are = [(split.path, split.start, split.end, stats[split.path].st_size, stats[split.path].st_mtime_ns) for split in splits]
    what = [cluster_id, topic_id, key_field, as_they_are]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:32]


def lines_of(split: Split) -> Iterator[bytes]:
    """The split's lines without their line feeds.

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
            at += len(line)
            yield line.removesuffix(b"\n")


def _line(line: bytes, split: Split, at: int) -> bytes:
    if len(line) > RECORD_BYTES_MAX + 1:
        raise TooLargeError(f"{split.path}: the line at byte {at} has more than {RECORD_BYTES_MAX} bytes", maximum=RECORD_BYTES_MAX)
    return line


def key_of(line: bytes, field: str) -> bytes | None:
    """The key of a line of NDJSON: the field's text, or its JSON where it is none; None where it is missing or null. Raises BadRequestError."""
    try:
        value = json.loads(line)[field]
    except KeyError:
        return None
    except (TypeError, ValueError):
        raise BadRequestError(f"not a JSON object: {line[:80]!r}") from None
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
