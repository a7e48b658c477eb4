"""A broker dies under load, kill -9, with three replicas: others lead within seconds, and nothing acknowledged is lost or there twice."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from myqueue import AdminClient, MyProducer
from myqueue.supervisor import Cluster, ClusterSpec
from tests.support import reading
from tests.support.clusters import kinds_with, owner_connection, running_cluster
from tests.support.load import PAUSE_SECONDS
from tests.support.waiting import wait_until

TOPIC = "failover"
PARTITIONS = 6
FAILOVER_SECONDS = 10.0
BACK_SECONDS = 40.0

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    often = {"MYQUEUE_MANAGER_INVENTORY_SECONDS": "1", "MYQUEUE_BROKER_EXPIRY_CHECK_SECONDS": "0.3", "MYQUEUE_BROKER_SEGMENT_CHECK_SECONDS": "0.3"}
    slow_to_suspect = {"MYQUEUE_MANAGER_NODE_SUSPECT_AFTER_SECONDS": "15", "MYQUEUE_MANAGER_NODE_DEAD_AFTER_SECONDS": "30"}
    with running_cluster(ClusterSpec(brokers=3, managers=1, ports=(0,)), kinds=kinds_with({**often, **slow_to_suspect})) as cluster:
        made = requests.post(f"{cluster.balancer_url}/v1/topics", json={"topic": TOPIC, "partitions": PARTITIONS}, timeout=10)
        assert (made.status_code, made.json()["replication_factor"]) == (201, 3), made.text
        yield cluster


def get(cluster: Cluster, path: str) -> dict:
    answer = requests.get(cluster.balancer_url + path, timeout=10)
    assert answer.status_code == 200, answer.text
    return answer.json()


def partitions(cluster: Cluster, topic: str = TOPIC) -> list[dict]:
    return get(cluster, f"/v1/cluster?topic={topic}")["partitions"]


def led(cluster: Cluster) -> Counter:
    """How many partitions each broker leads, of all topics; None counts those without a leader."""
    return Counter(one["leader"] for one in get(cluster, "/v1/cluster")["partitions"])


def are_even(cluster: Cluster) -> bool:
    """Whether each of the three brokers leads as many partitions as the others, or one more."""
    counts = led(cluster)
    return counts[None] == 0 and max(counts.values()) - min(counts[broker_id] for broker_id in (1, 2, 3)) <= 1


def are_whole(cluster: Cluster) -> bool:
    """Whether every partition of the cluster has a leader and all of its replicas."""
    health = get(cluster, "/v1/health")["partitions"]
    return not any(health[name]["count"] for name in ("leaderless", "under_replicated", "without_majority"))


def node_of(cluster: Cluster, broker_id: int) -> str:
    port = next(one["port"] for one in get(cluster, "/v1/cluster")["brokers"] if one["broker_id"] == broker_id)
    return next(node["name"] for node in cluster.status()["nodes"] if node["url"] and node["url"].endswith(f":{port}"))


class QueueLoad(threading.Thread):
    """One caller of the queue face: what was acknowledged, and what nobody knows."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(daemon=True)
        self._url = cluster.balancer_url
        self.acknowledged: list[str] = []
        self.unknown: list[str] = []
        self.enough = threading.Event()

    def run(self) -> None:
        with requests.Session() as session:
            producer_id = session.post(f"{self._url}/producer/register", json={"topic": TOPIC}, timeout=10).json()["producer_id"]
            number = 0
            while not self.enough.wait(PAUSE_SECONDS):
                number += 1
                text = f"queue-{number}"
                try:
                    answer = session.post(f"{self._url}/producer/produce", timeout=10,
                                          json={"topic": TOPIC, "producer_id": producer_id, "message": text})
                except requests.RequestException:
                    self.unknown.append(text)
                    continue
                if answer.status_code == 200:
                    self.acknowledged.append(text)
                elif answer.json().get("outcome") != "not_done":
                    self.unknown.append(text)


def test_the_status_says_which_broker_a_node_is(cluster: Cluster):
    """Brokers have their ids from the order in which they registered, and findings name ids."""
    told = {node["broker_id"]: node["name"] for node in cluster.status()["nodes"] if node["kind"] == "broker"}
    assert {broker_id: node_of(cluster, broker_id) for broker_id in (1, 2, 3)} == told


