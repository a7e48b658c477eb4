"""What is drawn never leaves the machine, never takes the cluster apart, and never waits for long on purpose."""

from __future__ import annotations

import json

import pytest

from myqueue.protocol import routes
from tests.fuzz.native import Pool
from tests.fuzz.tame import NOBODY, Budget, tame
from tests.fuzz.wire import NATIVE, Sent

POOL = Pool(("a", "b"), "doomed", (1,), (1,), (1, 9), groups=("g", "h"), leaving="leaves", idle="idle")


def tamed(method: str, target: str, body: bytes = b"", **headers: str) -> Sent:
    return tame(Sent(NATIVE, "x", method, target, headers, body), POOL, Budget({"fresh": 0}))


@pytest.mark.parametrize("written", ["1", "%31", " 2", "%202%20", "3", "12", "007", "%D9%A1"])
def test_no_broker_or_manager_that_is_there_is_removed_or_drained(written: str) -> None:
    for path in ("/v1/brokers/{}", "/v1/brokers/{}/drain", "/v1/managers/{}"):
        assert path.format(NOBODY) == tamed("DELETE", path.format(written)).target


@pytest.mark.parametrize("url", ["http://example.com", "https://10.0.0.1:1/", "http://user@host"])
def test_no_manager_beyond_this_machine_is_asked(url: str) -> None:
    body = json.loads(tamed("POST", routes.MANAGERS, json.dumps({"node_id": 4, "url": url}).encode()).body)
    assert body["url"].split("//")[1].rpartition(":")[0] in ("127.0.0.1", "localhost", "[::1]")


@pytest.mark.parametrize("body", [b"", b" ", b"{}", b'{"host": null}', b'{"host": "example.com", "port": 80}', b'{"host": "10.0.0.1", "port": "80"}'])
def test_no_broker_beyond_this_machine_is_asked_and_none_is_started(body: bytes) -> None:
    made = json.loads(tamed("POST", routes.BROKERS, body).body)
    assert "127.0.0.1" == made["host"]
    assert made["port"] in POOL.ports


def test_what_is_wrong_with_an_address_stays_wrong() -> None:
    for body in (b'{"port": 0, "host": "x"}', b'{"port": 1}', b'{"host": 1, "port": 1}', b"[]", b"{"):
        sent = tamed("POST", routes.BROKERS, body)
        assert sent.body == body or json.loads(sent.body) == {"port": 0, "host": "127.0.0.1"}


@pytest.mark.parametrize(("given", "left"), [(5, 4), (10_000, 4), ("77", 4), (4, 4), (10_001, 10_001), (-1, -1), (None, None), (5.5, 5.5)])
def test_no_topic_of_thousands_of_partitions_is_made(given: object, left: object) -> None:
    body = json.dumps({"topic": "x", "partitions": given}).encode()
    assert {"topic": "x", "partitions": left} == json.loads(tamed("POST", routes.TOPICS, body).body)


def test_a_topic_that_is_needed_is_not_deleted_and_keeps_its_leaders() -> None:
    assert "/v1/topics/doomed" == tamed("DELETE", "/v1/topics/a").target
    assert "/v1/topics/doomed/partitions/0/move" == tamed("POST", "/v1/topics/a/partitions/0/move").target
    assert "/v1/topics/doomed/partitions/0/elect" == tamed("POST", "/v1/topics/a/partitions/0/elect").target
    assert "/v1/topics/doomed/partitions/0/repair" == tamed("POST", "/v1/topics/a/partitions/0/repair").target
    assert "/v1/topics/c" == tamed("DELETE", "/v1/topics/c").target
    assert "/v1/topics/a" == tamed("PATCH", "/v1/topics/a").target


def test_a_group_that_is_needed_keeps_its_member() -> None:
    assert "/v1/groups/leaves/members/1" == tamed("DELETE", "/v1/groups/g/members/1").target
    assert "/v1/groups/leaves/members/7/" == tamed("DELETE", "/v1/groups/%68/members/7/").target
    assert "/v1/groups/other/members/1" == tamed("DELETE", "/v1/groups/other/members/1").target
    assert "/v1/groups/g/members/1/heartbeat" == tamed("POST", "/v1/groups/g/members/1/heartbeat").target


@pytest.mark.parametrize(("brokers", "left"), [([1, 2], None), (["2"], None), ([1, 999], [1, 999]), ([0], [0]), ([True], [True]), ([], []), (5, 5)])
def test_no_partition_moves_in_the_background(brokers: object, left: object) -> None:
    sent = Sent(NATIVE, "move_partition", "POST", "/v1/topics/a/partitions/0/move", {}, json.dumps({"brokers": brokers}).encode())
    assert {"brokers": left} == json.loads(tame(sent, POOL, Budget()).body)


def test_nothing_is_waited_for() -> None:
    assert "/x?a=%FF&wait_seconds=0.02" == tamed("GET", "/x?a=%ff&wait_seconds=1e300").target
    assert "/x?a=%ff&wait_seconds" == tamed("GET", "/x?a=%ff&wait_seconds").target.replace("%FF", "%ff").removesuffix("=")
    assert "1" == tamed("GET", "/x", **{routes.MIN_INDEX: "99999"}).headers[routes.MIN_INDEX]


def test_all_else_is_sent_as_it_was_drawn() -> None:
    for body in (b"\xff", b"[1]", b'{"partitions": true}', b"[" * 10_000, b'{"topic": "a"}'):
        sent = Sent(NATIVE, "x", "POST", "/v1/topics?q=%zz", {"A": "b"}, body)
        assert sent == tame(sent, POOL, Budget())
