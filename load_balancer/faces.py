"""An error of the balancer itself, in the format of the face that was called."""

from __future__ import annotations

from flask import Response, jsonify

from myqueue.errors import MyQueueError
from myqueue.protocol.wire import RETRY_AFTER_SECONDS
from myqueue.service.app import native_error

from .core.routing import Face


def render(face: Face, error: MyQueueError) -> Response:
    """The answer for an error: each face's fields, and always what is known of the effect and who failed."""
    if face is Face.NATIVE:
        return native_error(error)
    body = {"status": "failure"} if face is Face.QUEUE else {"status": "Failure", "reason": error.message}
    response = jsonify({**body, "message": error.message, "outcome": error.outcome, **_component(error)})
    response.status_code = error.status
    if error.status == 503:
        response.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return response


def _component(error: MyQueueError) -> dict[str, str]:
    return {"component": error.details["component"]} if "component" in error.details else {}
