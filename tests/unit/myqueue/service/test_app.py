from __future__ import annotations

import logging

import pytest
from flask import Blueprint, request
from flask.testing import FlaskClient
from gunicorn.http.errors import NoMoreData

from myqueue.errors import (
    BadRequestError,
    InternalError,
    MyQueueError,
    NotLeaderError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    OverloadedError,
    QuotaExceededError,
    TooLargeError,
    UnknownTopicError,
)
from myqueue.protocol import routes, wire
from myqueue.service.app import build_app, from_bug
from myqueue.service.lifecycle import Lifecycle

ERRORS = [UnknownTopicError("no topic"), NotLeaderError("not here", leader=3), OffsetOutOfRangeError(earliest=1, latest=9), TooLargeError(),
          OutcomeUnknownError(), OverloadedError("full"), QuotaExceededError(wait_seconds=0.25)]


def make_client(error: Exception | None = None, ready: object = dict) -> FlaskClient:
    blueprint = Blueprint("x", __name__)

    @blueprint.route("/thing", methods=["GET", "POST"])
    def thing() -> object:
        if error is not None:
            raise error
        return {"length": len(request.get_data())}

    return build_app("node-1", [blueprint], lifecycle=Lifecycle(), ready=ready, body_bytes_max=1_000).test_client()


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.code)
def test_an_error_of_ours_becomes_its_envelope_and_back(error: MyQueueError) -> None:
    answer = make_client(error).get("/thing")
    back = wire.error_from_json(answer.get_json(), answer.status_code)
    assert (error.status, type(error), error.message, error.details) == (answer.status_code, type(back), back.message, back.details)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.code)
def test_only_what_may_be_tried_again_carries_retry_after(error: MyQueueError) -> None:
    assert ("1" if error.status in (429, 503) else None) == make_client(error).get("/thing").headers.get("Retry-After")


@pytest.mark.parametrize(("wait_seconds", "told"), [(0.001, "1"), (1.0, "1"), (1.001, "2"), (86_400.5, "86401")])
def test_whole_seconds_to_wait_are_told_where_they_are_known(wait_seconds: float, told: str) -> None:
    """At least one, and never less than what is meant."""
    assert told == make_client(QuotaExceededError(wait_seconds=wait_seconds)).get("/thing").headers["Retry-After"]


def test_a_bug_tells_the_caller_nothing_but_the_request_id(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        answer = make_client(KeyError("secret-detail")).get("/thing", headers={routes.REQUEST_ID: "r-7"})
    assert (500, InternalError.code) == (answer.status_code, answer.get_json()["error"]["code"])
    assert "r-7" in answer.get_json()["error"]["message"]
    assert "secret-detail" not in answer.text
    assert "secret-detail" in caplog.text, "the log must have it"


@pytest.mark.parametrize(("method", "path", "status", "code"), [
    ("GET", "/nothing", 404, "not_found"), ("DELETE", "/thing", 405, "method_not_allowed"), ("GET", "/livez/more", 404, "not_found"),
])
def test_what_flask_refuses_is_json_too(method: str, path: str, status: int, code: str) -> None:
    answer = make_client().open(path, method=method)
    assert (status, code) == (answer.status_code, answer.get_json()["error"]["code"])


def test_a_body_at_the_limit_passes_and_one_byte_more_does_not() -> None:
    client = make_client()
    assert {"length": 1_000} == client.post("/thing", data=b"x" * 1_000).get_json()
    answer = client.post("/thing", data=b"x" * 1_001)
    assert (413, "too_large") == (answer.status_code, answer.get_json()["error"]["code"])


def test_a_body_that_is_not_well_framed_is_the_caller_s_mistake() -> None:
    answer = make_client(NoMoreData(b"")).post("/thing")
    assert (400, "bad_request", "not_done") == (answer.status_code, *(answer.get_json()["error"][name] for name in ("code", "outcome")))


def test_a_face_with_error_handlers_of_its_own_does_not_take_it_for_a_bug() -> None:
    assert BadRequestError is type(from_bug(NoMoreData(b"")))


def test_options_names_the_methods_and_claims_no_page() -> None:
    answer = make_client().options("/thing")
    assert (200, b"", None) == (answer.status_code, answer.data, answer.headers.get("Content-Type"))
    assert {"GET", "HEAD", "OPTIONS", "POST"} == set(answer.headers["Allow"].split(", "))


@pytest.mark.parametrize("given", ["abc", "A-b_c.d:9", "x" * 64])
def test_a_request_id_that_was_given_is_kept(given: str) -> None:
    assert given == make_client().get("/thing", headers={routes.REQUEST_ID: given}).headers[routes.REQUEST_ID]


@pytest.mark.parametrize("given", ["", "x" * 65, "a b", "ü", "a;b", "a/b"])
def test_a_request_id_that_could_spoil_a_log_is_replaced(given: str) -> None:
    made = make_client().get("/thing", headers={routes.REQUEST_ID: given}).headers[routes.REQUEST_ID]
    assert (32, True) == (len(made), made.isalnum())


@pytest.mark.parametrize("path", ["/thing", "/nothing", "/livez"])
def test_every_answer_names_the_node_and_the_request(path: str) -> None:
    answer = make_client().get(path)
    assert "node-1" == answer.headers[routes.NODE]
    assert answer.headers[routes.REQUEST_ID]


def test_alive_and_ready_are_two_things() -> None:
    def not_ready() -> dict:
        raise OverloadedError("still starting")

    client = make_client(ready=not_ready)
    assert 200 == client.get("/livez").status_code
    assert (503, "overloaded") == (client.get("/readyz").status_code, client.get("/readyz").get_json()["error"]["code"])
    assert {"status": "ready", "node": "node-1", "more": 1} == make_client(ready=lambda: {"more": 1}).get("/readyz").get_json()


def test_metrics_count_by_route_and_not_by_path() -> None:
    client = make_client()
    client.get("/thing")
    for number in range(3):
        client.get(f"/nothing-{number}")
    text = client.get("/metrics").text
    assert 'myqueue_requests_total{method="GET",route="/thing",status="200"}' in text
    assert "nothing-" not in text
