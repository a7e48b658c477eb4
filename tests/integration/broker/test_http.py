"""A real broker over HTTP: every good form, and every mistake answered at once with a 4xx that says what is wrong."""

from __future__ import annotations

import base64
import itertools
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from myqueue.protocol.batch import BATCH_TYPE, ENTRIES_TYPE, messages_of, pack, pack_values
from myqueue.protocol.types import Record
from tests.support.broker_process import BrokerProcess
from tests.support.manager_stub import ManagerStub

_numbers = itertools.count(1)


@pytest.fixture
def topic(broker: BrokerProcess) -> tuple[str, int]:
    """A fresh topic of two partitions, and its id."""
    number = next(_numbers)
    name = f"topic-{number}"
    broker.appoint(name, topic_id=number, partitions=2)
    return name, number


@pytest.fixture(scope="module")
def untouched(broker: BrokerProcess) -> tuple[str, int]:
    """A topic for requests that must store nothing."""
    broker.appoint("untouched", topic_id=100_000)
    return "untouched", 100_000


def records(topic: tuple[str, int], partition: object = 0) -> str:
    return f"/v1/topics/{topic[0]}/partitions/{partition}/records"


def test_json_in_and_out(broker: BrokerProcess, topic):
    """Text, bytes, keys, headers and times come back as they went in."""
    sent = {"records": [{"value": "a\0b"}, {"value_base64": base64.b64encode(bytes(range(256))).decode(), "key": "k", "timestamp": 5},
                        {"value": "", "headers": {"h": "x"}}]}
    answer = broker.call("POST", records(topic), sent)
    assert (answer["base_offset"], answer["record_count"], answer["duplicate"], answer["partition"]) == (0, 3, False, 0)
    assert (answer["topic"], answer["topic_id"]) == topic
    read = broker.call("GET", records(topic))
    assert [record["offset"] for record in read["records"]] == [0, 1, 2]
    assert read["records"][0]["value"] == "a\0b"
    assert base64.b64decode(read["records"][1]["value_base64"]) == bytes(range(256))
    assert (read["records"][1]["key"], read["records"][1]["timestamp"]) == ("k", 5)
    assert read["records"][2]["headers"] == [{"name": "h", "value": "x"}]
    assert (read["next_offset"], set(read)) == (3, {"topic", "partition", "records", "next_offset"}), "of the present bounds only the headers speak"


def test_binary_in_and_out(broker: BrokerProcess, topic):
    sent = [Record(b"v", b"k", (("h", None),), 7), Record(b"\xff" * 9)]
    broker.call("POST", records(topic), pack(sent), headers={"Content-Type": BATCH_TYPE})
    answer = broker.http.get(broker.url + records(topic), headers={"Accept": ENTRIES_TYPE}, timeout=10)
    assert answer.headers["Content-Type"] == ENTRIES_TYPE
    assert (answer.headers["MyQueue-Start-Offset"], answer.headers["MyQueue-End-Offset"], answer.headers["MyQueue-Epoch"]) == ("0", "2", "1")
    found = list(messages_of(answer.content, topic="t", partition=0))
    assert [Record(one.value, one.key, one.headers) for one in found] == [Record(one.value, one.key, one.headers) for one in sent]


@pytest.mark.parametrize("accept", [ENTRIES_TYPE.upper(), f"text/html, {ENTRIES_TYPE};q=0.1"])
def test_stored_blocks_are_asked_for_in_any_case(broker: BrokerProcess, untouched, accept: str):
    answer = broker.http.get(broker.url + records(untouched), headers={"Accept": accept}, timeout=10)
    assert (answer.headers["Content-Type"], answer.content) == (ENTRIES_TYPE, b"MQE1")


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=UTF-8", "APPLICATION/JSON", None])
def test_json_under_any_spelling(broker: BrokerProcess, topic, kind: str | None):
    """Any case, any charset parameter, no content type at all."""
    answer = broker.http.post(broker.url + records(topic), data=b'{"value": "x"}', headers={"Content-Type": kind}, timeout=10)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("accept", ["*/*", "application/json", None])
def test_json_is_what_is_read_without_asking(broker: BrokerProcess, untouched, accept: str | None):
    answer = broker.http.get(broker.url + records(untouched), headers={"Accept": accept}, timeout=10)
    assert answer.json()["records"] == []


@pytest.mark.parametrize("kind", ["text/plain", "application/xml", "application/vnd.myqueue.batch.v2", "application/x-www-form-urlencoded"])
def test_a_foreign_type_is_415_with_the_good_ones(broker: BrokerProcess, untouched, kind: str):
    error = broker.call("POST", records(untouched), b"x", headers={"Content-Type": kind}, status=415)["error"]
    assert error["details"]["supported"] == [BATCH_TYPE, "application/json", "application/x-ndjson", "application/jsonl"]


@pytest.mark.parametrize("kind", ["application/x-ndjson", "application/jsonl; charset=UTF-8"])
@pytest.mark.parametrize("chunked", [False, True])
def test_lines_in(broker: BrokerProcess, topic, kind: str, chunked: bool):
    """A record a line, with a length or in chunks that end anywhere; all or nothing, and the error names the line."""
    def send(body: bytes):
        pieces = (body[at:at + 7] for at in range(0, len(body), 7))
        return broker.http.post(broker.url + records(topic), data=pieces if chunked else body, headers={"Content-Type": kind}, timeout=10)

    answer = send(b'{"value": "a", "key": "k"}\n\n{"value_base64": "/w=="}\r\n{"value": "c"}')
    assert (answer.status_code, answer.json()["base_offset"], answer.json()["record_count"]) == (200, 0, 3)
    assert [(one.get("value"), one.get("key")) for one in broker.call("GET", records(topic))["records"]] == [("a", "k"), (None, None), ("c", None)]
    answer = send(b'{"value": "d"}\n\n{"value": 5}\n{"value": "e"}\n')
    assert (answer.status_code, answer.json()["error"]["details"]) == (400, {"line": 3})
    assert broker.call("GET", f"/v1/topics/{topic[0]}/partitions/0")["end_offset"] == 3


