"""Readers that wait, and slow clients, at a whole cluster: through the balancer and directly at the leader."""

from __future__ import annotations

import http.client
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
import requests

from myqueue import MyProducer
from myqueue.supervisor import Cluster, ClusterSpec
from tests.support.clusters import PATIENT, kinds_with, running_cluster
from tests.support.crowd import Crowd, assert_undisturbed, p99, times_of
from tests.support.events import EventStream
from tests.support.long import LONG
from tests.support.waiting import wait_until

WAKE_SECONDS = 0.25
COUNT = 200 if LONG else 60
SECONDS = 3.0  # of a measurement; all of them end before the slow ones are cut off
pytestmark = pytest.mark.timeout(180)
_names = iter(range(1_000_000))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster(ClusterSpec(brokers=3, managers=1, ports=(0,)), kinds=kinds_with(PATIENT)) as made:
        yield made


@pytest.fixture
def topic(cluster: Cluster) -> str:
    """A new topic with one partition and three replicas."""
    return make(cluster)


def make(cluster: Cluster) -> str:
    name = f"streamed-{next(_names)}"
    made = requests.post(f"{cluster.balancer_url}/v1/topics", json={"topic": name, "partitions": 1}, timeout=10)
    assert (made.status_code, made.json()["replication_factor"]) == (201, 3), made.text
    return name


def records(topic: str) -> str:
    return f"/v1/topics/{topic}/partitions/0/records"


def balancer_port(cluster: Cluster) -> int:
    return urlsplit(cluster.balancer_url).port or 0


def leader_port(cluster: Cluster, topic: str) -> int:
    table = requests.get(f"{cluster.balancer_url}/v1/cluster?topic={topic}", timeout=10).json()
    leader = table["partitions"][0]["leader"]
    return next((one["port"] for one in table["brokers"] if one["broker_id"] == leader), 0)


PORTS: dict[str, Callable[[Cluster, str], int]] = {"through the balancer": lambda cluster, _: balancer_port(cluster), "at the leader": leader_port}


@pytest.fixture(params=PORTS)
def port(request: pytest.FixtureRequest, cluster: Cluster, topic: str) -> int:
    return PORTS[request.param](cluster, topic)


def append(cluster: Cluster, topic: str, value: str) -> None:
    answer = requests.post(cluster.balancer_url + records(topic), json={"value": value}, timeout=10)
    assert answer.status_code == 200, answer.text


def test_a_poll_and_an_event_come_soon_after_the_append(cluster: Cluster, topic: str, port: int) -> None:
    """p99 of a hundred; the append's own answer waits for a majority, so it is measured from that."""
    polled, told = list[float](), list[float]()
    with EventStream(port, records(topic)) as stream, ThreadPoolExecutor(1) as pool:
        for offset in range(100):
            poll = pool.submit(_poll, port, topic, offset)
            append(cluster, topic, str(offset))
            appended = time.monotonic()
            assert str(offset) == stream.take(1)[0].json["value"]
            told.append(time.monotonic() - appended)
            polled.append(poll.result(5) - appended)
    assert (p99(polled) < WAKE_SECONDS, p99(told) < WAKE_SECONDS) == (True, True), (p99(polled), p99(told))


def _poll(port: int, topic: str, offset: int) -> float:
    answer = requests.get(f"http://127.0.0.1:{port}{records(topic)}", params={"offset": offset, "wait_seconds": 20}, timeout=25)
    assert [str(offset)] == [record["value"] for record in answer.json()["records"]]
    return time.monotonic()


def test_a_topic_that_is_deleted_ends_its_readers_at_once(cluster: Cluster, topic: str, port: int) -> None:
    append(cluster, topic, "0")
    with EventStream(port, records(topic)) as stream, ThreadPoolExecutor(1) as pool:
        stream.take(1)
        poll = pool.submit(requests.get, f"http://127.0.0.1:{port}{records(topic)}", params={"offset": 1, "wait_seconds": 30}, timeout=40)
        wait_until(lambda: waiting(cluster, topic) == 2, what="both to wait")
        began = time.monotonic()
        assert requests.delete(f"{cluster.balancer_url}/v1/topics/{topic}", timeout=10).ok
        event, answer = stream.next(), poll.result(10)
        assert event is not None
        assert ("error", "unknown_topic") == (event.name, event.json["error"]["code"])
        assert stream.next() is None
        assert (404, "unknown_topic") == (answer.status_code, answer.json()["error"]["code"])
        assert time.monotonic() - began < 3


def waiting(cluster: Cluster, topic: str) -> int:
    """How many reads wait at the topic's leader."""
    text = requests.get(f"http://127.0.0.1:{leader_port(cluster, topic)}/metrics", timeout=5).text
    return int(float(next(line.split()[-1] for line in text.splitlines() if line.startswith("myqueue_long_polls"))))


