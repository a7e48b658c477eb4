"""Consumer groups on real processes: members come, go, die and freeze; each message is read, and no frozen member takes the group back."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from myqueue import AdminClient, Message, MyConsumer, MyProducer, UnknownTopicError
from myqueue.cli.main import main
from myqueue.errors import ConflictError, MyQueueError, OffsetOutOfRangeError, RefusedError
from myqueue.protocol.types import TopicPartition
from myqueue.supervisor import Cluster, ClusterSpec
from tests.support.clusters import running_cluster
from tests.support.doomed_member import EXIT_CODE as DIED
from tests.support.group_member import reads_in
from tests.support.reading import read_due
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(180)  # the first test's time includes the start of the cluster, on a machine that may be busy
ROOT = Path(__file__).resolve().parents[2]
SESSION_SECONDS, PARTITIONS = 6.0, 6
_names = iter(range(1_000_000))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three managers, two brokers and the balancer, for all tests of this module."""
    with running_cluster(ClusterSpec(brokers=2, managers=3, ports=(0,))) as made:
        yield made


@pytest.fixture
def broker(cluster: Cluster) -> str:
    return cluster.bootstrap


@pytest.fixture
def topic(broker: str) -> str:
    name = f"groups-{next(_names)}"
    with AdminClient(broker) as admin:
        admin.create_topic(name, partitions=PARTITIONS, replication_factor=1)
    return name


def wait(condition: Callable[[], object], what: str) -> None:
    wait_until(condition, what=what, timeout_seconds=30.0)


class Reading:
    """A member in this process with a thread that reads."""

    def __init__(self, consumer: MyConsumer) -> None:
        self.consumer, self.messages, self.error = consumer, [], None
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            for message in self.consumer.get_next():
                self.messages.append(message)
        except MyQueueError as error:
            self.error = error

    def stop(self) -> None:
        self.consumer.stop()
        self._thread.join(10)
        assert not self._thread.is_alive()


@pytest.fixture
def reading(broker: str, topic: str) -> Iterator[Callable[..., Reading]]:
    """Makes members of the group named like the topic; all are stopped at the end."""
    made: list[Reading] = []

    def make(**options) -> Reading:
        made.append(Reading(MyConsumer([topic], broker, **{"group": topic, "session_timeout_seconds": SESSION_SECONDS, **options})))
        return made[-1]

    yield make
    for member in made:
        member.stop()


def send(broker: str, topic: str, numbers: range) -> None:
    """Number by number to the partitions in turn."""
    with MyProducer([topic], broker) as producer:
        for number in numbers:
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)


def places(members: list[Reading]) -> list[tuple[int, int]]:
    return [(message.partition, message.offset) for member in members for message in member.messages]


