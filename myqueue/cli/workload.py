"""What the demo sends and what it must see again: pure functions over files' bytes and received messages.

A file is one producer. It is split at LF only; a message is the line without it, so a CR stays and an empty line is an
empty message. A line of six tab-separated columns whose last is ``T-<n>`` goes to that topic, any other to a topic
named after the file without its extension.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ..protocol.names import topic_name_from
from ..protocol.types import Message

SOURCE, LINE = "source", "line"  # headers that say where a message came from, so that exactly-once can be proved
_TOPIC_COLUMN = re.compile(rb"T-[0-9]+", re.ASCII)
_COLUMNS = 6


class Line(NamedTuple):
    """One line of a file and the topic it goes to. ``number`` counts the file's lines from 1."""

    topic: str
    number: int
    value: bytes


@dataclass(frozen=True)
class Source:
    """What one producer sends, in order. ``name`` is unique among the sources of a run."""

    name: str
    lines: tuple[Line, ...]

    def lines_of(self, topic: str) -> list[tuple[int, bytes]]:
        return [(line.number, line.value) for line in self.lines if line.topic == topic]


def split_lines(content: bytes) -> list[bytes]:
    """Split at LF only; a last line without LF counts, nothing behind the last LF does not."""
    lines = content.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return lines


def topic_of(line: bytes, default: str) -> str:
    columns = line.split(b"\t")
    if len(columns) == _COLUMNS and _TOPIC_COLUMN.fullmatch(columns[-1]):
        return columns[-1].decode()
    return default


def source_from(name: str, file_name: str, content: bytes) -> Source:
    default = topic_name_from(Path(file_name).stem)
    return Source(name, tuple(Line(topic_of(line, default), number, line) for number, line in enumerate(split_lines(content), 1)))


def read_sources(paths: Sequence[Path]) -> list[Source]:
    """One source per file, in the order given. Raises OSError where a file cannot be read."""
    return [source_from(f"{place}:{path.name}", path.name, path.read_bytes()) for place, path in enumerate(paths, 1)]


def counts(sources: Iterable[Source]) -> dict[str, int]:
    """Messages by topic, topics in the order of their names."""
    found: dict[str, int] = {}
    for source in sources:
        for line in source.lines:
            found[line.topic] = found.get(line.topic, 0) + 1
    return dict(sorted(found.items()))


def origin_of(message: Message) -> tuple[str, int]:
    """Which source and line a message says it is. Raises ValueError where it does not say."""
    headers = dict(message.headers)
    source, line = headers.get(SOURCE), headers.get(LINE)
    if source is None or line is None:
        raise ValueError(f"{message.topic}/{message.partition} offset {message.offset} has no origin")
    return source.decode(), int(line)


def check_received(topic: str, sources: Sequence[Source], received: Sequence[Message]) -> list[str]:
    """What is wrong with what one consumer of a topic got: each source's lines must be there, once, in order, byte for byte."""
    by_source: dict[str, list[tuple[int, bytes]]] = {source.name: [] for source in sources}
    faults = []
    for message in received:
        name, number = origin_of(message)
        if name not in by_source:
            faults.append(f"{topic}: offset {message.offset} comes from {name}, which is no source of this run")
        else:
            by_source[name].append((number, message.value))
    for source in sources:
        expected, got = source.lines_of(topic), by_source[source.name]
        if expected != got:
            faults.append(f"{topic}: {source.name} sent {len(expected)} lines, got {len(got)}; {_first_difference(expected, got)}")
    return faults


def _first_difference(expected: list[tuple[int, bytes]], got: list[tuple[int, bytes]]) -> str:
    for place, (sent, seen) in enumerate(zip(expected, got, strict=False)):
        if sent != seen:
            return f"at place {place} line {sent[0]} was due and line {seen[0]} came" + ("" if sent[0] != seen[0] else " with other bytes")
    return "the first ones agree"


@dataclass(frozen=True)
class TopicResult:
    """A row of the summary. ``consumed`` is the least that any consumer of the topic got; ``exported`` and ``audited`` count records."""

    topic: str
    expected: int
    produced: int
    consumed: int
    exported: int
    audited: int

    @property
    def agrees(self) -> bool:
        return self.expected == self.produced == self.consumed == self.exported == self.audited


def results(expected: Mapping[str, int], produced: Mapping[str, int], consumed: Mapping[str, Sequence[int]],
            exported: Mapping[str, int], audited: Mapping[str, int]) -> list[TopicResult]:
    """One row per topic that was expected or turned up anywhere."""
    topics = sorted(set(expected) | set(produced) | set(exported) | set(audited))
    return [TopicResult(topic, expected.get(topic, 0), produced.get(topic, 0), min(consumed.get(topic, [0]), default=0),
                        exported.get(topic, 0), audited.get(topic, 0)) for topic in topics]


def table(rows: Sequence[TopicResult]) -> str:
    """The rows and their total, aligned."""
    total = TopicResult("total", *(sum(getattr(row, name) for row in rows) for name in ("expected", "produced", "consumed", "exported", "audited")))
    head = ("topic", "lines", "produced", "consumed", "exported", "audited", "")
    body = [(row.topic, *(f"{number:,}" for number in (row.expected, row.produced, row.consumed, row.exported, row.audited)),
             "ok" if row.agrees else "DIFFERS") for row in (*rows, total)]
    widths = [max(len(line[column]) for line in (head, *body)) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) if column in (0, len(head) - 1) else cell.rjust(width)
                       for column, (cell, width) in enumerate(zip(line, widths, strict=True))).rstrip() for line in (head, *body)]
    lines.insert(len(lines) - 1, "-" * max(map(len, lines)))
    return "\n".join(lines)
