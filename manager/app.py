"""The Flask app of a manager: the three faces and the calls between nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flask import Blueprint, Flask, Response, request
from werkzeug.exceptions import HTTPException

from manager.api.hooks import respond
from myqueue.errors import MyQueueError
from myqueue.protocol import routes
from myqueue.service.app import BODY_BYTES_MAX, build_app, from_bug, from_http, native_error
from myqueue.service.arguments import queue_failure
from myqueue.service.auth import Guard
from myqueue.service.lifecycle import Lifecycle

OURS = ("/v1/", routes.INTERNAL, routes.LIVEZ, routes.READYZ, routes.METRICS)


def create_app(node: str, blueprints: Sequence[Blueprint], *, lifecycle: Lifecycle, ready: Callable[[], dict[str, Any]], guard: Guard) -> Flask:
    """Put the blueprints together. What no blueprint knows is told in the face that the path belongs to."""
    app = build_app(node, blueprints, lifecycle=lifecycle, ready=ready, guard=guard)
    app.config["MAX_FORM_MEMORY_SIZE"] = BODY_BYTES_MAX  # a message of 1 MiB may come as a form field
    app.register_error_handler(MyQueueError, _by_path)
    app.register_error_handler(HTTPException, lambda error: _by_path(from_http(error)))
    app.register_error_handler(Exception, lambda error: _by_path(from_bug(error)))
    return app


def _by_path(error: MyQueueError) -> Response:
    if request.path.startswith(OURS):
        return native_error(error)
    response = respond(queue_failure, error)
    response.status_code = error.status  # a path or method that is not there keeps its 404 or 405
    return response
