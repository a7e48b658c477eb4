"""What goes through comes out the same, and nothing is sent twice that must not be."""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import requests

from tests.integration.load_balancer.conftest import QUICK
from tests.support.raw_http import RawConnection
from tests.support.service import Service, service
from tests.support.upstream import FakeCluster, Received, Reply, as_json
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[FakeCluster, Service]]:
    """One balancer for the module: no test here ends a node."""
    fake = FakeCluster()
    try:
        with service("load_balancer", "--managers", fake.managers[1].url, *QUICK, ready="/readyz") as balancer:
            yield fake, balancer
    finally:
        fake.stop()


@pytest.fixture
def cluster(running: tuple[FakeCluster, Service]) -> FakeCluster:
    fake, balancer = running
    fake.reset()
    wait_until(lambda: all(m["live"] for m in requests.get(balancer.url + "/readyz", timeout=5).json()["managers"]), what="every manager to be used")
    return fake


@pytest.fixture
def balancer(running: tuple[FakeCluster, Service]) -> Service:
    return running[1]


RECORDS = "/v1/topics/logs/partitions/0/records"


def answer_with(cluster: FakeCluster, reply: Reply) -> None:
    """Every node answers so, but for the managers' polls."""
    for node in cluster.nodes():
        node.answer = _but_polls(node.answer, reply)


def _but_polls(before: object, reply: Reply) -> object:
    return lambda received: before(received) if received.path in ("/readyz", "/v1/cluster") else reply


def only(cluster: FakeCluster) -> Received:
    [request] = cluster.received()
    return request


@pytest.mark.parametrize("target", [
    "/topics/a%2Fb", "/topics/a%2fb", "/topics/a%252Fb", "/topics/a:b", "/topics/..%2Ftopics", "/topics/../topics", "/topics//x", "/topics/%C3%BC",
    "/size?topic=a%2Fb&topic=a+b&x=%20&&=1", "/size?", "/size?a=b?c#", "/v1/topics/a%20b", "/topics;x=1", "/topics/%00", "/~a/'\"<>",
])
def test_the_target_arrives_byte_for_byte(cluster: FakeCluster, balancer: Service, target: str) -> None:
    """Nothing is decoded, encoded, joined or resolved on the way, so no name turns into another and no route escapes."""
    with RawConnection(balancer.port) as connection:
        assert 200 == connection.ask(target).status
    assert target.partition("#")[0] == only(cluster).target


def test_get_bodies_and_two_calls_on_one_connection_arrive_apart(cluster: FakeCluster, balancer: Service) -> None:
    """Query arguments, a JSON body, and both, one after the other on one kept-alive connection."""
    calls = [("/consumer/consume?topic=a&consumer_id=1", b""), ("/consumer/consume", b'{"topic": "a", "consumer_id": 1}'),
             ("/size?topic=a", b'{"topic": "b"}'), ("/size?topic=a", b"")]
    with RawConnection(balancer.port) as connection:
        for target, body in calls:
            assert 200 == connection.ask(target, body=body, headers={"Content-Type": "application/json"}).status
    received = sorted((request.target, request.body) for request in cluster.received())
    assert sorted(calls) == received


def test_two_requests_sent_at_once_are_answered_in_order(cluster: FakeCluster, balancer: Service) -> None:
    one = b"GET /size?n=1 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
    with RawConnection(balancer.port) as connection:
        connection.send(one + one.replace(b"n=1", b"n=2").replace(b"{}", b"[]"))
        first = connection.sock.recv(65_536)
        wait_until(lambda: len(cluster.received()) == 2, what="both requests")
    assert first.startswith(b"HTTP/1.1 200")
    assert [("/size?n=1", b"{}"), ("/size?n=2", b"[]")] == sorted((request.target, request.body) for request in cluster.received())


def test_headers_and_request_id_go_through_and_the_client_is_named(cluster: FakeCluster, balancer: Service) -> None:
    answer = requests.post(balancer.url + "/topics", data=b"{}", timeout=10, headers={
        "MyQueue-Request-Id": "abc-1", "X-Custom": "ü".encode("latin-1"), "Accept-Encoding": "br", "Cookie": "a=b; c=d", "Content-Type": "text/odd",
        "Authorization": "Bearer t", "Connection": "keep-alive, X-Gone", "X-Gone": "1"})
    request = only(cluster)
    assert ("abc-1", "abc-1") == (request.header("MyQueue-Request-Id"), answer.headers["MyQueue-Request-Id"])
    assert "127.0.0.1" == request.header("X-Forwarded-For")
    wanted = {"X-Custom": "ü", "Accept-Encoding": "br", "Cookie": "a=b; c=d", "Content-Type": "text/odd", "Authorization": "Bearer t"}
    assert wanted == {name: request.header(name) for name in wanted}
    assert (None, None) == (request.header("X-Gone"), request.header("Connection"))


