"""The SDK against real processes and a real PostgreSQL."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from myqueue import AdminClient, DeliveryError, Message, MyConsumer, MyProducer, OffsetOutOfRangeError, TopicExistsError, UnknownTopicError
from myqueue.protocol.types import TopicPartition
from myqueue.supervisor import Cluster, ClusterSpec
from pipeline.cluster import fetch_cluster
from pipeline.reconcile.coverage import Coverage
from pipeline.reconcile.figures import Asked, Judged
from pipeline.reconcile.judge import Columns, StoredPeriod, judge
from pipeline.reconcile.run import gather
from pipeline.settings import PipelineSettings
from pipeline.transforms.reconcile import PERIOD_US
from tests.support.clusters import PATIENT, kinds_with, running_cluster
from tests.support.lossy_proxy import lossy_proxy
from tests.support.reading import read_due
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(180)  # the first test's time includes the start of the cluster, on a machine that may be busy
ROOT = Path(__file__).resolve().parents[2]
_names = iter(range(1_000_000))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two brokers, a manager and the balancer, for all tests of this module."""
    with running_cluster(ClusterSpec(brokers=2, managers=1, ports=(0,)), kinds=kinds_with(PATIENT)) as made:
        yield made


@pytest.fixture
def broker(cluster: Cluster) -> str:
    return cluster.bootstrap


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"t-{next(_names)}"


def read(broker: str, topic: str, count: int, **options) -> list[Message]:
    """So many messages, and what comes behind them by mistake."""
    with MyConsumer([topic], broker, **options) as consumer:
        return read_due(consumer, count)


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


PRODUCER_EXAMPLE = """
from myqueue import MyProducer
work = [('A', b"one"), ('B', b"two"), ('A', b"three")]
producer = MyProducer(topics=['A', 'B'], broker='localhost:9092')
while producer.can_send():
    if not work:
        break
    topic, data = work.pop(0)
    producer.send(topic, data)
producer.stop()
"""
CONSUMER_EXAMPLE = """
from myqueue import MyConsumer
import threading
consumer = MyConsumer(topics=['A'], broker='localhost:9092')
threading.Timer(3, consumer.stop).start()
for message in consumer.get_next():
    print(message.topic, message)
consumer.stop()
"""


def run_script(text: str, broker: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", text.replace("localhost:9092", broker)], capture_output=True, text=True, timeout=50, check=False,
                          cwd="/", env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)})


def test_the_examples_of_the_first_assignment(broker) -> None:
    """Only the port differs from the text of the assignment."""
    produced = run_script(PRODUCER_EXAMPLE, broker)
    assert (0, "", "") == (produced.returncode, produced.stdout, produced.stderr)
    consumed = run_script(CONSUMER_EXAMPLE, broker)
    assert (0, "") == (consumed.returncode, consumed.stderr)
    assert ["A Message(topic='A', partition=0, offset=0, value=b'one'", "A Message(topic='A', partition=0, offset=1, value=b'three'"] == [
        line.split(", key")[0] for line in consumed.stdout.splitlines()]


def test_lost_answers_neither_double_nor_lose_nor_reorder(cluster, topic) -> None:
    """A thousand numbered messages in requests of ten; the answer of every third request is lost."""
    with lossy_proxy(cluster.balancer_url, nth=3) as proxy:
        with MyProducer([topic], proxy.address, batch_records_max=10, request_bytes_max=0) as producer:
            deliveries = [producer.send(topic, value) for value in numbered(1_000)]
        assert proxy.lost >= 30
    assert list(range(1_000)) == [delivery.result(0).offset for delivery in deliveries]
    assert numbered(1_000) == [message.value for message in read(cluster.bootstrap, topic, 1_000)]


def test_every_kind_of_record_comes_back_as_it_was(broker, topic) -> None:
    whole = bytes(range(256))
    with MyProducer([topic], broker) as producer:
        producer.send(topic, whole, key=whole, headers=[("h", whole), ("none", None)], timestamp_us=5)
        producer.send(topic, b"")
        producer.send(topic, "zwölf\x00")
        producer.send(topic, b"x" * (1 << 20))
    messages = read(broker, topic, 4)
    assert (whole, whole, (("h", whole), ("none", None)), 5) == (messages[0].value, messages[0].key, messages[0].headers, messages[0].timestamp)
    assert [b"", "zwölf\x00".encode(), b"x" * (1 << 20)] == [message.value for message in messages[1:]]