def test_a_conditional_append(broker: BrokerProcess, topic):
    """Of those that expect one end a single one is stored, in every format; a repeat of what was stored is a duplicate first."""
    bodies = [(b'{"value": "x"}', "application/json"), (b'{"value": "x"}\n', "application/x-ndjson"), (pack_values([b"x"]), BATCH_TYPE)]
    for end, (body, kind) in enumerate(bodies):
        sequence = {"Producer-Id": "1", "Producer-Epoch": "0", "Producer-Seq": str(end)}
        done = broker.call("POST", records(topic), body, headers={"Content-Type": kind, **sequence}, expected_end_offset=end)
        assert (done["base_offset"], done["duplicate"]) == (end, False)
        again = broker.call("POST", records(topic), body, headers={"Content-Type": kind, **sequence}, expected_end_offset=end)
        assert (again["base_offset"], again["duplicate"]) == (end, True)
        for wrong in (0, end, end + 2, 2**63 - 1):
            error = broker.call("POST", records(topic), body, headers={"Content-Type": kind}, expected_end_offset=wrong, status=409)["error"]
            assert (error["code"], error["details"]) == ("end_offset_mismatch", {"end_offset": end + 1})
            assert (error["outcome"], error["retriable"]) == ("not_done", False)
    for wrong in ("", "x", "-1", "1.5", 2**63):
        assert broker.call("POST", records(topic), {"value": "x"}, expected_end_offset=wrong, status=400)["error"]["code"] == "bad_request"
    assert broker.call("GET", f"/v1/topics/{topic[0]}/partitions/0")["end_offset"] == 3


def test_of_many_that_append_to_one_end_one_does(broker: BrokerProcess, topic):
    """A counter that many raise, each with what it has read before: none of their steps is lost or done twice."""
    def raise_it(name: int) -> int:
        conflicts = 0
        for step in range(5):
            while True:
                end = broker.call("GET", f"/v1/topics/{topic[0]}/partitions/0")["end_offset"]
                answer = requests.post(broker.url + records(topic), params={"expected_end_offset": end}, json={"value": f"{name}.{step}.{end}"},
                                       timeout=10)
                if answer.status_code == 200:
                    assert answer.json()["base_offset"] == end
                    break
                assert answer.status_code == 409, answer.text
                conflicts += 1
        return conflicts

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(raise_it, range(6)))
    stored = [record["value"].split(".") for record in broker.call("GET", records(topic))["records"]]
    assert [int(end) for _, _, end in stored] == list(range(30))
    assert sorted((name, step) for name, step, _ in stored) == sorted((str(name), str(step)) for name in range(6) for step in range(5))


@pytest.mark.parametrize("partition", ["-1", "2147483648", "9223372036854775808", "abc", "1.5", "%20", "0x1", "１", "9" * 40])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_odd_partitions_are_refused(broker: BrokerProcess, untouched, method: str, partition: str):
    """At once, and the process lives."""
    began = time.monotonic()
    error = broker.call(method, records(untouched, partition), {"value": "x"} if method == "POST" else None, status=400)["error"]
    assert error["code"] == "bad_request"
    assert time.monotonic() - began < 1


def test_an_empty_partition_is_no_path(broker: BrokerProcess, untouched):
    assert broker.call("GET", records(untouched, ""), status=404)["error"]["code"] == "not_found"


@pytest.mark.parametrize("body", [
    b"", b"nonsense", b"{", b"[]", b"null", b"1", b'"x"', b"{}", b'{"records": []}', b'{"records": {}}', b'{"records": [1]}', b'{"value": 1}',
    b'{"value": null}', b'{"value": "x", "value_base64": "eA=="}', b'{"value_base64": "***"}', b'{"value_base64": 1}', b'{"value": "x", "more": 1}',
    b'{"value": "x", "timestamp": true}',
    b'{"value": "x", "timestamp": -1}', b'{"value": "x", "timestamp": 1.5}', b'{"value": "x", "timestamp": NaN}',
    b'{"value": "x", "headers": [1]}', b'{"value": "x", "headers": {"h": 1}}', b'{"value": "\\ud800"}', b'{"value": "x", "key": 5}', b"\xff\xfe\xff",
    b'{"records": [{"value": "good"}, {"value": 5}]}',
    b'{"records": [{"value": "x"}], "key": "k"}', b"[" * 100_000, b'{"value": ' + b"9" * 5_000 + b"}",
])
def test_bad_json_stores_nothing(broker: BrokerProcess, untouched, body: bytes):
    """400 with a reason; of a batch with one bad record nothing is stored."""
    assert broker.call("POST", records(untouched), body, status=400)["error"]["outcome"] == "not_done"
    assert broker.call("GET", f"/v1/topics/{untouched[0]}/partitions/0")["end_offset"] == 0


@pytest.mark.parametrize("body", [
    b"", b"MQB1", b"MQB1rubbish", pack_values([b"x"])[:-1], pack_values([b"x"]) + b"y", b"MQB2" + pack_values([b"x"])[4:]])
def test_bad_batches_store_nothing(broker: BrokerProcess, untouched, body: bytes):
    error = broker.call("POST", records(untouched), body, headers={"Content-Type": BATCH_TYPE}, status=400)["error"]
    assert error["code"] == "corrupt_batch"
    assert broker.call("GET", f"/v1/topics/{untouched[0]}/partitions/0")["end_offset"] == 0


