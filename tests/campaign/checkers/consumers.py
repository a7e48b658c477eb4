"""PURE. What readers and consumers saw: nothing passed over, nothing handed out twice, no committed offset that moves back, nobody stuck."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.campaign.history import OK, History, place

STUCK_SECONDS = 30.0


def skipped(history: History) -> Iterator[str]:
    """A reader got other than the next offset. A dequeue whose answer was lost may have taken one message each."""
    excused = Counter((missed.reader, missed.topic) for missed in history.missed)
    passed_over: Counter[tuple[str, str]] = Counter()
    first_gap: dict[tuple[str, str], str] = {}
    last: dict[tuple[str, int, str, int], int] = {}
    starts = _starts(history)
    for read in history.read:
        where = (read.reader, read.session, read.topic, read.partition)
        expected = last.get(where, starts.get(where, 0) - 1) + 1
        last[where] = read.offset
        if read.offset < expected:
            yield f"{read.reader} got {place(read.topic, read.partition)}@{read.offset} when {expected} was next"
        elif read.offset > expected:
            key = (read.reader, read.topic)
            passed_over[key] += read.offset - expected
            first_gap.setdefault(key, f"{place(read.topic, read.partition)}@{read.offset} when {expected} was next")
    for key, count in passed_over.items():
        if count > excused[key]:
            yield f"{key[0]} passed over {count} messages of {key[1]} and lost {excused[key]} answers; the first: it got {first_gap[key]}"


def _starts(history: History) -> dict[tuple[str, int, str, int], int]:
    """Where sessions begin: (reader, session, topic, partition) → offset."""
    return {(resumed.reader, resumed.session, resumed.topic, resumed.partition): resumed.offset for resumed in history.resumed}


def moved_back(history: History) -> Iterator[str]:
    """A consumer asked for its committed offset and got less than what was acknowledged before, or more than it ever had."""
    acknowledged = sorted(history.committed, key=lambda committed: committed.ended)
    furthest: dict[tuple[str, str, int], int] = defaultdict(int)
    for read in history.read:
        key = (read.reader, read.topic, read.partition)
        furthest[key] = max(furthest[key], read.offset + 1)
    for resumed in history.resumed:
        key = (resumed.reader, resumed.topic, resumed.partition)
        before = max((committed.offset for committed in acknowledged
                      if committed[:3] == key and committed.ended <= resumed.began), default=0)
        where = place(resumed.topic, resumed.partition)
        if resumed.offset < before:
            yield f"{resumed.reader} had committed {before} in {where} and resumed at {resumed.offset}"
        elif resumed.offset > furthest[key]:
            yield f"{resumed.reader} had read up to {furthest[key]} in {where} and resumed at {resumed.offset}"


def stuck(history: History) -> Iterator[str]:
    """Once all faults are over, every reader reaches the end and every producer is acknowledged within STUCK_SECONDS."""
    if history.healed_at is None:
        yield "the cluster did not come back to life after the faults"
        return
    for reader in sorted(history.readers):
        finished = history.finished.get(reader)
        if finished is None:
            yield f"reader {reader} made no progress for {STUCK_SECONDS:.0f} s after healing and did not reach the end"
    if history.topics is None:
        yield f"the managers answered no fresh read within {STUCK_SECONDS:.0f} s after healing"
    last: dict[str, float] = {}
    for sent in history.sent:
        last.setdefault(sent.worker, -1.0)
        if sent.outcome == OK:
            last[sent.worker] = max(last[sent.worker], sent.ended)
    for worker, ended in sorted(last.items()):
        if ended < history.healed_at:
            yield f"producer {worker} had nothing acknowledged after healing"
