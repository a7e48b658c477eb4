"""PURE: which stretches of the logs the audit's tasks check, bounded by bytes, spread over the brokers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from ..cluster import DatabaseAddress
from ..source.positions import Position


@dataclass(frozen=True, slots=True)
class Stretch:
    """Entries ``from_lsn`` (included) to ``to_lsn`` (excluded) of one partition in one segment, and what must be known to judge them."""

    broker_id: int
    database: DatabaseAddress
    topic: str
    topic_id: int
    partition: int
    segment_id: int
    from_lsn: int
    to_lsn: int
    start_lsn: int
    start_offset: int
    start_epoch: int
    start_chain: str  # hexadecimal
    end_offset: int
    commit_lsn: int


def plan_stretches(broker_id: int, database: DatabaseAddress, topic: str, position: Position, range_bytes: int) -> list[Stretch]:
    """All of a partition's log as it stood at the survey, the uncommitted tail included: what is stored must be whole."""
    borders = []
    first_of_all = position.start_lsn
    for segment in position.segments:
        width = max(1, int(range_bytes / max(1.0, segment.bytes_per_entry)))
        first, end = max(first_of_all, segment.first_lsn), segment.end_lsn
        borders += [(segment.segment_id, at, min(at + width, end)) for at in range(first, end, width)]
    return [Stretch(broker_id, database, topic, position.id.topic_id, position.id.partition, segment_id, first, end, position.start_lsn,
                    position.start_offset, position.start_epoch, position.start_chain.hex(), position.end_offset, position.commit_lsn or 0)
            for segment_id, first, end in borders]


def spread(stretches: Iterable[Stretch], tasks_per_broker: int) -> list[list[Stretch]]:
    """At most ``tasks_per_broker`` tasks for each broker, the brokers taking turns: so many statements run in one database at a time."""
    tasks: dict[tuple[int, int], list[Stretch]] = {}
    counts: dict[int, int] = {}
    for stretch in stretches:
        count = counts.get(stretch.broker_id, 0)
        counts[stretch.broker_id] = count + 1
        tasks.setdefault((count % tasks_per_broker, stretch.broker_id), []).append(stretch)
    return [tasks[key] for key in sorted(tasks)]


def tasks_to_json(tasks: Sequence[Sequence[Stretch]]) -> str:
    """The plan as text: Spark hands options to its tasks as strings."""
    return json.dumps([[asdict(stretch) for stretch in task] for task in tasks])


def tasks_from_json(text: str) -> list[list[Stretch]]:
    return [[Stretch(**{**fields, "database": DatabaseAddress(**fields["database"])}) for fields in task] for task in json.loads(text)]
