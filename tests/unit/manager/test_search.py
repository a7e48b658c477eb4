"""A search's pages together: every message searched for, once, in order, whatever bounds they meet."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from db.metadata_store import CatalogueRows, PartitionRow, TopicRow
from manager import search
from manager.catalogue import Catalogue
from manager.search import Page, Search, SearchQuery
from myqueue.errors import BadRequestError, ConflictError, UnavailableError
from myqueue.testing import ManualClock

KEY = SearchQuery(key=b"k")


class Cluster:
    """Partitions with the given keys in each, the offsets being their places; a call may fail."""

    def __init__(self, keys: list[str], *, topic_id: int = 7) -> None:
        rows = tuple(PartitionRow(topic_id, number, 1, 1, "ACTIVE", 1, {"1": "d"}) for number in range(len(keys)))
        self.known = Catalogue.of(CatalogueRows("c", 1, (), (), (TopicRow(topic_id, "t", 1, {}, 0),), rows))
        self.keys, self.calls, self.failing = keys, 0, False
        self.clock = ManualClock()
        self.pages = Search(replica=SimpleNamespace(certain=lambda look: look(self.known)), brokers=self, records=self,  # type: ignore[arg-type]
                            clock=self.clock)

    def ask_leaders(self, _topic: Any, rows: Any, _make: Any, *, at_once: int, wait_seconds: float) -> Any:
        return {row.partition: len(self.keys[row.partition]) for row in rows}, []

    def at_leader(self, _topic: Any, _row: Any, make: Any) -> Any:
        self.calls += 1
        if self.failing:
            raise UnavailableError("not now")
        return make(1, None)

    def search(self, _id: int, _address: object, partition: Any, body: dict[str, Any]) -> dict[str, Any]:
        log, first = self.keys[partition.partition], body["offset"] or 0
        until = min(body["end"], first + body["max_scanned"])
        hits = [offset for offset in range(first, until) if log[offset] == body["key"]][:body["max_records"]]
        after = hits[-1] + 1 if len(hits) == body["max_records"] else until
        return {"records": [{"offset": offset, "value": "v"} for offset in hits], "next_offset": after, "scanned": after - first}


def places(page: Page) -> list[tuple[int, int]]:
    return [(one["partition"], one["offset"]) for one in page.records]


def walk(at: Cluster, records_max: int) -> tuple[list[tuple[int, int]], int]:
    """All that is found, and in how many pages."""
    found, cursor, pages = [], None, 0
    while True:
        page = at.pages.page("t", KEY, cursor, records_max=records_max)
        found, cursor, pages = found + places(page), page.cursor, pages + 1
        if cursor is None:
            return found, pages


KEYS = ["k" + "x" * 30 + "k", "", "kkkkk", "x" * 40, "xk"]
HITS = [(0, 0), (0, 31), (2, 0), (2, 1), (2, 2), (2, 3), (2, 4), (4, 1)]


@pytest.mark.parametrize(("records_max", "scan_max"), [(100, 1_000), (1, 1_000), (3, 1_000), (100, 1), (100, 7), (2, 5)])
def test_the_pages_together_are_all_of_it_in_order(records_max: int, scan_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SCAN_MAX", scan_max)
    found, pages = walk(Cluster(KEYS), records_max)
    assert found == HITS
    assert pages <= sum(map(len, KEYS)) // min(scan_max, 79) + len(HITS) + 1


def test_a_page_may_hold_nothing_and_have_a_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SCAN_MAX", 10)
    at = Cluster(["x" * 25 + "k"])
    first = at.pages.page("t", KEY, None, records_max=5)
    assert (first.records, first.cursor is None, at.calls) == ([], False, 1)


def test_the_cut_is_that_of_the_first_page(monkeypatch: pytest.MonkeyPatch) -> None:
    at = Cluster(["kk", "k"])
    first = at.pages.page("t", KEY, None, records_max=1)
    at.keys = ["kkkk", "kkk"]
    second = at.pages.page("t", KEY, first.cursor, records_max=100)
    assert (first.ends, second.ends, second.cursor) == ((2, 1), (2, 1), None)
    assert places(first) + places(second) == [(0, 0), (0, 1), (1, 0)]


def test_a_leader_that_fails_ends_a_page_or_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found before is told with a cursor; where nothing was, the error is."""
    at = Cluster(["k", "k"])
    ask, at.failing = at.at_leader, False

    def fail_on_second(*arguments: Any) -> Any:
        at.failing = at.calls == 1
        return ask(*arguments)

    monkeypatch.setattr(at, "at_leader", fail_on_second)
    page = at.pages.page("t", KEY, None, records_max=10)
    assert (places(page), page.cursor is None) == ([(0, 0)], False)
    at.calls = 1
    with pytest.raises(UnavailableError):
        at.pages.page("t", KEY, page.cursor, records_max=10)
    at.calls = 5
    assert places(at.pages.page("t", KEY, page.cursor, records_max=10)) == [(1, 0)]


def test_a_page_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    at = Cluster(["k"] * 5)
    ask = at.at_leader

    def slow(*arguments: Any) -> Any:
        at.clock.advance(1.5)
        return ask(*arguments)

    monkeypatch.setattr(at, "at_leader", slow)
    page = at.pages.page("t", KEY, None, records_max=10)
    assert (len(page.records), page.cursor is None) == (2, False)


def test_a_cursor_belongs_to_one_search_of_one_topic() -> None:
    cursor = Cluster(["kk"]).pages.page("t", KEY, None, records_max=1).cursor
    for query in (SearchQuery(key=b"other"), SearchQuery(key=b"k", since_us=1), SearchQuery(since_us=1)):
        with pytest.raises(BadRequestError, match="another search"):
            Cluster(["kk"]).pages.page("t", query, cursor, records_max=1)
    with pytest.raises(ConflictError):
        Cluster(["kk"], topic_id=8).pages.page("t", KEY, cursor, records_max=1)
    with pytest.raises(BadRequestError, match="none that was handed out"):
        Cluster(["kk"]).pages.page("t", KEY, "x", records_max=1)
    two = Cluster(["kk", "k"]).pages.page("t", KEY, None, records_max=1).cursor
    with pytest.raises(BadRequestError, match="more partitions"):
        Cluster(["kk"]).pages.page("t", KEY, two, records_max=1)
