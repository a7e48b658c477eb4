from __future__ import annotations

from dataclasses import replace

import pytest

from load_balancer.core.health import Health
from load_balancer.core.routing import (
    Backend,
    Destination,
    Facts,
    Manager,
    View,
    destination_of,
    is_lost,
    is_repeatable,
    led_by,
    route,
)
from myqueue.errors import BadRequestError, NotFoundError, UnavailableError, UnknownPartitionError, UnknownTopicError
from myqueue.protocol.types import ClusterSnapshot, NodeAddress, PartitionInfo, TopicPartition

M1, M2, M3 = Manager("http://m1", 1, "write"), Manager("http://m2", 2, "read"), Manager("http://m3", 3, "read")
PARTITIONS = [PartitionInfo("logs", 1, 0, 1, 1), PartitionInfo("logs", 1, 1, 1, 2), PartitionInfo("orphan", 2, 0, 1, None),
              PartitionInfo("lost", 3, 0, 1, 9)]
SNAPSHOT = ClusterSnapshot("c", 7, {1: NodeAddress("b1", 1), 2: NodeAddress("b2", 2)}, {TopicPartition(p.topic, p.partition): p for p in PARTITIONS})
VIEW = View((M1, M2, M3), SNAPSHOT)
UNKNOWN = View((Manager("http://127.0.0.1:1"),))


def without(*managers: Manager) -> View:
    health = Health()
    for manager in managers:
        health = health.failed(manager.url, reason="refused", now=0.0)
    return replace(VIEW, health=health)


def names(method: str, path: str, view: View = VIEW, turn: int = 0) -> list[str]:
    return [backend.component for backend in route(Facts(method, path), view, turn=turn).backends]


WRITER, READER, FRESHEST, LEADER = Destination.WRITER, Destination.READER, Destination.FRESHEST, Destination.LEADER

# Every call of the HTTP contract and where it is sent.
TABLE = [
    ("POST", "/topics", WRITER), ("GET", "/topics", READER), ("POST", "/producer/register", WRITER), ("POST", "/producer/produce", WRITER),
    ("POST", "/consumer/register", READER), ("GET", "/consumer/consume", READER), ("POST", "/consumer/consume", READER),
    ("GET", "/size", READER), ("GET", "/unread_messages", READER), ("POST", "/broker", WRITER), ("GET", "/broker", FRESHEST),
    ("DELETE", "/broker/remove", WRITER), ("POST", "/partition", WRITER), ("GET", "/health", FRESHEST),
    ("GET", "/", READER), ("GET", "/raft_status", READER), ("POST", "/producers", WRITER), ("POST", "/consumers", READER),
    ("POST", "/partitions", WRITER), ("GET", "/partitions", READER), ("POST", "/messages", WRITER), ("POST", "/logs", WRITER),
    ("GET", "/messages", READER), ("GET", "/logs", READER), ("GET", "/brokers", FRESHEST), ("POST", "/brokers", WRITER),
    ("GET", "/v1/cluster", READER), ("GET", "/v1/topics", READER), ("GET", "/v1/topics/logs", READER), ("POST", "/v1/topics", WRITER),
    ("PATCH", "/v1/topics/logs", WRITER), ("DELETE", "/v1/topics/logs", WRITER), ("POST", "/v1/topics/logs/partitions", WRITER),
    ("POST", "/v1/producers", WRITER), ("POST", "/v1/consumers", WRITER), ("POST", "/v1/heartbeats", WRITER), ("GET", "/v1/health", FRESHEST),
    ("GET", "/v1/topics/logs/partitions", READER), ("POST", "/v1/topics/logs/partitions/0/elect", WRITER),
    ("POST", "/v1/topics/logs/partitions/0/repair", WRITER),
    ("POST", "/v1/topics/logs/partitions/0/move", WRITER),
    ("POST", "/v1/topics/logs/records", WRITER), ("GET", "/v1/topics/logs/lag", READER), ("GET", "/v1/topics/logs/search", READER),
    ("GET", "/v1/brokers", FRESHEST),
    ("POST", "/v1/brokers", WRITER), ("DELETE", "/v1/brokers/1", WRITER), ("GET", "/v1/topics/logs/partitions/0/elect", WRITER),
    ("GET", "/v1/topics/logs/partitions/0", LEADER), ("POST", "/v1/topics/logs/partitions/0/records", LEADER),
    ("POST", "/v1/topics/logs/partitions/0/trim", LEADER),
    ("GET", "/v1/topics/logs/partitions/1/records", LEADER), ("PUT", "/v1/topics/logs/partitions/1/offsets/7", LEADER),
    ("HEAD", "/topics", READER), ("OPTIONS", "/topics", READER), ("GET", "/no/such/path", READER), ("PUT", "/no/such/path", WRITER),
]