def test_a_broker_that_is_killed_under_load_costs_seconds_and_no_message(cluster: Cluster):
    queue = QueueLoad(cluster)
    sent: list[str] = []
    with MyProducer(topics=[TOPIC], broker=cluster.bootstrap) as producer:
        def send(count: int) -> None:
            first = len(sent)
            sent.extend(f"sdk-{number}" for number in range(first, first + count))
            for delivery in [producer.send(TOPIC, text, partition=number % PARTITIONS) for number, text in enumerate(sent[first:])]:
                delivery.result(30)

        wait_until(lambda: are_even(cluster), timeout_seconds=BACK_SECONDS, what="leaderships to be even")
        queue.start()
        send(200)
        victim = led(cluster).most_common(1)[0][0]
        name = node_of(cluster, victim)
        cluster.kill(name)
        new = AdminClient(cluster.bootstrap).create_topic("made-behind-the-death", partitions=3)
        made = get(cluster, "/v1/topics/made-behind-the-death")["partition_list"]
        assert {False} == {one["leader"] == victim for one in made}
        assert new.replication_factor == 3
        began = time.monotonic()
        send(PARTITIONS)  # one message to each partition
        took = time.monotonic() - began
        assert took < FAILOVER_SECONDS, f"{took:.1f} s"
        wait_until(lambda: led(cluster)[victim] == 0, timeout_seconds=FAILOVER_SECONDS - took, what="nobody to be led by the dead, in any topic")
        health = get(cluster, "/v1/health")["partitions"]
        assert health["without_majority"]["count"] == 0
        survivor = node_of(cluster, next(broker_id for broker_id in (1, 2, 3) if broker_id != victim))
        epochs = wait_until(lambda: len(found := first_epochs(cluster, survivor, new.topic)) == 3 and found, what="a survivor to have all three logs")
        assert epochs == [1] * 3, "no election was needed"
        send(200)
        cluster.start(name)
        wait_until(lambda: are_even(cluster), timeout_seconds=BACK_SECONDS, what="the leaderships to move back")
        send(200)
        queue.enough.set()
        queue.join(20)
    assert not queue.is_alive()
    assert len(queue.acknowledged) > 20
    check(Counter(read_all(cluster)), sent, queue)


def first_epochs(cluster: Cluster, node: str, topic: str) -> list[int]:
    """In which epoch the log of each partition begins, as a broker has it. A first leader that was not there has written nothing."""
    with database(cluster, node) as cursor:
        cursor.execute("SELECT epoch FROM log_entry JOIN topic USING (topic_id) WHERE name = %s AND lsn = 0 ORDER BY partition", (topic,))
        return [epoch for epoch, in cursor.fetchall()]


def test_a_drained_broker_gives_its_replicas_up_and_gets_them_again(cluster: Cluster):
    """With nobody to take its place the partitions go on with two replicas; used again, it learns and votes."""
    wait_until(lambda: are_whole(cluster), timeout_seconds=BACK_SECONDS, what="all replicas")
    with MyProducer(topics=["drained"], broker=cluster.bootstrap) as producer:
        producer.send("drained", "before").result(10)
        answer = requests.post(f"{cluster.balancer_url}/v1/brokers/1/drain", json={"draining": True}, timeout=10)
        assert (answer.status_code, answer.json()) == (200, {"broker_id": 1, "draining": True})
        wait_until(lambda: all(1 not in one["replicas"] for one in (*partitions(cluster, "drained"), *partitions(cluster))),
                   timeout_seconds=BACK_SECONDS, what="broker 1 to hold nothing")
        producer.send("drained", "between").result(10)
        requests.post(f"{cluster.balancer_url}/v1/brokers/1/drain", json={"draining": False}, timeout=10).raise_for_status()
        wait_until(lambda: are_whole(cluster), timeout_seconds=BACK_SECONDS, what="broker 1 to hold everything again")
        producer.send("drained", "after").result(10)
    assert read_all(cluster, "drained") == ["before", "between", "after"]


def test_a_damaged_replica_is_made_anew_from_another(cluster: Cluster):
    """The bytes that another replica has, and the vote again; nobody else notices."""
    topic, texts = "damaged", [f"m{number}" for number in range(20)]
    wait_until(lambda: are_whole(cluster), timeout_seconds=BACK_SECONDS, what="all replicas")
    with MyProducer(topics=[topic], broker=cluster.bootstrap) as producer:
        for text in texts[:-1]:
            producer.send(topic, text).result(10)
        leader = partitions(cluster, topic)[0]["leader"]
        node = node_of(cluster, next(broker_id for broker_id in (1, 2, 3) if broker_id != leader))
        wait_until(lambda: stored(cluster, node, topic) == texts[:-1], what="the follower to hold everything")
        with database(cluster, node) as cursor:
            cursor.execute("UPDATE log_entry SET values = ARRAY['spoilt'::bytea] WHERE base_offset = 7"
                           " AND topic_id = (SELECT topic_id FROM topic WHERE name = %s)", (topic,))
            assert cursor.rowcount == 1
            cursor.execute("UPDATE partition_state SET fault = 'an entry does not have its digest' WHERE"
                           " topic_id = (SELECT topic_id FROM topic WHERE name = %s)", (topic,))
            assert cursor.rowcount == 1
        producer.send(topic, texts[-1]).result(10)
        wait_until(lambda: stored(cluster, node, topic) == texts, timeout_seconds=BACK_SECONDS, what="the damaged replica to be made anew")
        wait_until(lambda: are_whole(cluster), timeout_seconds=BACK_SECONDS, what="all replicas again")
    assert read_all(cluster, topic) == texts


