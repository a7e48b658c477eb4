"""Bounded calls, and account of who answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from myqueue.client.connection import Connection
from myqueue.client.transport import Response
from myqueue.errors import BadRequestError, NotFoundError, OutcomeUnknownError, UnavailableError, UnreachableError
from myqueue.protocol import wire
from myqueue.protocol.types import TopicPartition
from myqueue.testing import InMemoryTransport, ManualClock

PARTITION_PATH = "/v1/topics/a/partitions/0"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def transport(clock: ManualClock) -> InMemoryTransport:
    made = InMemoryTransport(clock=clock)
    made.create_topic("a")
    return made


@pytest.fixture
def connection(transport: InMemoryTransport, clock: ManualClock) -> Connection:
    return Connection("x:1,y:1", transport=transport, clock=clock, pause=clock.advance)


def test_the_second_address_serves_when_the_first_is_away(connection, transport) -> None:
    transport.unreachable.add("http://x:1")
    assert ["a"] == [topic["topic"] for topic in connection.persistently(lambda: connection.call("GET", "/v1/topics"), 5.0)["topics"]]


def test_retries_are_bounded_and_end_with_the_last_error(connection, transport, clock) -> None:
    transport.unreachable.add("*")
    began = clock.monotonic()
    with pytest.raises(UnreachableError):
        connection.persistently(lambda: connection.call("GET", "/v1/topics"), 7.0)
    assert 4.0 < clock.monotonic() - began <= 7.0


def test_a_caller_s_mistake_is_not_repeated(connection, transport) -> None:
    with pytest.raises(NotFoundError):
        connection.persistently(lambda: connection.call("GET", "/v1/nonsense"), 7.0)
    assert 1 == len(transport.requests)


def test_an_error_that_a_node_wrote_is_an_answer_and_silence_is_not(connection, transport, clock) -> None:
    transport.unreachable.add("*")
    with pytest.raises(UnreachableError):
        connection.call("GET", "/v1/topics")
    clock.advance(10.0)
    assert connection.is_silent(10.0)
    transport.unreachable.clear()
    with pytest.raises(NotFoundError):
        connection.call("GET", "/v1/nonsense")
    assert not connection.is_silent(0.001)


def test_records_go_to_the_leader(connection, transport) -> None:
    connection.refresh_until(["a"], 1.0)
    connection.partition_call(TopicPartition("a", 0), "GET", PARTITION_PATH)
    assert ("GET", f"http://broker-1:5001{PARTITION_PATH}") == transport.requests[-1]


def test_a_stale_picture_is_refreshed_once_in_a_burst_of_failures(connection, transport, clock) -> None:
    connection.refresh_until(["a"], 1.0)
    transport.unreachable.add("http://broker-1:5001")
    with pytest.raises(UnreachableError):
        connection.partition_call(TopicPartition("a", 0), "GET", PARTITION_PATH)
    assert connection.is_stale
    before = len(transport.requests)
    connection.refresh(when_stale=True)
    assert before == len(transport.requests), "too soon after the last one"
    clock.advance(1.0)
    connection.refresh(when_stale=True)
    connection.refresh(when_stale=True)
    assert before + 1 == len(transport.requests)


def test_a_topic_that_never_shows_up_is_waited_for_within_bounds(connection) -> None:
    with pytest.raises(UnavailableError, match="does not show topic b"):
        connection.refresh_until(["a", "b"], 2.0)


def test_after_close_nothing_is_repeated(connection, transport) -> None:
    connection.close()

    def attempt() -> None:
        raise OutcomeUnknownError

    with pytest.raises(OutcomeUnknownError):
        connection.persistently(attempt, 1_000.0)


def test_an_answer_that_the_caller_caused_keeps_its_class(connection, transport) -> None:
    with pytest.raises(BadRequestError):
        connection.partition_call(TopicPartition("a", 0), "POST", PARTITION_PATH + "/records", body=b"nonsense")


def test_a_manager_that_is_behind_neither_replaces_the_picture_nor_settles_the_doubt(connection, transport) -> None:
    connection.refresh_until(["a"], 1.0)
    known, connection.is_stale = connection.snapshot, True
    transport._version -= 1
    assert known is connection.refresh()
    assert connection.is_stale


def test_a_picture_of_an_election_is_asked_for_again(connection, transport, clock, monkeypatch) -> None:
    """Else what has no leader now would go through the balancer until something fails."""
    connection.refresh_until(["a"], 1.0)
    assert not connection.is_stale
    elected = connection.snapshot
    info = elected.partitions[TopicPartition("a", 0)]
    electing = replace(elected, partitions={TopicPartition("a", 0): replace(info, leader=None, status="ELECTING")})
    with monkeypatch.context() as patched:
        patched.setattr(wire, "snapshot_from_json", lambda body: electing)
        connection.refresh()
    assert connection.is_stale
    clock.advance(1.0)
    connection.refresh(when_stale=True)
    assert not connection.is_stale


class Managers:
    """Answers everything as of index 41, and keeps which index each call asked for."""

    def __init__(self) -> None:
        self.wanted: list[str | None] = []

    def request(self, method, url, *, params=None, headers=None, body=None, read_timeout_seconds=10.0, repeatable=False) -> Response:
        self.wanted.append((headers or {}).get("MyQueue-Prefer-Index"))
        return Response(200, {"MyQueue-Applied-Index": "41"}, b"{}")


def test_a_read_asks_for_what_was_written_just_before(clock: ManualClock) -> None:
    """Whichever manager answers it; after a while everybody has it."""
    managers = Managers()
    connection = Connection("x:1", transport=managers, clock=clock)
    for method in ("GET", "POST", "GET"):
        connection.call(method, "/v1/topics")
    clock.advance(10.1)
    connection.call("GET", "/v1/topics")
    assert [None, None, "41", None] == managers.wanted