@pytest.mark.parametrize(("method", "path", "destination"), TABLE)
@pytest.mark.parametrize("end", ["", "/"])
def test_every_row_of_the_routing_chapter(method: str, path: str, destination: Destination, end: str) -> None:
    """Each call goes where the contract says; a slash at the end changes nothing."""
    assert destination is destination_of(Facts(method, path + end))


@pytest.mark.parametrize("path", ["/internal", "/internal/", "/internal/propose", "//internal/propose", "/internal/../topics", "/internal/a\nb"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "BREW"])
def test_calls_between_nodes_never_pass(method: str, path: str) -> None:
    with pytest.raises(NotFoundError):
        route(Facts(method, path), VIEW, turn=0)


def test_a_name_that_only_begins_like_internal_passes() -> None:
    assert READER is destination_of(Facts("GET", "/internals"))


def test_writes_go_to_the_write_manager_and_to_another_one_only_where_it_is_not_there() -> None:
    """Any manager passes a write on, or waits for a leader."""
    for turn in range(4):
        assert "manager-1" == names("POST", "/topics", turn=turn)[0]
    assert ["manager-1", "manager-3", "manager-2"] == names("POST", "/topics", turn=1)
    assert ["manager-2", "manager-3"] == names("POST", "/topics", without(M1))
    assert ["manager at 127.0.0.1:1"] == names("POST", "/topics", UNKNOWN)


def test_who_was_slow_to_answer_a_poll_is_asked_last() -> None:
    slow = replace(VIEW, health=Health().was_slow(M2.url, reason="slow", now=0.0))
    assert ["manager-3", "manager-1", "manager-2"] == names("GET", "/topics", slow, turn=0)
    slow = replace(VIEW, health=Health().was_slow(M1.url, reason="slow", now=0.0))
    assert ["manager-2", "manager-3", "manager-1"] == names("POST", "/topics", slow, turn=0)


@pytest.mark.parametrize(("url", "leader", "silent_seconds", "lost"), [
    ("http://m1", 1, 1.9, False), ("http://m1", 1, 2.0, True), ("http://m1", None, 1.9, False),
    ("http://m1", 2, 0.9, False), ("http://m1", 2, 1.0, True), ("http://m2", 1, 1.0, True), ("http://m3", 1, 0.0, False),
])
def test_a_manager_that_answers_no_poll_is_not_waited_for(url: str, leader: int | None, silent_seconds: float, lost: bool) -> None:
    """For two seconds; for one where another one leads, so that it is not the one that everybody waits for."""
    view = replace(VIEW, term=3, leader=leader, health=Health().asked(url, now=100.0) if silent_seconds else Health())
    assert lost is is_lost(led_by(view), url, now=100.0 + silent_seconds)


def test_reads_take_turns_between_read_managers_and_fall_back_on_the_write_manager() -> None:
    assert ["manager-2", "manager-3", "manager-1"] == names("GET", "/topics", turn=0)
    assert ["manager-3", "manager-2", "manager-1"] == names("GET", "/topics", turn=1)
    assert names("GET", "/topics", turn=0) == names("GET", "/topics", turn=2)


def test_an_ejected_manager_gets_nothing() -> None:
    assert ["manager-3", "manager-1"] == names("GET", "/topics", without(M2), turn=5)
    assert ["manager-1"] == names("GET", "/topics", without(M2, M3))
    assert ["manager-2", "manager-3"] == names("GET", "/topics", without(M1))


