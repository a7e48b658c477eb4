"""A whole cluster before callers of every kind: odd names and types, many at once, connections that end, topics that go away under their readers."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest
import requests

from myqueue import AdminClient, MyConsumer, MyProducer
from myqueue.errors import UnknownTopicError
from myqueue.protocol.batch import BATCH_TYPE, pack
from myqueue.protocol.types import Record
from myqueue.supervisor import Cluster, ClusterSpec
from myqueue.supervisor.process import descendants
from tests.support.clusters import owner_connection, running_cluster
from tests.support.long import LONG
from tests.support.manager_faults import leader_of, others
from tests.support.raw_http import RawConnection
from tests.support.reading import read_due
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(600 if LONG else 180)
ROOT = Path(__file__).parents[2]
# Each is refused by the rule of names, wherever it stands in a request.
BAD_NAMES = ("a/b", "a%2Fb", "a:b", "../topics", "..", "x\"y", "x'); DROP TABLE topic;--", "$$", "a b", "a\x00b", "ü", "x" * 250, "a\nb", "%s", "{0}")
# These are data, and come back as they were.
NASTY = ("x-y", "x\"y", "x'); DROP TABLE log_entry;--", "$$", "\\", "%s", "{0}", "\u2028", "é")
_names = iter(range(1_000_000))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster(ClusterSpec(brokers=3, managers=3, ports=(0,))) as cluster:
        yield cluster


@pytest.fixture
def topic() -> str:
    return f"hostile-{next(_names)}"


def post(cluster: Cluster, path: str, **body: object) -> dict:
    answer = requests.post(cluster.balancer_url + path, json=body, timeout=30)
    assert answer.status_code in (200, 201), f"{path} {body}: {answer.text}"
    return answer.json()


def records_of(topic: str, partition: int = 0) -> str:
    return f"/v1/topics/{topic}/partitions/{partition}/records"


def leader_url(cluster: Cluster, topic: str, partition: int = 0) -> str:
    picture = requests.get(f"{cluster.balancer_url}/v1/cluster", params={"topic": topic}, timeout=10).json()
    leader = next(one["leader"] for one in picture["partitions"] if one["partition"] == partition)
    return next(f"http://{one['host']}:{one['port']}" for one in picture["brokers"] if one["broker_id"] == leader)


def node_at(cluster: Cluster, url: str) -> str:
    return next(name for name in cluster.names() if cluster.node(name)["url"] == url)


# --- names and texts ---


def columns(cluster: Cluster) -> dict[str, list[tuple]]:
    """What every node's database holds: its tables and their columns, but for segments, which come and go by themselves."""
    found = {}
    for name in cluster.names():
        if cluster.node(name)["database"] is None:
            continue
        with owner_connection(cluster, name) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = 'public' "
                           "AND table_name !~ '^log_segment_' ORDER BY 1, 2")
            found[name] = cursor.fetchall()
    return found


def test_names_and_texts_are_data_to_every_database(cluster: Cluster, topic: str) -> None:
    """Refused by the rule or stored as they are; the tables of all nodes are the same before and after."""
    before = columns(cluster)
    assert {"broker-1", "manager-1"} <= before.keys()
    topics = requests.get(f"{cluster.balancer_url}/topics", timeout=10).json()["topics"]
    for name in BAD_NAMES:
        for path, body in (("/topics", {"topic": name}), ("/producer/register", {"topic": name}), ("/consumers", {"topic": name}),
                           ("/v1/topics", {"topic": name}), ("/v1/producers", {"topics": [name]})):
            answer = requests.post(cluster.balancer_url + path, json=body, timeout=10)
            assert answer.status_code == 400, f"{path} {name!r}: {answer.text}"
            assert "A-Z" in answer.text
    assert topics == requests.get(f"{cluster.balancer_url}/topics", timeout=10).json()["topics"]

    producer = post(cluster, "/producer/register", topic=topic)["producer_id"]
    consumer = post(cluster, "/consumer/register", topic=topic)["consumer_id"]
    post(cluster, records_of(topic), records=[{"value": text, "key": text, "headers": {text: text}} for text in NASTY])
    for text in NASTY:
        post(cluster, "/producer/produce", topic=topic, producer_id=producer, message=text, key=text)
    seen = [post(cluster, "/consumer/consume", topic=topic, consumer_id=consumer, request_id=f"{text!a}")["message"] for text in NASTY]
    assert list(NASTY) == seen
    with MyConsumer([topic], cluster.bootstrap) as reader:
        messages = read_due(reader, 2 * len(NASTY))
    assert [text.encode() for text in NASTY] * 2 == [message.value for message in messages] == [message.key for message in messages]
    assert [((text, text.encode()),) for text in NASTY] == [message.headers for message in messages[:len(NASTY)]]
    assert before == columns(cluster)