def test_too_large_is_413(broker: BrokerProcess, topic):
    """A record of exactly 1 MiB passes; one byte more does not, nor 20 MiB; the large one comes back however small the bound."""
    limit = 1 << 20
    for size, status in [(limit - 1, 200), (limit, 200), (limit + 1, 413), (8 << 20, 413)]:
        answer = broker.http.post(broker.url + records(topic), data=pack([Record(b"x" * size)]), headers={"Content-Type": BATCH_TYPE}, timeout=30)
        assert answer.status_code == status, (size, answer.text[:200])
    broker.call("POST", records(topic), {"value": "y" * (limit + 1)}, status=413)
    for offset in (0, 1):
        read = broker.call("GET", records(topic), offset=offset, max_bytes=1_000)
        assert [len(record["value"]) for record in read["records"]] == [limit - 1 + offset]
    assert broker.call("GET", f"/v1/topics/{topic[0]}/partitions/0")["end_offset"] == 2


@pytest.mark.parametrize("headers", [
    {"Producer-Id": "1"}, {"Producer-Id": "1", "Producer-Epoch": "0"}, {"Producer-Id": "0", "Producer-Epoch": "0", "Producer-Seq": "0"},
    {"Producer-Id": "x", "Producer-Epoch": "0", "Producer-Seq": "0"}, {"Producer-Id": "1", "Producer-Epoch": "2147483648", "Producer-Seq": "0"},
    {"Producer-Id": "1", "Producer-Epoch": "0", "Producer-Seq": "-1"}])
def test_bad_sequence_headers_are_refused(broker: BrokerProcess, untouched, headers: dict[str, str]):
    broker.call("POST", records(untouched), {"value": "x"}, headers=headers, status=400)


def test_a_retry_is_answered_with_its_first_offset(broker: BrokerProcess, topic):
    """A gap is refused and says what is expected; an older epoch is fenced."""
    def send(seq: int, epoch: int = 0, status: int = 200):
        headers = {"Producer-Id": "9", "Producer-Epoch": str(epoch), "Producer-Seq": str(seq)}
        return broker.call("POST", records(topic), {"value": f"{epoch}-{seq}"}, headers=headers, status=status)

    assert [send(0)["base_offset"], send(1)["base_offset"]] == [0, 1]
    again = send(0)
    assert (again["base_offset"], again["duplicate"]) == (0, True)
    gap = send(5, status=409)["error"]
    assert (gap["code"], gap["details"]["expected_seq"], gap["retriable"]) == ("sequence_gap", 2, True)
    assert send(0, epoch=1)["base_offset"] == 2
    assert send(2, status=409)["error"]["code"] == "producer_fenced"
    for seq in range(1, 10):
        send(seq, epoch=1)
    assert send(0, epoch=1, status=409)["error"]["code"] == "duplicate_sequence"


# A query takes a packed batch the ordinary way; an argument that nobody knows changes nothing else.
ORDINARY = "?ordinary"


def posted(broker: BrokerProcess, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, dict, dict[str, str]]:
    """Status, body, and the headers that do not differ from one answer to the next."""
    answer = broker.http.post(broker.url + path, data=body, headers={"Content-Type": BATCH_TYPE, "MyQueue-Request-Id": "r-1", **headers}, timeout=10)
    told = answer.json()
    told.pop("append_time", None)
    return answer.status_code, told, {name: value for name, value in answer.headers.items() if name not in ("Date", "Content-Length")}


@pytest.mark.parametrize(("body", "headers"), [
    (pack_values([b"a", b"b"]), {}),
    (pack([Record(b"v", b"k", (("h", b"x"),), 5)]), {}),
    (pack_values([b"a"]), {"Producer-Id": "9", "Producer-Epoch": "0", "Producer-Seq": "0"}),
    (pack_values([b"a"]), {"Producer-Id": "9", "Producer-Epoch": "0", "Producer-Seq": "3"}),
    (pack_values([b"a"]), {"Producer-Id": "9", "Producer-Epoch": "x", "Producer-Seq": "0"}),
    (pack_values([b"a"]), {"Producer-Id": "9"}),
    (b"", {}), (b"no batch at all", {}), (pack_values([b"a"])[:-1], {}),
    (pack_values([b"a"]), {"Content-Type": f"{BATCH_TYPE}; charset=utf-8"}),
    (pack_values([b"a"]), {"MyQueue-Request-Id": "not an id: too many spaces"}),
], ids=["values", "all columns", "first", "gap", "odd sequence", "part of a sequence", "nothing", "noise", "cut off", "with a parameter", "odd id"])
def test_a_packed_batch_is_answered_the_same_either_way(broker: BrokerProcess, body: bytes, headers: dict[str, str]):
    """Below Flask or through it: status, body and headers, of what is stored and of what is refused."""
    answers = []
    for way in ("", ORDINARY):
        number = next(_numbers)
        broker.appoint(f"topic-{number}", topic_id=number)
        status, told, sent = posted(broker, records((f"topic-{number}", number)) + way, body, headers)
        if " " in headers.get("MyQueue-Request-Id", ""):
            assert len(sent.pop("MyQueue-Request-Id")) == 32
        answers.append((status, json.dumps(told).replace(f"topic-{number}", "T").replace(f'"topic_id": {number}', "I"), sent))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("path", ["/v1/topics/nobody-knows/partitions/0/records", "/v1/topics/untouched/partitions/1/records",
                                  "/v1/topics/untouched/partitions/99999999999/records", "/v1/topics/untouched/partitions/x/records",
                                  "/v1/topics/.../partitions/0/records", "/v1/topics/untouched/partitions/0/records/"])
