"""The description of the native face, as every node serves it."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from flask.testing import FlaskClient

from myqueue.errors import BY_CODE
from myqueue.protocol import openapi, routes
from myqueue.protocol.operations import OPERATIONS
from myqueue.service import docs_page
from myqueue.service.app import build_app
from myqueue.service.lifecycle import Lifecycle

VOID = {"meta", "input", "br"}


@pytest.fixture
def client() -> FlaskClient:
    return build_app("node-1", [], lifecycle=Lifecycle(), ready=dict).test_client()


class Page(HTMLParser):
    """What a browser would read: the ids, the links, and whether every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        assert "src" not in found, f"{tag} loads something"
        assert tag != "link", "a style from elsewhere"
        self.ids += [found["id"] or ""] if "id" in found else []
        self.links += [found["href"] or ""] if "href" in found else []
        self.open += [] if tag in VOID else [tag]

    def handle_endtag(self, tag: str) -> None:
        assert tag == self.open.pop(), f"{tag} is closed where another one is open"


def test_the_document_is_served(client: FlaskClient) -> None:
    answer = client.get(routes.OPENAPI)
    assert (200, "application/json") == (answer.status_code, answer.content_type)
    assert openapi.document() == answer.get_json()


def test_whoever_has_it_is_told_that_it_is_the_same(client: FlaskClient) -> None:
    for path in (routes.OPENAPI, routes.DOCS):
        tag = client.get(path).headers["ETag"]
        again = client.get(path, headers={"If-None-Match": tag})
        assert (304, b"") == (again.status_code, again.data)


def test_the_page_needs_no_other(client: FlaskClient) -> None:
    answer = client.get(routes.DOCS)
    assert (200, "text/html; charset=utf-8") == (answer.status_code, answer.content_type)
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    page = Page(answer.text)
    assert [] == page.open
    assert len(page.ids) == len(set(page.ids))
    assert set() == {link for link in page.links if not link.startswith("#")} - {routes.OPENAPI}
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    assert not re.search(r"@import|url\(", docs_page.STYLE)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
def test_the_page_tells_all_of_an_operation(operation, client: FlaskClient) -> None:
    """Its path, arguments, answer, each error by its code, and a command line."""
    section = client.get(routes.DOCS).text.partition(f'<section id="{operation.name}">')[2].partition("</section>")[0]
    for word in (operation.method, operation.path, *(one.name for one in (*operation.path_arguments, *operation.arguments)),
                 str(operation.answer.status), *(error.code for error in operation.all_errors)):
        assert word in section, word
    assert 'class="curl"' in section


def test_a_text_of_the_document_is_text_on_the_page() -> None:
    told = openapi.document(title="<script>alert(1)</script>")
    page = docs_page.page(told)
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


def test_only_errors_of_the_tree_are_told() -> None:
    assert {error.code for one in OPERATIONS for error in one.all_errors} <= set(BY_CODE)