@pytest.mark.parametrize("through", ["balancer", "manager-1", "broker-1"])
def test_a_bad_name_in_a_path_is_refused_and_reaches_no_other_route(cluster: Cluster, through: str) -> None:
    """Encoded once and encoded twice. Nothing is created, deleted or changed by it."""
    url = cluster.balancer_url if through == "balancer" else cluster.node(through)["url"]
    before = everything(cluster)
    calls = [("GET", "/partitions/0"), ("GET", "/partitions/0/records"), ("POST", "/partitions/0/records"), ("PUT", "/partitions/0/offsets/1")]
    if through != "broker-1":
        calls += [("GET", ""), ("DELETE", ""), ("PATCH", ""), ("POST", "/recovery")]
    with RawConnection(int(url.rpartition(":")[2])) as connection:
        for name in BAD_NAMES:
            for target in sorted({quote(name, safe=""), quote(quote(name, safe=""), safe="")} - {".."}):
                for method, end in calls:
                    answer = connection.ask(f"/v1/topics/{target}{end}", method=method, body=b"{}", headers={"Content-Type": "application/json"})
                    assert 400 <= answer.status < 500, f"{method} {target}{end}: {answer.status} {answer.body[:300]!r}"
                    assert "error" in json.loads(answer.body), answer.body
    assert before == everything(cluster)


def everything(cluster: Cluster) -> tuple[list, list]:
    """All topics with what is set for them, and all brokers, by a read that shows whatever was done before it."""
    topics = requests.get(f"{cluster.balancer_url}/v1/topics", params={"fresh": "true"}, timeout=20).json()["topics"]
    brokers = requests.get(f"{cluster.balancer_url}/brokers", timeout=20).json()["brokers"]
    return topics, [(one["broker_id"], one["host"], one["port"]) for one in brokers]


def test_types_of_bodies_and_answers_work_alike_through_the_balancer(cluster: Cluster, topic: str) -> None:
    post(cluster, "/v1/topics", topic=topic)
    for url in (cluster.balancer_url, leader_url(cluster, topic)):
        with requests.Session() as http:
            http.headers.clear()
            for kind in ("application/json", "application/json; charset=UTF-8", "APPLICATION/JSON", None):
                answer = http.post(url + records_of(topic), data=b'{"value": "x"}', headers={"Content-Type": kind} if kind else {}, timeout=10)
                assert answer.status_code == 200, f"{kind}: {answer.text}"
            answer = http.post(url + records_of(topic), data=pack([Record(b"x")]), headers={"Content-Type": BATCH_TYPE}, timeout=10)
            assert answer.status_code == 200, answer.text
            for kind in ("text/plain", "application/xml", "application/x-www-form-urlencoded", "image/png"):
                error = http.post(url + records_of(topic), data=b"x", headers={"Content-Type": kind}, timeout=10)
                assert (415, True) == (error.status_code, "application/json" in error.json()["error"]["details"]["supported"]), error.text
            for accept in ("*/*", "application/json", "text/html, */*;q=0.1", None):
                answer = http.get(url + records_of(topic), headers={"Accept": accept} if accept else {}, timeout=10)
                assert "x" == answer.json()["records"][0]["value"]
    assert 10 == requests.get(cluster.balancer_url + records_of(topic).removesuffix("/records"), timeout=10).json()["end_offset"]


HIDDEN = b'POST /topics HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 24\r\n\r\n{"topic": "hidden-here"}'
POST = b"POST /producer/produce HTTP/1.1\r\nHost: x\r\n"
FRAMINGS = (  # what two readers could take for different requests, or what cannot be read at all
    POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    POST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + HIDDEN,
    POST + b"Content-Length: 0\r\nContent-Length: 200\r\n\r\n" + HIDDEN,
    POST + b"Content-Length: +0\r\n\r\n" + HIDDEN,
    POST + b"Content-Length: 0x0\r\n\r\n" + HIDDEN,
    POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + HIDDEN,
    POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + HIDDEN,
    POST + b"Transfer-Encoding: chunked\r\n\r\n1;\nx\r\n0\r\n\r\n" + HIDDEN,
    POST + b"X: a\r\n folded\r\nContent-Length: 0\r\n\r\n" + HIDDEN,
    POST + b"X: a\x00b\r\n\r\n" + HIDDEN,
    POST + b"X\x0b: a\r\n\r\n" + HIDDEN,
    b"POST /producer/produce\r\n\r\n" + HIDDEN,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + HIDDEN,
    b"POST /pro ducer HTTP/1.1\r\nHost: x\r\n\r\n" + HIDDEN,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n" + HIDDEN,
)


