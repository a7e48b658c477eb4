"""A trimmed partition on three real brokers: a change of leader, and a replica that was away for too long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg2
import pytest

from db.engine import libpq_url
from myqueue.protocol.types import PartitionId
from tests.support.audit_here import log_damage
from tests.support.replicas import Replicas, replicas
from tests.support.waiting import wait_until

SMALL_SEGMENTS = ("--segment-bytes-max", str(64 << 10), "--segment-check-seconds", "0.05", "--follower-kept-seconds", "0",
                  "--replica-check-seconds", "0.2")
FOLDED = ("SELECT producer_id, producer_epoch, last_seq, recent, append_time FROM producer_state WHERE topic_id = %s ORDER BY 1",
          "SELECT consumer, next_offset, generation, lsn, append_time FROM consumer_offset WHERE topic_id = %s ORDER BY 1",
          "SELECT consumer, request_id, message_offset, append_time FROM consumer_request WHERE topic_id = %s ORDER BY 1, 2",
          "SELECT commit_lsn, commit_offset, applied_lsn, trim_offset FROM partition_commit WHERE topic_id = %s")
LARGE = "x" * 7_000


@pytest.fixture(scope="module")
def brokers(postgres) -> Iterator[Replicas]:
    """Three brokers whose segments are small: each test uses a topic of its own."""
    with replicas(postgres, arguments=SMALL_SEGMENTS) as group:
        yield group


@pytest.fixture
def group(brokers: Replicas) -> Replicas:
    brokers.begin()
    return brokers


def rows(group: Replicas, broker_id: int, statement: str) -> list[tuple[Any, ...]]:
    with closing(psycopg2.connect(libpq_url(group.urls[broker_id - 1]), connect_timeout=5)) as connection, connection.cursor() as cursor:
        cursor.execute(statement, (group.topic_id,))
        return cursor.fetchall()


def folded(group: Replicas, broker_id: int) -> list[list[tuple[Any, ...]]]:
    return [rows(group, broker_id, statement) for statement in FOLDED]


def trim(group: Replicas, before: int, *, status: int = 200) -> dict[str, Any]:
    path = f"/v1/topics/{group.topic}/partitions/0/trim"
    return group.brokers[group.leader].call("POST", path, {"before_offset": before}, status=status)


def dequeue(group: Replicas, **more: str) -> int:
    return group.brokers[group.leader].call("POST", group.dequeue, {"consumer": "#7", **more})["offset"]


def out_of_range(group: Replicas, broker_id: int, offset: int) -> dict[str, int]:
    return group.brokers[broker_id].call("GET", group.records, offset=offset, status=416)["error"]["details"]


def damage(group: Replicas) -> list[Any]:
    return [found for url in group.urls for found in log_damage(libpq_url(url), PartitionId(group.topic_id, 0))]


def test_a_trim_survives_a_change_of_leader(group: Replicas):
    """As a message does; the consumer goes on behind it, and a follower shows it too."""
    for number in range(10):
        group.send(f"m{number}", seq=number)
    assert dequeue(group) == 0
    assert trim(group, 6)["start_offset"] == 6
    group.brokers[1].kill()
    leader = group.elect(2, 3)
    wait_until(lambda: group.status(leader)["committed_in_epoch"], what="the leader to have begun")
    wait_until(lambda: group.status(leader)["applied_lsn"] == group.status(leader)["commit_lsn"], what="the trim to be folded")
    assert out_of_range(group, leader, 2) == {"offset": 2, "earliest": 6, "latest": 10}
    assert trim(group, 3)["start_offset"] == 6
    assert dequeue(group) == 6
    group.start(1)
    group.wait_equal()
    assert out_of_range(group, 1, 5)["earliest"] == 6
    assert group.values(1, 6) == ["m6", "m7", "m8", "m9"]
    assert damage(group) == []


def test_a_replica_that_was_away_while_its_leader_trimmed_begins_anew_and_can_lead(group: Replicas):
    """It holds the same log from the same start, and the same folded state: sequences, offsets, requests; nothing is damaged anywhere."""
    group.send("first", seq=0)
    group.wait_equal()
    group.brokers[3].kill()
    for number in range(1, 41):
        group.send(LARGE, seq=number)
    assert [dequeue(group), dequeue(group, request_id="r")] == [0, 1]
    assert trim(group, 35)["start_offset"] == 35
    behind = 5  # what the one that is away holds at most: markers, a message
    for broker in (1, 2):
        wait_until(lambda broker=broker: group.status(broker)["start_lsn"] > behind, timeout_seconds=15, what=f"broker {broker} to drop a segment")
    kept = group.status(1)["start_lsn"]
    wait_until(lambda: rows(group, 1, "SELECT min(lsn) FROM log_entry WHERE topic_id = %s") >= [(kept,)], what="the rows to be gone")
    group.start(3)
    status = group.wait_equal(timeout_seconds=20)
    assert status["replicas"]["3"]["counts"] is True
    assert group.status(3)["start_lsn"] > behind
    assert group.status(3)["seeding"] is False
    assert folded(group, 3) == folded(group, 1)
    assert group.values(3, 35) == group.values(1, 35) == [LARGE] * 6
    assert out_of_range(group, 3, 34) == {"offset": 34, "earliest": 35, "latest": 41}
    assert damage(group) == []
    answers = group.promises([1, 2, 3])
    assert [answer["seeding"] for answer in answers.values()] == [False] * 3
    group.appoint(3)
    assert group.send("again", seq=40) | {"duplicate": True, "base_offset": 40} == group.send("again", seq=40)
    assert group.send("new", seq=41)["base_offset"] == 41
    assert dequeue(group) == 35
    assert trim(group, 41)["start_offset"] == 41
    group.wait_equal()
    assert damage(group) == []
