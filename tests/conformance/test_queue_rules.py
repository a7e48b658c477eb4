"""The queue face, rule by rule."""

from __future__ import annotations

import base64
import json
import secrets
import zlib
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPSConnection
from urllib.parse import urlencode, urlsplit

import pytest

from tests.conformance.face import Face
from tests.support.long import LONG

JSON = {"Content-Type": "application/json"}


# --- rule 1: where arguments may stand ---


@pytest.mark.parametrize("way", ["query", "json", "json without a type", "json as text", "json as a form", "form", "half and half", "twice the same"])
def test_arguments_may_stand_anywhere_on_every_method(face: Face, topic: str, way: str) -> None:
    producer, consumer = face.both(topic)

    def ask(method: str, path: str, arguments: dict) -> dict:
        text = json.dumps(arguments).encode()
        first, rest = dict(list(arguments.items())[:1]), dict(list(arguments.items())[1:])
        sent = {
            "query": {"params": arguments}, "json": {"json": arguments}, "json without a type": {"data": text},
            "json as text": {"data": text, "headers": {"Content-Type": "text/plain"}},
            "json as a form": {"data": text, "headers": {"Content-Type": "application/x-www-form-urlencoded"}}, "form": {"data": arguments},
            "half and half": {"params": first, "json": rest}, "twice the same": {"params": arguments, "json": arguments},
        }[way]
        return face.ok(method, path, **sent)

    ask("POST", "/producer/produce", {"topic": topic, "producer_id": producer, "message": "a b&c=d+é%2F"})
    assert 1 == ask("GET", "/size", {"topic": topic, "consumer_id": consumer})["size"]
    assert "a b&c=d+é%2F" == ask("GET", "/consumer/consume", {"topic": topic, "consumer_id": consumer})["message"]


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=UTF-8", "APPLICATION/JSON", "text/plain", "", None])
def test_the_content_type_of_json_does_not_matter(face: Face, topic: str, content_type: str | None) -> None:
    producer, consumer = face.both(topic)
    body = json.dumps({"topic": topic, "producer_id": producer, "message": "hello"}).encode()
    face.ok("POST", "/producer/produce", data=body, headers={} if content_type is None else {"Content-Type": content_type})
    assert "hello" == face.consume(topic, consumer)["message"]


def test_one_argument_with_two_values_is_refused(face: Face, topic: str) -> None:
    producer, consumer = face.both(topic)
    base = {"topic": topic, "producer_id": producer, "message": "m"}
    face.refused("POST", "/producer/produce", base, params={"topic": topic + "x"}, says="twice")
    face.refused("POST", "/producer/produce", base | {"log_message": "n"}, says="twice")
    face.refused("POST", "/producer/produce", base | {"partition": 0, "partition_id": 1}, says="twice")
    face.refused("GET", f"/size?topic={topic}&topic={topic}x&consumer_id={consumer}", says="twice")
    face.refused("GET", f"/consumer/consume?consumer_id={consumer}", {"topic": topic, "consumer_id": consumer + 1}, says="twice")
    assert 0 == face.size(topic, consumer)


def test_one_argument_twice_with_the_same_value_is_that_value(face: Face, topic: str) -> None:
    producer, _ = face.both(topic)
    face.produce(topic, producer, "m", topic_name=topic, log_message="m", partition_id=0, partition="0")


@pytest.mark.parametrize("message", [1, 1.5, True, [], {}, ["a"]])
def test_a_message_that_is_no_string_is_refused(face: Face, topic: str, message: object) -> None:
    producer, consumer = face.both(topic)
    face.refused("POST", "/producer/produce", {"topic": topic, "producer_id": producer, "message": message})
    assert 0 == face.size(topic, consumer)


@pytest.mark.parametrize("body", [b"[]", b'"x"', b"1", b"null", b"{", b"{]", b"\xff\xfe", b'{"topic": NaN}', b"[" * 50_000, b"{'a': 1}", b"\x00"])
@pytest.mark.parametrize(("method", "path"), [("POST", "/producer/produce"), ("GET", "/consumer/consume"), ("GET", "/size"), ("POST", "/topics")])
def test_a_body_that_is_no_json_object_is_refused(face: Face, method: str, path: str, body: bytes) -> None:
    face.refused(method, path, data=body, headers=JSON)


