"""What happened, as the clients, the nemesis and the last look at the disks saw it. Values only; times are seconds since the start.

An operation is ``ok`` (acknowledged), ``failed`` (surely not done) or ``unknown`` (may be done, now or later).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

OK, FAILED, UNKNOWN = "ok", "failed", "unknown"


class Sent(NamedTuple):
    """A message given to a producer. Values are unique: ``worker:number``, numbers rising in the order of sending."""

    worker: str
    number: int
    topic: str
    partition: int | None
    offset: int | None
    outcome: str
    began: float
    ended: float

    @property
    def value(self) -> str:
        return f"{self.worker}:{self.number}"


class Read(NamedTuple):
    """A message that a reader got. ``session`` rises when a reader starts anew from what it committed."""

    reader: str
    session: int
    topic: str
    partition: int
    offset: int
    value: str
    at: float


class Shared(NamedTuple):
    """A message that a member of a consumer group was handed out."""

    group: str
    member: str
    topic: str
    partition: int
    offset: int
    value: str
    at: float


class Missed(NamedTuple):
    """A dequeue whose answer was lost: it may have taken one message away."""

    reader: str
    topic: str
    began: float


class Committed(NamedTuple):
    """The offset of a consumer, or of a group, was acknowledged: everything below it is done."""

    reader: str
    topic: str
    partition: int
    offset: int
    ended: float


class Resumed(NamedTuple):
    """Where a consumer stood when it asked for its committed offset, as the session began."""

    reader: str
    session: int
    topic: str
    partition: int
    offset: int
    began: float


class Trimmed(NamedTuple):
    """A partition was told to serve nothing below an offset any more."""

    topic: str
    partition: int
    before: int
    outcome: str
    began: float
    ended: float


class Command(NamedTuple):
    """One operation on the metadata: ``create`` of a name, ``exists`` (a fresh read), ``register`` (which gives an id)."""

    client: str
    kind: str
    key: str
    outcome: str
    result: Any
    began: float
    ended: float


class Led(NamedTuple):
    """A node said that it leads a group (the managers, or a partition) in a term."""

    group: str
    term: int
    node: str
    at: float


class Struck(NamedTuple):
    """A fault as it was carried out; ``remark`` says what went otherwise than planned."""

    kind: str
    victims: str
    began: float
    ended: float
    remark: str = ""


class Refused(NamedTuple):
    """A call of a client that was not answered well, as faults excuse it: its status (0: no answer) and what the server said."""

    who: str
    call: str
    status: int
    said: str
    at: float


class Oddity(NamedTuple):
    """An answer that no fault excuses: another status than the contract allows, an error of a client that should wait and go on."""

    who: str
    what: str
    at: float


class Entry(NamedTuple):
    """An entry of a log on a disk: two replicas that hold the same position must hold the same digest."""

    position: int
    term: int
    digest: str


class Stored(NamedTuple):
    """A message in a replica's log, by its view of messages."""

    offset: int
    value: str


@dataclass
class History:
    """Everything one campaign saw. Lists are appended to by many threads and read when those have ended."""

    sent: list[Sent] = field(default_factory=list)
    read: list[Read] = field(default_factory=list)
    shared: list[Shared] = field(default_factory=list)
    missed: list[Missed] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    resumed: list[Resumed] = field(default_factory=list)
    trimmed: list[Trimmed] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    led: list[Led] = field(default_factory=list)
    struck: list[Struck] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    oddities: list[Oddity] = field(default_factory=list)
    healed_at: float | None = None
    ended_at: float | None = None
    readers: set[str] = field(default_factory=set)  # those that were to read to the end
    finished: dict[str, float] = field(default_factory=dict)  # reader → when it had read all that was there after healing
    stored: dict[str, dict[str, list[Stored]]] = field(default_factory=dict)  # "topic/partition" → replica → its committed messages
    entries: dict[str, dict[str, list[Entry]]] = field(default_factory=dict)  # "topic/partition" or "managers" → replica → its committed entries
    topics: set[str] | None = None  # which there are at the end

    def to_lines(self) -> Iterable[str]:
        """JSON lines, for a look afterwards."""
        for each in fields(self):
            held = getattr(self, each.name)
            for item in held if isinstance(held, list) else [sorted(held) if isinstance(held, set) else held]:
                yield json.dumps({each.name: item})

    def places(self) -> set[str]:
        """Every partition that holds messages, or held some until they were trimmed."""
        return {*self.stored, *(place(trim.topic, trim.partition) for trim in self.trimmed)}

    def log(self, where: str) -> dict[int, str]:
        """The messages of a partition at the end, offset → value: from the replica that goes furthest. What was trimmed is as readers saw it."""
        replicas = self.stored.get(where, {})
        kept = {message.offset: message.value for message in max(replicas.values(), key=lambda log: log[-1].offset, default=[])}
        limit = self.trimmed_before(where, OK, UNKNOWN)
        seen = {read.offset: read.value for read in self.read if read.offset < limit and place(read.topic, read.partition) == where} if limit else {}
        return {**seen, **kept}

    def trimmed_before(self, where: str, *outcomes: str) -> int:
        """The offset up to which trims with one of these outcomes were to go; 0 where there was none."""
        return max((trim.before for trim in self.trimmed if trim.outcome in outcomes and place(trim.topic, trim.partition) == where), default=0)


def place(topic: str, partition: int) -> str:
    return f"{topic}/{partition}"
