"""What the native face is, at every node: the OpenAPI document for programs, and the same as a page for people."""

from __future__ import annotations

import functools
import json

from flask import Blueprint, Response, request

from ..protocol import openapi, routes
from . import docs_page

KEPT = "public, max-age=300"  # it changes only with the version that runs


@functools.cache
def _made() -> tuple[bytes, bytes]:
    """The document and the page, made when they are first asked for."""
    document = openapi.document()
    return json.dumps(document).encode(), docs_page.page(document).encode()


def make_blueprint() -> Blueprint:
    """The two paths."""
    blueprint = Blueprint("description", __name__)

    @blueprint.get(routes.OPENAPI)
    def document() -> Response:
        return _kept(_made()[0], "application/json")

    @blueprint.get(routes.DOCS)
    def page() -> Response:
        response = _kept(_made()[1], "text/html; charset=utf-8")
        response.headers["Content-Security-Policy"] = docs_page.POLICY
        return response

    return blueprint


def _kept(body: bytes, content_type: str) -> Response:
    response = Response(body, content_type=content_type, headers={"Cache-Control": KEPT, "X-Content-Type-Options": "nosniff"})
    response.add_etag()
    return response.make_conditional(request)
