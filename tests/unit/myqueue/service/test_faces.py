from __future__ import annotations

import pytest
from flask import Blueprint, Flask, request
from flask.testing import FlaskClient

from myqueue.errors import OutcomeUnknownError, QuotaExceededError, TooLargeError, UnavailableError, UnknownTopicError
from myqueue.protocol.faces import Face
from myqueue.service.app import build_app
from myqueue.service.faces import render, speak, speak_by_path
from myqueue.service.lifecycle import Lifecycle

APP = Flask(__name__)


@pytest.mark.parametrize(("face", "error", "status", "body"), [
    (Face.QUEUE, UnavailableError("m", component="manager-1"), 503,
     {"status": "failure", "message": "m", "code": "unavailable", "outcome": "not_done", "component": "manager-1"}),
    (Face.PARTITION, OutcomeUnknownError("m", component="manager-2"), 503,
     {"status": "Failure", "reason": "m", "message": "m", "code": "outcome_unknown", "outcome": "unknown", "component": "manager-2"}),
    (Face.NATIVE, UnavailableError("m", component="broker-1"), 503,
     {"error": {"code": "unavailable", "message": "m", "retriable": True, "outcome": "not_done", "details": {"component": "broker-1"}}}),
    (Face.QUEUE, QuotaExceededError("m"), 429, {"status": "failure", "message": "m", "code": "quota_exceeded", "outcome": "not_done"}),
    (Face.PARTITION, QuotaExceededError("m"), 429,
     {"status": "Failure", "reason": "m", "message": "m", "code": "quota_exceeded", "outcome": "not_done"}),
    (Face.QUEUE, TooLargeError("m"), 413, {"status": "failure", "message": "m", "code": "too_large"}),
])
def test_an_error_takes_the_form_of_the_face(face: Face, error: Exception, status: int, body: dict) -> None:
    with APP.test_request_context("/"):
        response = render(face, error)
    assert (status, body) == (response.status_code, response.get_json())
    assert ("1" if status in (429, 503) else None) == response.headers.get("Retry-After")


@pytest.fixture
def client() -> FlaskClient:
    """A node with a view of each of the older faces, which do as they are told."""
    blueprints = []
    for face, path in ((Face.QUEUE, "/size"), (Face.PARTITION, "/logs")):
        blueprint = Blueprint(face.value, __name__)
        speak(blueprint, face)

        @blueprint.route(path, endpoint=face.value, methods=["POST"])
        def view() -> str:
            if request.args.get("fail") == "unknown":
                raise UnknownTopicError("no such topic")
            if request.args.get("fail") == "bug":
                raise ZeroDivisionError
            return str(len(request.get_data()))

        blueprints.append(blueprint)
    app = build_app("node-1", blueprints, lifecycle=Lifecycle(), ready=dict, body_bytes_max=10)
    speak_by_path(app)
    return app.test_client()


@pytest.mark.parametrize(("path", "word"), [("/size", "failure"), ("/logs", "Failure")])
@pytest.mark.parametrize(("query", "body", "status"), [("?fail=unknown", b"", 400), ("?fail=bug", b"", 500), ("", b"x" * 11, 413)])
def test_whatever_a_view_meets_is_told_in_its_face(client: FlaskClient, path: str, word: str, query: str, body: bytes, status: int) -> None:
    """What it raises, a bug, and what Flask refuses while the view reads."""
    answer = client.post(path + query, data=body)
    told = answer.get_json()
    assert (status, word) == (answer.status_code, told["status"])
    assert told["message"] == (told["reason"] if word == "Failure" else told["message"]) != ""


@pytest.mark.parametrize(("method", "path", "status", "word"), [
    ("DELETE", "/size", 405, "failure"), ("PUT", "/logs", 405, "Failure"), ("GET", "/consumers", 404, "Failure"), ("GET", "/topics", 404, "failure"),
    ("GET", "/v1/nothing", 404, None), ("GET", "/nothing", 404, None),
])
def test_what_no_view_knows_is_told_in_the_face_of_its_path(client: FlaskClient, method: str, path: str, status: int, word: str | None) -> None:
    answer = client.open(path, method=method)
    told = answer.get_json()
    assert (status, word) == (answer.status_code, told.get("status"))
    assert ("error" in told) == (word is None)
