"""The native face's records of a topic, with a stand-in for the broker that may fail."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

import pytest
import requests

from myqueue.errors import NotLeaderError, OutcomeUnknownError
from tests.support.broker_stub import BrokerStub
from tests.support.managers import ManagerCluster


@pytest.fixture
def topic(cluster: ManagerCluster, stub: BrokerStub, new_topic: Callable[[], str]) -> str:
    """A topic of three partitions."""
    name = new_topic()
    assert cluster.write.post("/v1/topics", {"topic": name, "partitions": 3}).status_code == 201
    stub.calls.clear()
    return name


def produce(cluster: ManagerCluster, topic: str, *records: dict, **more: object) -> requests.Response:
    return cluster.write.post(f"/v1/topics/{topic}/records", {"records": list(records)}, **more)


def logs(cluster: ManagerCluster, stub: BrokerStub, topic: str) -> list[list[str]]:
    topic_id = cluster.write.get(f"/v1/topics/{topic}").json()["topic_id"]
    return [[record["value"] for record in stub.logs[topic_id, number]] for number in range(3)]


def test_each_record_goes_to_its_partition_in_one_call_each(cluster: ManagerCluster, stub: BrokerStub, topic: str):
    """Named, by key, and the rest together; in the order of the request."""
    assert crc32(b"f") % 3 == 2
    answer = produce(cluster, topic, {"value": "a", "partition": 1}, {"value": "b", "key": "f"}, {"value": "c", "partition": "1", "key": "f"},
                     {"value": "d", "key": "f"})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert (body["topic"], body["record_count"]) == (topic, 4)
    assert body["partitions"] == [{"partition": 1, "record_count": 2, "records": [0, 2], "base_offset": 0},
                                  {"partition": 2, "record_count": 2, "records": [1, 3], "base_offset": 0}]
    assert stub.calls.count("records") == 2
    assert logs(cluster, stub, topic) == [[], ["a", "c"], ["b", "d"]]


def test_keyless_records_of_one_request_stay_together_and_requests_take_turns(cluster: ManagerCluster, stub: BrokerStub, topic: str):
    places = []
    for turn in range(6):
        [one] = produce(cluster, topic, *({"value": f"{turn}-{number}"} for number in range(5))).json()["partitions"]
        assert one["record_count"] == 5
        places.append(one["partition"])
    assert sorted(places) == [0, 0, 1, 1, 2, 2]


def test_one_record_alone_needs_no_list(cluster: ManagerCluster, stub: BrokerStub, topic: str):
    answer = cluster.reads[0].post(f"/v1/topics/{topic}/records", {"value_base64": "/w==", "partition": 2})
    assert (answer.status_code, answer.json()["partitions"][0]["base_offset"]) == (200, 0)


def test_half_a_success_is_an_error_that_says_which_half(cluster: ManagerCluster, stub: BrokerStub, topic: str):
    """Partition 1's leader is unable: what went to 0 is stored and told, what went to 1 is to be sent again."""
    topic_id = cluster.write.get(f"/v1/topics/{topic}").json()["topic_id"]
    lost = stub.logs.pop((topic_id, 1))
    answer = produce(cluster, topic, {"value": "a", "partition": 0}, {"value": "b", "partition": 1}, {"value": "c", "partition": 0})
    stub.logs[topic_id, 1] = lost
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["retriable"], error["outcome"]) == (502, "partly_stored", False, "unknown")
    assert "Retry-After" not in answer.headers
    first, second = error["details"]["partitions"]
    assert (first["partition"], first["records"], first["base_offset"]) == (0, [0, 2], 0)
    assert (second["partition"], second["records"], second["error"]["outcome"]) == (1, [1], "not_done")
    assert logs(cluster, stub, topic) == [["a", "c"], [], []]


@pytest.mark.parametrize(("error", "code", "outcome"), [(NotLeaderError("moved"), "not_leader", "not_done"),
                                                        (OutcomeUnknownError("lost"), "outcome_unknown", "unknown")])
