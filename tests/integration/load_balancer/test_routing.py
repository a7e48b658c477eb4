"""Requests reach the node that must answer them, through a real balancer process."""

from __future__ import annotations

import collections

import requests

from tests.support.raw_http import RawConnection
from tests.support.service import Service
from tests.support.upstream import FakeCluster, Upstream
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


def test_without_the_write_manager_writes_are_refused_by_name_and_reads_go_on(cluster: FakeCluster, balancer: Service) -> None:
    cluster.managers[1].stop()
    for _ in range(2):  # found out by the request, then known
        answer = ask(balancer, "POST", "/topics", json={"topic": "x"})
        assert (503, "1") == (answer.status_code, answer.headers["Retry-After"])
        body = answer.json()
        assert ("failure", "not_done", "manager-1") == (body["status"], body["outcome"], body["component"])
        assert "manager-1" in body["message"]
    assert node_of(ask(balancer, "GET", "/topics")) in ("manager-2", "manager-3")
    assert node_of(ask(balancer, "GET", "/health")) in ("manager-2", "manager-3")


def test_a_new_write_manager_is_followed(cluster: FakeCluster, balancer: Service) -> None:
    cluster.writer, cluster.version = 3, 2
    wait_until(lambda: node_of(ask(balancer, "POST", "/topics")) == "manager-3", what="the new write manager to be used")
    cluster.managers[1].stop()
    cluster.managers[3].hang_up()
    assert "manager-3" == node_of(ask(balancer, "POST", "/topics"))


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