@pytest.mark.parametrize("number", [True, False, "abc", "", " ", 1.5, "1.5", -1, 0, 2**63, "9" * 400, [], {}, "0x1", "١", "1e3"])
def test_an_id_that_is_no_number_from_1_is_refused(face: Face, topic: str, number: object) -> None:
    face.both(topic)
    face.refused("POST", "/producer/produce", {"topic": topic, "producer_id": number, "message": "m"})
    face.refused("GET", "/consumer/consume", {"topic": topic, "consumer_id": number})
    face.refused("GET", "/size", {"topic": topic, "consumer_id": number})


@pytest.mark.parametrize("partition", [-1, 2**31, 2**63, "abc", "", 1.5, True, [], "-1", "1.0"])
def test_a_partition_that_is_none_is_refused(face: Face, topic: str, partition: object) -> None:
    producer, consumer = face.both(topic)
    face.refused("POST", "/producer/produce", {"topic": topic, "producer_id": producer, "message": "m", "partition": partition})
    face.refused("GET", "/consumer/consume", {"topic": topic, "consumer_id": consumer, "partition": partition})
    assert 0 == face.size(topic, consumer)


@pytest.mark.parametrize("count", [0, -1, "abc", 1.5, True, [], 2**40])
def test_a_topic_cannot_have_that_many_partitions(face: Face, topic: str, count: object) -> None:
    face.refused("POST", "/topics", {"topic": topic, "partitions": count})
    assert topic not in face.ok("GET", "/topics")["topics"]


def test_what_is_missing_is_named(face: Face, topic: str) -> None:
    producer, consumer = face.both(topic)
    for method, path, arguments, missing in (
        ("POST", "/topics", {}, "topic"), ("POST", "/producer/register", {}, "topic"), ("POST", "/consumer/register", {}, "topic"),
        ("POST", "/producer/produce", {"producer_id": producer, "message": "m"}, "topic"),
        ("POST", "/producer/produce", {"topic": topic, "message": "m"}, "producer_id"),
        ("GET", "/consumer/consume", {"topic": topic}, "consumer_id"), ("GET", "/consumer/consume", {"consumer_id": consumer}, "topic"),
        ("GET", "/size", {"topic": topic}, "consumer_id"), ("POST", "/partition", {}, "topic"), ("DELETE", "/broker/remove", {}, "broker_id"),
    ):
        face.refused(method, path, arguments, says=missing)


# --- rule 2: names of arguments and of topics ---


@pytest.mark.parametrize("alias", ["topic", "topic_name", "name"])
def test_every_alias_of_topic_on_every_call(face: Face, topic: str, alias: str) -> None:
    face.ok("POST", "/topics", {alias: topic})
    producer = face.ok("POST", "/producer/register", {alias: topic})["producer_id"]
    consumer = face.ok("POST", "/consumer/register", {alias: topic})["consumer_id"]
    face.ok("POST", "/producer/produce", {alias: topic, "producer_id": producer, "message": "m"})
    assert 1 == face.ok("GET", "/size", {alias: topic, "consumer_id": consumer})["size"]
    assert "m" == face.ok("GET", "/consumer/consume", {alias: topic, "consumer_id": consumer})["message"]
    assert 1 == face.ok("POST", "/partition", {alias: topic})["partition_id"]


@pytest.mark.parametrize("alias", ["message", "log_message"])
def test_every_alias_of_message(face: Face, topic: str, alias: str) -> None:
    producer, consumer = face.both(topic)
    face.ok("POST", "/producer/produce", {"topic": topic, "producer_id": producer, alias: "m"})
    assert "m" == face.consume(topic, consumer)["message"]


@pytest.mark.parametrize("alias", ["partition_id", "partition", "partition_index", "partition_number"])
def test_every_alias_of_partition_counts_from_0(face: Face, topic: str, alias: str) -> None:
    """Partition 0 is a value: it is not taken for "any"."""
    producer, consumer = face.both(topic, partitions=2)
    for spelt in (0, "0", 1, "1"):
        body = face.ok("POST", "/producer/produce", {"topic": topic, "producer_id": producer, "message": f"to {spelt}", alias: spelt})
        assert int(spelt) == body["partition_id"]
    for _ in range(2):
        assert 1 == face.ok("GET", "/consumer/consume", {"topic": topic, "consumer_id": consumer, alias: 1})["partition_id"]
    assert (2, 0) == (face.size(topic, consumer, **{alias: 0}), face.size(topic, consumer, **{alias: 1}))
    face.nothing_left(topic, consumer, **{alias: 1})
    assert ["to 0", "to 0"] == [face.consume(topic, consumer, **{alias: 0})["message"] for _ in range(2)]


