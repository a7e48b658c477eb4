"""The pure parts of a stream: what an event looks like, and where one begins."""

from __future__ import annotations

import json

import pytest
from flask import Flask, request

from broker.api import stream
from myqueue.errors import BadRequestError, UnknownTopicError
from myqueue.protocol.types import Message


def test_an_event_is_a_message_in_one_line_with_its_offset() -> None:
    message = Message("t", 0, 7, "a\nb\u2028c".encode(), b"\xff", (("h", b"1"),), 5)
    lines = stream.event(message).decode().split("\n")
    assert ["id: 7", "", ""] == [lines[0], *lines[2:]]
    assert lines[1].startswith("data: ")
    told = json.loads(lines[1].removeprefix("data: "))
    assert {"offset": 7, "timestamp": 5, "value": "a\nb\u2028c", "key_base64": "/w==", "headers": [{"name": "h", "value": "1"}]} == told


def test_an_error_is_an_event_of_its_own_name_with_the_envelope() -> None:
    name, data, *rest = stream.error_event(UnknownTopicError("the topic\nwas deleted", topic="t")).decode().split("\n")
    assert ("event: error", ["", ""]) == (name, rest)
    assert ("unknown_topic", {"topic": "t"}) == tuple(json.loads(data.removeprefix("data: "))["error"][field] for field in ("code", "details"))


def test_only_a_stream_from_the_latest_says_where_to_resume_before_a_message_has_come() -> None:
    assert b": t/0 from offset 5\n\n" == stream.opening("t", 0, 5, resumable=False)
    assert b": t/0 from offset 5\nid: 4\n\n" == stream.opening("t", 0, 5, resumable=True)


@pytest.mark.parametrize("sizes", [[], [1], [stream.PIECE_BYTES], [10] * 5_000, [stream.PIECE_BYTES * 3, 1, stream.PIECE_BYTES - 1, 1]])
def test_events_leave_in_pieces_of_bounded_size_and_whole(sizes: list[int]) -> None:
    events = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    pieces = list(stream.joined(events))
    assert b"".join(events) == b"".join(pieces)
    assert all(len(piece) < stream.PIECE_BYTES + max(sizes) for piece in pieces)
    assert all(pieces)


@pytest.mark.parametrize(("query", "last", "begin"), [("", None, "earliest"), ("?offset=latest", None, "latest"), ("?offset=3", None, 3),
                                                      ("?offset=3", "7", 8), ("?offset=latest", "-1", 0), ("?offset=2", "", 2)])
def test_a_stream_begins_behind_the_last_event_else_at_the_offset(query: str, last: str | None, begin: int | str) -> None:
    with Flask("test").test_request_context(f"/{query}", headers={} if last is None else {"Last-Event-ID": last}):
        assert begin == stream.first_offset(request)


@pytest.mark.parametrize(("query", "last"), [("?offset=soon", None), ("", "x"), ("", "-2"), ("", "1.5"), ("", "9" * 30), ("?wait_seconds=x", None)])
def test_what_is_no_place_is_refused(query: str, last: str | None) -> None:
    with Flask("test").test_request_context(f"/{query}", headers={} if last is None else {"Last-Event-ID": last}), pytest.raises(BadRequestError):
        stream.first_offset(request)


@pytest.mark.parametrize(("accept", "wanted"), [("text/event-stream", True), ("Text/Event-Stream;q=0.9, */*", True), ("*/*", False), ("", False)])
def test_a_stream_is_what_asks_for_one(accept: str, wanted: bool) -> None:
    with Flask("test").test_request_context("/", headers={"Accept": accept}):
        assert wanted == stream.is_wanted(request)