def test_a_large_batch_over_several_partitions_arrives_whole(broker, topic) -> None:
    with AdminClient(broker) as admin:
        admin.create_topic(topic, partitions=4)
    with MyProducer([topic], broker) as producer:
        for value in numbered(60_000):
            producer.send(topic, value)
    messages = read(broker, topic, 60_000)
    assert set(numbered(60_000)) == {message.value for message in messages}
    assert 60_000 == len(messages)
    for partition in range(4):
        numbers = [int(message.value) for message in messages if message.partition == partition]
        assert sorted(numbers) == numbers, "in order within each partition"


def test_keys_stay_together_and_in_order(broker, topic) -> None:
    with AdminClient(broker) as admin:
        admin.create_topic(topic, partitions=3)
    with MyProducer([topic], broker) as producer:
        for number in range(300):
            producer.send(topic, b"%d" % number, key=f"k{number % 7}")
    by_key: dict[bytes, list[tuple[int, int]]] = {}
    for message in read(broker, topic, 300):
        by_key.setdefault(message.key, []).append((message.partition, int(message.value)))
    assert 7 == len(by_key)
    for found in by_key.values():
        assert 1 == len({partition for partition, _ in found})
        assert sorted(found) == found


def test_a_consumer_goes_on_where_it_committed(broker, topic) -> None:
    with MyProducer([topic], broker) as producer:
        for value in numbered(100):
            producer.send(topic, value)
    first = MyConsumer([topic], broker)
    reading = first.get_next(10.0)
    assert numbered(40) == [next(reading).value for _ in range(40)]
    first.commit()
    first.stop()
    assert numbered(100)[40:] == [message.value for message in read(broker, topic, 60, consumer_id=first.consumer_ids)]
    with AdminClient(broker) as admin:
        assert [(100, 0)] == [(at.offset, at.lag) for at in admin.lag(topic, first.consumer_ids[topic])]


def test_latest_sees_only_what_is_sent_afterwards(broker, topic) -> None:
    with MyProducer([topic], broker) as producer:
        producer.send(topic, b"old").result(10.0)
        with MyConsumer([topic], broker, start="latest") as consumer:
            producer.send(topic, b"new").result(10.0)
            assert [b"new"] == [message.value for message in read_due(consumer, 1)]


def test_seek_and_its_bounds(broker, topic) -> None:
    with MyProducer([topic], broker) as producer:
        for value in numbered(10):
            producer.send(topic, value)
    with MyConsumer([topic], broker) as consumer:
        consumer.seek(topic, 0, 7)
        assert numbered(10)[7:] == [message.value for message in read_due(consumer, 3)]
        for offset in (-5, 11, 10**18):
            with pytest.raises(OffsetOutOfRangeError) as raised:
                consumer.seek(topic, 0, offset)
            assert (0, 10) == (raised.value.earliest, raised.value.latest)
        consumer.seek(topic, 0, 10)
        assert [] == list(consumer.get_next(0.3))