def test_where_nothing_is_stored_the_answer_says_whether_that_is_sure(cluster: ManagerCluster, stub: BrokerStub, topic: str, error, code, outcome):
    stub.failing["records"] = error
    answer = produce(cluster, topic, {"value": "a", "partition": 0}, {"value": "b", "partition": 1})
    told = answer.json()["error"]
    assert (answer.status_code, told["code"], told["outcome"]) == (503, code, outcome)
    assert [one["records"] for one in told["details"]["partitions"]] == [[0], [1]]


@pytest.mark.parametrize(("body", "status", "word"), [
    ({"records": []}, 400, "one record or more"), ({"records": 1}, 400, "records"), ({"records": [1]}, 400, "JSON object"),
    ({"records": [{"value": 1}]}, 400, "string"), ({"records": [{"key": "k"}]}, 400, "value"), ({"records": [{"value": "a"}], "x": 1}, 400, "beside"),
    ({"value": "a", "partition": 3}, 404, "3 partitions"), ({"value": "a", "partition": -1}, 400, "partition"),
    ({"value": "a", "partition": True}, 400, "whole number"), ({"value": "a", "more": 1}, 400, "more"), ({}, 400, "value"),
    ({"value": "x" * ((1 << 20) + 1)}, 413, "1048576")])
def test_what_is_not_a_batch_is_refused_whole(cluster: ManagerCluster, stub: BrokerStub, topic: str, body: dict, status: int, word: str):
    answer = cluster.write.post(f"/v1/topics/{topic}/records", body)
    assert answer.status_code == status, answer.text
    assert word in answer.json()["error"]["message"]
    assert "records" not in stub.calls


def test_sequences_and_other_content_types_are_refused_with_a_sentence(cluster: ManagerCluster, stub: BrokerStub, topic: str):
    answer = produce(cluster, topic, {"value": "a"}, headers={"Producer-Id": "1", "Producer-Epoch": "0", "Producer-Seq": "0"})
    assert (answer.status_code, "counted by partition" in answer.json()["error"]["message"]) == (400, True)
    answer = cluster.write.post(f"/v1/topics/{topic}/records", data=b"value", headers={"Content-Type": "text/plain"})
    assert (answer.status_code, answer.json()["error"]["details"]["supported"]) == (415, ["application/json"])
    answer = cluster.write.post(f"/v1/topics/{topic}/records", data='{"value": "ä"}'.encode("latin-1"),
                                headers={"Content-Type": "application/json; charset=latin-1"})
    assert answer.status_code == 200
    assert [value for log in logs(cluster, stub, topic) for value in log] == ["ä"]
    assert cluster.write.post("/v1/topics/nowhere/records", {"value": "a"}).status_code == 404


def test_the_lag_of_a_consumer_by_partition_and_in_all_in_one_call_a_broker(cluster: ManagerCluster, stub: BrokerStub, topic: str):
    """Where it has committed nothing the offset is null; looking at it is no sign of life of it."""
    consumer_id = cluster.write.post("/v1/consumers", {"topics": [topic]}).json()["consumers"][topic]["consumer_id"]
    produce(cluster, topic, *({"value": "v", "partition": number} for number in (0, 0, 0, 2)))
    for _ in range(2):
        assert cluster.write.post("/consumer/consume", {"topic": topic, "consumer_id": consumer_id, "partition": 0}).status_code == 200
    stub.calls.clear()
    answer = cluster.reads[0].get(f"/v1/topics/{topic}/lag?consumer_id={consumer_id}")
    assert answer.json() == {"topic": topic, "consumer_id": consumer_id, "lag": 2, "partitions": [
        {"partition": 0, "offset": 2, "start_offset": 0, "end_offset": 3, "lag": 1},
        {"partition": 1, "offset": None, "start_offset": 0, "end_offset": 0, "lag": 0},
        {"partition": 2, "offset": None, "start_offset": 0, "end_offset": 1, "lag": 1}]}
    assert stub.calls == ["sizes"]