def test_a_replica_with_other_entries_is_found_by_the_audit_and_repaired(cluster: Cluster, tmp_path: Path):
    """In itself without fault, so that only a comparison finds it; by the command that the audit names, while a producer sends; the leader's too."""
    topic, texts = "diverged", [f"m{number}" for number in range(200)]
    wait_until(lambda: are_whole(cluster), timeout_seconds=BACK_SECONDS, what="all replicas")
    with MyProducer(topics=[topic], broker=cluster.bootstrap) as producer:
        for text in texts[:100]:
            producer.send(topic, text).result(10)
        leader = partitions(cluster, topic)[0]["leader"]
        odd = next(broker_id for broker_id in (1, 2, 3) if broker_id != leader)
        for broker_id in (1, 2, 3):
            wait_until(lambda node=node_of(cluster, broker_id): stored(cluster, node, topic) == texts[:100], what="it to hold everything")
        let_differ(cluster, node_of(cluster, odd), topic, lsn=41)
        assert 1 == audit(cluster, topic, tmp_path)
        [found] = json.loads((tmp_path / "audit.json").read_text(encoding="utf-8"))["findings"]
        assert ("replica_divergence", f"broker-{odd}", 41) == (found["check"], found["node"], found["lsn"])
        sent = [producer.send(topic, text) for text in texts[100:]]
        for broker_id in (odd, leader):
            remedy = found["remedy"] if broker_id == odd else f"myqueue topics repair {topic} --partition 0 --broker-id {broker_id}"
            command = [sys.executable, "-m", *remedy.split(), "--bootstrap", cluster.bootstrap]
            done = subprocess.run(command, capture_output=True, text=True, timeout=90)
            assert done.returncode == 0, done.stderr
            assert re.fullmatch(rf"broker {broker_id} throws .*: offsets 0-\d+\nit is whole again, .*\n", done.stdout), done.stdout
        for future in sent:
            future.result(30)
    wait_until(lambda: are_whole(cluster), timeout_seconds=BACK_SECONDS, what="all replicas again")
    for broker_id in (1, 2, 3):
        wait_until(lambda node=node_of(cluster, broker_id): stored(cluster, node, topic) == texts, what="it to hold everything again")
    assert 0 == audit(cluster, topic, tmp_path)


def let_differ(cluster: Cluster, node: str, topic: str, *, lsn: int) -> None:
    """Let a replica hold another message at an lsn, with chains that fit from there on."""
    with database(cluster, node) as cursor:
        cursor.execute("SELECT topic_id FROM topic WHERE name = %s", (topic,))
        [topic_id] = cursor.fetchone()
        cursor.execute("UPDATE log_entry SET \"values\" = ARRAY['other'::bytea] WHERE topic_id = %s AND lsn = %s", (topic_id, lsn))
        assert cursor.rowcount == 1
        cursor.execute("SELECT chain FROM log_entry WHERE topic_id = %s AND lsn = %s", (topic_id, lsn - 1))
        [chain] = cursor.fetchone()
        cursor.execute("SELECT lsn FROM log_entry WHERE topic_id = %s AND lsn >= %s ORDER BY lsn", (topic_id, lsn))
        for one, in cursor.fetchall():
            cursor.execute("UPDATE log_entry e SET chain = entry_chain(%s, e::log_entry) WHERE topic_id = %s AND lsn = %s RETURNING chain",
                           (chain, topic_id, one))
            [chain] = cursor.fetchone()
        cursor.execute("UPDATE partition_state SET end_chain = %s WHERE topic_id = %s", (chain, topic_id))