def test_where_no_packed_batch_belongs_is_told_the_same_either_way(broker: BrokerProcess, untouched, path: str):
    first, second = (posted(broker, path + way, b"not read", {}) for way in ("", ORDINARY))
    assert first == second
    assert first[0] >= 400


def test_packed_batches_are_counted_under_their_route(broker: BrokerProcess, topic):
    """With all others."""
    name = 'myqueue_requests_total{method="POST",route="/v1/topics/<topic>/partitions/<partition>/records",status="%d"}'

    def counts() -> list[float]:
        lines = broker.http.get(f"{broker.url}/metrics", timeout=10).text.splitlines()
        return [next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(name % status)), 0.0) for status in (200, 400)]

    before = counts()
    for body in (pack_values([b"a"]), b"noise"):
        for way in ("", ORDINARY):
            posted(broker, records(topic) + way, body, {})
    assert counts() == [number + 2 for number in before]


def test_reads_are_exact_for_people(broker: BrokerProcess, topic):
    """max_records to the record, and next_offset goes on where it ended."""
    broker.call("POST", records(topic), {"records": [{"value": str(number)} for number in range(10)]})
    offset, seen = 0, []
    while page := broker.call("GET", records(topic), offset=offset, max_records=3):
        if not page["records"]:
            break
        assert len(page["records"]) <= 3
        seen += [record["value"] for record in page["records"]]
        offset = page["next_offset"]
    assert seen == [str(number) for number in range(10)]


@pytest.mark.parametrize(("offset", "status"), [(0, 200), (9, 200), (10, 200), ("earliest", 200), ("latest", 200), (11, 416), (10**18, 416),
                                                (2**63 - 1, 416), (-5, 416), (-1, 416), ("", 400), ("x", 400), (1.5, 400), (2**63, 400),
                                                (10**30, 400)])
def test_offsets_of_a_read(broker: BrokerProcess, topic, offset: object, status: int):
    """Inside the log data, at its end nothing, outside an error that names what there is."""
    broker.call("POST", records(topic), {"records": [{"value": "x"}] * 10})
    answer = broker.call("GET", records(topic), offset=offset, status=status)
    if status == 416:
        assert (answer["error"]["details"]["earliest"], answer["error"]["details"]["latest"]) == (0, 10)
    if status == 200:
        assert len(answer["records"]) == (0 if offset in (10, "latest") else 1 if offset == 9 else 10)


@pytest.mark.parametrize("bad", [{"max_records": "0"}, {"max_records": "x"}, {"max_bytes": "-1"}, {"wait_seconds": "x"}, {"wait_seconds": "-1"},
                                 {"wait_seconds": "nan"}, {"wait_seconds": "inf"}])
def test_bad_arguments_of_a_read(broker: BrokerProcess, untouched, bad: dict[str, str]):
    broker.call("GET", records(untouched), status=400, **bad)


def get(broker: BrokerProcess, topic, *, status: int = 200, headers: dict[str, str] | None = None, **arguments: object) -> requests.Response:
    answer = requests.get(broker.url + records(topic), params=arguments, headers=headers, timeout=10)  # type: ignore[arg-type]
    assert answer.status_code == status, answer.text
    return answer


def test_a_read_from_a_time_on(broker: BrokerProcess, topic):
    """From the first message appended at or after it, in every format; later than all is the end, where a long poll waits."""
    appended: list[int] = []  # in microseconds, each later than the one before
    while len(appended) < 5:
        time.sleep(0.002)  # no condition is meant: times that differ
        appended.append(broker.call("POST", records(topic), {"records": [{"value": "x", "timestamp": 5}] * 2})["append_time"])
    assert sorted(set(appended)) == appended
    for number, when in enumerate(appended):
        for since, offset in ((when, 2 * number), (when + 1, 2 * number + 2), (when - 1, 2 * number)):
            answer = get(broker, topic, timestamp=since)
            assert answer.headers["MyQueue-Offset"] == str(offset)
            assert [record["offset"] for record in answer.json()["records"]] == list(range(offset, 10))
            assert answer.headers["Cache-Control"] == "no-store"
    for since, offset in ((0, 0), (appended[-1] + 1, 10), (2**63 - 1, 10)):
        answer = get(broker, topic, timestamp=since, headers={"Accept": ENTRIES_TYPE})
        assert (answer.headers["MyQueue-Offset"], len(list(messages_of(answer.content, topic="t", partition=0)))) == (str(offset), 10 - offset)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(get, broker, topic, timestamp=2**63 - 1, wait_seconds=9)
        while not waiting.done():
            broker.call("POST", records(topic), {"value": "new"})
    answer = waiting.result()
    assert str(answer.json()["records"][0]["offset"]) == answer.headers["MyQueue-Offset"]
    broker.call("POST", f"/v1/topics/{topic[0]}/partitions/0/trim", {"before_offset": 5})
    assert get(broker, topic, timestamp=0).headers["MyQueue-Offset"] == "5"


@pytest.mark.parametrize("arguments", [
    {"timestamp": ""}, {"timestamp": "x"}, {"timestamp": "-1"}, {"timestamp": "1.5"}, {"timestamp": 2**63}, {"timestamp": 10**20},
    {"offset": 0, "timestamp": 0}, {"offset": "earliest", "timestamp": 0}, {"until_offset": ""}, {"until_offset": "x"}, {"until_offset": -1},
    {"until_offset": 2**63}, {"offset": 3, "until_offset": 2}, {"topic_id": ""}, {"topic_id": "x"}, {"topic_id": -1}, {"topic_id": 2**63}])
