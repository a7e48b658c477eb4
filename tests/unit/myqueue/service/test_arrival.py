"""When a request is given a thread, byte by byte."""

from __future__ import annotations

import pytest

from myqueue.service.arrival import BYTES_PER_SECOND, GATHERED_BYTES_MAX, LONG_BYTES, asks_to_go_on, deadline, has_arrived
from myqueue.service.limits import Limits

BODY_MAX = 1 << 20


def arrived(data: bytes) -> bool:
    return has_arrived(bytearray(data), body_bytes_max=BODY_MAX)


def first_whole(data: bytes) -> int:
    """How many bytes it takes."""
    return next(size for size in range(len(data) + 1) if arrived(data[:size]))


@pytest.mark.parametrize("head", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"rubbish\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n"])
def test_a_request_without_a_body_is_whole_with_the_end_of_its_head(head: bytes) -> None:
    assert len(head) == first_whole(head)


@pytest.mark.parametrize("field", [b"Content-Length: 5", b"content-length:5", b"CONTENT-LENGTH:  5  "])
def test_a_body_is_waited_for(field: bytes) -> None:
    data = b"POST / HTTP/1.1\r\nHost: x\r\n" + field + b"\r\n\r\nab\r\n\r"
    assert len(data) == first_whole(data)
    assert arrived(data + b"GET / HT")


@pytest.mark.parametrize("fields", [b"Content-Length: -1", b"Content-Length: a", b"Content-Length: 3\r\nContent-Length: 5", b"Content-Length: 3, 5",
                                    b"Content-Length: " + b"9" * 30, b"Content-Length: %d" % (BODY_MAX + 1), b"Transfer-Encoding: odd",
                                    b"Content-Length: 3\r\nTransfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked"])
def test_what_will_be_refused_is_not_waited_for(fields: bytes) -> None:
    assert arrived(b"POST / HTTP/1.1\r\n" + fields + b"\r\n\r\n")


def test_a_body_is_gathered_whole_as_far_as_memory_is_given_to_it_and_a_longer_one_is_passed_on() -> None:
    head = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n"
    assert not arrived(head % GATHERED_BYTES_MAX + b"x" * (GATHERED_BYTES_MAX - 1))
    assert arrived(head % GATHERED_BYTES_MAX + b"x" * GATHERED_BYTES_MAX)
    longer = head % (GATHERED_BYTES_MAX + 1)
    assert not arrived(longer + b"x" * (LONG_BYTES - 1))
    assert arrived(longer + b"x" * LONG_BYTES)


def test_a_head_without_end_is_given_to_the_parser_to_refuse() -> None:
    assert not arrived(b"G" * (GATHERED_BYTES_MAX - 1))
    assert arrived(b"G" * GATHERED_BYTES_MAX)


@pytest.mark.parametrize("body", [b"0\r\n\r\n", b"3\r\nabc\r\n0\r\n\r\n", b"3\r\nabc\r\n000;a=b\r\n\r\n", b"3\r\nabc\r\n0\r\nTrailer: x\r\n\r\n"])
def test_a_body_in_chunks_is_waited_for_until_its_last_one(body: bytes) -> None:
    head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert first_whole(head + body) > len(head)
    assert arrived(head + body)
    assert arrived(head + body + b"POST / HTTP/1.1\r\nContent-Le")


def test_wrong_chunks_are_given_to_the_parser_to_refuse() -> None:
    assert arrived(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n")


def test_a_long_body_in_chunks_is_passed_on_while_it_arrives() -> None:
    head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2000\r\n"
    assert not arrived(head + b"x" * (LONG_BYTES - 10))
    assert arrived(head + b"x" * LONG_BYTES)


def test_who_waits_to_be_told_to_go_on_is_known_by_the_head() -> None:
    head = b"POST / HTTP/1.1\r\nExpect: 100-Continue\r\nContent-Length: 3\r\n\r\n"
    assert asks_to_go_on(head)
    assert not asks_to_go_on(head[:-1])
    assert not asks_to_go_on(b"POST / HTTP/1.1\r\nContent-Length: 40\r\n\r\n\r\nExpect: 100-continue\r\n")
    assert not asks_to_go_on(head.replace(b"100-Continue", b"tea"))


def test_a_request_has_its_time_and_more_for_what_has_come() -> None:
    limits = Limits(request_seconds=10.0)
    assert 15.0 == deadline(limits, began=5.0, received_bytes=0)
    assert 18.0 == deadline(limits, began=5.0, received_bytes=3 * BYTES_PER_SECOND)
