"""A body in one piece is what gunicorn's own reader would give, and leaves the connection as that would."""

from __future__ import annotations

import io
import math
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from gunicorn.config import Config
from gunicorn.http.parser import RequestParser

from myqueue.errors import SlowRequestError
from myqueue.service.client_socket import ClientSocket
from myqueue.service.limits import Limits
from myqueue.service.whole_body import whole_body

BODY = bytes(range(256)) * 2_000
NEXT = b"GET /next HTTP/1.1\r\n\r\n"
pytestmark = pytest.mark.timeout(20)


class Worker:
    """An owner with little patience."""

    limits, ends_at = Limits(request_seconds=0.3, stalled_seconds=0.3), math.inf


@pytest.fixture
def ends() -> Iterator[tuple[ClientSocket, socket.socket]]:
    ours, theirs = socket.socketpair()
    client = ClientSocket(ours, Worker())
    yield client, theirs
    client.close()
    theirs.close()


def head(length: int) -> bytes:
    return b"POST /x HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % length


def parsed(client: ClientSocket) -> tuple[RequestParser, dict[str, Any]]:
    """The parser of a connection, and the environment of its first request."""
    parser = RequestParser(Config(), client, ("127.0.0.1", 1))
    return parser, {"wsgi.input": next(parser).body, "gunicorn.socket": client}


@pytest.mark.parametrize("gathered", [0, 4_096])
def test_a_body_is_whole_and_the_next_request_is_read_behind_it(ends, gathered: int) -> None:
    client, theirs = ends
    sent = head(len(BODY)) + BODY + NEXT
    theirs.sendall(sent[:gathered])
    if gathered:
        assert client.gather()
    sender = threading.Thread(target=theirs.sendall, args=(sent[gathered:],))
    sender.start()
    parser, environ = parsed(client)
    assert BODY == whole_body(environ, len(BODY))
    sender.join(10)
    assert parser.finish_body()
    assert "/next" == next(parser).path


@pytest.mark.parametrize("begun", [0, 2], ids=["nobody", "somebody"])
def test_a_small_body_is_read_on_and_nothing_of_the_next_request_behind_it(ends, begun: int) -> None:
    """Whether or not somebody has begun to read it."""
    client, theirs = ends
    theirs.sendall(head(6) + b"abcdef" + NEXT)
    parser, environ = parsed(client)
    assert b"abcdef"[:begun] == environ["wsgi.input"].read(begun)
    assert b"abcdef"[begun:] == whole_body(environ, 6)
    assert parser.finish_body()
    assert "/next" == next(parser).path


def test_a_client_that_ends_before_leaves_a_shorter_body(ends) -> None:
    client, theirs = ends
    theirs.sendall(head(len(BODY)) + BODY[:9])
    theirs.close()
    _, environ = parsed(client)
    assert BODY[:9] == whole_body(environ, len(BODY))
    assert environ["wsgi.input"].failed  # the connection is of no more use


def test_a_body_that_stops_is_given_up_and_its_connection_too(ends) -> None:
    client, theirs = ends
    theirs.sendall(head(len(BODY)) + BODY[:9])
    _, environ = parsed(client)
    with pytest.raises(SlowRequestError):
        whole_body(environ, len(BODY))
    assert environ["wsgi.input"].failed
    assert client.is_late


def test_another_server_s_body_is_read_as_it_reads() -> None:
    assert b"abc" == whole_body({"wsgi.input": io.BytesIO(b"abcdef")}, 3)