def test_what_no_read_can_mean_is_refused(broker: BrokerProcess, untouched, arguments: dict[str, object]):
    """At once, long poll or not."""
    began = time.monotonic()
    assert get(broker, untouched, status=400, wait_seconds=20, **arguments).json()["error"]["code"] == "bad_request"
    assert time.monotonic() - began < 2


def test_a_read_up_to_an_offset(broker: BrokerProcess, topic):
    """To the record in JSON, to the block in binary; what can bring nothing does not wait."""
    for number in range(4):
        broker.call("POST", records(topic), {"records": [{"value": f"{number}.{place}"} for place in range(3)]})
    for offset, until in ((0, 12), (0, 5), (4, 5), (2, 11), (0, 99)):
        read = broker.call("GET", records(topic), offset=offset, until_offset=until)
        assert [record["offset"] for record in read["records"]] == list(range(offset, min(until, 12)))
        assert read["next_offset"] == min(until, 12)
    assert len(broker.call("GET", records(topic), offset=0, until_offset=9, max_records=2)["records"]) == 2
    packed = get(broker, topic, offset=4, until_offset=7, headers={"Accept": ENTRIES_TYPE}).content
    assert [message.offset for message in messages_of(packed, topic="t", partition=0)] == list(range(3, 9))
    began = time.monotonic()
    for arguments in ({"offset": 4, "until_offset": 4}, {"offset": 12, "until_offset": 12}, {"offset": "latest", "until_offset": 3}):
        assert get(broker, topic, wait_seconds=20, **arguments).json()["records"] == []
        assert get(broker, topic, wait_seconds=20, headers={"Accept": ENTRIES_TYPE}, **arguments).content == b"MQE1"
    assert time.monotonic() - began < 5
    assert get(broker, topic, offset=13, until_offset=13, status=416).json()["error"]["details"] == {"offset": 13, "earliest": 0, "latest": 12}


def test_answers_that_are_the_same_for_ever_may_be_kept(broker: BrokerProcess, topic):
    """A full range by numbers has a tag and its body changes no more, whatever comes behind it; one that ends where the log does has none."""
    topic_id = topic[1]
    broker.call("POST", records(topic), {"records": [{"value": f"m{number}"} for number in range(10)]})
    kept: dict[tuple[str, str, int], requests.Response] = {}
    for form in ("application/json", ENTRIES_TYPE):
        for bound, value in (("until_offset", 6), ("max_records", 4), ("until_offset", 10)):
            answer = kept[form, bound, value] = get(broker, topic, offset=2, headers={"Accept": form}, **{bound: value})
            assert (answer.headers["Vary"], answer.headers["Cache-Control"]) == ("Accept", "no-cache")
            named = get(broker, topic, offset=2, topic_id=topic_id, headers={"Accept": form}, **{bound: value})
            assert named.headers["Cache-Control"] == "private, max-age=31536000, immutable"
            assert (named.headers["ETag"], named.content) == (answer.headers["ETag"], answer.content)
    tags = [answer.headers["ETag"] for answer in kept.values()]
    assert all(tag.startswith('"') for tag in tags), "strong ones"
    assert tags[0] == tags[1] != tags[2], "the range decides, however it was asked for"
    assert tags[0] != tags[3] == tags[4] == tags[5] != tags[2], "in binary it is the one block each time"
    for arguments in ({"offset": 2}, {}, {"offset": "earliest", "until_offset": 6}, {"timestamp": 0, "until_offset": 6}, {"offset": 10},
                      {"offset": 2, "until_offset": 11}, {"offset": 4, "until_offset": 4}):
        answer = get(broker, topic, topic_id=topic_id, **arguments)
        assert (answer.headers["Cache-Control"], answer.headers["Vary"]) == ("no-store", "Accept")
        assert "ETag" not in answer.headers
    assert get(broker, topic, offset=99, status=416).headers["Cache-Control"] == "no-store"
    broker.call("POST", records(topic), {"value": "later"})
    for (form, bound, value), before in kept.items():
        arguments, tag = {"offset": 2, bound: value}, before.headers["ETag"]
        answer = get(broker, topic, headers={"Accept": form}, **arguments)
        assert (answer.headers["ETag"], answer.content, answer.headers["MyQueue-End-Offset"]) == (tag, before.content, "11")
        for asked in (tag, f'"x", W/{tag}', "*"):
            same = get(broker, topic, status=304, headers={"Accept": form, "If-None-Match": asked}, **arguments)
            assert (same.content, same.headers["ETag"], same.headers["Cache-Control"], same.headers["Vary"]) == (b"", tag, "no-cache", "Accept")
            assert "Content-Type" not in same.headers
        other = ENTRIES_TYPE if form != ENTRIES_TYPE else "application/json"
        assert get(broker, topic, headers={"Accept": other, "If-None-Match": tag}, **arguments).content
    assert "ETag" in get(broker, topic, offset=2, max_bytes=1).headers, "more is committed behind it"
    assert get(broker, topic, offset=2, headers={"If-None-Match": "*"}).json()["next_offset"] == 11, "it has no tag"


