"""The native face on a cluster of real processes: topics that grow, batches, lags, searches, by way of the balancer."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from zlib import crc32

import pytest
import requests

from myqueue import AdminClient, MyConsumer, MyProducer, MyQueueError, UnavailableError
from myqueue.supervisor import Cluster, ClusterSpec
from tests.support.clusters import PATIENT, kinds_with, running_cluster
from tests.support.long import LONG
from tests.support.reading import read_all, read_due
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(240)  # the first test's time includes the start of the cluster, on a machine that may be busy
MESSAGES = 200_000 if LONG else 20_000
_names = iter(range(1_000_000))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three brokers, three managers and the balancer, for all tests of this module."""
    with running_cluster(ClusterSpec(brokers=3, managers=3, ports=(0,)), kinds=kinds_with(PATIENT)) as made:
        yield made


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"n-{next(_names)}"


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[AdminClient]:
    with AdminClient(cluster.bootstrap) as admin:
        yield admin


def call(cluster: Cluster, method: str, path: str, json: object = None) -> requests.Response:
    return requests.request(method, f"http://{cluster.bootstrap}{path}", json=json, timeout=20)


def test_a_topic_that_grows_keeps_its_messages_and_takes_new_ones(cluster: Cluster, admin: AdminClient, topic: str):
    """A batch goes to all partitions, before and after; a key goes to another partition then; a consumer reads all of it."""
    admin.create_topic(topic, partitions=2)
    records = [{"value": f"{number}", "key": f"k{number}"} for number in range(50)]
    assert call(cluster, "POST", f"/v1/topics/{topic}/records", {"records": records}).status_code == 200
    with MyConsumer([topic], cluster.bootstrap) as consumer:
        assert len(read_due(consumer, 50)) == 50
        consumer.commit()
        assert [at.lag for at in admin.lag(topic, consumer.consumer_ids[topic])] == [0, 0]
        assert admin.add_partitions(topic, 5) == 3
        assert admin.add_partitions(topic, 5) == 0
        answer = call(cluster, "POST", f"/v1/topics/{topic}/records", {"records": records})
        assert answer.status_code == 200, answer.text
        expected = Counter(crc32(f"k{number}".encode()) % 5 for number in range(50))
        assert {one["partition"]: one["record_count"] for one in answer.json()["partitions"]} == dict(expected)
        lags = admin.lag(topic, consumer.consumer_ids[topic])
        assert {at.partition: at.lag for at in lags} == {number: expected[number] for number in range(5)}
    listed = call(cluster, "GET", f"/v1/topics/{topic}/partitions").json()["partitions"]
    assert [(one["partition"], len(one["replicas"])) for one in listed] == [(number, 3) for number in range(5)]
    found = {message.partition: message.value for message in admin.search(topic, key="k7")}
    assert found == {crc32(b"k7") % 2: b"7", crc32(b"k7") % 5: b"7"}


