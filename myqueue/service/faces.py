"""An error in the format of the face that was called: nobody can tell by the form which node refused."""

from __future__ import annotations

from flask import Blueprint, Flask, Response, jsonify, request
from werkzeug.exceptions import HTTPException

from ..errors import MyQueueError
from ..protocol.faces import Face, face_of
from .app import from_bug, from_http, native_error
from .arguments import partition_failure, queue_failure

_FAILURES = {Face.QUEUE: queue_failure, Face.PARTITION: partition_failure}


def render(face: Face, error: MyQueueError) -> Response:
    """The answer for an error, as every node gives it."""
    if face is Face.NATIVE:
        return native_error(error)
    body, status, headers = _FAILURES[face](error)
    response = jsonify(body)
    response.status_code = status
    response.headers.update(headers)
    return response


def speak(blueprint: Blueprint, face: Face) -> None:
    """Let a blueprint tell every error of its views in its face, those of Flask and of ours included."""
    blueprint.register_error_handler(MyQueueError, lambda error: render(face, error))
    blueprint.register_error_handler(HTTPException, lambda error: render(face, from_http(error)))
    blueprint.register_error_handler(Exception, lambda error: render(face, from_bug(error)))


def speak_by_path(app: Flask) -> None:
    """Let an app tell what no blueprint knows (no such path, or not by this method: 404, 405) in the face that the path belongs to."""

    def told(error: MyQueueError) -> Response:
        response = render(face_of(request.path), error)
        response.status_code = error.status
        return response

    app.register_error_handler(MyQueueError, told)
    app.register_error_handler(HTTPException, lambda error: told(from_http(error)))
    app.register_error_handler(Exception, lambda error: told(from_bug(error)))
