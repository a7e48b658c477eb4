"""PURE. What became of the messages: compare what was acknowledged with what stands in the logs and with what readers got."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.campaign.history import FAILED, OK, UNKNOWN, History, place


def lost(history: History) -> Iterator[str]:
    """An acknowledged message is not in its partition at the end, at its offset. Nothing is said of logs that nobody could look into."""
    if history.healed_at is None and not history.stored:
        return
    logs = {where: history.log(where) for where in history.places()}
    for sent in history.sent:
        if sent.outcome != OK:
            continue
        if sent.partition is None:
            if all(sent.value not in values for values in _values(logs, sent.topic)):
                yield f"{sent.value} was acknowledged for {sent.topic} and is in none of its partitions"
            continue
        found = logs.get(place(sent.topic, sent.partition), {})
        if sent.offset is None:
            if sent.value not in set(found.values()):
                yield f"{sent.value} was acknowledged for {place(sent.topic, sent.partition)} and is not there"
        elif sent.offset not in found:
            yield f"{sent.value} was acknowledged at {place(sent.topic, sent.partition)}@{sent.offset}, and the log has no such offset"
        elif found[sent.offset] != sent.value:
            yield f"{sent.value} was acknowledged at {place(sent.topic, sent.partition)}@{sent.offset}, where {found[sent.offset]} stands"


def _values(logs: dict[str, dict[int, str]], topic: str) -> list[set[str]]:
    return [set(log.values()) for where, log in logs.items() if where.rpartition("/")[0] == topic]


def duplicated(history: History) -> Iterator[str]:
    """A message stands twice in the log: every producer of a campaign sends a value once, or retries it by its sequence."""
    seen: dict[str, list[str]] = defaultdict(list)
    for where in sorted(history.places()):
        for offset, value in history.log(where).items():
            seen[value].append(f"{where}@{offset}")
    for value, places in seen.items():
        if len(places) > 1:
            yield f"{value} stands at {', '.join(places)}"


def reordered(history: History) -> Iterator[str]:
    """Within a partition, one producer's acknowledged messages stand in another order than they were sent in.

    One without an answer is no evidence: the producer went on, and it may have been on its way for as long as it liked.
    """
    acknowledged = {sent.value for sent in history.sent if sent.outcome == OK}
    for where in sorted(history.places()):
        last: dict[str, int] = {}
        for _, value in sorted(history.log(where).items()):
            worker, _, number = value.rpartition(":")
            if value not in acknowledged:
                continue
            if last.get(worker, -1) > int(number):
                yield f"{where}: {value} stands behind {worker}:{last[worker]}"
            last[worker] = int(number)


def two_values(history: History) -> Iterator[str]:
    """Whoever saw an offset of a partition, in an acknowledgement, a read or a replica's log, saw the same value there."""
    seen: dict[tuple[str, int], tuple[str, str]] = {}
    for where, offset, value, who in _sightings(history):
        first = seen.setdefault((where, offset), (value, who))
        if first[0] != value:
            yield f"{where}@{offset}: {first[1]} saw {first[0]}, {who} saw {value}"


def _sightings(history: History) -> Iterator[tuple[str, int, str, str]]:
    for where, replicas in history.stored.items():
        for replica, messages in replicas.items():
            for offset, value in messages:
                yield where, offset, value, replica
    for sent in history.sent:
        if sent.outcome == OK and sent.partition is not None and sent.offset is not None:
            yield place(sent.topic, sent.partition), sent.offset, sent.value, f"producer {sent.worker}"
    for read in history.read:
        yield place(read.topic, read.partition), read.offset, read.value, f"reader {read.reader}"
    for shared in history.shared:
        yield place(shared.topic, shared.partition), shared.offset, shared.value, shared.member


def never_written(history: History) -> Iterator[str]:
    """A value was read, or stands in a log, that nobody sent to this topic."""
    written = {(sent.topic, sent.value) for sent in history.sent}
    told: set[tuple[str, str]] = set()
    for where, _, value, who in _sightings(history):
        key = (where.rpartition("/")[0], value)
        if key not in written and key not in told:
            told.add(key)
            yield f"{who} saw {value!r} in {where}, which nobody sent there"


def refused_and_stored(history: History) -> Iterator[str]:
    """The answer was that nothing was done, and yet it was."""
    there = {(where.rpartition("/")[0], value) for where in history.places() for value in history.log(where).values()}
    for sent in history.sent:
        if sent.outcome == FAILED and (sent.topic, sent.value) in there:
            yield f"{sent.value} was refused as not done and stands in {sent.topic}"


def trimmed_wrongly(history: History) -> Iterator[str]:
    """A replica shows what an acknowledged trim took away, or begins above everything that was to be trimmed."""
    for where, replicas in history.stored.items():
        least, most = history.trimmed_before(where, OK), history.trimmed_before(where, OK, UNKNOWN)
        for replica, messages in replicas.items():
            first = messages[0].offset
            if first < least:
                yield f"{replica} shows {where}@{first}, and everything below {least} was trimmed"
            elif first > most:
                yield f"{replica} shows nothing of {where} below {first}, and nothing above {most} was to be trimmed"
