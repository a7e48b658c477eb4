"""A quota at a real broker of two worker processes: told on every face, and kept by both together."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import requests

from myqueue.protocol.batch import BATCH_TYPE, pack
from myqueue.protocol.types import Record
from tests.support.broker_process import BrokerProcess, broker_process
from tests.support.manager_stub import ManagerStub

RATE = 20_000
RUN_SECONDS = 3.0
CLIENTS = 6


@pytest.fixture(scope="module")
def two_workers(postgres, managers: ManagerStub) -> Iterator[BrokerProcess]:
    with ExitStack() as stack:
        url = stack.enter_context(postgres.database("broker"))
        yield stack.enter_context(broker_process(url, managers.url, arguments=("--workers", "2")))


def records(topic: str) -> str:
    return f"/v1/topics/{topic}/partitions/0/records"


def refused_appends(broker: BrokerProcess) -> float:
    shown = requests.get(broker.url + "/metrics", timeout=10).text
    return float(re.search(r"^myqueue_appends_over_quota_total (\S+)$", shown, re.MULTILINE)[1])  # type: ignore[index]


def exhaust(broker: BrokerProcess, topic: str) -> None:
    """Have the partition owe far more than it may, by one request that is larger than its burst."""
    broker.call("POST", records(topic), {"value": "x" * 500})


def test_a_quota_is_told_on_every_face_and_nothing_is_stored(two_workers: BrokerProcess):
    """429 with the time to wait; a repetition of what was stored is refused like the rest; reads go on."""
    broker, topic = two_workers, "small"
    before = refused_appends(broker)
    broker.appoint(topic, topic_id=11, config={"produce_bytes_per_second": 10})
    sequence = {"Producer-Id": "7", "Producer-Epoch": "0", "Producer-Seq": "0"}
    broker.call("POST", records(topic), {"value": "x" * 500}, headers=sequence)
    batch = pack([Record(b"y")])
    refused = [
        broker.http.post(broker.url + records(topic), json={"value": "y"}, timeout=10),
        broker.http.post(broker.url + records(topic), json={"value": "x" * 500}, headers=sequence, timeout=10),
        broker.http.post(broker.url + records(topic), data=batch, headers={"Content-Type": BATCH_TYPE}, timeout=10),
        broker.http.post(broker.url + records(topic), data='{"value": "y"}\n', headers={"Content-Type": "application/x-ndjson"}, timeout=10),
        broker.http.post(broker.url + "/internal/partitions/11/0/records", json={"value": "y"}, timeout=10),
    ]
    for answer in refused:
        told = answer.json()["error"]
        assert (answer.status_code, told["code"], told["retriable"], told["outcome"]) == (429, "quota_exceeded", True, "not_done"), answer.text
        assert {"topic": "small", "partition": 0, "quota": 10}.items() <= told["details"].items()
        assert told["details"]["wait_seconds"] <= int(answer.headers["Retry-After"]) < told["details"]["wait_seconds"] + 1
    older = broker.http.post(broker.url + "/logs", json={"topic": topic, "partition": 0, "message": "y"}, timeout=10)
    body = older.json()
    assert (older.status_code, body["status"], body["code"], body["outcome"]) == (429, "Failure", "quota_exceeded", "not_done")
    assert body["reason"] == body["message"]
    assert int(older.headers["Retry-After"]) >= 30
    assert [record["value"] for record in broker.call("GET", records(topic))["records"]] == ["x" * 500]
    assert broker.call("GET", "/logs", topic=topic, partition=0, consumer_id=5)["message"] == "x" * 500, "consuming is never limited"
    assert refused_appends(broker) == before + 6


def test_a_config_that_is_altered_is_known_to_every_worker_at_once(two_workers: BrokerProcess):
    """Both have answered before the change: what they remembered then does not count any more."""
    broker, topic = two_workers, "altered"
    broker.appoint(topic, topic_id=12)
    assert {_ask(broker, topic) for _ in range(12)} == {200}
    broker.appoint(topic, topic_id=12, config={"produce_bytes_per_second": 10})
    exhaust(broker, topic)
    assert {_ask(broker, topic) for _ in range(12)} == {429}
    broker.appoint(topic, topic_id=12)
    assert {_ask(broker, topic) for _ in range(12)} == {200}


def test_who_does_not_lead_says_so_and_not_to_wait(two_workers: BrokerProcess, managers: ManagerStub):
    broker, topic = two_workers, "moved"
    broker.appoint(topic, topic_id=13, config={"produce_bytes_per_second": 10})
    exhaust(broker, topic)
    promise = {"topic_id": 13, "topic": topic, "config": {"produce_bytes_per_second": 10}, "partition": 0, "epoch": 2}
    assert broker.call("POST", "/internal/partitions/promise", {"promises": [promise]})["results"][0]["ok"]
    assert _ask(broker, topic) == 503


def test_both_workers_together_take_what_the_quota_says(two_workers: BrokerProcess):
    """Clients that come again as soon as they are refused, each on connections that either worker may answer."""
    broker, topic, taken, counted = two_workers, "held", [], threading.Lock()
    broker.appoint(topic, topic_id=14, config={"produce_bytes_per_second": RATE})
    body, end = pack([Record(b"z" * 900)]), time.monotonic() + RUN_SECONDS

    def produce() -> None:
        while time.monotonic() < end:
            answer = requests.post(broker.url + records(topic), data=body, headers={"Content-Type": BATCH_TYPE}, timeout=20)
            assert answer.status_code in (200, 429), answer.text
            if answer.status_code == 200:
                with counted:
                    taken.append(time.monotonic())

    began = time.monotonic()
    threads = [threading.Thread(target=produce) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    seconds = time.monotonic() - began
    total = len(taken) * len(body)
    assert len(taken) == broker.call("GET", f"/v1/topics/{topic}/partitions/0")["end_offset"]
    assert total <= RATE * (seconds + 1) + len(body)
    assert total >= RATE * RUN_SECONDS * 0.8, f"{total} bytes in {seconds:.1f} s"


def _ask(broker: BrokerProcess, topic: str) -> int:
    """The status of a produce on a connection of its own, which either worker may answer."""
    return requests.post(broker.url + records(topic), json={"value": "y"}, timeout=20).status_code
