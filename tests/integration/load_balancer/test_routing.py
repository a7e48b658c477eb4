"""Requests reach the node that must answer them, through a real balancer process."""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import requests

from myqueue.protocol.openapi import document
from tests.support.raw_http import RawConnection
from tests.support.service import Service
from tests.support.upstream import FakeCluster, Received, Reply, Upstream, as_json
from tests.support.waiting import wait_until


def node_of(answer: requests.Response) -> str:
    assert answer.status_code == 200, answer.text
    return answer.headers["MyQueue-Node"]


def ask(balancer: Service, method: str, path: str, **more: object) -> requests.Response:
    return requests.request(method, balancer.url + path, timeout=10, **more)


def test_writes_go_to_the_write_manager_and_reads_go_round(cluster: FakeCluster, balancer: Service) -> None:
    assert {"manager-1"} == {node_of(ask(balancer, "POST", "/producer/produce")) for _ in range(6)}
    counts = collections.Counter(node_of(ask(balancer, "GET", "/topics")) for _ in range(20))
    assert {"manager-2": 10, "manager-3": 10} == counts


def test_one_client_on_one_connection_is_not_kept_on_one_backend(cluster: FakeCluster, balancer: Service) -> None:
    with requests.Session() as session:
        counts = collections.Counter(node_of(session.get(balancer.url + "/size", timeout=10)) for _ in range(10))
    assert {"manager-2": 5, "manager-3": 5} == counts


def test_records_go_to_the_partition_s_leader(cluster: FakeCluster, balancer: Service) -> None:
    for partition, broker in ((0, "broker-1"), (1, "broker-2")):
        assert broker == node_of(ask(balancer, "POST", f"/v1/topics/logs/partitions/{partition}/records", data=b"x"))
        assert broker == node_of(ask(balancer, "GET", f"/v1/topics/logs/partitions/{partition}/records?offset=0"))


def test_a_topic_made_just_now_is_found_by_asking_once(cluster: FakeCluster, balancer: Service) -> None:
    cluster.topics["new"] = [2]
    assert "broker-2" == node_of(ask(balancer, "POST", "/v1/topics/new/partitions/0/records", data=b"x"))


def test_an_unknown_topic_or_partition_is_404_and_reaches_no_broker(cluster: FakeCluster, balancer: Service) -> None:
    topic = ask(balancer, "GET", "/v1/topics/nothing/partitions/0/records")
    partition = ask(balancer, "POST", "/v1/topics/logs/partitions/7/records", data=b"x")
    assert (404, "unknown_topic") == (topic.status_code, topic.json()["error"]["code"])
    error = partition.json()["error"]
    assert (404, "unknown_partition", 2) == (partition.status_code, error["code"], error["details"]["partitions"])
    assert [] == cluster.received()


def test_a_partition_without_a_leader_is_503_and_named(cluster: FakeCluster, balancer: Service) -> None:
    answer = ask(balancer, "POST", "/v1/topics/orphan/partitions/0/records", data=b"x")
    assert (503, "1") == (answer.status_code, answer.headers["Retry-After"])
    assert {"component": "partition orphan/0"} == answer.json()["error"]["details"]


def test_a_moved_leader_is_followed(cluster: FakeCluster, balancer: Service) -> None:
    cluster.topics["logs"], cluster.version = [2, 1], 2
    wait_until(lambda: node_of(ask(balancer, "GET", "/v1/topics/logs/partitions/0")) == "broker-2", what="the new leader to be used")


def test_a_table_of_a_manager_that_is_behind_is_not_taken(cluster: FakeCluster, balancer: Service) -> None:
    cluster.version = 5
    wait_until(lambda: ask(balancer, "GET", "/readyz").json()["version"] == 5, what="the new table")
    cluster.topics["logs"], cluster.version = [2, 1], 3
    seen = len(cluster.managers[1].polls)
    wait_until(lambda: len(cluster.managers[1].polls) > seen + 4, what="two more looks")
    assert "broker-1" == node_of(ask(balancer, "GET", "/v1/topics/logs/partitions/0"))


def test_a_read_manager_that_dies_costs_no_read_and_comes_back(cluster: FakeCluster, balancer: Service) -> None:
    dead = cluster.managers[2]
    dead.stop()
    assert {"manager-3"} == {node_of(ask(balancer, "GET", "/topics")) for _ in range(10)}
    cluster.managers[2] = Upstream(dead.answer, port=dead.port)
    wait_until(lambda: node_of(ask(balancer, "GET", "/topics")) == "manager-2", what="the manager to be used again")


def test_a_consume_that_reached_nobody_goes_to_the_next_manager(cluster: FakeCluster, balancer: Service) -> None:
    cluster.managers[2].stop()
    assert ["manager-3"] * 4 == [requests.get(balancer.url + "/consumer/consume", timeout=5).headers["MyQueue-Node"] for _ in range(4)]


