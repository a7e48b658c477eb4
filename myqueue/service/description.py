"""What the native face is, at every node: the OpenAPI document for programs, and the same as a page for people."""

from __future__ import annotations

import functools
import json

from flask import Blueprint, Response, request

from ..protocol import routes

KEPT = "public, max-age=300"  # it changes only with the version that runs


@functools.cache
def _made() -> tuple[bytes, bytes, str]:
    """The document, the page and its content policy, made when they are first asked for. What they are made from is loaded then too: every
    start would pay for it.
    """
    from ..protocol import openapi
    from . import docs_page

    document = openapi.document()
    return json.dumps(document).encode(), docs_page.page(document).encode(), docs_page.POLICY


def make_blueprint() -> Blueprint:
    """The two paths."""
    blueprint = Blueprint("description", __name__)

    @blueprint.get(routes.OPENAPI)
    def document() -> Response:
        return _kept(_made()[0], "application/json")

    @blueprint.get(routes.DOCS)
    def page() -> Response:
        _, text, policy = _made()
        response = _kept(text, "text/html; charset=utf-8")
        response.headers["Content-Security-Policy"] = policy
        return response

    return blueprint


def _kept(body: bytes, content_type: str) -> Response:
    response = Response(body, content_type=content_type, headers={"Cache-Control": KEPT, "X-Content-Type-Options": "nosniff"})
    response.add_etag()
    return response.make_conditional(request)
