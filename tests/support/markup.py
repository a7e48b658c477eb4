"""Judges a page's markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser


class _Balance(HTMLParser):
    """Which tags are open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list) -> None:
        if tag not in ("meta", "!doctype"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert tag == self.open.pop()

    def handle_startendtag(self, tag: str, attrs: list) -> None:
        """Closes itself."""


def check_page(page: str) -> None:
    """Every tag is closed, and nothing is fetched or run."""
    parser = _Balance()
    parser.feed(page)
    assert [] == parser.open
    assert not re.search(r"https?://|<script|<img|<link|src=|url\(|@import| on\w+=", page)