def test_what_the_write_manager_knows_best_is_asked_there_first() -> None:
    assert ["manager-1", "manager-2", "manager-3"] == names("GET", "/health")
    assert ["manager-2", "manager-3"] == names("GET", "/broker", without(M1))


def test_records_go_straight_to_the_leader() -> None:
    assert (Backend("broker-1", "http://b1:1"),) == route(Facts("POST", "/v1/topics/logs/partitions/0/records"), VIEW, turn=0).backends
    assert (Backend("broker-2", "http://b2:2"),) == route(Facts("GET", "/v1/topics/logs/partitions/1"), VIEW, turn=9).backends


@pytest.mark.parametrize(("path", "error", "said"), [
    ("/v1/topics/nothing/partitions/0", UnknownTopicError, "'nothing' does not exist"),
    ("/v1/topics/logs/partitions/2/records", UnknownPartitionError, "2 partitions: 0 to 1, not 2"),
    ("/v1/topics/logs/partitions/9223372036854775807", UnknownPartitionError, "not 9223372036854775807"),
    ("/v1/topics/logs/partitions/-1", BadRequestError, "partition must be from 0"),
    ("/v1/topics/logs/partitions/abc/records", BadRequestError, "whole number"),
    ("/v1/topics/logs/partitions/1.5", BadRequestError, "whole number"),
    ("/v1/topics/orphan/partitions/0", UnavailableError, "orphan/0 has no leader"),
    ("/v1/topics/lost/partitions/0", UnavailableError, "broker-9, whose address is not known"),
])
def test_a_partition_that_cannot_be_served_is_refused_with_the_reason(path: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        route(Facts("GET", path), VIEW, turn=0)


@pytest.mark.parametrize(("method", "path", "view", "component", "said"), [
    ("POST", "/topics", without(M1, M2, M3), "managers", r"no manager answers: manager-1 \(refused\), manager-2"),
    ("GET", "/topics", without(M1, M2, M3), "managers", r"no manager answers: manager-1 \(refused\), manager-2"),
    ("GET", "/v1/topics/logs/partitions/0", UNKNOWN, "managers", "routing table is not known"),
])
def test_a_refusal_names_who_is_missing(method: str, path: str, view: View, component: str, said: str) -> None:
    with pytest.raises(UnavailableError, match=said) as caught:
        route(Facts(method, path), view, turn=0)
    assert (component, "not_done") == (caught.value.component, caught.value.outcome)


def test_before_the_table_is_known_reads_go_to_the_managers_of_the_settings() -> None:
    assert ["manager at 127.0.0.1:1"] == names("GET", "/topics", UNKNOWN)


@pytest.mark.parametrize(("method", "path"), [
    ("GET", "/consumer/consume"), ("GET", "/consumer/consume/"), ("POST", "/consumer/consume"), ("GET", "/messages"), ("GET", "/logs"),
    ("HEAD", "/logs/"), ("POST", "/topics"), ("DELETE", "/broker/remove"), ("PUT", "/v1/topics/logs/partitions/0/offsets/1"),
    ("POST", "/v1/topics/logs/partitions/0/records"),
])
def test_what_changes_something_is_never_repeated(method: str, path: str) -> None:
    assert not is_repeatable(Facts(method, path))


@pytest.mark.parametrize("path", ["/topics", "/size", "/unread_messages", "/health", "/partitions", "/v1/cluster",
                                  "/v1/topics/logs/partitions/0/records"])
def test_a_plain_read_may_be_repeated(path: str) -> None:
    assert is_repeatable(Facts("GET", path))


def test_the_leader_that_is_known_overrides_the_table_s_roles() -> None:
    """A table may come from a manager that has not heard of the new leader yet."""
    assert names("POST", "/topics", led_by(replace(VIEW, term=3, leader=2)))[0] == "manager-2"
    assert names("POST", "/topics", led_by(VIEW))[0] == "manager-1"