def test_the_lag_of_nobody_is_a_404_and_of_what_cannot_be_asked_a_503(cluster: ManagerCluster, stub: BrokerStub, topic: str):
    consumer_id = cluster.write.post("/v1/consumers", {"topics": [topic]}).json()["consumers"][topic]["consumer_id"]
    path = f"/v1/topics/{topic}/lag"
    for asked, status, code in ((f"{path}?consumer_id={consumer_id + 1000}", 404, "unknown_consumer"),
                                (f"/v1/topics/nowhere/lag?consumer_id={consumer_id}", 404, "unknown_topic"), (path, 400, "bad_request"),
                                (f"{path}?consumer_id=x", 400, "bad_request"), (f"{path}?consumer_id=1&consumer_id=2", 400, "bad_request"),
                                (f"{path}?consumer_id=1&partition=0", 400, "bad_request")):
        answer = cluster.reads[1].get(asked)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), asked
    stub.failing["sizes"] = NotLeaderError("moved")
    assert cluster.reads[1].get(f"{path}?consumer_id={consumer_id}").status_code == 503


def test_a_search_goes_on_by_its_cursor_to_the_cut_of_its_first_page(cluster: ManagerCluster, stub: BrokerStub, topic: str):
    """At any manager; what comes after the first page is not among it."""
    wanted = [(number, place) for number in range(3) for place in range(0, 10, 3)]
    for number in range(3):
        produce(cluster, topic, *({"value": f"{number}-{place}", "partition": number, "key": "other" if place % 3 else "k"} for place in range(10)))
    path, found, cursor, pages = f"/v1/topics/{topic}/search?key=k&max_records=5", [], "", 0
    while cursor is not None:
        answer = cluster.managers[pages % 3].get(path + (f"&cursor={cursor}" if cursor else ""))
        assert answer.status_code == 200, answer.text
        found += [(one["partition"], one["offset"]) for one in answer.json()["records"]]
        assert answer.json()["cut"] == [10, 10, 10]
        cursor, pages = answer.json()["cursor"], pages + 1
        produce(cluster, topic, {"value": "late", "partition": 2, "key": "k"})
    assert (found, pages) == (wanted, 3)


def test_a_search_that_meets_a_silent_leader_is_a_503_and_goes_on_later(cluster: ManagerCluster, stub: BrokerStub, topic: str):
    produce(cluster, topic, *({"value": "v", "partition": number, "key": "k"} for number in (0, 1)))
    path = f"/v1/topics/{topic}/search?key=k"
    stub.failing["ends"] = NotLeaderError("moved")
    assert cluster.reads[0].get(path).status_code == 503
    stub.failing.clear()
    cursor = cluster.reads[0].get(path + "&max_records=1").json()["cursor"]
    stub.failing["search"] = NotLeaderError("moved")
    assert cluster.reads[1].get(f"{path}&cursor={cursor}").status_code == 503
    stub.failing.clear()
    assert [one["partition"] for one in cluster.reads[1].get(f"{path}&cursor={cursor}").json()["records"]] == [1]


def test_what_is_no_search_is_a_sentence(cluster: ManagerCluster, stub: BrokerStub, topic: str):
    path = f"/v1/topics/{topic}/search"
    produce(cluster, topic, *({"value": "v", "partition": 0, "key": "k"} for _ in range(3)))
    cursor = cluster.write.get(f"{path}?key=k&max_records=1").json()["cursor"]
    for query, word in (("", "needs key"), ("?key=k&key_base64=aw==", "both given"), ("?key_base64=!", "not base64"),
                        ("?from_timestamp=x", "from_timestamp"), ("?to_timestamp=-1", "to_timestamp"),
                        ("?from_timestamp=9223372036854775808", "from_timestamp"),
                        ("?key=k&max_records=0", "max_records"), ("?key=k&max_records=1001", "1000"), ("?key=k&max_records=", "max_records"),
                        ("?key=k&more=1", "no argument more"), ("?key=k&key=l", "twice"), ("?key=k&cursor=x", "begin without one"),
                        (f"?key=l&cursor={cursor}", "another search"), (f"?key=k&from_timestamp=1&cursor={cursor}", "another search")):
        answer = cluster.reads[0].get(path + query)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_request"), query
        assert word in answer.json()["error"]["message"], query
    assert cluster.write.get("/v1/topics/nowhere/search?key=k").status_code == 404
    assert cluster.write.call("DELETE", f"/v1/topics/{topic}").status_code == 200
    assert cluster.write.post("/v1/topics", {"topic": topic, "partitions": 3}).status_code == 201
    answer = cluster.write.get(f"{path}?key=k&cursor={cursor}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")
