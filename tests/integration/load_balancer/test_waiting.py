"""Readers that wait, through the balancer: what comes is passed on as it comes, and who is gone is not waited for."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import requests

from myqueue.service.client_socket import hung_up_by
from tests.integration.load_balancer.conftest import QUICK
from tests.support.crowd import Crowd, assert_undisturbed, times_of
from tests.support.events import EventStream
from tests.support.long import LONG
from tests.support.raw_http import RawConnection
from tests.support.service import Service, service
from tests.support.upstream import FakeCluster, Received, Reply
from tests.support.waiting import wait_until

RECORDS = "/v1/topics/logs/partitions/0/records"
EVENTS = (("Content-Type", "text/event-stream"),)
pytestmark = pytest.mark.timeout(60)


class Speaker:
    """A backend's answers: each says what is given to it and waits for more; None ends it."""

    def __init__(self) -> None:
        self.answers: list[queue.Queue[bytes | None]] = []

    def __call__(self, received: Received) -> Reply:
        said: queue.Queue[bytes | None] = queue.Queue()
        said.put(b": begun\n\n")
        self.answers.append(said)
        return Reply(200, iter(lambda: said.get(timeout=30), None), EVENTS)

    def say(self, text: bytes | None) -> None:
        for said in self.answers:
            said.put(text)


@pytest.fixture
def speaker(cluster: FakeCluster) -> Iterator[Speaker]:
    speaker = Speaker()
    cluster.brokers[1].answer = speaker
    yield speaker
    speaker.say(None)


def test_events_are_passed_on_one_by_one(speaker: Speaker, balancer: Service) -> None:
    with EventStream(balancer.port, RECORDS) as stream:
        assert (200, "text/event-stream") == (stream.status, stream.headers["Content-Type"])
        for number in range(20):
            said = time.monotonic()
            speaker.say(f"id: {number}\ndata: {number}\n\n".encode())
            event = stream.next()
            assert event is not None
            assert (str(number), str(number)) == (event.id, event.data)
            assert time.monotonic() - said < 0.25
        speaker.say(None)
        assert stream.next() is None


def test_where_to_resume_is_passed_on(cluster: FakeCluster, balancer: Service, speaker: Speaker) -> None:
    with EventStream(balancer.port, RECORDS + "?offset=3", last_event_id=7):
        [request] = cluster.brokers[1].received
    assert (RECORDS + "?offset=3", "7", "text/event-stream") == (request.target, request.header("Last-Event-ID"), request.header("Accept"))


@pytest.mark.parametrize("reset", [True, False])
def test_a_stream_whose_reader_is_gone_is_given_up_in_silence(cluster: FakeCluster, balancer: Service, speaker: Speaker, reset: bool) -> None:
    """The backend says nothing more, and learns of it all the same."""
    streams = [EventStream(balancer.port, RECORDS) for _ in range(5)]
    assert [] == hung_up(cluster)
    for stream in streams:
        stream.close(reset=reset)
    wait_until(lambda: len(hung_up(cluster)) == 5, timeout_seconds=5, what="the backend's connections to be closed")


@pytest.mark.parametrize("reset", [True, False])
def test_a_poll_whose_reader_is_gone_is_given_up(cluster: FakeCluster, balancer: Service, reset: bool) -> None:
    release = threading.Event()

    def stuck(received: Received) -> Reply:
        release.wait(30)
        return Reply()

    cluster.brokers[1].answer = stuck
    try:
        with Crowd(balancer.port, 5, first=f"GET {RECORDS}?wait_seconds=30 HTTP/1.1\r\nHost: x\r\n\r\n".encode()) as crowd:
            wait_until(lambda: len(cluster.brokers[1].received) == 5, what="five polls at the backend")
            crowd.hang_up(reset=reset)
            wait_until(lambda: len(hung_up(cluster)) == 5, timeout_seconds=5, what="the backend's connections to be closed")
    finally:
        release.set()
    assert 200 == requests.get(balancer.url + RECORDS, timeout=5).status_code


def hung_up(cluster: FakeCluster) -> list[socket.socket]:
    """The connections of broker 1 whose other side has closed."""
    return [sock for sock in list(cluster.brokers[1]._open) if sock.fileno() >= 0 and hung_up_by({"gunicorn.socket": sock})()]


def test_what_changes_something_is_not_given_up_when_its_client_is_gone(cluster: FakeCluster, balancer: Service) -> None:
    """Its backend carries it out in any case; its connection is used again."""
    release, done = threading.Event(), threading.Event()

    def slow(received: Received) -> Reply:
        if received.method == "POST":
            release.wait(10)
            done.set()
        return Reply()

    cluster.brokers[1].answer = slow
    with Crowd(balancer.port, 1, first=f"POST {RECORDS} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{{}}".encode()) as crowd:
        wait_until(lambda: cluster.brokers[1].received, what="the request at the backend")
        crowd.hang_up(reset=True)
        assert not done.wait(1.5), "this is the time in which it could be given up"
        assert [] == hung_up(cluster)
    release.set()
    assert done.wait(5)


def test_a_client_that_has_closed_its_half_gets_an_answer_that_is_there_at_once(balancer: Service, cluster: FakeCluster) -> None:
    with RawConnection(balancer.port) as connection:
        connection.send(f"GET {RECORDS} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        connection.sock.shutdown(socket.SHUT_WR)
        assert 200 == connection.answer().status


def test_a_stop_ends_streams_as_they_should_end_and_polls_with_a_503(cluster: FakeCluster, speaker: Speaker) -> None:
    with service("load_balancer", "--managers", cluster.managers[1].url, *QUICK, "--broker-timeout-seconds", "30", ready="/readyz") as balancer:
        streams = [EventStream(balancer.port, RECORDS) for _ in range(3)]
        release = threading.Event()

        def stuck(received: Received) -> Reply:
            release.wait(30)
            return Reply()

        cluster.brokers[2].answer = stuck
        poll = RECORDS.replace("/0/", "/1/")
        with Crowd(balancer.port, 3, first=f"GET {poll} HTTP/1.1\r\nHost: x\r\n\r\n".encode()) as crowd:
            wait_until(lambda: len(cluster.brokers[2].received) == 3, what="three polls at the backend")
            began = time.monotonic()
            assert 0 == balancer.terminate()
            assert time.monotonic() - began < 5
            assert [None] * 3 == [stream.next() for stream in streams]
            wait_until(lambda: crowd.answered(b"HTTP/1.1 503 ") == crowd.answered(b"Retry-After: 1") == 3, what="the polls' answers")
        release.set()
        for stream in streams:
            stream.close()


def test_many_readers_wait_beside_a_client_that_wants_its_answers(cluster: FakeCluster, speaker: Speaker) -> None:
    """With the threads that a balancer has by itself."""
    count, seconds = 200 if LONG else 60, 3.0
    with service("load_balancer", "--managers", cluster.managers[1].url, ready="/readyz") as balancer:
        other = RECORDS.replace("/0/", "/1/")
        quiet = times_of(balancer.port, other, seconds=seconds)
        with Crowd(balancer.port, count, first=f"GET {RECORDS} HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n".encode()) as crowd:
            wait_until(lambda: crowd.answered(b": begun") == count, timeout_seconds=20, what="every stream to have begun")
            assert_undisturbed(quiet, lambda: times_of(balancer.port, other, seconds=seconds))
            speaker.say(b"data: to all\n\n")
            wait_until(lambda: crowd.answered(b"data: to all") == count, what="every reader to have it")
