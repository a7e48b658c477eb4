"""Searches by key and by time, while others write: what was acknowledged before is found, all of it and once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from myqueue.protocol import routes

from ..check import Place
from .calls import Http
from .face import DiscrepancyError

PAGE = 50  # records
RECENT = 10  # messages whose time a search is made for


def key_of(thread: int) -> str:
    """The key of all that a thread sends, and of nothing else."""
    return f"thread {thread}"


class Searching:
    """By the thread's key, by the time of what it sent last, and by both."""

    def __init__(self, http: Http, topic: str, thread: int) -> None:
        self._http, self._topic, self._key = http, topic, key_of(thread)

    def look(self, sent: Sequence[Place]) -> None:
        mine = self._found(key=self._key)
        self._must_be("its key", sorted(sent), mine)
        recent = set(sent[-RECENT:])
        times = [one["append_time"] for one in mine if _place(one) in recent]
        window = {"from_timestamp": min(times), "to_timestamp": max(times) + 1}
        of_then = [_place(one) for one in mine if window["from_timestamp"] <= one["append_time"] < window["to_timestamp"]]
        self._must_be("its key and time", of_then, self._found(key=self._key, **window))
        self._must_be("its time", of_then, [one for one in self._found(**window) if one.get("key") == self._key])

    def _must_be(self, by: str, wanted: list[Place], found: list[Mapping[str, Any]]) -> None:
        places = [_place(one) for one in found]
        if places != wanted:
            raise DiscrepancyError(f"a search of {self._topic} for what has the key {self._key!r}, by {by}, found {len(places)} messages, not the "
                                   f"{len(wanted)} that were acknowledged; they differ in {sorted(set(places) ^ set(wanted))[:3]} or in their order")

    def _found(self, **query: Any) -> list[Mapping[str, Any]]:
        """All pages."""
        path, found, cursor = routes.SEARCH.format(topic=self._topic), [], None
        while True:
            told = self._http.call("GET", path, params={**query, "max_records": PAGE, **({"cursor": cursor} if cursor else {})})
            found += told["records"]
            cursor = told["cursor"]
            if cursor is None:
                return found


def _place(one: Mapping[str, Any]) -> Place:
    return Place(one["partition"], one["offset"], one["value"])