@pytest.mark.parametrize("alias", ["partitions", "number_of_partitions"])
@pytest.mark.parametrize("count", [3, "3"])
def test_every_alias_of_the_partition_count(face: Face, topic: str, alias: str, count: object) -> None:
    face.ok("POST", "/topics", {"topic": topic, alias: count})
    assert [0, 1, 2] == [row["partition_id"] for row in face.ok("GET", "/size", {"topic": topic, "consumer_id": face.consumer(topic)})["sizes"]]


def test_ids_may_be_given_as_decimal_strings(face: Face, topic: str) -> None:
    producer, consumer = face.both(topic)
    face.ok("POST", "/producer/produce", {"topic": topic, "producer_id": str(producer), "message": "m"})
    assert 1 == face.ok("GET", "/size", {"topic": topic, "consumer_id": str(consumer)})["size"]
    assert "m" == face.ok("GET", "/consumer/consume", {"topic": topic, "consumer_id": str(consumer)})["message"]


@pytest.mark.parametrize("end", ["A.b_c-9", ".", "..", "-", "UPPER", "upper"])
def test_a_name_by_the_rule_is_usable_everywhere(face: Face, topic: str, end: str) -> None:
    name = topic + end
    producer, consumer = face.both(name)
    face.produce(name, producer, "m")
    assert name == face.consume(name, consumer)["topic"]
    assert 0 == face.ok("GET", "/size", params={"topic": name, "consumer_id": consumer})["size"]


@pytest.mark.parametrize("name", [
    "", ".", "..", "a/b", "a%2Fb", "a:b", "../topics", "a b", "ü", "a\x00b", "x" * 250, "x\"y",
    "x'); DROP TABLE t;--", "$$", "a\nb", "a\n", "ａ", "a?b", "a#b", 1, True, None, [], {},
])
def test_a_name_against_the_rule_is_refused_with_the_rule(face: Face, name: object) -> None:
    for path in ("/topics", "/producer/register"):
        body = face.refused("POST", path, {"topic": name})
        assert "A-Z" in body["message"] or name is None, body
    assert name not in face.ok("GET", "/topics")["topics"]


def test_two_long_names_that_differ_in_the_last_character_are_two_topics(face: Face) -> None:
    start = f"{secrets.token_hex(6)}-" + "x" * 235
    names = [start + end for end in "ab"]
    for name in names:
        producer, consumer = face.both(name)
        face.produce(name, producer, name[-1])
        assert 1 == face.size(name, consumer)
        assert name[-1] == face.consume(name, consumer)["message"]
        face.nothing_left(name, consumer)


def test_names_differ_by_case(face: Face, topic: str) -> None:
    face.ok("POST", "/topics", {"topic": topic})
    face.ok("POST", "/topics", {"topic": topic.upper()})


# --- rule 3: ids ---


def test_ids_are_whole_numbers_from_1_and_never_given_twice(face: Face, topic: str) -> None:
    face.ok("POST", "/topics", {"topic": topic})
    with ThreadPoolExecutor(8) as pool:
        producers = list(pool.map(lambda _: face.producer(topic), range(16)))
        consumers = list(pool.map(lambda _: face.consumer(topic), range(16)))
    for ids in (producers, consumers):
        assert all(type(number) is int and number >= 1 for number in ids)
        assert 16 == len(set(ids))


def test_a_registration_is_known_everywhere_at_once(face: Face, topic: str) -> None:
    """Whichever manager is asked next: no call says that the id is unknown."""
    for number in range(6):
        producer, consumer = face.producer(f"{topic}-{number}"), face.consumer(f"{topic}-{number}")
        face.produce(f"{topic}-{number}", producer, "m")
        for _ in range(4):
            assert 1 == face.size(f"{topic}-{number}", consumer)
        assert "m" == face.consume(f"{topic}-{number}", consumer)["message"]


def test_one_topic_created_by_many_at_once_is_created_once(face: Face, topic: str) -> None:
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: face.call("POST", "/topics", {"topic": topic, "partitions": 2}), range(16)))
    assert [200] + [400] * 15 == sorted(answer.status_code for answer in answers), [answer.text for answer in answers]
    assert 2 == len(face.ok("GET", "/size", {"topic": topic, "consumer_id": face.consumer(topic)})["sizes"])


# --- rule 4: the form of answers ---


@pytest.mark.parametrize(("method", "path"), [
    ("PUT", "/topics"), ("DELETE", "/topics"), ("PATCH", "/size"), ("DELETE", "/consumer/consume"), ("GET", "/producer/produce"),
    ("GET", "/producer/register"), ("PUT", "/consumer/register"), ("GET", "/broker/remove"), ("POST", "/size"), ("POST", "/health"),
    ("GET", "/nothing/here"), ("POST", "/topics/x/y"), ("BREW", "/topics"), ("GET", "/producer"), ("GET", "/consumer/nothing"),
])
def test_what_is_not_there_is_json_and_4xx(face: Face, method: str, path: str) -> None:
    answer = face.call(method, path)
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.headers["Content-Type"].startswith("application/json")
    assert isinstance(answer.json(), dict)