@pytest.mark.parametrize("through", ["balancer", "manager-1", "broker-1"])
def test_a_request_that_can_be_read_in_two_ways_is_carried_out_in_none(cluster: Cluster, through: str) -> None:
    """The caller's mistake, in JSON, and the connection ends: what was hidden behind it is never a request."""
    url = cluster.balancer_url if through == "balancer" else cluster.node(through)["url"]
    for data in FRAMINGS:
        with RawConnection(int(url.rpartition(":")[2])) as connection:
            connection.send(data)
            answer = connection.answer("POST")
            assert 400 <= answer.status < 500 or answer.status == 501, f"{data!r}: {answer.status} {answer.body[:300]!r}"
            assert json.loads(answer.body)["message"]
            assert b"" == connection.rest(), data
    assert "hidden-here" not in requests.get(f"{cluster.balancer_url}/topics", timeout=10).json()["topics"]
    with RawConnection(int(url.rpartition(":")[2])) as connection:
        assert connection.ask("/livez").status == 200


# --- many at once ---


def test_of_many_creations_of_one_topic_one_succeeds(cluster: Cluster, topic: str) -> None:
    """32 callers in the same moment through the balancer, again and again."""
    gate = threading.Barrier(32)

    def create(name: str) -> int:
        gate.wait(20)
        return requests.post(f"{cluster.balancer_url}/topics", json={"topic": name, "partitions": 2}, timeout=20).status_code

    with ThreadPoolExecutor(32) as pool:
        for number in range(50 if LONG else 3):
            name = f"{topic}-{number}"
            assert [200] + [400] * 31 == sorted(pool.map(create, [name] * 32))
            assert 2 == requests.get(f"{cluster.balancer_url}/v1/topics/{name}", timeout=10).json()["partitions"]


def test_a_registration_serves_many_reads_while_a_manager_is_restarted(cluster: Cluster, topic: str) -> None:
    """One consumer, 300 reads through the balancer, which takes the managers in turn: each message once, in order, nothing not found."""
    count = 300
    post(cluster, "/v1/topics", topic=topic, partitions=3)
    for partition in range(3):
        numbers = range(partition, count, 3)
        post(cluster, records_of(topic, partition), records=[{"value": str(number)} for number in numbers])
    consumer = post(cluster, "/consumer/register", topic=topic)["consumer_id"]
    follower = next(name for name in ("manager-1", "manager-2", "manager-3") if not cluster.node(name)["raft"]["is_leader"])
    restart = threading.Thread(target=cluster.restart, args=(follower,))
    seen: list[dict] = []
    with requests.Session() as http:
        for number in range(count):
            if number == count // 6:
                restart.start()
            answer = http.get(f"{cluster.balancer_url}/consumer/consume", params={"topic": topic, "consumer_id": consumer}, timeout=20)
            assert answer.status_code == 200, f"read {number}: {answer.text}"
            seen.append(answer.json())
        restart.join(60)
        assert not restart.is_alive()
        empty = http.get(f"{cluster.balancer_url}/consumer/consume", params={"topic": topic, "consumer_id": consumer}, timeout=20)
    assert (400, True) == (empty.status_code, empty.json()["empty"])
    for partition in range(3):
        assert [str(number) for number in range(partition, count, 3)] == [one["message"] for one in seen if one["partition_id"] == partition]


def test_two_registrations_hang_nobody(cluster: Cluster, topic: str) -> None:
    """The same caller registers twice for the same topic: two consumers, each of which is answered at once and sees everything."""
    producer = post(cluster, "/producer/register", topic=topic)["producer_id"]
    post(cluster, "/producer/produce", topic=topic, producer_id=producer, message="m")
    both = [post(cluster, "/consumer/register", topic=topic)["consumer_id"] for _ in range(2)]
    began = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        assert ["m", "m"] == list(pool.map(lambda one: post(cluster, "/consumer/consume", topic=topic, consumer_id=one)["message"], both))
    assert time.monotonic() - began < 5
    assert both[0] != both[1]