def test_members_share_the_partitions_and_each_message_is_read_once(broker: str, topic: str, reading):
    """While members come and go in good order nothing is read twice: who lets go has committed, who takes over goes on from there."""
    members = [reading()]
    assert members[0].consumer.assignment == [TopicPartition(topic, number) for number in range(PARTITIONS)]
    for round, count in enumerate((2, 3)):
        send(broker, topic, range(round * 600, round * 600 + 600))
        wait(lambda round=round: len(places(members)) == 600 * (round + 1), "all messages are read")
        members.append(reading())
        wait(lambda count=count: [len(member.consumer.assignment) for member in members] == [PARTITIONS // count] * count, "all have as many")
    members[0].stop()
    wait(lambda: sum(len(member.consumer.assignment) for member in members[1:]) == PARTITIONS, "the others read everything")
    send(broker, topic, range(1_200, 1_800))
    wait(lambda: len(places(members)) >= 1_800, "all messages are read")
    assert sorted(places(members)) == [(number, offset) for number in range(PARTITIONS) for offset in range(300)]


def test_a_group_goes_on_where_it_stood(broker: str, topic: str):
    send(broker, topic, range(60))
    with MyConsumer([topic], broker, group="stand", start="earliest") as consumer:
        first = [next_of(consumer) for _ in range(30)]
        consumer.commit()
    with MyConsumer([topic], broker, group="stand") as consumer:
        rest = read_due(consumer, 30)
    assert sorted((one.partition, one.offset) for one in first + rest) == [(number, offset) for number in range(PARTITIONS) for offset in range(10)]


def next_of(consumer: MyConsumer) -> Message:
    return next(iter(consumer.get_next(20.0)))


def test_a_group_that_begins_at_the_latest_begins_when_it_is_made(broker: str, topic: str):
    """Also in what its first member had not read when it left."""
    send(broker, topic, range(30))
    with MyConsumer([topic], broker, group=f"late-{topic}", start="latest"):
        send(broker, topic, range(30, 60))
    with MyConsumer([topic], broker, group=f"late-{topic}", start="latest") as consumer:
        assert sorted(int(one.value) for one in read_due(consumer, 30)) == list(range(30, 60))


@contextmanager
def member_process(broker: str, topic: str, file: Path) -> Iterator[subprocess.Popen]:
    process = subprocess.Popen([sys.executable, "-m", "tests.support.group_member", broker, topic, topic, str(file)], cwd=ROOT)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        process.wait(20)


def test_a_member_that_dies_is_replaced_within_its_session_and_nothing_is_missed(broker: str, topic: str, tmp_path: Path):
    """Kill -9 of one of three processes under load: the others read on in its partitions, from what it committed."""
    files = [tmp_path / f"{number}" for number in range(3)]
    stopping = threading.Event()
    sent: list[int] = []

    def load() -> None:
        with MyProducer([topic], broker) as producer:
            while not stopping.wait(0.01):
                producer.send(topic, b"%d" % len(sent), partition=len(sent) % PARTITIONS)
                sent.append(len(sent))

    with member_process(broker, topic, files[0]) as victim, member_process(broker, topic, files[1]), member_process(broker, topic, files[2]):
        thread = threading.Thread(target=load, daemon=True)
        thread.start()
        try:
            wait(lambda: [len(recent(file)) for file in files] == [2, 2, 2], "each reads two partitions")
            theirs = recent(files[0])
            killed = time.monotonic()
            victim.kill()
            wait(lambda: theirs <= recent(files[1]) | recent(files[2]), "others read its partitions")
            took = max(min(one.at for file in files[1:] for one in reads_in(file) if one.partition == partition and one.at > killed)
                       for partition in theirs) - killed
        finally:
            stopping.set()
            thread.join(20)
        wait(lambda: values(files) == set(range(len(sent))), "every message is read")
    assert took < SESSION_SECONDS + 1.0, f"its partitions were read again after {took:.1f} s"
    again = sum(len(reads_in(file)) for file in files) - len(sent)
    assert again < 300, f"{again} messages were read twice: it committed three times a second"


def recent(file: Path) -> set[int]:
    """The partitions that a member has read in the last second."""
    return {one.partition for one in reads_in(file) if one.at > time.monotonic() - 1.0}


def values(files: list[Path]) -> set[int]:
    return {int(one.value) for file in files for one in reads_in(file)}


def test_a_member_that_was_frozen_takes_nothing_back(broker: str, topic: str, tmp_path: Path):
    """SIGSTOP for more than a session, then SIGCONT: what it commits is refused, it joins again, and the group's offsets never went back."""
    frozen_file = tmp_path / "frozen"
    with member_process(broker, topic, frozen_file) as process:
        send(broker, topic, range(600))
        wait(lambda: len(reads_in(frozen_file)) == 600, "it has read everything")
        process.send_signal(signal.SIGSTOP)
        with MyConsumer([topic], broker, group=topic, session_timeout_seconds=SESSION_SECONDS, auto_commit_seconds=0.2) as consumer:
            member = Reading(consumer)
            wait(lambda: len(consumer.assignment) == PARTITIONS, "everything is read by the other one")
            send(broker, topic, range(600, 1_200))
            wait(lambda: len({one.value for one in member.messages if int(one.value) >= 600}) == 600, "the other one reads on")
            consumer.commit()
            process.send_signal(signal.SIGCONT)
            wait(lambda: len(consumer.assignment) == PARTITIONS // 2, "it has joined again")
            send(broker, topic, range(1_200, 1_800))
            wait(lambda: {int(one.value) for one in member.messages} | values([frozen_file]) == set(range(1_800)), "both read on")
            came_again = [one for one in reads_in(frozen_file)[600:] if int(one.value) < 1_200]
            assert came_again == [], "it went on from what the other one had committed"
            member.stop()


def test_a_group_survives_its_managers_leader(cluster: Cluster, broker: str, topic: str, reading):
    """Kill -9 of the write manager: nobody is taken for gone by the next one, and the members read and commit on."""
    members = [reading(auto_commit_seconds=0.2) for _ in range(2)]
    wait(lambda: [len(member.consumer.assignment) for member in members] == [3, 3], "both read")
    before = requests.get(f"http://{broker}/v1/groups/{topic}", timeout=10).json()
    leader = next(one["node_id"] for one in requests.get(f"http://{broker}/v1/managers", timeout=10).json()["managers"] if one["role"] == "write")
    cluster.kill(f"manager-{leader}")
    try:
        send(broker, topic, range(600))
        wait(lambda: len(places(members)) >= 600, "all messages are read")
        for member in members:
            member.consumer.commit()
        time_is_over = time.monotonic() + SESSION_SECONDS + 1.0
        wait(lambda: time.monotonic() > time_is_over, "a session has passed")
        after = requests.get(f"http://{broker}/v1/groups/{topic}", timeout=10).json()
        assert (after["generation"], after["members"]) == (before["generation"], 2)
        assert len(places(members)) == 600
    finally:
        cluster.start(f"manager-{leader}")


def test_a_member_that_knows_read_managers_alone_stays_a_member(broker: str, topic: str):
    """Its heartbeats go from there to the write manager, with all others; nobody is taken for silent."""
    urls = [one["url"] for one in requests.get(f"http://{broker}/v1/managers", timeout=10).json()["managers"] if one["role"] != "write"]
    joining = {"topics": [topic], "session_timeout_seconds": SESSION_SECONDS}
    member = requests.post(f"{urls[0]}/v1/groups/{topic}/members", json=joining, timeout=10).json()
    path, ends = f"/v1/groups/{topic}/members/{member['member_id']}", time.monotonic() + SESSION_SECONDS + 1.0
    turns = itertools.cycle(urls)

    def beaten_to_the_end() -> bool:
        answer = requests.post(f"{next(turns)}{path}/heartbeat", json={}, timeout=10)
        assert (answer.status_code, len(answer.json()["partitions"])) == (200, PARTITIONS), answer.text
        return time.monotonic() > ends

    wait_until(beaten_to_the_end, what="a session to pass", timeout_seconds=30.0, interval_seconds=0.5)
    wait(lambda: {"alive"} == {one["state"] for one in requests.get(f"http://{broker}/v1/health", timeout=10).json()["brokers"]}, "all heartbeats")
    assert requests.delete(f"{urls[1]}{path}", timeout=10).status_code == 200


def test_a_message_that_is_tried_again_comes_again_and_ends_among_the_dead_letters(broker: str, topic: str):
    """With its key, headers and where it stood; the others are not held up, and the group's offset passes it only then."""
    dead = f"{topic}-dead"
    with MyProducer([topic], broker) as producer:
        for value in (b"good", b"bad", b"fine"):
            producer.send(topic, value, key=b"k", headers={"h": b"1"}, partition=0)
    deliveries: list[tuple[bytes, int]] = []
    with MyConsumer([topic], broker, group=topic, auto_done=False, max_deliveries=3, dead_letter_topic=dead) as consumer:
        for message in itertools.chain(itertools.islice(consumer.get_next(60.0), 5), consumer.get_next(0.3)):
            deliveries.append((message.value, consumer.deliveries(message)))
            if message.value == b"bad":
                consumer.retry(message, delay_seconds=0.1, reason="it is bad")
            else:
                consumer.done(message)
        consumer.commit()
    assert deliveries == [(b"good", 1), (b"bad", 1), (b"fine", 1), (b"bad", 2), (b"bad", 3)]
    with MyConsumer([dead], broker) as consumer:
        [letter] = read_due(consumer, 1)
    assert (letter.value, letter.key) == (b"bad", b"k")
    assert dict(letter.headers) == {"h": b"1", "dead-letter-topic": topic.encode(), "dead-letter-partition": b"0", "dead-letter-offset": b"1",
                                    "dead-letter-deliveries": b"3", "dead-letter-reason": b"it is bad"}
    with MyConsumer([topic], broker, group=topic) as consumer:
        assert list(consumer.get_next(1.0)) == []


def test_a_message_that_ends_its_process_is_found_and_all_others_are_dealt_with(broker: str, topic: str, tmp_path: Path):
    """By members that count a message as done when the next is asked for, and by those that say so themselves: each of them dies of it as
    often as it may, and the one after that goes on. No other message is among the dead letters.
    """
    with MyProducer([topic], broker) as producer:
        for number in range(60):
            producer.send(topic, b"%d" % number if number != 24 else b"poison", partition=number % 3)
    with ThreadPoolExecutor(2) as pool:
        ends = list(pool.map(lambda done: lives(broker, topic, tmp_path, done), ("auto", "by-hand")))
    for done, codes in zip(("auto", "by-hand"), ends, strict=True):
        assert set(codes[:-1]) == {DIED} and codes[-1] == 0, codes
        assert 3 <= len(codes[:-1]) <= 6, "as often as it may, and until it was alone"
        assert {int(one.value) for one in reads_in(tmp_path / done)} == {*range(60)} - {24}
        with MyConsumer([f"{topic}-{done}-dead"], broker) as consumer:
            [letter] = read_due(consumer, 1)
        told = dict(letter.headers)
        assert (letter.value, told["dead-letter-offset"], told["dead-letter-deliveries"]) == (b"poison", b"8", b"3")
        with AdminClient(broker) as admin:
            assert sum(one.lag for one in admin.group_lag(f"{topic}-{done}")) == 0


def lives(broker: str, topic: str, folder: Path, done: str) -> list[int]:
    """The exit codes of a member that is started again whenever it has died."""
    group, codes = f"{topic}-{done}", []
    while not codes or (codes[-1] and len(codes) < 10):
        command = [sys.executable, "-m", "tests.support.doomed_member", broker, topic, group, str(folder / done), f"{group}-dead", "3", done]
        codes.append(subprocess.run(command, cwd=ROOT, timeout=60, check=False).returncode)
    return codes


def test_a_paused_partition_hands_out_nothing_until_it_goes_on(broker: str, topic: str):
    with MyConsumer([topic], broker, group=topic) as consumer:
        consumer.pause(topic, 0)
        send(broker, topic, range(60))
        assert {message.partition for message in read_due(consumer, 50)} == set(range(1, PARTITIONS))
        consumer.resume(topic, 0)
        assert [message.offset for message in read_due(consumer, 10)] == list(range(10))


def test_what_cannot_be_joined_says_why(broker: str, topic: str, reading):
    reading(group_strategy="range")
    with pytest.raises(ConflictError, match="share their partitions by range, not by sticky"):
        MyConsumer([topic], broker, group=topic)
    with pytest.raises(UnknownTopicError, match="absent"):
        MyConsumer([topic, "absent"], broker, group="other")
    assert "other" not in [one["group"] for one in requests.get(f"http://{broker}/v1/groups", timeout=10).json()["groups"]]


@pytest.mark.parametrize(("method", "path", "body", "status", "code"), [
    ("GET", "/v1/groups/absent", None, 404, "unknown_group"),
    ("DELETE", "/v1/groups/absent", None, 404, "unknown_group"),
    ("GET", "/v1/groups/a%20b", None, 400, "invalid_name"),
    ("POST", "/v1/groups/g/members", {}, 400, "bad_request"),
    ("POST", "/v1/groups/g/members", {"topics": []}, 400, "bad_request"),
    ("POST", "/v1/groups/g/members", {"topics": ["absent"]}, 404, "unknown_topic"),
    ("POST", "/v1/groups/g/members", {"topics": ["a b"]}, 400, "invalid_name"),
    ("POST", "/v1/groups/g/members", {"topics": ["absent"], "strategy": "eager"}, 400, "bad_request"),
    ("POST", "/v1/groups/g/members", {"topics": ["absent"], "session_timeout_seconds": True}, 400, "bad_request"),
    ("POST", "/v1/groups/g/members", {"topics": ["absent"], "session_timeout_seconds": 1}, 400, "bad_request"),
    ("POST", "/v1/groups/g/members", {"topics": ["absent"], "instance_id": ""}, 400, "bad_request"),
    ("POST", "/v1/groups/g/members", {"topics": ["absent"], "what": 1}, 400, "bad_request"),
    ("POST", "/v1/groups/absent/members/1/heartbeat", {}, 404, "unknown_group"),
    ("POST", "/v1/groups/absent/members/one/heartbeat", {}, 400, "bad_request"),
    ("POST", "/v1/groups/absent/members/1/heartbeat", {"released": [1]}, 400, "bad_request"),
    ("POST", "/v1/groups/absent/members/1/claims", {"generation": 1, "partitions": []}, 404, "unknown_group"),
    ("POST", "/v1/groups/absent/members/1/claims", {"generation": 0, "partitions": []}, 400, "bad_request"),
    ("PUT", "/v1/groups/absent/members/1/offsets", {"generation": 1, "offsets": [{"topic": "t", "partition": 0}]}, 400, "bad_request"),
    ("DELETE", "/v1/groups/absent/members/1", None, 404, "unknown_group"),
    ("GET", "/v1/groups/absent/offsets", None, 404, "unknown_group"),
    ("PUT", "/v1/groups/absent/offsets", {"offsets": []}, 404, "unknown_group"),
    ("PUT", "/v1/groups/absent/offsets", {"offsets": [{"topic": "t", "partition": 0, "offset": "middle"}]}, 400, "bad_request"),
    ("PUT", "/v1/groups/absent/offsets", {"offsets": [{"topic": "t", "partition": 0, "offset": number} for number in (1, 2)]}, 400, "bad_request"),
])
def test_bad_input_is_the_callers_mistake_and_changes_nothing(broker: str, method: str, path: str, body: dict | None, status: int, code: str):
    answer = requests.request(method, f"http://{broker}{path}", json=body, timeout=10)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text


def test_commits_pass_only_for_what_a_member_reads(broker: str, topic: str):
    """By hand, as curl would: join, claim, commit; another's partition, an older generation and an offset beyond the end are refused."""
    base = f"http://{broker}/v1/groups/{topic}/members"
    send(broker, topic, range(60))
    one = requests.post(base, json={"topics": [topic], "instance_id": "one"}, timeout=10).json()
    assert [part["partition"] for part in one["partitions"]] == list(range(PARTITIONS))
    place = {"topic": topic, "partition": 2}
    mine = f"{base}/{one['member_id']}"
    claimed = requests.post(f"{mine}/claims", json={"generation": one["generation"], "partitions": [place]}, timeout=10)
    assert claimed.json() == {"offsets": [{**place, "offset": 0, "handed_end": 0, "deaths": 0}]}

    def commit(offset: int, generation: int = one["generation"], member: str = mine, **more: int) -> tuple[int, str]:
        answer = requests.put(f"{member}/offsets", json={"generation": generation, "offsets": [{**place, "offset": offset, **more}]}, timeout=10)
        return answer.status_code, answer.json().get("error", {}).get("code", "")

    assert commit(5) == (200, "")
    assert commit(11) == (416, "offset_out_of_range")
    for offset, sequence in ((3, 1), (4, 2), (3, 1)):  # the first one's repetition was held up, and undoes nothing
        assert commit(offset, committer=7, sequence=sequence) == (200, "")
    stands = requests.get(f"http://{broker}/v1/groups/{topic}/offsets", timeout=10).json()["offsets"]
    assert [at["offset"] for at in stands if at["partition"] == place["partition"]] == [4]
    assert commit(5, committer=7) == (400, "bad_request"), "of a stamp there are both or none"
    assert commit(5, generation=1) == (409, "member_fenced")
    again = requests.post(base, json={"topics": [topic], "instance_id": "one"}, timeout=10).json()
    assert again["member_id"] == one["member_id"]
    assert commit(6) == (409, "member_fenced"), "its older self"
    assert commit(6, generation=again["generation"]) == (200, "")
    two = requests.post(base, json={"topics": [topic], "instance_id": "two"}, timeout=10).json()
    assert commit(7, generation=two["generation"], member=f"{base}/{two['member_id']}") == (409, "member_fenced")
    assert requests.delete(f"http://{broker}/v1/groups/{topic}", timeout=10).json()["error"]["code"] == "refused"
    for member_id in (one["member_id"], two["member_id"]):
        assert requests.delete(f"{base}/{member_id}", timeout=10).status_code == 200
    assert commit(7, generation=two["generation"]) == (404, "unknown_member")
    assert requests.delete(f"http://{broker}/v1/groups/{topic}", timeout=10).status_code == 200


def test_lag_and_another_place_to_go_on_from(broker: str, topic: str, capsys):
    """By the SDK and the command line: where a group stands, who reads there; it is set back only while nobody reads."""
    send(broker, topic, range(60))
    with AdminClient(broker) as admin:
        with MyConsumer([topic], broker, group=topic) as consumer:
            assert {(one.partition, one.offset, one.lag) for one in admin.group_lag(topic)} == {(number, 0, 10) for number in range(PARTITIONS)}
            assert len(read_due(consumer, 60)) == 60
            consumer.commit()
            shown = requests.get(f"http://{broker}/v1/groups/{topic}/offsets", timeout=10).json()
            assert shown["lag"] == 0
            assert {(one["offset"], one["end_offset"], one["member_id"] is not None) for one in shown["offsets"]} == {(10, 10, True)}
            with pytest.raises(RefusedError, match="has 1 member"):
                admin.set_group_offsets(topic, {TopicPartition(topic, 0): "earliest"})
        wanted = {TopicPartition(topic, 0): "earliest", TopicPartition(topic, 1): 7, TopicPartition(topic, 2): "latest"}
        assert admin.set_group_offsets(topic, wanted) == {TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 7, TopicPartition(topic, 2): 10}
        assert sum(one.lag for one in admin.group_lag(topic)) == 13
        with pytest.raises(OffsetOutOfRangeError):
            admin.set_group_offsets(topic, {TopicPartition(topic, 3): 11})
    for words, said in ((["list"], topic), (["describe", topic], "has no members"), (["lag", topic], "10"),
                        (["reset", topic, topic, "--partition", "0", "--to", "9"], "9"), (["delete", topic], "forgotten")):
        assert main(["groups", *words, "--bootstrap", broker]) == 0
        assert said in capsys.readouterr().out
    assert main(["groups", "lag", topic, "--bootstrap", broker]) == 1
    assert f"There is no group '{topic}'" in capsys.readouterr().err


def test_the_command_line_reads_as_a_member(broker: str, topic: str, capsysbinary):
    """And the next one goes on where it ended."""
    send(broker, topic, range(60))
    seen: list[int] = []
    for count in (40, 20):
        assert main(["consume", topic, "--bootstrap", broker, "--group", topic, "--timeout", "30", "--max-messages", str(count)]) == 0
        captured = capsysbinary.readouterr()
        seen += map(int, captured.out.split())
        assert len(captured.out.split()) == count
        assert f"{count} messages from {topic}, group {topic}".encode() in captured.err
    assert sorted(seen) == list(range(60))