def test_an_answer_comes_back_as_it_was(cluster: FakeCluster, balancer: Service) -> None:
    packed = b"\x1f\x8b not really gzip"
    answer_with(cluster, Reply(418, packed, (("Content-Type", "a/b"), ("Content-Encoding", "gzip"), ("ETag", '"x"'), ("Set-Cookie", "a=1"),
                                             ("Set-Cookie", "b=2"), ("Connection", "X-Gone"), ("X-Gone", "1"), ("Server", "theirs"))))
    with RawConnection(balancer.port) as connection:
        answer = connection.ask("/topics")
    assert (418, packed) == (answer.status, answer.body)
    assert ("a/b", "gzip", '"x"') == tuple(answer.headers[name] for name in ("Content-Type", "Content-Encoding", "ETag"))
    assert str(len(packed)) == answer.headers["Content-Length"]
    assert ["a=1", "b=2"] == answer.headers.get_all("Set-Cookie")
    assert (None, ["gunicorn"], 1) == (answer.headers["X-Gone"], answer.headers.get_all("Server"), len(answer.headers.get_all("Date")))


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
def test_answers_without_a_body_leave_the_connection_usable(cluster: FakeCluster, balancer: Service, method: str, status: int) -> None:
    answer_with(cluster, Reply(status, b"x" * 100_000 if method == "HEAD" else b"", ()))
    with RawConnection(balancer.port) as connection:
        answers = [connection.ask("/topics", method=method) for _ in range(3)]
    assert [(status, b"")] * 3 == [(answer.status, answer.body) for answer in answers]
    assert [None] * 3 == [answer.headers["Content-Type"] for answer in answers]


def test_a_large_body_goes_through_whole_in_both_directions(cluster: FakeCluster, balancer: Service) -> None:
    data = hashlib.shake_256(b"seed").digest(8 << 20)
    cluster.brokers[1].answer = lambda received: Reply(200, received.body)
    answer = requests.post(balancer.url + RECORDS, data=data, timeout=20)
    assert answer.content == data
    assert str(len(data)) == cluster.brokers[1].received[0].header("Content-Length")


def test_a_chunked_upload_is_passed_on_while_it_arrives(cluster: FakeCluster, balancer: Service) -> None:
    arrived = threading.Event()

    def pieces() -> Iterator[bytes]:
        yield b"a" * 8_192
        wait_until(lambda: cluster.brokers[1].received and cluster.brokers[1].received[0].pieces, what="the first piece at the backend")
        arrived.set()
        yield b"b" * 10

    assert 200 == requests.post(balancer.url + RECORDS, data=pieces(), timeout=20).status_code
    assert arrived.is_set()
    assert b"a" * 8_192 + b"b" * 10 == cluster.brokers[1].received[0].body


def test_an_answer_is_passed_on_while_it_arrives(cluster: FakeCluster, balancer: Service) -> None:
    go_on = threading.Event()

    def pieces() -> Iterator[bytes]:
        yield b"first"
        assert go_on.wait(10)
        yield b"second"

    cluster.brokers[1].answer = lambda received: Reply(200, pieces())
    with requests.get(balancer.url + RECORDS, stream=True, timeout=10) as answer:
        chunks = answer.iter_content(None)
        assert b"first" == next(chunks)
        go_on.set()
        assert b"second" == b"".join(chunks)


