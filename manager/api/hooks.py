"""What every public blueprint of a manager does around its views: a bound on requests, freshness, and its face's errors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from flask import Blueprint, Response, g, jsonify, request
from werkzeug.exceptions import HTTPException

from manager.replica import Replica
from myqueue.errors import MethodNotAllowedError, MyQueueError, OverloadedError
from myqueue.protocol import routes
from myqueue.protocol.names import parse_integer
from myqueue.service.app import from_bug, from_http

Renderer = Callable[[MyQueueError], tuple[dict[str, Any], int, dict[str, str]]]


class Gate:
    """Keeps some request threads free for the calls between nodes, on which everything else waits."""

    def __init__(self, slots: int) -> None:
        self._slots = threading.BoundedSemaphore(slots)

    def enter(self) -> None:
        """Raises OverloadedError where too many public requests are under way."""
        if not self._slots.acquire(blocking=False):
            raise OverloadedError("too many requests are under way on this manager; nothing was done")
        g.in_gate = True

    def leave(self) -> None:
        if g.pop("in_gate", False):
            self._slots.release()


def install(blueprint: Blueprint, *, gate: Gate, replica: Replica, render: Renderer | None = None) -> None:
    """Give a blueprint its hooks; with ``render`` it speaks of errors in its own face."""

    @blueprint.before_request
    def enter() -> None:
        gate.enter()
        if request.method == "HEAD" and request.url_rule is not None and "POST" in (request.url_rule.methods or ()):
            raise MethodNotAllowedError(f"{request.path[:200]} does not know HEAD")  # a GET with an effect, such as consume
        wanted = request.headers.get(routes.MIN_INDEX)
        if wanted is not None:
            replica.require(parse_integer(wanted, name=routes.MIN_INDEX))

    @blueprint.teardown_request
    def leave(_error: BaseException | None) -> None:
        gate.leave()

    @blueprint.after_request
    def freshness(response: Response) -> Response:
        index = replica.known_index()
        if index is not None:
            response.headers[routes.APPLIED_INDEX] = str(index)
        response.headers[routes.FRESHNESS] = f"{min(replica.freshness_seconds(), 1e9):.3f}"
        return response

    if render is not None:
        blueprint.register_error_handler(MyQueueError, lambda error: respond(render, error))
        blueprint.register_error_handler(HTTPException, lambda error: respond(render, from_http(error)))
        blueprint.register_error_handler(Exception, lambda error: respond(render, from_bug(error)))


def respond(render: Renderer, error: MyQueueError) -> Response:
    body, status, headers = render(error)
    response = jsonify(body)
    response.status_code = status
    response.headers.update(headers)
    return response
