"""What the fuzzer calls wrong, and what it does not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from manager.batches import Outcome, verdict
from myqueue import errors
from myqueue.protocol import routes, wire
from tests.fuzz.ledger import Ledger, topic_in
from tests.fuzz.rules import Rules
from tests.fuzz.wire import FRAMING, NATIVE, PARTITION, QUEUE, Got, Sent, answers_in

RULES = Rules()
HEADERS = {"Content-Type": "application/json", routes.NODE: "n", routes.REQUEST_ID: "r", routes.FRESHNESS: "0.1", routes.APPLIED_INDEX: "3"}
PRODUCE = Sent(NATIVE, "produce_to_topic", "POST", routes.TOPIC_RECORDS.format(topic="t"))
LIST = Sent(NATIVE, "list_topics", "GET", routes.TOPICS)
RETRY = {"Retry-After": "1"}
INDEX = {routes.MIN_INDEX: "99"}


def got(status: int, body: Any, seconds: float = 0.1, **headers: str) -> Got:
    return Got(status, {**HEADERS, **{name.replace("_", "-"): value for name, value in headers.items()}}, json.dumps(body).encode(), seconds)


def native(error: errors.MyQueueError, **headers: str) -> Got:
    return got(error.status, wire.error_to_json(error), **headers)


def partly(*failures: errors.MyQueueError) -> errors.MyQueueError:
    """The answer to a batch whose part for partition 0 is stored, and not those for others."""
    error = verdict([Outcome(0, (1, 3), 40), *(Outcome(number, (0,), failure) for number, failure in enumerate(failures, 1))])
    assert error is not None
    return error


@pytest.mark.parametrize(("sent", "answer"), [
    (LIST, got(200, {"topics": []})),
    (LIST, native(errors.BadRequestError())),
    (LIST.with_header(routes.MIN_INDEX, "99"), native(errors.StaleMetadataError(), **RETRY)),
    (Sent(QUEUE, "GET /topics", "GET", "/topics"), got(200, {"status": "success"})),
    (Sent(QUEUE, "GET /size", "GET", "/size"), got(400, {"status": "failure", "message": "topic is missing"})),
    (Sent(PARTITION, "GET /", "GET", "/"), got(200, {"status": "Success"})),
    (Sent(PARTITION, "GET /logs", "GET", "/logs"), got(400, {"status": "Failure", "message": "topic is missing", "reason": "topic is missing"})),
    (Sent(FRAMING, "framing", "POST", ""), got(501, {"status": "failure"})),
    (Sent(NATIVE, "list_topics", "GET", routes.TOPICS + "?a=" + "x" * 9_000), got(414, {})),
    (Sent(FRAMING, "framing", "POST", ""), native(errors.NotLeaderError(), **RETRY)),
    (PRODUCE, native(partly(errors.QuotaExceededError()))),
])
def test_an_answer_as_it_must_be_is_not_told(sent: Sent, answer: Got) -> None:
    assert [] == RULES.broken(sent, answer)


@pytest.mark.parametrize(("sent", "answer", "says"), [
    (LIST, Got(0, {}, b"TimeoutError: timed out", 15.0), "there was no answer"),
    (LIST, got(200, {"topics": []}, 9.0), "it took 9.0 s"),
    (LIST, got(200, {"topics": [{"topic": "a"}]}), "topics.0"),
    (LIST, got(200, {"topics": []}, **{"Content-Type": "text/html"}), "no text/html with 200"),
    (LIST, Got(200, {**HEADERS}, b"<html>", 0.1), "not JSON"),
    (LIST, got(201, {"topics": []}), "no status 201"),
    (LIST, got(414, {}), "no status 414"),
    (LIST, native(errors.InternalError()), "internal: nobody provoked it"),
    (LIST, native(errors.UnavailableError(), **RETRY), "unavailable: nobody provoked it"),
    (LIST.with_header(routes.MIN_INDEX, "99"), native(errors.StaleMetadataError()), "without Retry-After"),
    (LIST, native(errors.StaleMetadataError(), **RETRY), "stale_metadata: nobody provoked it"),
    (LIST, native(errors.CorruptBatchError()), "error.code"),
    (PRODUCE, native(partly(errors.QuotaExceededError(), errors.UnavailableError())), "partly_stored: nobody provoked it"),
    (Sent(QUEUE, "GET /size", "GET", "/size"), got(404, {"status": "failure", "message": "topic is missing"}), "no status 404"),
    (Sent(QUEUE, "GET /size", "GET", "/size"), got(400, {"status": "Failure", "message": "topic is missing"}), "status is 'Failure'"),
    (Sent(QUEUE, "GET /size", "GET", "/size"), got(400, {"status": "failure"}), "no message"),
    (Sent(PARTITION, "GET /logs", "GET", "/logs"), got(400, {"status": "Failure", "message": "topic is missing"}), "differ"),
    (Sent(FRAMING, "framing", "POST", ""), got(500, {}), "500"),
    (Sent(FRAMING, "framing", "POST", ""), native(errors.OverloadedError(), **RETRY), "overloaded: nobody provoked it"),
    (Sent(FRAMING, "framing", "POST", ""), got(400, "text"), "no JSON object"),
])
def test_an_answer_that_is_wrong_is_told(sent: Sent, answer: Got, says: str) -> None:
    assert any(says in sentence for sentence in RULES.broken(sent, answer)), RULES.broken(sent, answer)


def test_of_a_batch_that_is_partly_stored_just_that_is_expected_to_be_there() -> None:
    ledger = Ledger()
    ledger.note(PRODUCE, native(partly(errors.QuotaExceededError())))
    assert 2 == ledger.total
    assert "a b" == topic_in(replace(PRODUCE, target="/v1/topics/a%20b/records?x=1"))


def test_all_answers_of_a_connection_are_read() -> None:
    one = b'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}'
    assert [200, 200, 400] == [answer.status for answer in answers_in(one + one + b"HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n", 0.0)[0]]
    assert "cannot be read" in (answers_in(one + b"<html>rubbish", 0.0)[1] or "")
    assert ([], None) == answers_in(b"HTTP/1.1 100 Continue\r\n\r\n", 0.0)  # and then the sending had ended