def test_of_this_topic_and_no_other_of_its_name(broker: BrokerProcess, managers: ManagerStub, topic):
    """A topic that was made anew has another identity: offsets and tags of the old one find nothing of it."""
    name, topic_id = topic
    broker.call("POST", records(topic), {"records": [{"value": "old"}] * 3}, topic_id=topic_id)
    tag = get(broker, topic, offset=0, until_offset=2).headers["ETag"]
    broker.call("POST", "/internal/partitions/drop", {"topic_ids": [topic_id]})
    broker.appoint(name, topic_id=topic_id + 2_000)
    broker.call("POST", records(topic), {"records": [{"value": "new"}] * 3})
    again = get(broker, topic, offset=0, until_offset=2, headers={"If-None-Match": tag})
    assert again.headers["ETag"] != tag
    at = f"/v1/topics/{name}/partitions/0"
    for method, path, body in (("GET", records(topic), None), ("POST", records(topic), {"value": "x"}), ("GET", at, None)):
        error = broker.call(method, path, body, status=404, topic_id=topic_id)["error"]
        assert (error["code"], error["details"]) == ("unknown_topic", {"topic": name, "topic_id": topic_id + 2_000})
    assert get(broker, topic, topic_id=topic_id + 2_000).json()["next_offset"] == 3
    managers.describe_topic(name, partitions=1)
    assert get(broker, topic, topic_id=topic_id + 2_001, status=404).json()["error"]["code"] == "unknown_topic"


def test_a_long_poll_answers_when_data_comes(broker: BrokerProcess, topic):
    """Within 250 ms after the append was answered, and other requests are served meanwhile."""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(broker.call, "GET", records(topic), wait_seconds=20)
        for _ in range(10):
            broker.call("GET", f"/v1/topics/{topic[0]}/partitions/0")
        assert not waiting.done()
        broker.call("POST", records(topic), {"value": "x"})
        answered = time.monotonic()
        assert [record["value"] for record in waiting.result(5)["records"]] == ["x"]
        assert time.monotonic() - answered < 0.25
    began = time.monotonic()
    assert broker.call("GET", records(topic), offset=1, wait_seconds=0.5)["records"] == []
    assert 0.5 <= time.monotonic() - began < 3


def test_unknown_topics_and_partitions(broker: BrokerProcess, managers: ManagerStub, topic):
    """No such topic; no such partition, with the count; held by another broker, named. Each at once."""
    managers.describe_topic("elsewhere", partitions=3, leaders={0: 2})
    managers.describe_topic(topic[0], partitions=2)
    for method, body in (("GET", None), ("POST", {"value": "x"})):
        began = time.monotonic()
        assert broker.call(method, records(("nowhere", 0)), body, status=404)["error"]["code"] == "unknown_topic"
        error = broker.call(method, records(topic, 7), body, status=404)["error"]
        assert (error["code"], error["details"]["partitions"]) == ("unknown_partition", 2)
        error = broker.call(method, records(("elsewhere", 0)), body, status=503)["error"]
        assert (error["code"], error["details"]["leader"]) == ("not_leader", 2)
        assert time.monotonic() - began < 2
    broker.call("GET", records(("bad%20name", 0)), status=400)


def test_a_topic_made_again_is_another_one(broker: BrokerProcess, topic):
    """Dropped, its reads end; of the same name with another id, it begins empty."""
    broker.call("POST", records(topic), {"value": "old"})
    broker.call("POST", "/internal/partitions/drop", {"topic_ids": [topic[1]]})
    broker.call("GET", records(topic), status=404)
    broker.appoint(topic[0], topic_id=topic[1] + 1_000)
    assert broker.call("POST", records(topic), {"value": "new"})["base_offset"] == 0


def test_offsets_of_a_consumer(broker: BrokerProcess, topic):
    path = f"/v1/topics/{topic[0]}/partitions/0/offsets/7"
    broker.call("POST", records(topic), {"records": [{"value": "x"}] * 5})
    assert broker.call("GET", path) == {"consumer_id": 7, "offset": None}
    assert broker.call("PUT", path, {"offset": 3}) == {"consumer_id": 7, "offset": 3}
    assert broker.call("GET", path)["offset"] == 3
    assert broker.call("PUT", path, {"offset": 6}, status=416)["error"]["details"]["latest"] == 5
    for body in ({}, {"offset": "x"}, {"offset": True}, {"offset": -1}, {"offset": 1, "more": 2}, [], {"offset": 1, "committer": 1},
                 {"offset": 1, "sequence": 1}, {"offset": 1, "committer": 0, "sequence": 1}, {"offset": 1, "committer": 1, "sequence": "x"}):
        broker.call("PUT", path, body, status=400)
    broker.call("GET", path.replace("/7", "/x"), status=400)
    assert broker.call("GET", path)["offset"] == 3
    told = [broker.call("PUT", path, {"offset": offset, "committer": 5, "sequence": number})["offset"]
            for offset, number in ((4, 1), (5, 2), (4, 1))]
    assert told == [4, 5, 5], "the first one's repetition was held up, and undoes nothing"
    assert broker.call("GET", path)["offset"] == 5


