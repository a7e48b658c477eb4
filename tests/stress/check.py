"""PURE. What was acknowledged and what was read, compared: counts, places and order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Place(NamedTuple):
    """A message at its place."""

    partition: int
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class Sent:
    """A message as its producer knows it: who sent it, the how-manieth of that thread it is, and where it was said to be."""

    thread: int
    number: int
    place: Place


def text_of(thread: int, number: int) -> str:
    """A message that tells who sent it; with more than ASCII, for what is told byte for byte."""
    return f"{thread}-{number}-é漢"


def stored(sent: Iterable[Sent], *, expected: int) -> list[str]:
    """What is wrong with the acknowledgements: as many as were sent, offsets without gap or double, each thread's in its order."""
    sent = list(sent)
    found = [] if len(sent) == expected else [f"{len(sent)} messages were acknowledged, not {expected}"]
    offsets: dict[int, list[int]] = defaultdict(list)
    last: dict[tuple[int, int], int] = {}
    for one in sorted(sent, key=lambda one: (one.thread, one.number)):
        offsets[one.place.partition].append(one.place.offset)
        key = (one.thread, one.place.partition)
        if one.place.offset <= last.get(key, -1):
            found.append(f"thread {one.thread}: message {one.number} stands at {one.place}, not behind the one before")
        last[key] = one.place.offset
    for partition, listed in sorted(offsets.items()):
        if sorted(listed) != list(range(len(listed))):
            found.append(f"partition {partition}: {len(listed)} messages do not stand at 0 to {len(listed) - 1}")
    return found


def read_once(sent: Iterable[Sent], read: Iterable[Place], *, may_come_again: Collection[Place] = ()) -> list[str]:
    """What is wrong with what was read: every message that was acknowledged once, at its place, and nothing else.

    ``may_come_again``: these may have come as often more as they are named.
    """
    wanted, seen = Counter(one.place for one in sent), Counter(read)
    missing, more = wanted - seen, seen - wanted - Counter(may_come_again)
    found = [f"{missing.total()} messages never came, such as {next(iter(missing))}"] if missing else []
    return found + ([f"{more.total()} messages came that were not due, such as {next(iter(more))}"] if more else [])


def in_order(read: Sequence[Place]) -> list[str]:
    """What is wrong with the order in which one consumer read."""
    last: dict[int, Place] = {}
    found = []
    for place in read:
        if place.offset <= last.get(place.partition, Place(0, -1, "")).offset:
            found.append(f"{place} came after {last[place.partition]}")
        last[place.partition] = place
    return found[:3]
