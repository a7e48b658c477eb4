from __future__ import annotations

import pytest
from flask import Flask, g, request

from load_balancer.proxy import head_of, path_of, target_of
from myqueue.errors import BadRequestError

APP = Flask(__name__)


@pytest.mark.parametrize(("raw", "target"), [
    ("/topics", "/topics"), ("/a%2Fb?x=%20&y=1?2", "/a%2Fb?x=%20&y=1?2"), ("/%2f%2F", "/%2f%2F"), ("//x", "//x"), ("/a/../b", "/a/../b"),
    ("http://host:1/a?b=http://c/d", "/a?b=http://c/d"), ("http://host", "/"), ("/x?u=http://y/z", "/x?u=http://y/z"),
])
def test_the_target_is_passed_on_as_it_came(raw: str, target: str) -> None:
    """Neither decoded, nor encoded, nor normalised; only the authority of the absolute form goes."""
    with APP.test_request_context("/"):
        request.environ["RAW_URI"] = raw
        assert target == target_of(request)


@pytest.mark.parametrize("raw", ["*", "host:443", "x"])
def test_a_target_that_is_no_path_is_refused(raw: str) -> None:
    with APP.test_request_context("/"), pytest.raises(BadRequestError):
        request.environ["RAW_URI"] = raw
        target_of(request)


@pytest.mark.parametrize(("target", "path"), [
    ("/a%2Fb?c", "/a/b"), ("/%69nternal/x", "/internal/x"), ("/a%252Fb", "/a%2Fb"), ("/%ff", "/\ufffd"), ("/gr%C3%BC%C3%9Fe", "/grüße"),
    ("/a+b", "/a+b"),
])
def test_the_path_is_compared_as_a_backend_sees_it(target: str, path: str) -> None:
    assert path == path_of(target)


def head(headers: list[tuple[str, str]], framing: tuple[str, str] | None = None) -> list[str]:
    with APP.test_request_context("/", method="POST", headers=headers, environ_base={"REMOTE_ADDR": "10.0.0.9"}):
        g.request_id = "r1"
        lines = head_of(request, "/x?y", framing).decode().split("\r\n")
    assert ["", ""] == lines[-2:]
    return lines[:-2]


def test_headers_of_one_hop_end_here() -> None:
    sent = head([("Host", "h"), ("Connection", "close, X-Private"), ("X-Private", "1"), ("Keep-Alive", "5"), ("TE", "trailers"), ("Upgrade", "h2c"),
                 ("Transfer-Encoding", "chunked"), ("Expect", "100-continue"), ("Proxy-Authorization", "secret"), ("Accept", "a/b")])
    assert ["POST /x?y HTTP/1.1", "Host: h", "Accept: a/b", "X-Forwarded-For: 10.0.0.9", "MyQueue-Request-Id: r1"] == sent


def test_a_connection_header_cannot_take_out_the_host() -> None:
    assert "Host: h" in head([("Host", "h"), ("Connection", "host")])


def test_the_client_is_added_to_those_it_came_through() -> None:
    assert "X-Forwarded-For: 1.2.3.4, 10.0.0.9" in head([("X-Forwarded-For", "1.2.3.4")])


def test_the_body_is_framed_as_asked() -> None:
    assert "Content-Length: 7" in head([("Content-Length", "99")], ("Content-Length", "7"))