def test_trim(broker: BrokerProcess, topic):
    """What lies below is gone for everybody: reads, look-ups, sizes, consumers of every face; an offset outside is told with the bounds."""
    path, base = f"/v1/topics/{topic[0]}/partitions/0", f"/internal/partitions/{topic[1]}/0"
    broker.call("POST", records(topic), {"records": [{"value": f"m{number}"} for number in range(6)]})
    assert broker.call("POST", base + "/dequeue", {"consumer": "#7", "request_id": "r"})["offset"] == 0
    assert broker.call("POST", path + "/trim", {"before_offset": 4}) == {"topic": topic[0], "partition": 0, "start_offset": 4}
    assert broker.call("POST", path + "/trim", {"before_offset": 1})["start_offset"] == 4
    assert (broker.call("GET", path)["start_offset"], broker.call("GET", path)["end_offset"]) == (4, 6)
    refused = broker.call("GET", records(topic), offset=3, status=416)["error"]
    assert (refused["code"], refused["details"]) == ("offset_out_of_range", {"offset": 3, "earliest": 4, "latest": 6})
    assert [one["value"] for one in broker.call("GET", records(topic), offset="earliest")["records"]] == ["m4", "m5"]
    assert broker.call("POST", "/internal/sizes", {"consumer": "#7", "partitions": [[topic[1], 0]]})["sizes"] == [2]
    assert broker.call("POST", base + "/dequeue", {"consumer": "#7", "request_id": "r"}, status=416)["error"]["details"]["earliest"] == 4
    assert [broker.call("POST", base + "/dequeue", {"consumer": consumer})["offset"] for consumer in ("#7", "#8", "#7")] == [4, 4, 5]
    assert broker.call("GET", "/partitions", topic=topic[0], partition=0)["partitions"][0]["start_offset"] == 4
    above = broker.call("POST", path + "/trim", {"before_offset": 7}, status=416)["error"]
    assert (above["details"], above["message"]) == ({"offset": 7, "earliest": 4, "latest": 6},
                                                    "offset 7 lies outside the log: earliest is 4, latest is 6")
    for body in ({}, {"before_offset": -1}, {"before_offset": "x"}, {"before_offset": True}, {"before_offset": 1, "more": 1}, [], 5):
        broker.call("POST", path + "/trim", body, status=400)
    broker.call("POST", path.replace("/0", "/9") + "/trim", {"before_offset": 0}, status=404)
    broker.call("POST", records(topic), {"value": "m6"})
    assert broker.call("POST", path + "/trim", {"before_offset": 7})["start_offset"] == 7
    assert broker.call("GET", records(topic), offset=7)["records"] == []


# --- between nodes ---


def test_dequeue_and_sizes(broker: BrokerProcess, topic):
    base = f"/internal/partitions/{topic[1]}/0"
    broker.call("POST", base + "/records", {"records": [{"value": "a", "key": "k"}, {"value_base64": "/w=="}]})
    assert broker.call("POST", "/internal/sizes", {"consumer": "#7", "partitions": [[topic[1], 0], [topic[1], 1]]})["sizes"] == [2, 0]
    assert broker.call("POST", base + "/dequeue", {"consumer": "#7", "request_id": "r", "known_only": True}) == {"empty": True}
    first = broker.call("POST", base + "/dequeue", {"consumer": "#7", "request_id": "r"})
    assert (first["offset"], first["value"], first["key"]) == (0, "a", "k")
    assert broker.call("POST", base + "/dequeue", {"consumer": "#7", "request_id": "r"}) == first
    assert broker.call("POST", base + "/dequeue", {"consumer": "#7", "request_id": "r", "known_only": True}) == first
    assert broker.call("POST", base + "/dequeue", {"consumer": "#7"})["value_base64"] == "/w=="
    assert broker.call("POST", base + "/dequeue", {"consumer": "#7"}) == {"empty": True}
    assert broker.call("POST", base + "/offsets", {"consumer": "#8", "start": "latest"}) == {"offset": 2}
    assert broker.call("POST", base + "/offsets", {"consumer": "#7", "offset": 1}) == {"offset": 1}
    assert broker.call("POST", "/internal/sizes", {"consumer": "#7", "partitions": [[topic[1], 0]]})["sizes"] == [1]
    for body in ({}, {"consumer": ""}, {"consumer": 7}, {"consumer": "#7", "request_id": 5}, {"consumer": "a\0b"}, []):
        broker.call("POST", base + "/dequeue", body, status=400)
    for body in ({"consumer": "#7"}, {"consumer": "#7", "offset": 1, "start": "latest"}, {"consumer": "#7", "start": "middle"}):
        broker.call("POST", base + "/offsets", body, status=400)
    for partitions in (None, [1], [[1]], [["x", 0]], [[1, -1]]):
        broker.call("POST", "/internal/sizes", {"consumer": "#7", "partitions": partitions}, status=400)


def test_one_refused_appointment_does_not_keep_the_others(broker: BrokerProcess, topic):
    who = broker.call("GET", "/internal/identity")
    good = {"topic_id": topic[1], "topic": topic[0], "config": {}, "epoch": 2, "replication_factor": 1, "voters": {"1": who["disk_id"]}}
    promises = [{**good, "partition": number} for number in (0, 1)]
    results = broker.call("POST", "/internal/partitions/promise", {"promises": [*promises, {**promises[0], "epoch": 1}]})["results"]
    assert [result["ok"] for result in results] == [True, True, False]
    told = {"promised_epoch": 2, "disk_id": who["disk_id"], "end_epoch": 1, "end_lsn": 1, "commit_lsn": 1, "seeding": False}
    assert told.items() <= results[0].items()
    results = broker.call("POST", "/internal/partitions/appoint", {"appointments": [
        {**good, "partition": 0, "voters": {"1": "another disk"}}, {**good, "partition": 1}, {**good, "partition": 1, "epoch": 1}]})["results"]
    assert [(result["ok"], result.get("promised_epoch")) for result in results] == [(False, None), (True, 2), (False, None)]
    assert results[2]["error"]["details"]["promised_epoch"] == 2
    for bad in ({}, {**good, "partition": -1}, {**good, "partition": 0, "epoch": 0}, {**good, "partition": 0, "voters": []}, 5):
        broker.call("POST", "/internal/partitions/appoint", {"appointments": [bad]}, status=400)


# --- partition face ---