def test_a_slash_at_the_end_changes_nothing(face: Face, topic: str) -> None:
    face.ok("POST", "/topics/", {"topic": topic})
    face.sees(topic, path="/topics/")


@pytest.mark.parametrize(("method", "path"), [("GET", "/consumer/consume"), ("GET", "/size")])
def test_calls_on_one_connection_are_never_taken_for_each_other(face: Face, topic: str, method: str, path: str) -> None:
    """A body of a GET, arguments in query and body, a mistake between them: each answer is that of its own request."""
    producer, consumer = face.both(topic, partitions=2)
    for number in range(6):
        face.produce(topic, producer, str(number), partition=0)
    good, at = {"topic": topic, "consumer_id": consumer, "partition": 0}, urlsplit(face.base_url)
    asked: list[tuple[str, dict | None, int]] = [
        (f"?{urlencode(good)}", None, 200), ("", good, 200), (f"?topic={topic}", {**good, "topic": topic + "x"}, 400),
        (f"?topic={topic}&partition=0", {"consumer_id": consumer}, 200), (f"?{urlencode(good)}", good, 200), ("?partition=1&x=%20", good, 400),
        ("", {"topic": topic}, 400), (f"?{urlencode(good)}", {}, 200)]
    connection = (HTTPSConnection if at.scheme == "https" else HTTPConnection)(at.netloc, timeout=30)
    seen = []
    for query, body, status in asked:
        connection.request(method, path + query, None if body is None else json.dumps(body), {**JSON, **face.headers})
        answer = connection.getresponse()
        told = json.loads(answer.read())
        assert status == answer.status, f"{query} {body}: {told}"
        seen += [told["message"] if path == "/consumer/consume" else told["size"]] if status == 200 else []
    connection.close()
    assert (["0", "1", "2", "3", "4"] if path == "/consumer/consume" else [6] * 5) == seen


# --- rules 7 and 8: where a consumer starts, and how it goes round ---


def test_the_first_read_of_a_new_consumer_finds_what_is_there(face: Face, topic: str) -> None:
    """Again and again: never an empty answer first."""
    producer = face.producer(topic)
    for number in range(100 if LONG else 15):
        face.produce(topic, producer, str(number))
        assert "0" == face.consume(topic, face.consumer(topic))["message"]


def test_a_new_consumer_starts_at_the_earliest_message(face: Face, topic: str) -> None:
    producer, _ = face.both(topic)
    face.produce(topic, producer, "before")
    assert "before" == face.consume(topic, face.consumer(topic))["message"]
    assert "before" == face.consume(topic, face.consumer(topic, start="earliest"))["message"]


def test_a_consumer_may_start_at_the_latest(face: Face, topic: str) -> None:
    producer, _ = face.both(topic)
    face.produce(topic, producer, "before")
    consumer = face.consumer(topic, start="latest")
    assert 0 == face.size(topic, consumer)
    face.nothing_left(topic, consumer)
    face.produce(topic, producer, "after")
    assert "after" == face.consume(topic, consumer)["message"]
    face.refused("POST", "/consumer/register", {"topic": topic, "start": "somewhere"}, says="start")


def test_one_partition_is_one_fifo_for_each_consumer(face: Face, topic: str) -> None:
    producer, first = face.both(topic)
    second = face.consumer(topic)
    for number in range(20):
        face.produce(topic, producer, f"m{number}")
    wanted = [f"m{number}" for number in range(20)]
    assert wanted == [face.consume(topic, first)["message"] for _ in wanted]
    assert wanted == [face.consume(topic, second)["message"] for _ in wanted]
    face.nothing_left(topic, first)


def test_a_consume_without_partition_skips_empty_ones(face: Face, topic: str) -> None:
    producer, consumer = face.both(topic, partitions=5)
    for _ in range(3):
        face.produce(topic, producer, "far", partition=4)
    assert [4, 4, 4] == [face.consume(topic, consumer)["partition_id"] for _ in range(3)]
    face.nothing_left(topic, consumer)