def audit(cluster: Cluster, topic: str, out: Path) -> int:
    """The exit code of ``myqueue audit`` of a topic."""
    command = [sys.executable, "-m", "myqueue", "audit", "--bootstrap", cluster.bootstrap, "--topics", topic, "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "PGPASSFILE": str(cluster.folder.pgpass_file)})
    assert done.returncode in (0, 1), done.stderr
    return done.returncode


def test_a_topic_keeps_what_its_config_says_and_that_can_be_changed(cluster: Cluster):
    """By the SDK and by the command; what is dropped is dropped on every replica, and what comes after the change stays."""
    topic = "kept"
    wait_until(lambda: are_whole(cluster), timeout_seconds=BACK_SECONDS, what="all replicas")
    with AdminClient(cluster.bootstrap) as admin, MyProducer(topics=[], broker=cluster.bootstrap) as producer:
        assert admin.create_topic(topic, config={"retention_ms": 600_000}).config == {"retention_ms": 600_000}
        nodes = [node_of(cluster, broker_id) for broker_id in (1, 2, 3)]
        for number in range(5):
            producer.send(topic, f"m{number}").result(10)
        wait_until(lambda: [len(stored(cluster, node, topic)) for node in nodes] == [5] * 3, what="all replicas to hold everything")
        assert admin.alter_topic(topic, {"retention_ms": 1}) == {"retention_ms": 1}
        wait_until(lambda: [stored(cluster, node, topic) for node in nodes] == [[]] * 3, timeout_seconds=BACK_SECONDS, what="it to be dropped")
        assert [ends.start for ends in admin.offsets(topic).values()] == [5]
        command = [sys.executable, "-m", "myqueue", "topics", "alter", topic, "--unset", "retention_ms", "--config", "retention_bytes=1000000",
                   "--json", "--bootstrap", cluster.bootstrap]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        assert (done.returncode, json.loads(done.stdout)) == (0, [{"field": "retention_bytes", "value": 1_000_000}]), done.stderr
        assert admin.describe_topic(topic).config == {"retention_bytes": 1_000_000}
        wait_until(lambda: configs(cluster, nodes, topic) >= {'{"retention_bytes": 1000000}'}, what="the leader to know it")
        producer.send(topic, "stays").result(10)
    assert read_all(cluster, topic) == ["stays"]


def configs(cluster: Cluster, nodes: list[str], topic: str) -> set[str]:
    """What brokers have stored of a topic's config."""
    found = set()
    for node in nodes:
        with database(cluster, node) as cursor:
            cursor.execute("SELECT config::text FROM topic WHERE name = %s", (topic,))
            found |= {row[0] for row in cursor.fetchall()}
    return found


@contextmanager
def database(cluster: Cluster, node: str) -> Iterator[Any]:
    """A broker's database, as its owner: what is done is committed at the end."""
    with owner_connection(cluster, node) as connection, connection, connection.cursor() as cursor:
        yield cursor


def stored(cluster: Cluster, node: str, topic: str) -> list[str]:
    """The messages of a topic with one partition on a broker's disk; none while its replica is damaged."""
    with database(cluster, node) as cursor:
        cursor.execute("SELECT 1 FROM partition_state JOIN topic USING (topic_id) WHERE name = %s AND fault IS NOT NULL", (topic,))
        if cursor.fetchone():
            return []
        cursor.execute("SELECT convert_from(value, 'UTF8') FROM messages WHERE topic = %s ORDER BY msg_offset", (topic,))
        return [text for text, in cursor.fetchall()]


def test_a_partition_without_its_majority_goes_on_only_when_an_operator_accepts_the_loss(cluster: Cluster):
    topic = "recovered"
    wait_until(lambda: are_whole(cluster), timeout_seconds=BACK_SECONDS, what="all replicas")
    with MyProducer(topics=[topic], broker=cluster.bootstrap) as producer:
        producer.send(topic, "before").result(10)
        wait_until(lambda: stored(cluster, node_of(cluster, 3), topic) == ["before"], what="the one that is left to hold it")
        names = [node_of(cluster, broker_id) for broker_id in (1, 2)]
        with AdminClient(cluster.bootstrap) as admin:
            assert admin.recovery(topic) == []
            for name in names:
                cluster.kill(name)
            told = wait_until(lambda: admin.recovery(topic), timeout_seconds=40, what="the majority to be missed")
            assert [(one["partition"], one["survivors"], one["gone"], one["kept_to_offset"]) for one in told] == [(0, [3], [1, 2], 1)]
            refused = requests.post(f"{cluster.balancer_url}/v1/topics/{topic}/recovery", json={}, timeout=10)
            assert refused.status_code == 400, "nothing is given up without saying so"
            admin.recover(topic)
        producer.send(topic, "after").result(10)
        assert partitions(cluster, topic)[0]["replicas"] == [3]
        for name in names:
            cluster.start(name)
        wait_until(lambda: are_whole(cluster), timeout_seconds=BACK_SECONDS, what="all replicas again")
    assert read_all(cluster, topic) == ["before", "after"]


def check(read: Counter, sent: list[str], queue: QueueLoad) -> None:
    """Nothing acknowledged is missing, nothing is there twice, and nothing that nobody sent."""
    assert [text for text in (*sent, *queue.acknowledged) if not read[text]] == []
    assert [text for text, times in read.items() if times > 1] == []
    assert set(read) <= {*sent, *queue.acknowledged, *queue.unknown}


def read_all(cluster: Cluster, topic: str = TOPIC) -> list[str]:
    return [message.text() for message in reading.read_all(cluster.bootstrap, topic)]