def test_a_partition_that_is_not_there_is_refused_at_once(cluster: Cluster, topic: str) -> None:
    """By every face, with how many there are: in the middle case within a tenth of a second, the SDK's first look at the topic included."""
    post(cluster, "/v1/topics", topic=topic, partitions=2)
    producer = post(cluster, "/producer/register", topic=topic)["producer_id"]
    asked = {"topic": topic, "producer_id": producer, "partition": 7, "message": "m"}
    for path, body, status in (("/producer/produce", asked, 400), ("/messages", asked, 400), (records_of(topic, 7), {"value": "m"}, 404)):
        times = []
        for _ in range(9):
            began = time.perf_counter()
            answer = requests.post(cluster.balancer_url + path, json=body, timeout=10)
            times.append(time.perf_counter() - began)
            assert (status, True) == (answer.status_code, "2 partitions" in answer.text), answer.text
        assert statistics.median(times) < 0.1, f"{path}: {times}"


# --- connections and workers that end ---


def workers_of(cluster: Cluster, name: str) -> list[int]:
    """The processes of a service that serve."""
    return descendants(cluster.node(name)["pid"])


@pytest.mark.parametrize("idle_seconds", [0.0, pytest.param(5.0, marks=pytest.mark.long), pytest.param(65.0, marks=pytest.mark.long),
                                          pytest.param(125.0, marks=pytest.mark.long)])
def test_an_idle_producer_whose_connections_were_closed_notices_nothing(cluster: Cluster, topic: str, idle_seconds: float) -> None:
    """What served them is replaced meanwhile, so that every connection that is kept is a dead one."""
    with MyProducer([topic], cluster.bootstrap) as producer, MyConsumer([topic], cluster.bootstrap) as consumer:
        producer.send(topic, b"before").result(10)
        reading = consumer.get_next(idle_seconds + 30)
        assert b"before" == next(reading).value
        before = {name: workers_of(cluster, name) for name in ("balancer", "broker-1", "broker-2", "broker-3")}
        for pid in (pid for pids in before.values() for pid in pids):
            os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not any(set(pids) & set(workers_of(cluster, name)) for name, pids in before.items()), timeout_seconds=20,
                   what="the workers to be replaced")
        time.sleep(idle_seconds)  # the length of the silence is what is tested
        assert 1 == producer.send(topic, b"after").result(20).offset
        assert b"after" == next(reading).value


def test_workers_that_are_replaced_all_the_time_cost_no_message(cluster: Cluster, topic: str) -> None:
    """Balancer, brokers and managers in turn, which ends their connections: the producer sees no error, and each message is there once."""
    count, rounds = (10_000, 50) if LONG else (1_000, 3)
    ended = threading.Event()
    done: list[int] = []

    def replace_workers() -> None:
        for name in (("balancer", "broker-1", "manager-1", "broker-2", "manager-2", "broker-3", "manager-3") * rounds)[:rounds]:
            before = workers_of(cluster, name)
            for pid in before:
                os.kill(pid, signal.SIGTERM)
            wait_until(lambda name=name, before=before: cluster.node(name)["ready"] and not set(before) & set(workers_of(cluster, name)),
                       timeout_seconds=30, what=f"the next worker of {name}")
            done.append(1)
        ended.set()

    with ThreadPoolExecutor(1) as pool, MyProducer([topic], cluster.bootstrap) as producer:
        replacing = pool.submit(replace_workers)
        sent = 0
        while sent < count or not ended.is_set():
            for _ in range(20):
                producer.send(topic, b"%d" % sent)
                sent += 1
            producer.flush(50)
            assert not replacing.done() or replacing.exception() is None
        replacing.result(10)
    assert rounds == len(done)
    with MyConsumer([topic], cluster.bootstrap) as consumer:
        assert [b"%d" % number for number in range(sent)] == [message.value for message in read_due(consumer, sent)]


def test_a_leader_that_dies_between_commit_and_answer_doubles_and_loses_nothing(cluster: Cluster, topic: str) -> None:
    """The producer never hears of what was stored, sends it again to the next process of that broker, and each message is there once, in order."""
    post(cluster, "/v1/topics", topic=topic, replication_factor=1)
    node = node_at(cluster, leader_url(cluster, topic))
    cluster.kill(node)
    cluster.start(node, environment={"MYQUEUE_FAULT": "append_after_commit:40", "MYQUEUE_TEST_MODE": "1"})
    try:
        with MyProducer([topic], cluster.bootstrap, batch_records_max=10, request_bytes_max=0) as producer:
            deliveries = [producer.send(topic, b"%d" % number) for number in range(1_000)]
        assert list(range(1_000)) == [delivery.result(0).offset for delivery in deliveries]
        assert any("fault point append_after_commit" in line for line in cluster.logs(node, 2_000))
        with MyConsumer([topic], cluster.bootstrap) as consumer:
            assert [b"%d" % number for number in range(1_000)] == [message.value for message in read_due(consumer, 1_000)]
    finally:
        cluster.restart(node)


