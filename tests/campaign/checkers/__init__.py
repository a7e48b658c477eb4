"""PURE. Each checker takes a history and yields one sentence for each anomaly it finds; none of them knows how the history was made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from tests.campaign.history import History

from . import consumers, groups, messages, register, replicas

Checker = Callable[[History], Iterator[str]]

CHECKERS: Mapping[str, Checker] = {
    "lost": messages.lost,
    "duplicated": messages.duplicated,
    "reordered": messages.reordered,
    "two values at one offset": messages.two_values,
    "read but never written": messages.never_written,
    "refused and yet stored": messages.refused_and_stored,
    "trimmed wrongly": messages.trimmed_wrongly,
    "skipped by a reader": consumers.skipped,
    "committed offset moved back": consumers.moved_back,
    "missed by a group": groups.missed,
    "done and given to a member again": groups.done_again,
    "stuck": consumers.stuck,
    "metadata not linearizable": register.not_linearizable,
    "two leaders of one term": replicas.two_leaders,
    "replicas differ": replicas.different,
    "answers outside the contract": replicas.odd,
}