class Follower(threading.Thread):
    """Reads on as a browser does: comes back after an end with the last id that it has."""

    def __init__(self, port: int, topic: str, until: int) -> None:
        super().__init__(daemon=True)
        self._port, self._topic, self._until = port, topic, until
        self.offsets: list[int] = []
        self.ends = 0
        self.enough = threading.Event()

    def run(self) -> None:
        last: str | None = None
        while not self.enough.is_set() and len(self.offsets) < self._until:
            try:
                with EventStream(self._port, records(self._topic), last_event_id=last) as stream:
                    while len(self.offsets) < self._until and (event := stream.next()) is not None and event.name == "message":
                        self.offsets.append(event.json["offset"])
                        last = event.id
                self.ends += 1
            except (OSError, http.client.HTTPException):
                self.ends += 1  # broken off with its leader: as good as an end
            self.enough.wait(0.1)


def test_a_stream_goes_on_at_the_next_leader_without_a_gap(cluster: Cluster, topic: str) -> None:
    followers = [Follower(balancer_port(cluster), topic, until=400) for _ in range(3)]
    with MyProducer(topics=[topic], broker=cluster.bootstrap) as producer:
        for number in range(200):
            producer.send(topic, str(number))
        producer.flush()
        for follower in followers:
            follower.start()
        wait_until(lambda: all(len(follower.offsets) == 200 for follower in followers), what="the first half to be read")
        first = leader_port(cluster, topic)
        name = next(node["name"] for node in cluster.status()["nodes"] if node["url"] and node["url"].endswith(f":{first}"))
        cluster.kill(name)
        try:
            for number in range(200):
                producer.send(topic, str(number))
            producer.flush()
            wait_until(lambda: all(len(follower.offsets) == 400 for follower in followers), timeout_seconds=40, what="the second half to be read")
        finally:
            for follower in followers:
                follower.enough.set()
            cluster.start(name)
    assert [list(range(400))] * 3 == [follower.offsets for follower in followers]
    assert all(follower.ends > 1 for follower in followers), "nobody has lost its leader"


@pytest.mark.parametrize(("port", "kind"), [
    pytest.param(*pair, marks=() if pair in (("through the balancer", "streams"), ("at the leader", "polls")) else pytest.mark.long)
    for pair in itertools.product(PORTS, ("polls", "streams"))], indirect=["port"])
def test_many_readers_wait_beside_normal_traffic(cluster: Cluster, topic: str, port: int, kind: str) -> None:
    """They hold up neither a producer nor a reader of another topic, and all get what comes for them."""
    other = make(cluster)
    quiet = times_of(balancer_port(cluster), records(other), seconds=SECONDS, body=b'{"value": "x"}')
    asked = "Accept: text/event-stream" if kind == "streams" else "Accept: application/json"
    request = f"GET {records(topic)}?offset=0&wait_seconds=30 HTTP/1.1\r\nHost: x\r\n{asked}\r\n\r\n".encode()
    with Crowd(port, COUNT, first=request) as crowd:
        if kind == "streams":
            wait_until(lambda: crowd.answered(b"from offset 0") == COUNT, timeout_seconds=20, what="every stream to have begun")
        assert_undisturbed(quiet, lambda: times_of(balancer_port(cluster), records(other), seconds=SECONDS, body=b'{"value": "x"}'))
        assert 0 == crowd.answered(b"HTTP/1.1 503")
        append(cluster, topic, "to all")
        wait_until(lambda: crowd.answered(b'"value":"to all"') == COUNT, timeout_seconds=15, what="every reader to have it")
    wait_until(lambda: waiting(cluster, topic) == 0, what="their places")


SLOW = {"silent": (b"", b""), "a byte of the head a second": (b"", b"GET / HTTP/1.1\r\nHost: x\r\nX: 123456789\r\n\r\n"),
        "a byte of the body a second": (b"POST /topics HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n", b"x" * 100)}


NODES_OF = {"silent": "manager-1", "a byte of the head a second": "balancer", "a byte of the body a second": "broker-1"}  # in the short form


@pytest.mark.parametrize(("kind", "node"), [
    pytest.param(kind, node, marks=() if node == NODES_OF[kind] else pytest.mark.long) for kind in SLOW for node in NODES_OF.values()])
def test_slow_clients_hold_up_nobody(cluster: Cluster, kind: str, node: str) -> None:
    first, drip = SLOW[kind]
    at = balancer_port(cluster) if node == "balancer" else urlsplit(cluster.node(node)["url"]).port or 0
    target = "/topics" if node != "broker-1" else "/partitions"
    quiet = times_of(at, target, seconds=SECONDS)
    with Crowd(at, COUNT, first=first, drip=drip):
        assert_undisturbed(quiet, lambda: times_of(at, target, seconds=SECONDS))
