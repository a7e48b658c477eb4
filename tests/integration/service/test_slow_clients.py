"""Slow and silent clients, many of them, beside one that wants its answers: on the frame that all three services run on. 16 threads."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator

import pytest
import requests

from tests.support.crowd import Crowd, assert_undisturbed, times_of
from tests.support.long import LONG
from tests.support.raw_http import RawConnection
from tests.support.service import Service, service
from tests.support.waiting import wait_until

FRAME = "tests.support.frame_service"
COUNT = 200 if LONG else 60  # several times the threads
SECONDS = 3.0  # of a measurement; all of them end before the slow ones are cut off
POST = b"POST /echo HTTP/1.1\r\nHost: x\r\n"
SLOW = {
    "silent": (b"", b""),
    "a byte of the head a second": (b"", b"GET /echo HTTP/1.1\r\nHost: x\r\nX: 123456789\r\n\r\n"),
    "a byte of the body a second": (POST + b"Content-Length: 100\r\n\r\n", b"x" * 100),
    "a byte of a long body a second": (POST + b"Content-Length: 1000000\r\n\r\n", b"x" * 100),
    "a byte of a body in chunks a second": (POST + b"Transfer-Encoding: chunked\r\n\r\n", b"64\r\n" + b"x" * 100),
    "told to go on, and slow": (POST + b"Content-Length: 100\r\nExpect: 100-continue\r\n\r\n", b"x" * 100),
}
pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def frame() -> Iterator[Service]:
    with service(FRAME) as running:
        yield running


@pytest.fixture(scope="module")
def strict() -> Iterator[Service]:
    """With little patience."""
    with service(FRAME, "--request-seconds", "1", "--stalled-seconds", "1", "--connections-max", "40") as running:
        yield running


SHORT = ("silent", "a byte of the head a second", "a byte of a long body a second")  # the others in the long form


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=() if kind in SHORT else pytest.mark.long) for kind in SLOW])
def test_slow_clients_hold_no_thread_and_hold_up_nobody(frame: Service, kind: str) -> None:
    first, drip = SLOW[kind]
    quiet = times_of(frame.port, "/echo", seconds=SECONDS, body=b"hello")
    with Crowd(frame.port, COUNT, first=first, drip=drip):
        assert_undisturbed(quiet, lambda: times_of(frame.port, "/echo", seconds=SECONDS, body=b"hello"))


@pytest.mark.parametrize("kind", [kind for kind in SLOW if kind != "silent"])
def test_a_request_that_does_not_arrive_in_time_is_answered_and_cut_off(strict: Service, kind: str) -> None:
    first, drip = SLOW[kind]
    with Crowd(strict.port, 20, first=first, drip=drip, pause_seconds=0.2) as crowd:
        wait_until(lambda: crowd.ended == 20, what="every slow client to be cut off")
        for member in crowd.members:
            head, _, body = member.received.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n").partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Type: application/json\r\n")
            told = json.loads(body)
            assert ("slow_request", True, "failure") == (told["error"]["code"], told["error"]["retriable"], told["status"])
            assert member.ended_at is not None
            assert 0.9 < member.ended_at - crowd.began < 8


def test_a_long_body_that_stops_in_mid_way_is_cut_off_in_its_thread(strict: Service) -> None:
    with RawConnection(strict.port) as connection:
        began = time.monotonic()
        connection.send(POST + b"Transfer-Encoding: chunked\r\n\r\n1388\r\n" + b"x" * 5_000)
        answer = connection.answer("POST")
        assert (408, "slow_request") == (answer.status, json.loads(answer.body)["error"]["code"])
        assert 1 < time.monotonic() - began < 10
        assert b"" == connection.sock.recv(1)


def test_a_body_that_comes_slowly_and_at_a_fair_rate_is_taken(strict: Service) -> None:
    """Longer under way than an ordinary request may be, because more of it has come."""
    with RawConnection(strict.port) as connection:
        connection.send(POST + b"Content-Length: 60000\r\n\r\n")
        for _ in range(12):
            connection.send(b"x" * 5_000)
            time.sleep(0.2)  # the pace
        answer = connection.answer("POST")
    assert (200, 60_000) == (answer.status, len(json.loads(answer.body)["body"]))


def test_a_request_byte_by_byte_is_read_as_one_piece_would_be(frame: Service) -> None:
    for body in (b"Content-Length: 5\r\n\r\nhello", b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"):
        with RawConnection(frame.port) as connection:
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(2):
                for at in range(len(POST + body)):
                    connection.send((POST + body)[at:at + 1])
                assert "hello" == json.loads(connection.answer("POST").body)["body"]


def test_requests_that_come_in_one_piece_are_answered_in_order(frame: Service) -> None:
    """The last one comes whole only afterwards."""
    sent = b"".join(POST + b"Content-Length: 1\r\n\r\n" + str(number).encode() for number in range(5))
    with Crowd(frame.port, 1, first=sent[:-1], drip=sent[-1:], pause_seconds=0.5) as crowd:
        [member] = crowd.members
        wait_until(lambda: crowd.answered(b'"body":"4"'), what="the last answer")
        assert ["0", "1", "2", "3", "4"] == re.findall(r'"body":"(.)"', member.received.decode())


def test_a_reader_that_takes_nothing_of_its_answer_is_given_up(strict: Service) -> None:
    with Crowd(strict.port, 1, first=b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n") as crowd:
        wait_until(lambda: crowd.answered(b"alive"), what="an answer")
    readers = [RawConnection(strict.port) for _ in range(5)]
    try:
        for reader in readers:
            reader.send(b"GET /flood HTTP/1.1\r\nHost: x\r\n\r\n")
        wait_until(lambda: floods(strict) == 5, what="five answers without end")
        wait_until(lambda: floods(strict) == 0, what="their threads to be free again")
    finally:
        for reader in readers:
            reader.sock.close()


def floods(running: Service) -> int:
    return int(requests.get(running.url + "/counts", timeout=5).json()["floods"])


def test_a_client_that_never_closes_its_end_holds_up_nobody(frame: Service) -> None:
    """The server has closed its own; what it waits for then it does not wait for in its main loop."""
    quiet = times_of(frame.port, "/livez", seconds=1)
    with Crowd(frame.port, 20, first=b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") as crowd:
        assert_undisturbed(quiet, lambda: times_of(frame.port, "/livez", seconds=1))
        assert 20 == crowd.answered(b"alive")


def test_at_the_bound_the_connection_that_is_idle_for_longest_makes_room(strict: Service) -> None:
    with Crowd(strict.port, 45) as silent:
        began = time.monotonic()
        for _ in range(5):
            assert 200 == requests.get(strict.url + "/livez", timeout=5).status_code
        assert time.monotonic() - began < 3
        wait_until(lambda: silent.ended >= 5, what="some silent connections to be closed")
        assert all(member.ended_at for member in silent.members[:5]), "the first ones"


def test_more_slow_requests_than_connections_do_not_shut_others_out(strict: Service) -> None:
    with Crowd(strict.port, 45, first=POST):
        assert 200 == requests.get(strict.url + "/livez", timeout=5).status_code


@pytest.mark.parametrize("first", [POST, POST + b"Content-Length: 100000\r\n\r\n" + b"x" * 70_000, b"GET /flood HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_a_slow_client_does_not_hold_up_the_end(first: bytes) -> None:
    """One whose request is on its way, one that a thread waits for, and one that takes nothing of its answer."""
    with service(FRAME) as running, RawConnection(running.port) as slow:
        slow.send(first)
        assert 200 == requests.get(running.url + "/livez", timeout=5).status_code
        began = time.monotonic()
        assert 0 == running.terminate()
        assert time.monotonic() - began < 6


def test_what_a_system_does_not_allow_is_one_clear_sentence() -> None:
    with pytest.raises(AssertionError, match="lower --connections-max"), service(FRAME, "--connections-max", "100000000"):
        pass
