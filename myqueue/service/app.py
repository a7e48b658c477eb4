"""What the three services share of Flask: the factory, the error envelope, request ids, limits, health and metrics."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from flask import Blueprint, Flask, Response, g, jsonify, request
from gunicorn.http.errors import NoMoreData, ParseException
from werkzeug.exceptions import HTTPException

from ..clock import SystemClock
from ..errors import BadRequestError, InternalError, MethodNotAllowedError, MyQueueError, NotFoundError, TooLargeError
from ..protocol import routes, wire
from . import description, metrics
from .auth import Guard
from .lifecycle import Lifecycle

BODY_BYTES_MAX = 9 << 20  # a produce request of 8 MiB and what surrounds it
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}", re.ASCII)
_log = logging.getLogger(__name__)
_HTTP_ERRORS: dict[int, type[MyQueueError]] = {404: NotFoundError, 405: MethodNotAllowedError, 413: TooLargeError}


def build_app(node: str, blueprints: Sequence[Blueprint], *, lifecycle: Lifecycle, ready: Callable[[], dict[str, Any]],
              body_bytes_max: int = BODY_BYTES_MAX, guard: Guard | None = None, look: metrics.Look = tuple) -> Flask:
    """A Flask app with everything that every node answers.

    Args:
        node: its name, as in ``broker-1``; said in the MyQueue-Node header.
        ready: called for /readyz; returns what to show, raises a MyQueueError when not ready.
        body_bytes_max: a larger body is refused with 413 before it is read.
        guard: who may call; everybody where it is left out.
        look: what /metrics shows besides what is counted, as of now.

    Errors: a MyQueueError from a view is rendered by the blueprint's own error handler where it has one, else as the
    native envelope. Anything else is logged with its traceback and answered as ``internal``, telling nothing.
    """
    app = Flask(node, static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = body_bytes_max
    app.json.sort_keys = False  # type: ignore[attr-defined]
    app.url_map.strict_slashes = False
    app.url_map.merge_slashes = False  # an empty part of a path is no path: never a redirect to another route
    app.extensions["lifecycle"] = lifecycle
    clock = SystemClock()

    @app.before_request
    def begin() -> None:
        g.request_id = request_id_of(request.headers.get(routes.REQUEST_ID, ""))
        g.began = clock.monotonic()
        if guard is not None:
            guard.check()

    @app.after_request
    def end(response: Response) -> Response:
        response.headers.setdefault(routes.NODE, node)
        response.headers[routes.REQUEST_ID] = getattr(g, "request_id", "")
        if request.method == "OPTIONS" and response.mimetype == "text/html":
            del response.headers["Content-Type"]  # Flask's own answer: the methods in Allow, and no body
        route = g.get("route") or (request.url_rule.rule if request.url_rule else "unknown")  # a proxy names it itself
        metrics.counted(route, request.method, response.status_code, clock.monotonic() - getattr(g, "began", clock.monotonic()))
        return response

    app.register_error_handler(MyQueueError, native_error)
    app.register_error_handler(HTTPException, lambda error: native_error(from_http(error)))
    app.register_error_handler(Exception, lambda error: native_error(from_bug(error)))

    @app.get(routes.LIVEZ)
    def livez() -> Response:
        return jsonify({"status": "alive", "node": node})

    @app.get(routes.READYZ)
    def readyz() -> Response:
        return jsonify({"status": "ready", "node": node, **ready()})

    @app.get(routes.METRICS)
    def series() -> Response:
        body, content_type = metrics.exposition(look)
        return Response(body, content_type=content_type)

    app.register_blueprint(description.make_blueprint())
    for blueprint in blueprints:
        app.register_blueprint(blueprint)
    return app


def request_id_of(given: str) -> str:
    """The id of a request that came with this one, or one of our own."""
    return given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def native_error(error: MyQueueError) -> Response:
    """The native envelope, with ``Retry-After`` where trying again makes sense."""
    response = jsonify(wire.error_to_json(error))
    response.status_code = error.status
    response.headers.update(wire.retry_after(error))
    return response


def from_http(error: HTTPException) -> MyQueueError:
    """Werkzeug's own refusals (no such path, body too large, bad JSON, …) as ours."""
    kind = _HTTP_ERRORS.get(error.code or 400, BadRequestError)
    if kind is NotFoundError:
        return NotFoundError(f"no such path: {request.path[:200]}")
    if kind is MethodNotAllowedError:
        return MethodNotAllowedError(f"{request.path[:200]} does not know {request.method}")
    if kind is TooLargeError:
        return TooLargeError("the request body is too large; nothing was stored")
    return BadRequestError(error.description or None)


def from_bug(error: Exception) -> MyQueueError:
    """An error nobody expected: logged in full under the request id, answered with the id only.

    A body whose chunks are wrong, or that ends too soon, is none: it is found while a view reads it, and is the client's mistake.
    """
    if isinstance(error, (ParseException, NoMoreData)):
        return BadRequestError(f"the request's body is not well framed ({type(error).__name__}); it was not carried out")
    request_id = getattr(g, "request_id", "")
    _log.exception("request %s failed", request_id, extra={"request_id": request_id, "path": request.path})
    return InternalError(f"a fault in the server; its log has the details under request {request_id}")
