"""The real transport before a server that breaks off."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
import urllib3
from requests.adapters import DEFAULT_CA_BUNDLE_PATH

from myqueue.client.transport import RequestsTransport, _Pools, call
from myqueue.errors import ConfigurationError, OutcomeUnknownError, UnauthorizedError, UnavailableError, UnreachableError

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def _read_request(connection: socket.socket) -> bytes:
    """The whole of it: what is left unread when the connection is closed resets it, and takes the answer along."""
    said = b""
    while b"\r\n\r\n" not in said:
        said += connection.recv(65_536) or b"\r\n\r\n"
    head = said.partition(b"\r\n\r\n")[0].lower()
    length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
    while len(said) < len(head) + 4 + length and (more := connection.recv(65_536)):
        said += more
    return said


@contextmanager
def server(answers: list[bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """Reads one request per answer, an empty answer breaks the connection; after the last one nobody listens any more."""
    seen: list[bytes] = []
    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(10)

    def serve() -> None:
        for number, answer in enumerate(answers, 1):
            connection, _ = listening.accept()
            with connection:
                seen.append(_read_request(connection))
                if number == len(answers):
                    listening.close()
                connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/x", seen
    finally:
        thread.join(15)
        listening.close()


@pytest.fixture
def transport() -> Iterator[RequestsTransport]:
    transport = RequestsTransport()
    yield transport
    transport.close()


def test_a_repeat_that_reaches_nobody_leaves_the_first_outcome_unknown(transport: RequestsTransport) -> None:
    """The server took the request and died: that nobody listens any more does not mean that nothing was done."""
    with server([b""]) as (url, seen), pytest.raises(OutcomeUnknownError):
        transport.request("PUT", url, body=b"a", repeatable=True)
    assert len(seen) == 1


def test_a_request_that_may_be_repeated_is_sent_once_more(transport: RequestsTransport) -> None:
    with server([b"", ANSWER]) as (url, seen):
        assert transport.request("PUT", url, body=b"a", repeatable=True).body == b"ok"
    assert len(seen) == 2


def test_one_that_may_not_is_not(transport: RequestsTransport) -> None:
    with server([b""]) as (url, seen), pytest.raises(OutcomeUnknownError):
        transport.request("POST", url, body=b"a")
    assert len(seen) == 1


def test_where_nobody_listens_nothing_was_sent(transport: RequestsTransport) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(UnreachableError):
        transport.request("POST", f"http://127.0.0.1:{port}/x", body=b"a", repeatable=True)


REFUSAL = json.dumps({"error": {"code": "unauthorized", "message": "the signature's time is more than 60 s from this node's clock"}}).encode()


def test_a_signature_that_another_node_refuses_is_not_the_client_s_fault(transport: RequestsTransport) -> None:
    """The clock of one of them is wrong: clients whose calls they pass on are told to come again, not to show other credentials."""
    refused = b"HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(REFUSAL), REFUSAL)
    with server([refused, refused]) as (url, _):
        with pytest.raises(UnavailableError, match=r"does not take this node's signature: .* clock; nothing was done") as told:
            call(transport, "POST", url.replace("/x", "/internal/propose"), json={})
        assert (told.value.status, told.value.outcome) == (503, "not_done")
        with pytest.raises(UnauthorizedError):
            call(transport, "GET", url.replace("/x", "/v1/topics"))


def test_a_request_arrives_as_it_was_given(transport: RequestsTransport) -> None:
    with server([ANSWER.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")] * 3) as (url, seen):
        transport.request("GET", url, params={"topic": ["a b", "ü"], "limit": 3, "absent": None}, headers={"X-One": "1"})
        transport.request("POST", url)
        transport.request("PUT", url + "?kept=%2F&also=a b", body=b"ab")
    first, second, third = (said.decode().partition("\r\n\r\n") for said in seen)
    assert "GET /x?topic=a+b&topic=%C3%BC&limit=3 HTTP/1.1" == first[0].splitlines()[0]
    assert {"X-One: 1", "User-Agent: myqueue"} <= set(first[0].splitlines())
    assert "Content-Length: 0" in second[0].splitlines()
    assert ("PUT /x?kept=%2F&also=a%20b HTTP/1.1", "ab") == (third[0].splitlines()[0], third[2])


@pytest.mark.parametrize("size", [1, 65_536, 65_537, 3_000_000])
def test_a_small_body_leaves_together_with_its_head(transport: RequestsTransport, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """One call of the system, and one wake-up on the other side; a larger body is not copied for that."""
    sent: list[int] = []
    original = urllib3.connection.HTTPConnection.send
    with server([ANSWER]) as (url, seen):

        def send(connection: urllib3.connection.HTTPConnection, data: bytes) -> None:
            if connection.port == urlsplit(url).port:  # clients of other tests of this process may be at work in their threads
                sent.append(len(data))
            original(connection, data)

        monkeypatch.setattr(urllib3.connection.HTTPConnection, "send", send)
        assert transport.request("POST", url, body=b"x" * size).status == 200
    assert len(sent) == (1 if size <= 65_536 else 2)
    assert sum(sent) == len(seen[0])
    assert seen[0].endswith(b"\r\n\r\n" + b"x" * size)


def test_a_connection_is_used_again(transport: RequestsTransport) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                for _ in range(2):
                    _read_request(connection)
                    connection.sendall(ANSWER)

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/x"
        assert [b"ok", b"ok"] == [transport.request("GET", url, read_timeout_seconds=5).body for _ in range(2)]
        thread.join(5)


@pytest.mark.parametrize("url", ["ftp://localhost/x", "http://:1/x", "localhost:1/x"])
def test_what_is_no_address_is_an_error_of_ours(transport: RequestsTransport, url: str) -> None:
    with pytest.raises(OutcomeUnknownError, match="failed"):
        transport.request("GET", url)


@pytest.mark.parametrize("token", ["a\nb", "a\r\nX-Other: 1", "…"])
def test_a_token_that_no_header_carries_is_refused_before_anything_is_sent(token: str) -> None:
    with pytest.raises(ConfigurationError, match="token"):
        RequestsTransport(token=token)


def test_a_server_with_tls_must_show_a_certificate_that_an_authority_signed() -> None:
    pools = _Pools(1)
    assert (pools.of("https://localhost:1").cert_reqs, pools.of("https://localhost:1").ca_certs) == ("CERT_REQUIRED", DEFAULT_CA_BUNDLE_PATH)
    pools.close()