def test_expect_100_continue_is_answered_here(cluster: FakeCluster, balancer: Service) -> None:
    with RawConnection(balancer.port) as connection:
        connection.send(b"POST /topics HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert connection.sock.recv(100).startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
        connection.send(b"{}")
        assert 200 == connection.answer("POST").status
    assert (b"{}", None) == (only(cluster).body, only(cluster).header("Expect"))


def test_a_body_that_says_it_is_too_large_is_refused_in_the_face_s_format_and_reaches_nobody(cluster: FakeCluster, balancer: Service) -> None:
    with RawConnection(balancer.port) as connection:
        connection.send(b"POST /producer/produce HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000\r\n\r\n")
        answer = connection.answer("POST")
    assert (413, True) == (answer.status, b'"status":"failure"' in answer.body)
    assert [] == cluster.received()


CONSUMES = [("GET", "/consumer/consume?topic=a"), ("POST", "/consumer/consume"), ("GET", "/messages"), ("GET", "/logs"),
            ("POST", "/consumer/register")]


@pytest.mark.parametrize(("method", "path"), [*CONSUMES, ("POST", "/producer/produce"), ("POST", RECORDS)])
def test_what_is_not_a_plain_read_is_sent_once_and_then_unknown(cluster: FakeCluster, balancer: Service, method: str, path: str) -> None:
    """The backend takes the request and dies without a word."""
    answer_with(cluster, Reply(drop=True))
    answer = requests.request(method, balancer.url + path, timeout=10)
    body = answer.json()
    assert (503, "1", 1) == (answer.status_code, answer.headers["Retry-After"], len(cluster.received()))
    assert "unknown" == body.get("error", body)["outcome"]
    assert "broker-1" in answer.text if path == RECORDS else "manager-" in answer.text


def test_a_plain_read_that_broke_off_is_sent_to_the_next_manager(cluster: FakeCluster, balancer: Service) -> None:
    cluster.managers[2].answer = _but_polls(cluster.managers[2].answer, Reply(drop=True))
    assert ["manager-3"] * 4 == [requests.get(balancer.url + "/size", timeout=5).headers["MyQueue-Node"] for _ in range(4)]


def test_idle_connections_that_were_closed_meanwhile_are_not_used(cluster: FakeCluster, balancer: Service) -> None:
    """A backend that recycles its workers closes idle connections; no produce may fail for it."""
    for _ in range(25):
        assert 200 == requests.post(balancer.url + "/producer/produce", timeout=5).status_code
        cluster.managers[1].hang_up()
    assert 25 == len(cluster.managers[1].received)


def test_connections_are_used_again(cluster: FakeCluster, balancer: Service) -> None:
    for _ in range(10):
        requests.post(balancer.url + "/producer/produce", timeout=5)
    assert 1 == len({request.port for request in cluster.managers[1].received})


def test_a_connection_is_not_used_again_after_a_long_body_that_was_refused(cluster: FakeCluster, balancer: Service) -> None:
    """A backend need not have read it; one that has not ends the connection in a moment, perhaps under the next request."""
    for _ in range(3):
        requests.get(balancer.url + "/nothing", data=b"x" * 100_000, timeout=5)
    assert 3 == len({request.port for node in cluster.managers.values() for request in node.received})


def test_a_silent_backend_is_503_unknown_after_the_time_out(cluster: FakeCluster, balancer: Service) -> None:
    release = threading.Event()
    before = cluster.managers[1].answer

    def answer(received: Received) -> Reply:
        if received.path == "/producer/produce":
            release.wait(10)
        return before(received)

    cluster.managers[1].answer = answer
    began = time.monotonic()
    body = requests.post(balancer.url + "/producer/produce", timeout=10).json()
    release.set()
    assert ("unknown", "manager-1") == (body["outcome"], body["component"])
    assert 1.8 < time.monotonic() - began < 5


@pytest.mark.parametrize("reply", [Reply(body=b"abc", length=10, cut=True), Reply(body=[b"abc"] * 2, cut=True)])
def test_an_answer_that_breaks_off_is_never_taken_for_whole(cluster: FakeCluster, balancer: Service, reply: Reply) -> None:
    """A short one becomes a clean 503; one that was already being passed on ends with a broken connection."""
    answer_with(cluster, reply)
    try:
        answer = requests.post(balancer.url + "/producer/produce", timeout=10)
    except requests.exceptions.ChunkedEncodingError:
        assert not isinstance(reply.body, bytes)
    else:
        assert (503, "unknown") == (answer.status_code, answer.json()["outcome"])


def test_a_stuck_broker_does_not_stop_the_others(cluster: FakeCluster, balancer: Service) -> None:
    """It may hold its share of the threads; more is refused at once, and other nodes are still reached."""
    release = threading.Event()

    def stuck(received: Received) -> Reply:
        release.wait(10)
        return Reply()

    cluster.brokers[1].answer = stuck
    with RawClients(balancer.port, 40) as clients:
        clients.send(f"POST {RECORDS} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode())
        wait_until(lambda: len(cluster.brokers[1].received) == 12, what="the share to be used up")
        began = time.monotonic()
        assert "broker-2" == requests.get(balancer.url + RECORDS.replace("/0/", "/1/"), timeout=5).headers["MyQueue-Node"]
        assert time.monotonic() - began < 1
        refused = requests.post(balancer.url + RECORDS, timeout=5)
        assert (503, "overloaded", "not_done") == (refused.status_code, *(refused.json()["error"][name] for name in ("code", "outcome")))
        release.set()
    wait_until(lambda: requests.post(balancer.url + RECORDS, timeout=5).status_code == 200, what="the broker to be used again")


class RawClients:
    """Many connections that send and do not wait."""

    def __init__(self, port: int, count: int) -> None:
        self._socks = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(count)]

    def __enter__(self) -> RawClients:
        return self

    def __exit__(self, *exc: object) -> None:
        for sock in self._socks:
            sock.close()

    def send(self, data: bytes) -> None:
        for sock in self._socks:
            sock.sendall(data)


def test_an_answer_of_503_is_passed_on_as_it_is_and_the_table_looked_at_again(cluster: FakeCluster, balancer: Service) -> None:
    answer_with(cluster, as_json({"status": "failure", "message": "no quorum", "outcome": "not_done"}, 503))
    seen = len(cluster.managers[1].polls)
    assert "no quorum" == requests.post(balancer.url + "/topics", timeout=5).json()["message"]
    wait_until(lambda: len(cluster.managers[1].polls) >= seen + 2, what="another look at the table")