def test_a_manager_that_says_it_is_not_ready_gets_nothing(cluster: FakeCluster, balancer: Service) -> None:
    cluster.ready[3] = False
    wait_until(lambda: not all(m["live"] for m in ask(balancer, "GET", "/readyz").json()["managers"]), what="the ejection")
    assert {"manager-2"} == {node_of(ask(balancer, "GET", "/topics")) for _ in range(6)}


def test_without_read_managers_the_write_manager_reads(cluster: FakeCluster, balancer: Service) -> None:
    cluster.managers[2].stop()
    cluster.managers[3].stop()
    assert {"manager-1"} == {node_of(ask(balancer, "GET", "/topics")) for _ in range(5)}


def test_without_the_write_manager_another_manager_takes_the_write_and_reads_go_on(cluster: FakeCluster, balancer: Service) -> None:
    """It waits for the next leader, or says that there is none."""
    cluster.managers[1].stop()
    for _ in range(2):  # found out by the request, then known
        assert node_of(ask(balancer, "POST", "/topics", json={"topic": "x"})) in ("manager-2", "manager-3")
    for number in (2, 3):  # they are well, and know of no leader: a poll that comes now must not find them ill
        cluster.managers[number].answer = lambda received, well=cluster.managers[number].answer: (
            well(received) if received.path in ("/readyz", "/v1/cluster") else as_json({"status": "failure", "outcome": "not_done"}, 503))
    assert (503, "not_done") == ((answer := ask(balancer, "POST", "/topics")).status_code, answer.json()["outcome"])
    cluster.reset()
    assert node_of(ask(balancer, "GET", "/topics")) in ("manager-2", "manager-3")
    assert node_of(ask(balancer, "GET", "/health")) in ("manager-2", "manager-3")


def test_a_new_write_manager_is_followed(cluster: FakeCluster, balancer: Service) -> None:
    cluster.writer, cluster.version = 3, 2
    wait_until(lambda: node_of(ask(balancer, "POST", "/topics")) == "manager-3", what="the new write manager to be used")
    cluster.managers[1].stop()
    cluster.managers[3].hang_up()
    assert "manager-3" == node_of(ask(balancer, "POST", "/topics"))


def test_a_write_to_a_frozen_manager_is_given_up_when_another_one_leads(cluster: FakeCluster, balancer: Service) -> None:
    """It is *unknown* after a second or two, not after the whole bound of a manager's answer; the next one goes to the new leader."""
    told = {"status": "ready", "cluster_id": "c", "applied_index": 1, "term": 1, "leader": 1}
    frozen, thaw = threading.Event(), threading.Event()

    def manager(number: int) -> Callable[[Received], Reply]:
        def answer(received: Received) -> Reply:
            if frozen.is_set() and number == 1:
                thaw.wait(20)
            if received.path == "/readyz":
                return as_json({**told, **({"term": 2, "leader": 2} if frozen.is_set() else {})})
            return default(received)
        default = cluster.managers[number].answer
        return answer

    for number, one in cluster.managers.items():
        one.answer = manager(number)
    assert "manager-1" == node_of(ask(balancer, "POST", "/topics"))
    frozen.set()
    try:
        began = time.monotonic()
        answer = ask(balancer, "POST", "/topics")
        assert (503, "unknown", "manager-1") == (answer.status_code, answer.json()["outcome"], answer.json()["component"])
        assert "1" == answer.headers["Retry-After"]
        assert time.monotonic() - began < 1.9
        assert "manager-2" == node_of(ask(balancer, "POST", "/topics"))
        for _ in range(4):  # the frozen one is a read manager now, and a safe read goes on to the next
            assert node_of(ask(balancer, "GET", "/topics")) in ("manager-2", "manager-3")
    finally:
        thaw.set()


def test_what_a_manager_that_ends_has_not_taken_goes_to_the_next(cluster: FakeCluster, balancer: Service) -> None:
    """Whatever it is: nothing was done with it."""
    for number in (1, 2):
        cluster.managers[number].answer = lambda received: Reply(503, b"{}", (("MyQueue-Not-Taken", "1"),))
    assert "manager-3" == node_of(ask(balancer, "POST", "/topics", json={"topic": "x"}))
    assert {"manager-3"} == {node_of(ask(balancer, "GET", "/consumer/consume")) for _ in range(4)}
    assert '{"topic": "x"}' == cluster.managers[3].received[0].body.decode()


