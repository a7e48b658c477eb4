"""Every wait for a client ends."""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from myqueue.errors import SlowRequestError
from myqueue.service.client_socket import ClientSocket, hung_up_by
from myqueue.service.limits import Limits

BODY_MAX = 1 << 20
pytestmark = pytest.mark.timeout(20)


class Worker:
    """An owner with little patience."""

    def __init__(self) -> None:
        self.limits, self.ends_at = Limits(request_seconds=0.2, stalled_seconds=0.2), math.inf


@pytest.fixture
def ends() -> Iterator[tuple[ClientSocket, socket.socket, Worker]]:
    ours, theirs = socket.socketpair()
    worker = Worker()
    client = ClientSocket(ours, worker)
    yield client, theirs, worker
    client.close()
    theirs.close()


def test_what_was_gathered_is_received_first_and_then_the_rest(ends) -> None:
    client, theirs, _ = ends
    theirs.sendall(b"abc")
    assert client.gather()
    theirs.sendall(b"def")
    assert [b"ab", b"c", b"def"] == [client.recv(2), client.recv(8), client.recv(8)]


def test_gathering_waits_for_nothing_and_tells_an_end(ends) -> None:
    client, theirs, _ = ends
    assert client.gather()
    assert client.is_silent
    theirs.close()
    assert not client.gather()


def test_a_request_that_stops_is_given_up_and_its_connection_too(ends) -> None:
    client, theirs, _ = ends
    theirs.sendall(b"abc")
    assert b"abc" == client.recv(8)
    began = time.monotonic()
    with pytest.raises(SlowRequestError):
        client.recv(8)
    assert client.is_late
    assert time.monotonic() - began < 2


def test_a_place_is_filled_with_what_was_gathered_and_all_that_comes(ends) -> None:
    """And with no byte that comes behind it, however it arrives."""
    client, theirs, _ = ends
    sent, target = bytes(range(256)) * 4_096, bytearray(1 << 20)
    theirs.sendall(sent[:100])
    assert client.gather()
    sender = threading.Thread(target=theirs.sendall, args=(sent[100:] + b"next",))
    sender.start()
    assert 0 == client.fill(memoryview(target))
    sender.join(10)
    assert sent == target
    assert b"next" == client.recv(8)


def test_what_is_missing_of_a_place_is_told_where_the_other_side_ends(ends) -> None:
    client, theirs, _ = ends
    theirs.sendall(b"abc")
    theirs.close()
    target = bytearray(8)
    assert 5 == client.fill(memoryview(target))
    assert b"abc\0\0\0\0\0" == target


@pytest.mark.parametrize("rate", [0, 20], ids=["nothing more", "a trickle"])
def test_a_place_that_is_not_filled_in_time_is_given_up(ends, rate: int) -> None:
    client, theirs, _ = ends
    theirs.sendall(b"abc")
    is_over = threading.Event()

    def trickle() -> None:
        while rate and not is_over.wait(1 / rate):
            theirs.sendall(b"x")

    sender = threading.Thread(target=trickle)
    sender.start()
    began = time.monotonic()
    with pytest.raises(SlowRequestError):
        client.fill(memoryview(bytearray(1 << 20)))
    is_over.set()
    sender.join(10)
    assert client.is_late
    assert time.monotonic() - began < 2


def test_who_does_not_wait_fills_nothing(ends) -> None:
    client, _, _ = ends
    client.setblocking(False)
    with pytest.raises(BlockingIOError):
        client.fill(memoryview(bytearray(8)))
    assert not client.is_late


def test_the_wait_of_who_asks_is_kept_too(ends) -> None:
    client, _, _ = ends
    client.settimeout(0.05)
    with pytest.raises(TimeoutError):
        client.recv(8)
    client.setblocking(False)
    with pytest.raises(BlockingIOError):
        client.recv(8)
    assert not client.is_late


def test_what_was_read_too_much_begins_the_next_request(ends) -> None:
    client, theirs, _ = ends
    theirs.sendall(b"first")
    client.gather()
    assert client.deadline < math.inf
    client.recv(8)
    client.put_back(b"")
    assert (True, math.inf) == (client.is_silent, client.deadline)
    client.put_back(b"GET / HTTP/1.1\r\n\r\n")
    assert client.is_ready(body_bytes_max=BODY_MAX)
    assert client.deadline < math.inf


def test_a_reader_that_takes_nothing_is_given_up(ends) -> None:
    client, theirs, _ = ends
    began = time.monotonic()
    with pytest.raises(BrokenPipeError):
        client.sendall(b"x" * (8 << 20))
    assert 0.2 <= time.monotonic() - began < 2
    assert theirs.recv(10)


def test_a_reader_that_takes_a_little_now_and_then_gets_all(ends) -> None:
    client, theirs, _ = ends
    received, size = bytearray(), 2 << 20

    def read() -> None:
        while len(received) < size:
            received.extend(theirs.recv(65_536))

    reader = threading.Thread(target=read)
    reader.start()
    client.sendall(b"x" * size)
    reader.join(5)
    assert size == len(received)


@pytest.mark.parametrize("wait", [lambda client: client.recv(8), lambda client: client.sendall(b"x" * (8 << 20))])
def test_a_worker_that_ends_waits_for_nobody(ends, wait) -> None:
    client, _, worker = ends
    worker.limits, worker.ends_at = Limits(request_seconds=30, stalled_seconds=30), time.monotonic() + 0.2
    began = time.monotonic()
    with pytest.raises((SlowRequestError, BrokenPipeError)):
        wait(client)
    assert time.monotonic() - began < 2


def test_who_waits_to_be_told_to_go_on_is_told_once(ends) -> None:
    client, theirs, _ = ends
    theirs.sendall(b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
    client.gather()
    assert [False, False] == [client.is_ready(body_bytes_max=BODY_MAX) for _ in range(2)]
    assert b"HTTP/1.1 100 Continue\r\n\r\n" == theirs.recv(100)
    theirs.sendall(b"abc")
    client.gather()
    assert client.is_ready(body_bytes_max=BODY_MAX)


def test_a_hang_up_is_seen_and_what_is_sent_is_none(ends) -> None:
    client, theirs, _ = ends
    is_gone = hung_up_by({"gunicorn.socket": client})
    theirs.sendall(b"more")
    assert not is_gone()
    theirs.close()
    assert is_gone()
    assert not hung_up_by({})(), "without a socket nobody is known to be gone"


HEAD = b"POST /x HTTP/1.1\r\nContent-Length: 3\r\n\r\n"


def test_a_request_that_follows_is_waited_for_a_moment(ends) -> None:
    """In whatever pieces it comes; not beyond that moment, and not where the other side has closed."""
    client, theirs, _ = ends
    sender = threading.Timer(0.02, lambda: [theirs.sendall(HEAD), time.sleep(0.02), theirs.sendall(b"abc")])
    sender.start()
    assert client.becomes_ready(5.0, body_bytes_max=BODY_MAX)
    sender.join(5)
    assert HEAD + b"abc" == client.recv(1_000)
    began = time.monotonic()
    theirs.sendall(HEAD)
    assert not client.becomes_ready(0.05, body_bytes_max=BODY_MAX)
    assert time.monotonic() - began < 2
    assert HEAD == client.recv(1_000), "what came of it is still there"
    theirs.close()
    assert not client.becomes_ready(5.0, body_bytes_max=BODY_MAX)
    assert time.monotonic() - began < 4
