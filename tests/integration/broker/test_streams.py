"""Readers that wait at a real broker: events as they come, ends as they should, and nobody who is gone is waited for."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from broker import reads as reads_module
from broker.api.bodies import value_blocks
from db.log_store import Slice
from myqueue.errors import OffsetOutOfRangeError
from myqueue.protocol import routes
from myqueue.protocol.types import PartitionId
from tests.integration.broker.conftest import TOPIC_ID, running_service
from tests.support.broker_process import BrokerProcess, broker_process
from tests.support.crowd import Crowd, p99
from tests.support.events import EventStream
from tests.support.manager_stub import ManagerStub
from tests.support.raw_http import RawConnection
from tests.support.waiting import wait_until

WAKE_SECONDS = 0.25
pytestmark = pytest.mark.timeout(60)
_numbers = itertools.count(1)


@pytest.fixture
def topic(broker: BrokerProcess) -> tuple[str, int]:
    """A fresh topic of one partition, and its id."""
    number = next(_numbers)
    broker.appoint(f"topic-{number}", topic_id=number)
    return f"topic-{number}", number


def records(topic: tuple[str, int]) -> str:
    return f"/v1/topics/{topic[0]}/partitions/0/records"


def append(broker: BrokerProcess, topic: tuple[str, int], *values: str) -> None:
    broker.call("POST", records(topic), {"records": [{"value": value} for value in values]})


def waiting(broker: BrokerProcess) -> int:
    text = requests.get(broker.url + routes.METRICS, timeout=5).text
    return int(float(next(line.split()[-1] for line in text.splitlines() if line.startswith("myqueue_long_polls"))))


def test_events_are_the_messages_of_a_json_read_in_order(broker: BrokerProcess, topic: tuple[str, int]) -> None:
    broker.call("POST", records(topic), {"records": [{"value": "a\nb"}, {"value_base64": "/wA=", "key": "k", "headers": {"h": "x"}, "timestamp": 5},
                                                     *({"value": str(number)} for number in range(500))]})
    wanted = broker.call("GET", records(topic))["records"]
    with EventStream(broker.port, records(topic)) as stream:
        assert (200, "text/event-stream", "no-store") == (stream.status, stream.headers["Content-Type"], stream.headers["Cache-Control"])
        events = stream.take(502)
        assert wanted == [event.json for event in events]
        assert [("message", str(offset)) for offset in range(502)] == [(event.name, event.id) for event in events]
        append(broker, topic, "later")
        [event] = stream.take(1)
        assert ("502", "later") == (event.id, event.json["value"])


def test_a_stream_resumes_behind_the_last_event(broker: BrokerProcess, topic: tuple[str, int]) -> None:
    append(broker, topic, "0", "1", "2")
    with EventStream(broker.port, records(topic) + "?offset=earliest", last_event_id=1) as stream:
        assert "2" == stream.take(1)[0].json["value"]
    with EventStream(broker.port, records(topic) + "?offset=1") as stream:
        assert "1" == stream.take(1)[0].json["value"]


def test_a_stream_begins_at_a_time(broker: BrokerProcess, topic: tuple[str, int]) -> None:
    """At the first message since; where there is none, with the next one that comes. Of this topic alone, where its identity is named."""
    append(broker, topic, "0")
    first = broker.call("GET", records(topic))["records"][0]["timestamp"]
    wait_until(lambda: time.time_ns() // 1_000 > first + 1_000, timeout_seconds=5, what="the clock to go on")
    append(broker, topic, "1")
    with EventStream(broker.port, records(topic) + f"?timestamp={first + 1}&topic_id={topic[1]}") as stream:
        assert "1" == stream.take(1)[0].json["value"]
    with EventStream(broker.port, records(topic) + f"?timestamp={first + 10**12}") as stream:
        append(broker, topic, "2")
        assert "2" == stream.take(1)[0].json["value"]


def test_a_stream_from_the_latest_that_is_lost_before_a_message_resumes_there(broker: BrokerProcess, topic: tuple[str, int]) -> None:
    append(broker, topic, "before")
    with EventStream(broker.port, records(topic) + "?offset=latest") as stream:
        assert b": " == stream.response.peek(2)[:2]
        assert stream.response.readline()
        assert b"id: 0\n" == stream.response.readline()
    append(broker, topic, "between")
    with EventStream(broker.port, records(topic) + "?offset=latest", last_event_id=0) as stream:
        assert "between" == stream.take(1)[0].json["value"]


@pytest.mark.parametrize(("query", "last", "status", "code"), [
    ("?offset=soon", None, 400, "bad_request"), ("", "soon", 400, "bad_request"), ("", "-2", 400, "bad_request"),
    ("?until_offset=1", None, 400, "bad_request"),
    ("?offset=2", None, 416, "offset_out_of_range"), ("", "1", 416, "offset_out_of_range"), ("?offset=-1", None, 416, "offset_out_of_range")])
def test_what_is_wrong_is_an_ordinary_answer(broker: BrokerProcess, topic: tuple[str, int], query: str, last: str | None, status: int,
                                             code: str) -> None:
    append(broker, topic, "only")
    with EventStream(broker.port, records(topic) + query, last_event_id=last) as stream:
        assert (status, "application/json") == (stream.status, stream.headers["Content-Type"])
        assert code == json.loads(stream.response.read())["error"]["code"]


def test_a_partition_that_is_not_here_is_an_ordinary_answer(broker: BrokerProcess, managers: ManagerStub) -> None:
    for path, status in (("/v1/topics/absent/partitions/0/records", 404), ("/v1/topics/a%20b/partitions/0/records", 400),
                         ("/v1/topics/absent/partitions/x/records", 400)):
        with EventStream(broker.port, path) as stream:
            assert (status, "application/json") == (stream.status, stream.headers["Content-Type"])


def test_a_head_request_says_how_a_stream_would_begin_and_ends(broker: BrokerProcess, topic: tuple[str, int]) -> None:
    answer = requests.head(broker.url + records(topic), headers={"Accept": "text/event-stream"}, timeout=5)
    assert (200, "text/event-stream") == (answer.status_code, answer.headers["Content-Type"])
    wait_until(lambda: waiting(broker) == 0, what="nobody to wait")


def test_a_topic_that_is_deleted_ends_its_readers_at_once(broker: BrokerProcess, topic: tuple[str, int]) -> None:
    with EventStream(broker.port, records(topic)) as stream, ThreadPoolExecutor(1) as pool:
        poll = pool.submit(requests.get, broker.url + records(topic), params={"wait_seconds": 30}, timeout=40)
        wait_until(lambda: waiting(broker) == 2, what="both to wait")
        began = time.monotonic()
        broker.call("POST", routes.I_DROP, {"topic_ids": [topic[1]]})
        event, answer = stream.next(), poll.result(10)
        assert event is not None
        assert ("error", "unknown_topic") == (event.name, event.json["error"]["code"])
        assert stream.next() is None
        assert (404, "unknown_topic") == (answer.status_code, answer.json()["error"]["code"])
        assert time.monotonic() - began < 2


def test_a_stream_ends_when_the_leadership_moves(broker: BrokerProcess, topic: tuple[str, int]) -> None:
    append(broker, topic, "0")
    with EventStream(broker.port, records(topic)) as stream:
        assert "0" == stream.take(1)[0].json["value"]
        began = time.monotonic()
        broker.call("POST", routes.I_PROMISE, {"promises": [{"topic_id": topic[1], "topic": topic[0], "config": {}, "partition": 0, "epoch": 2}]})
        event = stream.next()
        assert event is not None
        assert ("error", "not_leader", True) == (event.name, event.json["error"]["code"], event.json["error"]["retriable"])
        assert stream.next() is None
        assert time.monotonic() - began < 2
    with EventStream(broker.port, records(topic)) as stream:
        assert (503, "1") == (stream.status, stream.headers["Retry-After"])


@pytest.mark.parametrize("reset", [True, False])
def test_a_reader_that_is_gone_gives_its_place_back(broker: BrokerProcess, topic: tuple[str, int], reset: bool) -> None:
    """In silence: no keep-alive is due. What it would have read is there for the next one."""
    streams = [EventStream(broker.port, records(topic) + "?offset=latest") for _ in range(5)]
    poll = f"GET {records(topic)}?wait_seconds=30 HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    crowd = Crowd(broker.port, 5, first=poll)
    wait_until(lambda: waiting(broker) == 10, what="ten to wait")
    for stream in streams:
        stream.close(reset=reset)
    crowd.hang_up(reset=reset)
    wait_until(lambda: waiting(broker) == 0, timeout_seconds=5, what="their places")
    append(broker, topic, "kept")
    assert ["kept"] == [record["value"] for record in broker.call("GET", records(topic))["records"]]


def test_a_poll_wakes_soon_after_the_append(broker: BrokerProcess, topic: tuple[str, int]) -> None:
    """p99 of a hundred; an event of a stream takes no longer."""
    after = {"poll": list[float](), "stream": list[float]()}
    with EventStream(broker.port, records(topic)) as stream, ThreadPoolExecutor(1) as pool:
        for offset in range(100):
            poll = pool.submit(_poll, broker, topic, offset)
            wait_until(lambda: waiting(broker) == 2, what="both to wait")
            append(broker, topic, str(offset))
            appended = time.monotonic()
            assert str(offset) == stream.take(1)[0].json["value"]
            after["stream"].append(time.monotonic() - appended)
            after["poll"].append(poll.result(5) - appended)
    assert p99(after["poll"]) < WAKE_SECONDS, after
    assert p99(after["stream"]) < WAKE_SECONDS, after


def _poll(broker: BrokerProcess, topic: tuple[str, int], offset: int) -> float:
    """Wait for one message; when it came."""
    answer = requests.get(broker.url + records(topic), params={"offset": offset, "wait_seconds": 20}, timeout=25)
    assert [str(offset)] == [record["value"] for record in answer.json()["records"]]
    return time.monotonic()


def test_a_poll_for_which_nothing_comes_ends_at_its_time_with_an_empty_answer(broker: BrokerProcess, topic: tuple[str, int]) -> None:
    began = time.monotonic()
    answer = broker.call("GET", records(topic), wait_seconds=2)
    assert ([], 0) == (answer["records"], answer["next_offset"])
    assert 2 <= time.monotonic() - began < 3


@pytest.fixture(scope="module")
def few(postgres, managers: ManagerStub) -> Iterator[BrokerProcess]:
    """With eight threads, six of which may wait."""
    with postgres.database("broker") as url, broker_process(url, managers.url, arguments=("--threads", "8")) as running:
        running.appoint("few", topic_id=1)
        yield running


def test_one_reader_too_many_is_refused_and_others_are_served(few: BrokerProcess) -> None:
    path = records(("few", 1))
    streams = [EventStream(few.port, path + "?offset=latest") for _ in range(6)]
    try:
        with EventStream(few.port, path) as refused:
            assert (503, "application/json", "1") == (refused.status, refused.headers["Content-Type"], refused.headers["Retry-After"])
            assert "overloaded" == json.loads(refused.response.read())["error"]["code"]
        append(few, ("few", 1), "to all")
        assert ["to all"] * 6 == [stream.take(1)[0].json["value"] for stream in streams]
    finally:
        for stream in streams:
            stream.close()
    wait_until(lambda: waiting(few) == 0, what="their places")


def test_a_slow_reader_is_not_read_for_ahead_and_does_not_hold_up_the_end(postgres, managers: ManagerStub) -> None:
    """Forty MiB wait for it; the process holds no such thing."""
    with postgres.database("broker") as url, broker_process(url, managers.url) as running:
        running.appoint("slow", topic_id=1)
        for _ in range(40):
            append(running, ("slow", 1), *["x" * 65_536] * 16)
        before = resident_bytes(running)
        streams = [EventStream(running.port, records(("slow", 1))) for _ in range(4)]
        wait_until(lambda: waiting(running) == 4, what="the streams")
        assert ["0", "1"] == [event.id for event in streams[0].take(2)]
        assert resident_bytes(running) - before < 20 << 20
        began = time.monotonic()
        running.process.terminate()
        assert 0 == running.process.wait(15)
        assert time.monotonic() - began < 6
        for stream in streams:
            stream.close()


def resident_bytes(running: BrokerProcess) -> int:
    """Of the worker."""
    [worker] = Path(f"/proc/{running.process.pid}/task/{running.process.pid}/children").read_text().split()
    [line] = [line for line in Path(f"/proc/{worker}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) << 10


def test_a_clean_stop_ends_streams_as_they_should_end(postgres, managers: ManagerStub) -> None:
    with postgres.database("broker") as url, broker_process(url, managers.url) as running:
        running.appoint("stop", topic_id=1)
        append(running, ("stop", 1), "0")
        streams = [EventStream(running.port, records(("stop", 1))) for _ in range(10)]
        assert ["0"] * 10 == [stream.take(1)[0].json["value"] for stream in streams]
        began = time.monotonic()
        running.process.terminate()
        assert [None] * 10 == [stream.next() for stream in streams]
        assert 0 == running.process.wait(15)
        assert time.monotonic() - began < 5
        for stream in streams:
            stream.close()


def test_a_client_of_http_1_0_gets_a_stream_that_ends_with_its_connection(broker: BrokerProcess, topic: tuple[str, int]) -> None:
    append(broker, topic, "0")
    with RawConnection(broker.port) as connection:
        connection.send(f"GET {records(topic)} HTTP/1.0\r\nAccept: text/event-stream\r\n\r\n".encode())
        received = b""
        while b'"value":"0"' not in received:
            received += connection.sock.recv(65_536)
    assert b"chunked" not in received


# --- the loop behind a stream, in this process ---

P = PartitionId(TOPIC_ID, 0)


def test_silence_is_told_now_and_then(postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads_module, "KEEP_ALIVE_SECONDS", 0.3)
    with postgres.database("broker") as url, running_service(url) as service:
        begin, epoch = service.reads.begin_stream(P, "latest")
        slices, began = service.reads.follow(P, begin, epoch, is_gone=lambda: False), time.monotonic()
        assert [None, None] == [next(slices), next(slices)]
        assert 0.6 <= time.monotonic() - began < 3


def test_a_reader_below_which_all_was_trimmed_is_told(postgres) -> None:
    with postgres.database("broker") as url, running_service(url) as service:
        for number in range(3):
            blocks, size = value_blocks(b"%d" % number * 200_000)
            service.append(P, blocks, None, size_bytes=size)
        begin, epoch = service.reads.begin_stream(P, "earliest")
        slices = service.reads.follow(P, begin, epoch, is_gone=lambda: False)
        first = next(slices)
        assert isinstance(first, Slice)
        assert first.record_count < 3, "nothing is read before it is asked for"
        service.trim(P, 3)
        with pytest.raises(OffsetOutOfRangeError) as refused:
            next(slices)
        assert (3, 3) == (refused.value.earliest, refused.value.latest)


def test_a_reader_that_hangs_up_ends_the_loop(postgres) -> None:
    gone = threading.Event()
    with postgres.database("broker") as url, running_service(url) as service:
        begin, epoch = service.reads.begin_stream(P, "latest")
        with ThreadPoolExecutor(1) as pool:
            over = pool.submit(list, service.reads.follow(P, begin, epoch, is_gone=gone.is_set))
            gone.set()
            assert [] == over.result(5)
