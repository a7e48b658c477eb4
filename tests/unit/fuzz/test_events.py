"""What the fuzzer calls wrong in a stream, and what it does not."""

from __future__ import annotations

from typing import Any

import pytest

from broker.api.stream import KEEP_ALIVE, error_event, event, opening
from myqueue import errors
from myqueue.protocol import routes
from myqueue.protocol.batch import ENTRIES_TYPE
from myqueue.protocol.operations import EVENTS_TYPE
from myqueue.protocol.types import Message
from tests.fuzz.rules import Rules
from tests.fuzz.wire import NATIVE, Got, Sent

RULES = Rules()
OPENING = opening("t", 0, 4, resumable=False)
FIRST, SECOND = (event(Message("t", 0, offset, b"v\n\xff")) for offset in (4, 5))
FAILED = error_event(errors.UnknownTopicError())
HEADERS = {"Content-Type": EVENTS_TYPE + "; charset=utf-8", routes.NODE: "n", routes.REQUEST_ID: "r", routes.EPOCH: "1"}
PATH = routes.RECORDS.format(topic="t", partition=0)


def broken(body: bytes, *, is_open: bool = True, headers: dict[str, str] = HEADERS, **asked: str) -> list[str]:
    sent = Sent(NATIVE, "read_records", "GET", PATH, {"Accept": EVENTS_TYPE} | {name.replace("_", "-"): value for name, value in asked.items()})
    return RULES.broken(sent, Got(200, headers, body, 0.1, is_open))


@pytest.mark.parametrize("body", [
    OPENING, OPENING + FIRST, OPENING + FIRST + KEEP_ALIVE + SECOND, OPENING + FIRST + SECOND[:7], opening("t", 0, 4, resumable=True) + FIRST])
@pytest.mark.parametrize("last_id", ["", "3"])
def test_a_stream_as_it_must_be_is_not_told(body: bytes, last_id: str) -> None:
    assert [] == broken(body, last_event_id=last_id)


def test_a_stream_may_end_with_an_error_or_between_two_events() -> None:
    assert [] == broken(OPENING + FIRST + FAILED, is_open=False) + broken(OPENING + FIRST, is_open=False)


@pytest.mark.parametrize(("body", "options", "says"), [
    (FIRST, {}, "begins with"),
    (OPENING + FIRST[:-4], {"is_open": False}, "ends within an event"),
    (OPENING + SECOND, {}, "4 is due"),
    (OPENING + FIRST + FIRST, {}, "5 is due"),
    (OPENING + FIRST.replace(b"id: 4", b"id: 5"), {}, "has the id 5"),
    (OPENING + FIRST, {"last_event_id": "7"}, "begins at offset 4, not at 8"),
    (opening("t", 0, 4, resumable=True).replace(b"id: 3", b"id: 4"), {}, "resumed behind 4"),
    (OPENING + b"id: 4\ndata: {\n\n", {}, "no message"),
    (OPENING + b"id: 4\ndata: {}\n\n", {}, "Message"),
    (OPENING + b"event: other\ndata: {}\n\n", {}, "named 'other'"),
    (OPENING + b"event: error\ndata: {}\n\n", {"is_open": False}, "Error"),
    (OPENING + FAILED, {}, "goes on after an error"),
    (OPENING + FAILED + FIRST, {"is_open": False}, "behind the error"),
    (OPENING + b"rubbish\n\n", {}, "no field"),
    (OPENING, {"headers": {name: value for name, value in HEADERS.items() if name != routes.EPOCH}}, "MyQueue-Epoch is missing"),
    (OPENING, {"accept": "text/html"}, "text/event-stream, and application/json was asked for"),
    (OPENING, {"accept": ENTRIES_TYPE}, f"and {ENTRIES_TYPE} was asked for"),
])
def test_a_stream_that_is_wrong_is_told(body: bytes, options: dict[str, Any], says: str) -> None:
    asked = {("Accept" if name == "accept" else name): value for name, value in options.items()}
    assert any(says in sentence for sentence in broken(body, **asked)), broken(body, **asked)