def test_the_table_is_fetched_only_when_a_manager_is_ahead_of_it(cluster: FakeCluster, balancer: Service) -> None:
    """What the managers say when they are asked whether they are ready tells whether there is anything new."""
    said = {"status": "ready", "cluster_id": "c", "applied_index": 1, "term": 1, "leader": 1}
    for one in cluster.managers.values():
        one.answer = lambda received, default=one.answer: as_json(said) if received.path == "/readyz" else default(received)
    polls = [one.polls for one in cluster.managers.values()]
    counts = lambda path: sum(request.path == path for one in polls for request in list(one))  # noqa: E731
    wait_until(lambda: all(any(request.path == "/readyz" for request in list(one)) for one in polls), what="all to be asked anew")
    looks, fetched = counts("/readyz"), counts("/v1/cluster")
    wait_until(lambda: counts("/readyz") > looks + 12, what="some looks")
    assert counts("/v1/cluster") <= fetched + 1  # one may have been under way
    cluster.topics["logs"], cluster.version = [2, 1], 2
    said["applied_index"] = 2
    wait_until(lambda: node_of(ask(balancer, "GET", "/v1/topics/logs/partitions/0")) == "broker-2", what="the new table")


def test_a_plain_read_asks_for_the_index_of_the_last_write(cluster: FakeCluster, balancer: Service) -> None:
    """So that a list shows what was created just now, whichever manager answers; what a client asks for itself stands."""
    index = ("MyQueue-Applied-Index", "41")
    for one in cluster.managers.values():
        one.answer = lambda received, default=one.answer: replace(reply := default(received), headers=(*reply.headers, index))
    ask(balancer, "GET", "/topics")
    ask(balancer, "POST", "/topics")
    for headers in ({}, {"MyQueue-Min-Index": "7"}, {}):
        ask(balancer, "GET", "/v1/topics", headers=headers)
    ask(balancer, "GET", "/consumer/consume")
    wanted = [(request.path, request.header("MyQueue-Prefer-Index"), request.header("MyQueue-Min-Index")) for request in cluster.received()]
    assert sorted(wanted, key=str) == sorted([("/topics", None, None), ("/topics", None, None), ("/v1/topics", "41", None), ("/v1/topics", None, "7"),
                                              ("/v1/topics", "41", None), ("/consumer/consume", None, None)], key=str)


def test_with_no_manager_at_all_everything_is_503_and_the_balancer_says_so_of_itself(cluster: FakeCluster, balancer: Service) -> None:
    for manager in cluster.managers.values():
        manager.stop()
    wait_until(lambda: ask(balancer, "GET", "/readyz").status_code == 503, what="the balancer to say that it is not ready")
    assert 200 == ask(balancer, "GET", "/livez").status_code
    partition_face = ask(balancer, "GET", "/logs")
    assert (503, "Failure") == (partition_face.status_code, partition_face.json()["status"])
    assert partition_face.json()["reason"] == partition_face.json()["message"]


def test_a_dead_broker_is_named(cluster: FakeCluster, balancer: Service) -> None:
    cluster.brokers[2].stop()
    error = ask(balancer, "POST", "/v1/topics/logs/partitions/1/records", data=b"x").json()["error"]
    assert ("unreachable", "not_done", {"component": "broker-2"}) == (error["code"], error["outcome"], error["details"])
    assert "broker-1" == node_of(ask(balancer, "POST", "/v1/topics/logs/partitions/0/records", data=b"x"))


def test_the_calls_between_nodes_do_not_pass_however_they_are_written(cluster: FakeCluster, balancer: Service) -> None:
    for target in ("/internal/propose", "/%69nternal/propose", "/internal%2Fpropose", "//internal/propose", "http://x/internal/propose", "/internal"):
        with RawConnection(balancer.port) as connection:
            for headers in ({}, {"SCRIPT_NAME": "/internal"}, {"PATH_INFO": "/topics"}, {"X-Original-URL": "/topics"}):
                assert 404 == connection.ask(target, method="POST", headers=headers, body=b"{}").status
    assert [] == cluster.received()


def test_it_answers_for_itself(cluster: FakeCluster, balancer: Service) -> None:
    assert {"status": "alive", "node": "balancer"} == ask(balancer, "GET", "/livez").json()
    ready = ask(balancer, "GET", "/readyz").json()
    assert ["write", "read", "read"] == [manager["role"] for manager in ready["managers"]]
    ask(balancer, "POST", "/topics")
    assert 'myqueue_requests_total{method="POST",route="write_manager",status="200"} 1.0' in ask(balancer, "GET", "/metrics").text
    assert [] == [request for request in cluster.received() if request.path in ("/livez", "/metrics")]


def test_it_tells_what_the_native_face_is_though_no_manager_answers(cluster: FakeCluster, balancer: Service) -> None:
    for manager in cluster.managers.values():
        manager.stop()
    assert document() == ask(balancer, "GET", "/openapi.json").json()
    page = ask(balancer, "GET", "/docs")
    assert (200, "text/html; charset=utf-8") == (page.status_code, page.headers["Content-Type"])