def test_the_contract_holds_without_the_leading_manager_and_a_leading_broker(cluster: Cluster, topic: str) -> None:
    """Both killed with -9 and left dead: the same checks as of a whole cluster (in the long form all of them), through the balancer."""
    post(cluster, "/v1/topics", topic=topic, partitions=6)
    manager, broker = leader_of(cluster), node_at(cluster, leader_url(cluster, topic))
    dead = leaders(cluster, topic)[0]
    try:
        cluster.kill(manager)
        cluster.kill(broker)
        leader_of(cluster, *others(manager))
        wait_until(lambda: not {dead, None} & set(leaders(cluster, topic)), timeout_seconds=30, what="other brokers to lead")
        chosen = [] if LONG else ["--", "-k", "optional_may_be_left_out or nothing_left"]
        done = subprocess.run([ROOT / "scripts" / "conformance", cluster.balancer_url, *chosen], capture_output=True, text=True, timeout=550)
        assert (0, True) == (done.returncode, "keeps the contract" in done.stdout), done.stdout[-5_000:] + done.stderr[-2_000:]
        assert ["down", "down"] == [cluster.node(name)["state"] for name in (manager, broker)]
    finally:
        for name in (manager, broker):
            cluster.start(name)
        wait_until(lambda: is_whole(cluster), timeout_seconds=60, what="all replicas")


def leaders(cluster: Cluster, topic: str) -> list[int | None]:
    answer = requests.get(f"{cluster.balancer_url}/v1/topics/{topic}", timeout=10)
    return [one["leader"] for one in answer.json()["partition_list"]]


def is_whole(cluster: Cluster) -> bool:
    """Whether every partition has a leader and all of its replicas."""
    health = requests.get(f"{cluster.balancer_url}/v1/health", timeout=10).json()["partitions"]
    return not any(health[name]["count"] for name in ("leaderless", "under_replicated", "without_majority"))


# --- topics that go away ---


def test_a_deleted_topic_ends_its_readers_and_does_not_come_back(cluster: Cluster, topic: str) -> None:
    """Under a long poll, consumers of all faces, look-ups and scrapes: each is told that it is gone, and no read makes it again."""
    consumer = post(cluster, "/producer/register", topic=topic) and post(cluster, "/consumer/register", topic=topic)["consumer_id"]
    reads = [("/size", {"topic": topic, "consumer_id": consumer}), ("/consumer/consume", {"topic": topic, "consumer_id": consumer}),
             ("/messages", {"topic": topic, "consumer_id": consumer, "partition": 0}), ("/partitions", {"topic": topic}),
             ("/v1/cluster", {"topic": topic}), (f"/v1/topics/{topic}", {}), (records_of(topic), {}), (f"/v1/topics/{topic}/recovery", {})]
    scrapes = [cluster.node(name)["url"] + "/metrics" for name in ("balancer", "broker-1", "broker-2", "broker-3", "manager-1")]

    def poll() -> tuple[int, float]:
        answer = requests.get(cluster.balancer_url + records_of(topic), params={"wait_seconds": 30}, timeout=40)
        return answer.status_code, time.monotonic()

    with ThreadPoolExecutor(2) as pool, MyConsumer([topic], cluster.bootstrap) as reader:
        polling, following = pool.submit(poll), pool.submit(lambda: list(reader.get_next(60)))
        leader = leader_url(cluster, topic)
        wait_until(lambda: "myqueue_long_polls 2.0" in requests.get(f"{leader}/metrics", timeout=5).text, what="both reads to wait")
        began = time.monotonic()
        with AdminClient(cluster.bootstrap) as admin:
            assert requests.delete(f"{cluster.balancer_url}/v1/topics/{topic}", timeout=20).status_code == 200
            status, at = polling.result(20)
            assert (404, True) == (status, at - began < 5)
            with pytest.raises(UnknownTopicError):
                following.result(30)
            end = time.monotonic() + (60 if LONG else 3)
            while time.monotonic() < end:
                for path, arguments in reads:
                    answer = requests.get(cluster.balancer_url + path, params=arguments, timeout=10)
                    gone = answer.json() == {**answer.json(), "partitions": []} if path == "/v1/cluster" else answer.status_code in (400, 404)
                    assert gone, f"{path}: {answer.status_code} {answer.text}"
                for url in scrapes:
                    assert requests.get(url, timeout=10).status_code == 200
                assert topic not in {one.topic for one in admin.topics()}
                assert topic not in requests.get(f"{cluster.balancer_url}/topics", timeout=10).json()["topics"]
                time.sleep(0.2)  # between looks
            with pytest.raises(UnknownTopicError):
                admin.describe_topic(topic)
