"""An error of the balancer itself, in the format of the face that was called."""

from __future__ import annotations

from flask import Response, jsonify

from myqueue.errors import MyQueueError
from myqueue.service.app import native_error
from myqueue.service.arguments import partition_failure, queue_failure

from .core.routing import Face

_FAILURES = {Face.QUEUE: queue_failure, Face.PARTITION: partition_failure}


def render(face: Face, error: MyQueueError) -> Response:
    """The answer for an error, as a manager would give it: nobody can tell by the form who refused."""
    if face is Face.NATIVE:
        return native_error(error)
    body, status, headers = _FAILURES[face](error)
    response = jsonify(body)
    response.status_code = status
    response.headers.update(headers)
    return response