def test_a_search_finds_exactly_the_seven_by_key_by_time_and_by_both(cluster: Cluster, admin: AdminClient, topic: str):
    """Among many messages in five partitions, the first and the last of all among them; the key of one is in a partition that it named."""
    admin.create_topic(topic, partitions=5)
    places = [round(number * (MESSAGES - 1) / 6) for number in range(7)]
    third = MESSAGES // 3
    times = []
    with MyProducer(topics=[topic], broker=cluster.bootstrap) as producer:
        for number in range(MESSAGES):
            if number in (third, 2 * third):  # apart from what is before, so that a time in between is sure
                producer.flush()
                time.sleep(0.05)
                times.append(time.time_ns() // 1_000)
                time.sleep(0.05)
            if number in places:
                producer.send(topic, b"%d" % number, key="k", partition=number % 5)
            else:
                producer.send(topic, b"%d" % number, key=f"key-{number % 100}" if number % 2 else None)
    began = time.monotonic()
    by_key = list(admin.search(topic, key=b"k"))
    print(f"{MESSAGES} messages were searched by key in {time.monotonic() - began:.2f} s")
    assert sorted(int(message.value) for message in by_key) == places
    assert [(one.partition, one.offset) for one in by_key] == sorted((one.partition, one.offset) for one in by_key)
    by_time = list(admin.search(topic, from_us=times[0], to_us=times[1]))
    assert Counter(int(message.value) for message in by_time) == Counter(range(third, 2 * third))
    assert {int(message.value) for message in admin.search(topic, from_us=times[1])} == set(range(2 * third, MESSAGES))
    by_both = list(admin.search(topic, key="k", from_us=times[0], to_us=times[1]))
    assert sorted(int(message.value) for message in by_both) == [place for place in places if third <= place < 2 * third]
    assert list(admin.search(topic, key="nobody")) == []
    assert list(admin.search(topic, from_us=times[1] + 3_600_000_000)) == []


def test_what_is_sent_during_a_search_is_not_among_it(cluster: Cluster, admin: AdminClient, topic: str):
    admin.create_topic(topic, partitions=3)
    body = {"records": [{"value": f"{number}", "partition": number % 3, "key": "k"} for number in range(9)]}
    assert call(cluster, "POST", f"/v1/topics/{topic}/records", body).status_code == 200
    found = []
    for message in admin.search(topic, key="k", page_records=2):
        found.append((message.partition, message.offset))
        assert call(cluster, "POST", f"/v1/topics/{topic}/records", body).status_code == 200
    assert found == [(partition, offset) for partition in range(3) for offset in range(3)]


def test_a_replica_is_elected_and_what_was_acknowledged_stays(cluster: Cluster, admin: AdminClient, topic: str):
    """Each of the three in turn, while a producer sends; named or not, by way of the balancer; what cannot be is a sentence."""
    admin.create_topic(topic, partitions=1)
    before = admin.describe_topic(topic).partition_list[0]
    others = [broker_id for broker_id in before.replicas if broker_id != before.leader]
    with MyProducer(topics=[topic], broker=cluster.bootstrap) as producer:
        for number, broker_id in enumerate([*others, before.leader]):
            producer.send(topic, b"%d" % number)
            producer.flush()
            leader = wait_until(lambda broker_id=broker_id: elected(admin, topic, broker_id), timeout_seconds=20, what=f"broker {broker_id} to lead")
            assert leader == broker_id
        producer.send(topic, b"last")
    assert [message.value for message in read_all(cluster.bootstrap, topic)] == [b"0", b"1", b"2", b"last"]
    again = call(cluster, "POST", f"/v1/topics/{topic}/partitions/0/elect")
    assert (again.status_code, again.json()["partition"]) == (200, 0)
    for path, body, status in ((f"{topic}/partitions/0", {"broker_id": 99}, 400), (f"{topic}/partitions/0", {"broker": 1}, 400),
                               (f"{topic}/partitions/7", {}, 404), (f"{topic}/partitions/x", {}, 400), ("nowhere/partitions/0", {}, 404)):
        answer = call(cluster, "POST", f"/v1/topics/{path}/elect", body)
        assert answer.status_code == status, answer.text


def elected(admin: AdminClient, topic: str, broker_id: int) -> int | None:
    """The leader after an election, None where it is not possible just now: the replica may lack something, or leaderships be evened out."""
    try:
        return admin.elect_leader(topic, 0, broker_id)
    except UnavailableError:
        return None


class Load(threading.Thread):
    """One producer of a topic; what was acknowledged, in order, by the numbers that were sent."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        super().__init__(daemon=True)
        self._cluster, self._topic = cluster, topic
        self.acknowledged: list[int] = []
        self.unsure: list[int] = []
        self.enough = threading.Event()

    def run(self) -> None:
        with MyProducer(topics=[self._topic], broker=self._cluster.bootstrap) as producer:
            for number in range(1_000_000):
                if self.enough.is_set():
                    return
                try:
                    producer.send(self._topic, b"%d" % number).result(30)
                    self.acknowledged.append(number)
                except MyQueueError:
                    self.unsure.append(number)


def test_a_partition_moves_under_load_and_nothing_is_lost(cluster: Cluster, admin: AdminClient, topic: str):
    """From one broker to the two others, to all three, and to a single other one; each time it ends on those that were named, and what was
    acknowledged is there once and in order. A move that is stopped at once changes nothing.
    """
    admin.create_topic(topic, replication_factor=1)
    [first] = admin.describe_topic(topic).partition_list[0].replicas
    others = [broker_id for broker_id in (1, 2, 3) if broker_id != first]
    told = call(cluster, "POST", f"/v1/topics/{topic}/partitions/0/move", {"brokers": others}).json()
    assert (told["wanted"], told["replicas"], told["replication_factor"], "either broker" in told["warning"]) == (others, [first], 2, True)
    assert [one["wanted"] for one in call(cluster, "GET", f"/v1/cluster?topic={topic}").json()["partitions"]] == [others]
    stopped = admin.move_partition(topic, 0, None)
    assert (stopped.wanted, stopped.replicas) == (None, (first,))
    load = Load(cluster, topic)
    load.start()
    try:
        for brokers in (others, [1, 2, 3], others[:1]):
            before = len(load.acknowledged)
            wait_until(lambda before=before: len(load.acknowledged) > before + 20, timeout_seconds=30, what="messages to be acknowledged")
            asked = admin.move_partition(topic, 0, brokers)
            assert asked.wanted == tuple(sorted(brokers))
            moved = admin.wait_for_move(topic, 0, 60)
            assert (moved.replicas, moved.wanted) == (tuple(sorted(brokers)), None)
        wait_until(lambda: admin.describe_topic(topic).partition_list[0].leader == others[0], timeout_seconds=20, what="the one that is left to lead")
        before = len(load.acknowledged)
        wait_until(lambda: len(load.acknowledged) > before + 20, timeout_seconds=30, what="messages to be acknowledged")
    finally:
        load.enough.set()
        load.join(40)
    assert not load.is_alive()
    found = [int(message.value) for message in read_all(cluster.bootstrap, topic)]
    assert found == sorted(set(found)), "in order, and each once"
    assert set(load.acknowledged) <= set(found) <= {*load.acknowledged, *load.unsure}
    print(f"{len(found)} messages, {len(load.unsure)} of unknown outcome")


def test_brokers_are_listed_registered_and_drained(cluster: Cluster, admin: AdminClient):
    brokers = admin.brokers()
    assert [(one["broker_id"], one["state"], one["draining"]) for one in brokers] == [(number, "alive", False) for number in (1, 2, 3)]
    assert admin.add_broker(brokers[0]["host"], brokers[0]["port"]) == brokers[0]["broker_id"]
    admin.drain_broker(3)
    assert [one["broker_id"] for one in admin.brokers() if one["draining"]] == [3]
    admin.drain_broker(3, draining=False)
    assert not any(one["draining"] for one in admin.brokers())
    for body, word in (({"host": "127.0.0.1"}, "port"), ({"port": 1}, "host"), ({"host": "127.0.0.1", "port": 1}, "no connection"),
                       ({"host": "a b", "port": 1}, "not a host"), ({"host": "h", "port": 0}, "port"), ({"address": "h:1"}, "no field")):
        answer = call(cluster, "POST", "/v1/brokers", body)
        assert (answer.status_code, word in answer.json()["error"]["message"]) == (400, True), answer.text
