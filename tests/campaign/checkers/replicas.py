"""PURE. What replicas hold and say of themselves."""

from __future__ import annotations

from collections.abc import Iterator

from tests.campaign.history import History


def two_leaders(history: History) -> Iterator[str]:
    """Two nodes said that they lead the same group in the same term (R1)."""
    seen: dict[tuple[str, int], str] = {}
    told: set[tuple[str, int]] = set()
    for led in history.led:
        first = seen.setdefault((led.group, led.term), led.node)
        if first != led.node and (led.group, led.term) not in told:
            told.add((led.group, led.term))
            yield f"{first} and {led.node} both led {led.group} in term {led.term}"


def different(history: History) -> Iterator[str]:
    """Two replicas hold another entry at the same position of what is committed (R2, R5), or a log has a gap."""
    for group, replicas in history.entries.items():
        seen: dict[int, tuple[str, int, str]] = {}
        for replica, entries in replicas.items():
            last = None
            for entry in entries:
                if last is not None and entry.position != last + 1:
                    yield f"{group}: {replica} has no entry between {last} and {entry.position}"
                last = entry.position
                first = seen.setdefault(entry.position, (replica, entry.term, entry.digest))
                if first[1:] != (entry.term, entry.digest):
                    yield f"{group}: {first[0]} and {replica} differ at {entry.position} (terms {first[1]} and {entry.term})"
                    break


def odd(history: History) -> Iterator[str]:
    """Somebody got an answer that no fault excuses."""
    for oddity in history.oddities:
        yield f"{oddity.who}: {oddity.what}"