def test_seek_to_a_time(broker, topic) -> None:
    """The producer's own times do not count; later than all is the end."""
    with MyProducer([topic], broker) as producer, MyConsumer([topic], broker) as consumer:
        producer.send(topic, b"first", timestamp_us=2**60).result(10.0)
        between = time.time_ns() // 1_000 + 2_000
        wait_until(lambda: time.time_ns() // 1_000 > between, what="the clock to go on")
        producer.send(topic, b"second", timestamp_us=1).result(10.0)
        for since, expected in ((0, [b"first", b"second"]), (between, [b"second"]), (between + 86_400_000_000, [])):
            consumer.seek_to_timestamp(topic, None, since)
            assert expected == [message.value for message in read_due(consumer, len(expected))]


def test_the_native_face_by_plain_http_through_the_balancer(broker, topic) -> None:
    """Lines in chunks, an append on a condition, a read by time, and an answer that a cache keeps."""
    with AdminClient(broker) as admin:
        admin.create_topic(topic)
    at = f"http://{broker}/v1/topics/{topic}/partitions/0"
    lines = (b'{"value": "%d"}\n' % number for number in range(20_000))  # longer than what the balancer holds in memory
    sent = requests.post(f"{at}/records", data=lines, headers={"Content-Type": "application/x-ndjson"}, timeout=20)
    assert (sent.status_code, sent.json()["record_count"]) == (200, 20_000), sent.text
    refused = requests.post(f"{at}/records", data=iter([b'{"value": "x"}\n', b"{}\n"]), headers={"Content-Type": "application/jsonl"}, timeout=20)
    assert (refused.status_code, refused.json()["error"]["details"]) == (400, {"line": 2})
    for expected, status in ((19_999, 409), (20_000, 200), (20_000, 409)):
        answer = requests.post(f"{at}/records", params={"expected_end_offset": expected}, json={"value": "last"}, timeout=20)
        assert answer.status_code == status, answer.text
    assert answer.json()["error"]["details"] == {"end_offset": 20_001}
    since = requests.get(f"{at}/records", params={"timestamp": sent.json()["append_time"], "until_offset": 3}, timeout=20)
    assert (since.headers["MyQueue-Offset"], [record["value"] for record in since.json()["records"]]) == ("0", ["0", "1", "2"])
    identity = requests.get(at, timeout=20).json()["topic_id"]
    range_ = {"offset": 100, "until_offset": 200, "topic_id": identity}
    full = requests.get(f"{at}/records", params=range_, timeout=20)
    assert (full.headers["Cache-Control"], len(full.json()["records"])) == ("private, max-age=31536000, immutable", 100)
    again = requests.get(f"{at}/records", params=range_, headers={"If-None-Match": full.headers["ETag"]}, timeout=20)
    assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", full.headers["ETag"])
    assert requests.get(f"{at}/records", params={**range_, "topic_id": identity + 1}, timeout=20).json()["error"]["code"] == "unknown_topic"


def test_a_waiting_consumer_is_woken_by_a_message(broker, topic) -> None:
    with MyProducer([topic], broker) as producer, MyConsumer([topic], broker) as consumer:
        came: list[float] = []
        reading = threading.Thread(target=lambda: came.extend(time.monotonic() for _ in zip(consumer.get_next(20.0), range(2), strict=False)))
        reading.start()
        producer.send(topic, b"first").result(10.0)
        wait_until(lambda: len(came) == 1, what="the first message")
        time_of_sending = time.monotonic()
        producer.send(topic, b"second").result(10.0)
        wait_until(lambda: len(came) == 2, what="the second message")
        consumer.stop()
        reading.join(10.0)
        assert came[1] - time_of_sending < 1.0


def test_unknown_topics_are_named_and_existing_ones_refused(broker, topic) -> None:
    with pytest.raises(UnknownTopicError) as raised:
        MyConsumer([f"{topic}-x", f"{topic}-y"], broker)
    assert [f"{topic}-x", f"{topic}-y"] == sorted(raised.value.topics)
    with AdminClient(broker) as admin:
        admin.create_topic(topic)
        with pytest.raises(TopicExistsError):
            admin.create_topic(topic)
        assert 1 == admin.create_topic(topic, exist_ok=True).partitions


def test_a_broker_that_is_killed_and_comes_back_loses_and_doubles_nothing(cluster, topic) -> None:
    """5,000 messages while their broker dies by kill -9 and is started again; a consumer reads all along."""
    broker = cluster.bootstrap
    with MyProducer([topic], broker, batch_records_max=100, request_bytes_max=0, delivery_timeout_seconds=60.0) as producer:
        producer.send(topic, b"0").result(10.0)
        with AdminClient(broker) as admin:
            leader = admin.describe_topic(topic).partition_list[0].leader
            port = next(each["port"] for each in admin.brokers() if each["broker_id"] == leader)
        node = next(name for name in cluster.names() if cluster.node(name)["url"].endswith(f":{port}"))
        with MyConsumer([topic], broker) as consumer:
            seen: list[int] = []
            reading = threading.Thread(target=lambda: seen.extend(int(message.value) for message in consumer.get_next()))
            reading.start()
            for number in range(1, 5_000):
                producer.send(topic, b"%d" % number)
                if number == 2_500:
                    wait_until(lambda: len(seen) > 100, what="the consumer to be under way")
                    cluster.kill(node)
            cluster.start(node)
            producer.flush(50.0)
            wait_until(lambda: len(seen) >= 5_000, timeout_seconds=30, what="all messages")
            consumer.stop()
            reading.join(10.0)
    assert list(range(5_000)) == seen


def test_brokers_away_stop_names_what_was_not_delivered(cluster, topic) -> None:
    """All brokers are dead: ten accepted, ten reported, within the time."""
    producer = MyProducer([topic], cluster.bootstrap)
    producer.send(topic, b"before").result(10.0)
    brokers = [name for name in cluster.names() if name.startswith("broker")]
    for node in brokers:
        cluster.kill(node)
    try:
        for value in numbered(10):
            producer.send(topic, value)
        with pytest.raises(DeliveryError, match="10 messages were not delivered") as raised:
            producer.stop(3.0)
        assert numbered(10) == [undelivered.value for undelivered in raised.value.undelivered]
    finally:
        for node in brokers:
            cluster.start(node)


def test_a_script_that_ends_without_stop_has_delivered_everything(broker, topic) -> None:
    script = f"""
from myqueue import MyProducer
producer = MyProducer(broker='localhost:9092')
for number in range(1000):
    producer.send('{topic}', b'%d' % number)
"""
    ended = run_script(script, broker)
    assert (0, "") == (ended.returncode, ended.stderr)
    assert numbered(1_000) == [message.value for message in read(broker, topic, 1_000)]


def test_the_command_line_moves_a_file_byte_for_byte(broker, topic, tmp_path) -> None:
    content = b"\n\nfirst\r\n\x00\xff\xfe\n" + bytes(range(256)) + b"\n"
    (tmp_path / "in").write_bytes(content)
    with AdminClient(broker) as admin:
        admin.create_topic(topic)
    with MyConsumer([topic], broker) as consumer:
        consumer_id = str(consumer.consumer_ids[topic])
    for words in (["produce", topic, str(tmp_path / "in")], ["consume", topic, "--timeout", "1", "--output", str(tmp_path / "out")],
                  ["topics", "list"], ["topics", "describe", topic], ["brokers"], ["health"], ["lag", topic, consumer_id]):
        done = subprocess.run([sys.executable, "-m", "myqueue", *words, "--bootstrap", broker], capture_output=True, timeout=30, check=False)
        assert 0 == done.returncode, (words, done.stderr)
    assert content == (tmp_path / "out").read_bytes()


def test_a_trim_holds_for_every_consumer_of_every_face(broker, topic) -> None:
    """By the SDK, the command line and plain HTTP through the balancer; a queue-face consumer whose message is gone goes on at the first one left."""
    def queue_face(method: str, path: str, **arguments: object) -> requests.Response:
        return requests.request(method, f"http://{broker}{path}", json={"topic": topic, **arguments}, timeout=20)

    with MyProducer([topic], broker) as producer:
        for value in numbered(10):
            producer.send(topic, value)
    consumer_id = queue_face("POST", "/consumer/register").json()["consumer_id"]
    assert queue_face("GET", "/consumer/consume", consumer_id=consumer_id).json()["message"] == "0"
    with AdminClient(broker) as admin:
        assert 4 == admin.trim(topic, 0, 4)
        assert 4 == admin.trim(topic, 0, 2)
        with pytest.raises(OffsetOutOfRangeError) as raised:
            admin.trim(topic, 0, 11)
        assert (4, 10) == (raised.value.earliest, raised.value.latest)
        assert (4, 10) == (admin.offsets(topic)[TopicPartition(topic, 0)].start, admin.offsets(topic)[TopicPartition(topic, 0)].end)
    assert numbered(10)[4:] == [message.value for message in read(broker, topic, 6)]
    assert queue_face("GET", "/size", consumer_id=consumer_id).json()["size"] == 6
    assert queue_face("GET", "/consumer/consume", consumer_id=consumer_id).json()["message"] == "4"
    done = subprocess.run([sys.executable, "-m", "myqueue", "topics", "trim", topic, "--partition", "0", "--before", "9", "--bootstrap", broker],
                          capture_output=True, timeout=30, check=False)
    assert (0, f"partition 0 of topic {topic} begins at offset 9\n") == (done.returncode, done.stdout.decode())
    assert queue_face("GET", "/consumer/consume", consumer_id=consumer_id).json()["message"] == "9"


def test_a_quota_slows_producers_down_and_loses_nothing(cluster, broker, topic) -> None:
    """The SDK waits as it is told: later acknowledgements, no error. Who speaks HTTP is told 429 through the balancer, and stores nothing."""
    rate, values = 100_000, [b"%04d" % number * 250 for number in range(300)]
    with AdminClient(broker) as admin:
        admin.create_topic(topic, config={"produce_bytes_per_second": rate})
    began = time.monotonic()
    with MyProducer([topic], broker, batch_bytes_max=20_000, request_bytes_max=0) as producer:
        deliveries = [producer.send(topic, value) for value in values]
        producer.flush()
        seconds = time.monotonic() - began
        assert list(range(300)) == [delivery.result(0).offset for delivery in deliveries]
        producer_id = producer.producer_ids[topic]
    assert seconds >= 300_000 / rate - 1 - 20_000 / rate
    url = cluster.balancer_url
    wait_until(lambda: requests.post(f"{url}/v1/topics/{topic}/partitions/0/records", json={"value": "x" * 900_000}, timeout=10).ok,
               what="a large message to be taken", interval_seconds=0.1)
    refused = requests.post(f"{url}/producer/produce", json={"topic": topic, "producer_id": producer_id, "message": "y"}, timeout=10)
    assert (429, "quota_exceeded") == (refused.status_code, refused.json()["code"])
    assert 5 <= int(refused.headers["Retry-After"]) <= 9  # nearly all of it, and less than a second's worth from before
    assert values == [message.value for message in read(broker, topic, 301)][:-1]


def reconciled(broker: str, topic: str, receipts: Path, *, group: str) -> Judged:
    """What `scripts/spark-submit reconcile` would say; what is stored is searched for, not read by Spark."""
    settings = PipelineSettings(out="", bootstrap=broker, topics=(topic,))
    gathered = gather(fetch_cluster(broker), settings, Asked((str(receipts),), (group,)))
    stored: dict[TopicPartition, dict[int, Coverage]] = {}
    with AdminClient(broker) as admin:
        for message in admin.search(topic, from_us=0):
            period = message.timestamp - message.timestamp % PERIOD_US  # no producer gave a time: it is the broker's
            by_period = stored.setdefault(TopicPartition(topic, message.partition), {})
            by_period.setdefault(period, Coverage()).add(message.offset, message.offset + 1)
    periods = {name: [StoredPeriod(period, tuple(coverage.stretches())) for period, coverage in sorted(by_period.items())]
               for name, by_period in stored.items()}
    return judge(gathered.cut, gathered.part, periods, Columns(gathered.acknowledged, gathered.standings))


def test_receipts_reconcile_with_what_is_stored(cluster: Cluster, broker: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two producers into one file; without one of its lines exactly that batch is named."""
    monkeypatch.setenv("PGPASSFILE", str(cluster.folder.pgpass_file))
    receipts = tmp_path / "receipts.ndjson"
    with AdminClient(broker) as admin:
        admin.create_topic(topic, partitions=3)
        with MyProducer([topic], broker, receipts=receipts, batch_records_max=50) as one, MyProducer([topic], broker, receipts=receipts) as other:
            for value in numbered(1_000):
                one.send(topic, value)
                other.send(topic, value, key=value)
    with MyConsumer([topic], broker, group=topic, start="earliest") as consumer:
        assert 2_000 == len(read_due(consumer, 2_000))
        consumer.commit()
    made = reconciled(broker, topic, receipts, group=topic)
    assert ((), ()) == (made.differences, made.not_judged)
    assert [2_000] * 3 == [sum(numbers) for numbers in zip(*((row.stored.messages, row.acknowledged.messages, row.consumed[topic])
                                                             for row in made.rows), strict=True)]
    lines = receipts.read_bytes().splitlines(keepends=True)
    left_out = json.loads(lines[0])
    receipts.write_bytes(b"".join(lines[1:]))
    assert [("unacknowledged", left_out["partition"], left_out["base_offset"], left_out["record_count"])] == [
        (one.kind, one.partition, one.start_offset, one.messages) for one in reconciled(broker, topic, receipts, group=topic).differences]
