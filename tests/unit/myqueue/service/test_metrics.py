"""The catalogue of metrics: every series has a meaning and a remedy, and the page for operators is what the code says."""

from __future__ import annotations

from pathlib import Path

from myqueue.errors import UnavailableError
from myqueue.service import metrics

PAGE = Path(metrics.__file__).with_name("METRICS.md")


def test_every_series_says_what_it_means_and_what_to_do():
    for row in metrics.CATALOGUE:
        assert row.name.startswith("myqueue_")
        assert row.meaning.endswith((".", ";")) or row.meaning[-1] == "."
        assert row.remedy.endswith(".")
    assert len({row.name for row in metrics.CATALOGUE}) == len(metrics.CATALOGUE)


def test_the_page_is_what_the_catalogue_says():
    """Written by: python -c "from myqueue.service import metrics; print(metrics.table(), end='')" > myqueue/service/METRICS.md"""
    assert PAGE.read_text(encoding="utf-8") == metrics.table()


def test_what_is_looked_up_is_told_as_of_now():
    """A group that is gone leaves no series behind."""
    lags = {("reading", "t"): 3.0, ("writing", "t"): 0.0}
    text = metrics.exposition(lambda: [metrics.GROUP_LAG.at(lags)])[0].decode()
    assert 'myqueue_group_lag{group="reading",topic="t"} 3.0' in text
    assert "# HELP myqueue_group_lag Messages that a group with members" in text
    del lags["reading", "t"]
    assert "reading" not in metrics.exposition(lambda: [metrics.GROUP_LAG.at(lags)])[0].decode()


def test_a_look_that_fails_takes_only_its_own_series_along():
    def look():
        raise UnavailableError("the database does not answer")

    before = metrics.LOOKS_FAILED._value.get()
    text = metrics.exposition(look)[0].decode()
    assert "myqueue_requests_total" in text
    assert "myqueue_group_lag{" not in text
    assert metrics.LOOKS_FAILED._value.get() == before + 1