def test_every_message_comes_once_and_in_order_of_its_partition(face: Face, topic: str) -> None:
    producer, consumer = face.both(topic, partitions=3)
    for number in range(30):
        face.produce(topic, producer, str(number))
    got = [face.consume(topic, consumer) for _ in range(30)]
    face.nothing_left(topic, consumer)
    assert {str(number) for number in range(30)} == {body["message"] for body in got}
    for partition in range(3):
        offsets = [body["offset"] for body in got if body["partition_id"] == partition]
        assert list(range(len(offsets))) == offsets


def test_without_key_and_partition_the_partitions_take_turns(face: Face, topic: str) -> None:
    producer, _ = face.both(topic, partitions=3)
    counts = [0, 0, 0]
    for number in range(60):
        counts[face.produce(topic, producer, str(number))["partition_id"]] += 1
    assert max(counts) - min(counts) <= 4, counts


def test_a_key_goes_to_the_published_partition(face: Face, topic: str) -> None:
    producer, _ = face.both(topic, partitions=4)
    for key in ("a", "b", "user-17", "ü", "0"):
        wanted = zlib.crc32(key.encode()) % 4
        assert [wanted, wanted] == [face.produce(topic, producer, "m", key=key)["partition_id"] for _ in range(2)]


# --- rule 9: bytes ---


@pytest.mark.parametrize("message", [
    "", " ", "a\x00b", "\x00", "line\nline\r\n", "tab\t", "YWJj", "this is text", "é ü 漢字 🎉", "\\ \" ' / %2F & = +", "null", "{}",
    "\ufeffbom", "\u2028", "x" * 5_000, "cafe\u0301",
])
def test_a_text_comes_back_character_for_character(face: Face, topic: str, message: str) -> None:
    producer, consumer = face.both(topic)
    face.produce(topic, producer, message)
    body = face.consume(topic, consumer)
    assert (message, message) == (body["message"], body["log_message"])


def test_bytes_that_are_no_text_come_back_as_base64(face: Face, topic: str) -> None:
    producer, consumer = face.both(topic)
    data = bytes(range(256))
    face.ok("POST", "/producer/produce", {"topic": topic, "producer_id": producer, "message_base64": base64.b64encode(data).decode()})
    body = face.consume(topic, consumer)
    assert data == base64.b64decode(body["message_base64"])
    assert "message" not in body


def test_a_text_sent_as_base64_is_that_text(face: Face, topic: str) -> None:
    producer, consumer = face.both(topic)
    face.ok("POST", "/producer/produce", {"topic": topic, "producer_id": producer, "message_base64": base64.b64encode("ü".encode()).decode()})
    assert "ü" == face.consume(topic, consumer)["message"]
    for wrong in ("a", "!!!!", 1, "YWJj\n"):
        face.refused("POST", "/producer/produce", {"topic": topic, "producer_id": producer, "message_base64": wrong})


def test_a_lone_surrogate_has_no_bytes_and_is_refused(face: Face, topic: str) -> None:
    producer, consumer = face.both(topic)
    body = json.dumps({"topic": topic, "producer_id": producer, "message": "\ud800"}).encode()
    face.refused("POST", "/producer/produce", data=body, headers=JSON)
    assert 0 == face.size(topic, consumer)


# --- rule 10: at most once, repeatable with a request id ---


def test_two_consumers_at_once_never_get_one_message_twice(face: Face, topic: str) -> None:
    producer, consumer = face.both(topic)
    for number in range(24):
        face.produce(topic, producer, str(number))
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda _: face.consume(topic, consumer)["message"], range(24)))
    assert {str(number) for number in range(24)} == set(got)
    face.nothing_left(topic, consumer)


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_request_id_makes_a_consume_repeatable(face: Face, topic: str, partitions: int) -> None:
    producer, consumer = face.both(topic, partitions)
    for number in range(6):
        face.produce(topic, producer, str(number))
    first = face.consume(topic, consumer, request_id="r-1")
    assert [first] * 3 == [face.consume(topic, consumer, request_id="r-1") for _ in range(3)]
    second = face.consume(topic, consumer, request_id="r-2")
    assert (first["partition_id"], first["offset"]) != (second["partition_id"], second["offset"])
    assert 4 == face.size(topic, consumer)
    assert first == face.consume(topic, consumer, request_id="r-1")


def test_a_request_id_of_one_consumer_means_nothing_to_another(face: Face, topic: str) -> None:
    producer, consumer = face.both(topic)
    other = face.consumer(topic)
    face.produce(topic, producer, "0")
    face.produce(topic, producer, "1")
    face.consume(topic, consumer)
    assert ("1", "0") == (face.consume(topic, consumer, request_id="r")["message"], face.consume(topic, other, request_id="r")["message"])
