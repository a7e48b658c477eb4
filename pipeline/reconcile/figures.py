"""PURE: everything that a reconciliation says, as values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from myqueue.errors import BadRequestError
from myqueue.protocol.types import TopicPartition

from ..report.figures import NotAsked, Window
from ..source.cuts import Cut
from .coverage import Tally

EQUAL, DIFFERS, INCOMPLETE = 0, 1, 2  # exit codes
RESULTS = {EQUAL: "equal", DIFFERS: "differs", INCOMPLETE: "incomplete"}
STORED, ACKNOWLEDGED, CONSUMED, EXPORTED = "stored", "acknowledged", "consumed", "exported"  # the columns


class Kind(NamedTuple):
    """What a difference is: the column that it is in, and what it means to whoever reads it."""

    column: str
    meaning: str


KINDS: Mapping[str, Kind] = {
    "lost": Kind(ACKNOWLEDGED, "acknowledged and not stored: lost"),
    "missing": Kind(STORED, "missing in the log: run an audit"),
    "stored_twice": Kind(STORED, "in the log more than once: run an audit"),
    "acknowledged_twice": Kind(ACKNOWLEDGED, "acknowledged more than once: two receipts for one offset"),
    "unacknowledged": Kind(ACKNOWLEDGED, "stored without a receipt: another producer's, or the answer was lost"),
    "acknowledged_elsewhere": Kind(ACKNOWLEDGED, "acknowledged in a topic that is gone or was made anew since"),
    "not_consumed": Kind(CONSUMED, "not consumed yet"),
    "not_exported": Kind(EXPORTED, "not exported"),
    "exported_twice": Kind(EXPORTED, "exported more than once"),
    "exported_only": Kind(EXPORTED, "exported and not in the log: lost since, or an older log"),
    "exported_elsewhere": Kind(EXPORTED, "the data set is of a topic that was made anew since"),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What is compared with what is stored: files of receipts, groups, the folder of an export; and which append times.

    Raises:
        BadRequestError: nothing is compared.
    """

    receipts: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    export: str | None = None
    window: Window = field(default_factory=Window)

    def __post_init__(self) -> None:
        if not (self.receipts or self.groups or self.export):
            raise BadRequestError("nothing to compare with what is stored: give --receipts, --group or --export")


@dataclass(frozen=True, slots=True)
class Difference:
    """Offsets of a partition that two columns do not agree on. ``period_us`` is the beginning of their ten minutes, in microseconds since 1970.

    Of another topic than the cluster's, only the number of messages is known: ``partition`` and what follows it are None then, as is ``period_us`` of
    what is missing where nothing around it tells the time.
    """

    kind: str
    topic: str
    messages: int
    partition: int | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    period_us: int | None = None
    group: str | None = None  # who has not consumed
    times: int | None = None  # how often it is there, where that is more than once
    topic_id: int | None = None  # the other topic's

    @property
    def column(self) -> str:
        return KINDS[self.kind].column


@dataclass(frozen=True, slots=True)
class Row:
    """A partition's ten minutes. What was not asked for is None; so are the offsets where nothing is stored."""

    name: TopicPartition
    period_us: int
    stored: Tally
    first_offset: int | None
    last_offset: int | None
    acknowledged: Tally | None
    consumed: Mapping[str, int]  # by the groups that read the topic
    exported: Tally | None


@dataclass(frozen=True, slots=True)
class Line:
    """A topic's ten minutes (None: all of them), its partitions together; ``unequal`` names what differs from stored: columns, and groups by name."""

    topic: str
    period_us: int | None
    stored: int
    acknowledged: int | None = None
    consumed: Mapping[str, int] = field(default_factory=dict)
    exported: int | None = None
    unequal: frozenset[str] = frozenset()

    def is_equal(self, column: str, group: str | None = None) -> bool:
        return mark_of(column, group) not in self.unequal


def mark_of(column: str, group: str | None) -> str:
    """A column as ``unequal`` has it: each group's is one of its own."""
    return column if group is None else f"{column} {group}"


@dataclass(frozen=True, slots=True)
class Judged:
    """What comparing gave. ``not_judged`` is what cannot be told either way."""

    rows: tuple[Row, ...] = ()
    differences: tuple[Difference, ...] = ()
    not_judged: tuple[NotAsked, ...] = ()


@dataclass(frozen=True, slots=True)
class ReceiptsRead:
    """How many receipts were read, within the window."""

    files: tuple[str, ...]
    batches: int
    messages: int
    torn: int


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Everything that one reconciliation says. ``part`` is what of the cut lies in the window."""

    at: str  # ISO 8601, UTC
    seconds: float
    asked: Asked
    cut: Cut
    part: Cut
    judged: Judged
    receipts: ReceiptsRead | None = None

    @property
    def exit_code(self) -> int:
        """What differs weighs more than what cannot be judged: both are shown."""
        return DIFFERS if self.judged.differences else INCOMPLETE if self.judged.not_judged else EQUAL

    @property
    def result(self) -> str:
        return RESULTS[self.exit_code]

    def by_kind(self) -> dict[str, tuple[int, int]]:
        """How many differences there are of each kind, and of how many messages."""
        counts, messages = Counter[str](), Counter[str]()
        for one in self.judged.differences:
            counts[one.kind] += 1
            messages[one.kind] += one.messages
        return {kind: (counts[kind], messages[kind]) for kind in KINDS if counts[kind]}

    def lines(self) -> list[Line]:
        """By topic and ten minutes, of those in which something is stored or differs."""
        return _lines(self.judged, whole=False)

    def topic_lines(self) -> list[Line]:
        """By topic: every one of the cut, and those that only receipts or an export name."""
        made = {line.topic: line for line in _lines(self.judged, whole=True)}
        empty = {name.topic: Line(name.topic, None, 0) for name in self.part.partitions}
        return [line for _, line in sorted({**empty, **made}.items())]


def _lines(judged: Judged, *, whole: bool) -> list[Line]:
    """The rows of each topic and period together, or of each topic."""
    lines: dict[tuple[str, int | None], Line] = {}
    for row in judged.rows:
        key = (row.name.topic, None if whole else row.period_us)
        lines[key] = _with_row(lines.get(key, Line(*key, 0)), row)
    for one in judged.differences:
        key = (one.topic, None if whole else one.period_us)
        line = lines.get(key, Line(*key, 0))
        lines[key] = replace(line, unequal=line.unequal | {mark_of(one.column, one.group)})
    return [line for _, line in sorted(lines.items(), key=lambda item: (item[0][0], item[0][1] is not None, item[0][1] or 0))]


def _with_row(line: Line, row: Row) -> Line:
    consumed = {group: line.consumed.get(group, 0) + messages for group, messages in row.consumed.items()}
    acknowledged, exported = (None if of_row is None else (of_line or 0) + of_row.messages
                              for of_line, of_row in ((line.acknowledged, row.acknowledged), (line.exported, row.exported)))
    return replace(line, stored=line.stored + row.stored.messages, acknowledged=acknowledged, consumed=consumed, exported=exported)