def test_partition_face(broker: BrokerProcess, managers: ManagerStub, topic):
    """Arguments by any alias, in query, form or body; partition 0 is a value; nothing left is a success."""
    assert broker.call("GET", "/")["status"] == "Success"
    sent = broker.call("POST", "/logs", {"topic_name": topic[0], "partition_number": 0, "producer_id": 1, "log_message": "one"}, status=201)
    assert (sent["status"], sent["partition_id"], sent["offset"]) == ("Success", 0, 0)
    form = {"topic": topic[0], "partition": "0", "message": "two"}
    assert broker.http.post(broker.url + "/messages", data=form, timeout=10).status_code == 201
    got = broker.call("GET", "/logs", consumer_id=5, name=topic[0], partition_index=0)
    assert (got["message"], got["partition_id"], got["offset"]) == ("one", 0, 0)
    assert broker.call("GET", "/messages", {"consumer_id": "5", "topic": topic[0], "partition_id": 0})["message"] == "two"
    empty = broker.call("GET", "/logs", consumer_id=5, topic=topic[0], partition=0)
    assert (empty["status"], empty["empty"], empty["message"]) == ("Success", True, "No unread messages found")
    held = broker.call("GET", "/partitions", topic=topic[0])["partitions"]
    assert [(one["partition_id"], one["is_leader"], one["end_offset"]) for one in held] == [(0, True, 2), (1, True, 0)]
    status = broker.call("GET", "/raft_status", topic=topic[0], partition=0)
    assert (status["is_leader"], status["leader"], status["has_quorum"], status["raft_term"]) == (True, 1, True, 1)
    before = len(managers.passed_on)
    assert broker.call("POST", "/consumers", {"topic": topic[0]}, status=201)["consumer_id"] == 7
    assert [path for path, _ in managers.passed_on[before:]] == ["/consumers"]


def test_a_message_is_not_handed_out_to_who_asks_for_the_head(broker: BrokerProcess, topic):
    broker.call("POST", "/logs", {"topic": topic[0], "partition": 0, "message": "kept"}, status=201)
    asked = {"topic": topic[0], "partition": 0, "consumer_id": 5}
    for path in ("/logs", "/messages"):
        assert broker.http.head(broker.url + path, params=asked, timeout=10).status_code == 400
    assert broker.call("GET", "/logs", **asked)["message"] == "kept"


def test_what_a_manager_decides_is_asked_of_it_with_all_arguments(broker: BrokerProcess, managers: ManagerStub, topic):
    """From wherever they came, and only where they agree; what a manager refuses for now keeps its word of when to ask again."""
    before = len(managers.passed_on)
    answer = broker.http.post(broker.url + "/partitions?topic_name=t&x=1", json={"raft_partners": ["a"], "replica_id": 3}, timeout=10)
    assert (answer.status_code, answer.json()["status"]) == (201, "Success")
    [(path, body)] = managers.passed_on[before:]
    assert (path, json.loads(body)) == ("/partitions", {"topic": "t", "x": "1", "raft_partners": ["a"], "replica_id": 3})
    for query, body in (("?topic=a&topic=b", {}), ("?topic=a", {"name": "b"})):
        refused = broker.http.post(broker.url + "/consumers" + query, json=body, timeout=10)
        assert (refused.status_code, refused.json()["status"]) == (400, "Failure")
    assert len(managers.passed_on) == before + 1
    managers.available = False
    try:
        busy = broker.http.post(broker.url + "/consumers", json={"topic": "t"}, timeout=10)
    finally:
        managers.available = True
    assert (busy.status_code, busy.headers["Retry-After"]) == (503, "1")


def test_whatever_is_refused_is_told_in_the_partition_face_s_form(broker: BrokerProcess, topic):
    """A body that is too large, a body that is none, a method that is not there."""
    for method, path, body, status in (("POST", "/logs", b"x" * (20 << 20), 413), ("POST", "/logs", b"{", 400), ("PUT", "/logs", b"", 405),
                                       ("GET", "/consumers", b"", 405), ("POST", "/logs?topic=%ff", b"", 400)):
        told = broker.http.request(method, broker.url + path, data=body, timeout=20)
        assert (told.status_code, told.json()["status"]) == (status, "Failure"), told.text
        assert told.json()["reason"] == told.json()["message"] != ""


@pytest.mark.parametrize("body", [
    {}, {"message": "x"}, {"topic": "{topic}", "partition": 0},
    {"topic": "{topic}", "message": "x"}, {"topic": "{topic}", "partition": 0, "message": 5},
    {"topic": "{topic}", "partition": True, "message": "x"}, {"topic": "{topic}", "partition": 9, "message": "x"},
    {"topic": "{topic}", "topic_name": "other", "partition": 0, "message": "x"}, {"topic": "nowhere", "partition": 0, "message": "x"},
    {"topic": "{topic}", "partition": 0, "message": "x", "producer_id": "x"}, {"topic": ["x"], "partition": 0, "message": "x"}])
def test_mistakes_of_the_partition_face(broker: BrokerProcess, managers: ManagerStub, topic, body: dict):
    """400 with the same text as reason and message."""
    managers.describe_topic(topic[0], partitions=2)
    filled = {name: topic[0] if value == "{topic}" else value for name, value in body.items()}
    answer = broker.call("POST", "/logs", filled, status=400)
    assert answer["status"] == "Failure"
    assert answer["reason"] == answer["message"] != ""


def test_one_slow_request_does_not_delay_others(broker: BrokerProcess, topic):
    """A client that sends a byte now and then holds one thread, and nobody else."""
    slow = socket.create_connection(("127.0.0.1", broker.port), timeout=10)
    try:
        slow.sendall(f"POST {records(topic)} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n".encode())
        began = time.monotonic()
        with ThreadPoolExecutor(32) as pool:
            answers = list(pool.map(lambda number: broker.call("POST", records(topic), {"value": str(number)}), range(32)))
        assert sorted(answer["base_offset"] for answer in answers) == list(range(32))
        assert time.monotonic() - began < 10
    finally:
        slow.close()
