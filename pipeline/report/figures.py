"""PURE: everything that a report says, as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from myqueue.errors import BadRequestError

from ..pages import COLOURS
from ..source.cuts import Cut

COMPLETE, DIFFERS, INCOMPLETE = 0, 1, 2  # exit codes
RESULTS = {COMPLETE: "complete", DIFFERS: "differs", INCOMPLETE: "incomplete"}
PERIODS_MAX = 96  # columns of a chart
PERIOD_HOURS = (1, 2, 3, 6, 12, 24, 48)


@dataclass(frozen=True, slots=True)
class Window:
    """The append times that are reported: from one (included) to another (excluded), in microseconds since 1970; None has no end."""

    since_us: int | None = None
    until_us: int | None = None

    def __post_init__(self) -> None:
        if self.since_us is not None and self.until_us is not None and self.since_us > self.until_us:
            raise BadRequestError("--since lies after --until")


@dataclass(frozen=True, slots=True)
class TopicTraffic:
    """What went through a topic. Times are append times in microseconds since 1970, None where there was nothing."""

    topic: str
    partitions: int
    messages: int = 0
    without_key: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    largest_bytes: int = 0
    first_us: int | None = None
    last_us: int | None = None

    @property
    def bytes(self) -> int:
        return self.key_bytes + self.value_bytes


@dataclass(frozen=True, slots=True)
class Period:
    """Messages and bytes of a topic (None: of the topics that have no colour of their own) in period number ``number`` since 1970."""

    number: int
    topic: str | None
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class KeyCount:
    """A key of a topic: the beginning of its bytes, how long it is, and what was sent with it."""

    topic: str
    beginning: bytes
    length: int
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a reader stands in a partition: ``offset`` is None where it has committed nothing, and so begins at the start. Its lag is to the cut."""

    kind: str  # group or consumer
    name: str
    topic: str
    partition: int
    offset: int | None
    end_offset: int
    lag: int


@dataclass(frozen=True, slots=True)
class ReaderLag:
    """How far a reader is in a topic. ``farthest`` is the partition of which it has most to read."""

    kind: str
    name: str
    topic: str
    partitions: int
    lag: int
    farthest: int


@dataclass(frozen=True, slots=True, order=True)
class NotAsked:
    """What could not be asked, and why. A report with one of these is not complete."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Readers:
    """Who reads, and how far. Of the consumers only those heard of last are asked, the others are counted in ``left_out``."""

    standings: tuple[Standing, ...] = ()
    not_asked: tuple[NotAsked, ...] = ()
    left_out: int = 0

    def by_topic(self) -> list[ReaderLag]:
        """A line for each reader and topic, groups first."""
        found: dict[tuple[str, str, str], list[Standing]] = {}
        for one in self.standings:
            found.setdefault((one.kind, one.name, one.topic), []).append(one)
        lines = [ReaderLag(*reader, len(all_), sum(one.lag for one in all_), max(all_, key=lambda one: one.lag).partition)
                 for reader, all_ in found.items()]
        return sorted(lines, key=lambda line: (line.kind != "group", len(line.name) if line.kind == "consumer" else 0, line.name, line.topic))


@dataclass(frozen=True, slots=True)
class Traffic:
    """What was counted. Every topic of the cut is in ``topics``; ``periods`` are ``period_hours`` long."""

    topics: tuple[TopicTraffic, ...] = ()
    period_hours: int = 1
    periods: tuple[Period, ...] = ()
    keys: tuple[KeyCount, ...] = ()
    differences: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that one report says. ``part`` is what of the cut lies in the window."""

    at: str  # ISO 8601, UTC
    seconds: float
    window: Window
    cut: Cut
    part: Cut
    traffic: Traffic
    readers: Readers

    @property
    def exit_code(self) -> int:
        """Counts that differ weigh more than what could not be asked: both are shown."""
        return DIFFERS if self.traffic.differences else INCOMPLETE if self.readers.not_asked else COMPLETE

    @property
    def result(self) -> str:
        return RESULTS[self.exit_code]

    @property
    def messages(self) -> int:
        return sum(topic.messages for topic in self.traffic.topics)

    @property
    def bytes(self) -> int:
        return sum(topic.bytes for topic in self.traffic.topics)


def period_hours_for(hours: int) -> int:
    """How long periods must be, in hours, so that at most PERIODS_MAX of them cover so many hours, wherever these begin."""
    fitting = (length for length in PERIOD_HOURS if hours <= length * (PERIODS_MAX - 1))
    weeks = -(-hours // (168 * (PERIODS_MAX - 1)))
    return next(fitting, 168 * weeks)


def topics_of(cut: Cut, counted: dict[str, TopicTraffic]) -> tuple[TopicTraffic, ...]:
    """A line for each topic of the cut, also of the empty ones, in the order of their names."""
    partitions: dict[str, int] = {}
    for name in cut.partitions:
        partitions[name.topic] = partitions.get(name.topic, 0) + 1
    return tuple(replace(counted.get(topic, TopicTraffic(topic, 0)), partitions=count) for topic, count in sorted(partitions.items()))


def coloured(topics: Sequence[TopicTraffic]) -> list[str]:
    """The topics that have a colour of their own in the charts: all, or the largest where there are too many, and the others share the last."""
    busy = sorted((topic for topic in topics if topic.messages), key=lambda topic: (-topic.messages, topic.topic))
    return [topic.topic for topic in (busy if len(busy) <= COLOURS else busy[:COLOURS - 1])]
