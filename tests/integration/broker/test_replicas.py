"""A partition on three real brokers, each with its own database."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests

from broker.core.admission import BLOCKS_MAX
from myqueue.protocol import routes
from myqueue.protocol.batch import BATCH_TYPE, pack_values
from tests.support.replicas import Replicas, replicas
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def brokers(postgres) -> Iterator[Replicas]:
    """Three brokers for the tests of this module: each uses a topic of its own."""
    with replicas(postgres) as group:
        yield group


@pytest.fixture
def group(brokers: Replicas) -> Replicas:
    brokers.begin()
    return brokers


def test_what_is_acknowledged_is_on_every_replica_soon_and_equal(group: Replicas):
    """The leader's log, byte for byte by its chain, with the folded state; a repeat of a sequence is answered with its first offset."""
    for number in range(20):
        assert group.send(f"m{number}", seq=number)["base_offset"] == number
    assert group.send("m7 again", seq=7 + 8)["duplicate"] is True
    status = group.wait_equal()
    assert status["committed_in_epoch"] is True
    assert [group.values(broker) for broker in (1, 2, 3)] == [[f"m{number}" for number in range(20)]] * 3
    assert {one["matched_lsn"] for one in status["replicas"].values()} == {status["end_lsn"]}


def test_a_follower_answers_what_it_has_of_a_time_and_not_where_the_end_is(group: Replicas):
    """Append times are the same on all replicas, and so are fixed answers with their tags; only a leader knows that there is nothing later."""
    when = [group.send(f"m{number}", seq=number)["append_time"] for number in range(3)]
    group.wait_equal()
    wait_until(lambda: all(group.values(broker) == ["m0", "m1", "m2"] for broker in (1, 2, 3)), timeout_seconds=5, what="all to be committed")
    found = [requests.get(group.brokers[broker].url + group.records, params={"timestamp": when[1]}, timeout=10) for broker in (1, 2, 3)]
    assert len({answer.headers[routes.OFFSET] for answer in found}) == 1
    assert len({answer.content for answer in found}) == 1
    fixed = [requests.get(group.brokers[broker].url + group.records, params={"offset": 0, "until_offset": 2}, timeout=10) for broker in (1, 2, 3)]
    assert len({(answer.headers["ETag"], answer.content) for answer in fixed}) == 1
    assert group.brokers[1].call("GET", group.records, timestamp=10**18)["next_offset"] == 3
    assert group.brokers[2].call("GET", group.records, timestamp=10**18, status=503)["error"]["code"] == "not_leader"


def test_appends_on_a_condition_are_judged_by_all_that_is_stored(group: Replicas):
    """Also by what waits for a majority still: of many at once one is acknowledged, and each refusal says what is committed by then."""
    def attempt(number: int) -> requests.Response:
        return requests.post(group.brokers[1].url + group.records, params={"expected_end_offset": 0}, json={"value": str(number)}, timeout=15)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(attempt, range(8)))
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 7
    assert {answer.json()["error"]["details"]["end_offset"] for answer in answers if answer.status_code == 409} == {1}
    assert len(group.values(1)) == 1


def test_nothing_acknowledged_is_lost_when_the_leader_dies(group: Replicas):
    """The next leader has it, knows the producer's sequences and the consumer's offset, and goes on."""
    for number in range(10):
        group.send(f"m{number}", seq=number)
    base = group.dequeue
    assert group.brokers[1].call("POST", base, {"consumer": "#7", "request_id": "r"})["offset"] == 0
    group.brokers[1].kill()
    leader = group.elect(2, 3)
    assert group.values(leader) == [f"m{number}" for number in range(10)]
    assert group.send("m9 again", seq=9) | {"duplicate": True, "base_offset": 9} == group.send("m9 again", seq=9)
    assert group.brokers[leader].call("POST", base, {"consumer": "#7", "request_id": "r"})["offset"] == 0
    assert group.brokers[leader].call("POST", base, {"consumer": "#7"})["offset"] == 1
    assert group.send("m10", seq=10)["base_offset"] == 10
    group.start(1)
    group.wait_equal()
    assert group.values(1) == [f"m{number}" for number in range(11)]


def test_a_replica_that_moved_away_and_comes_back_believes_no_leader_from_before(group: Replicas):
    """The old leader, started anew where it hears neither managers nor the next leader, finds an empty replica that has promised another epoch."""
    group.send("first")
    group.wait_equal()
    group.brokers[1].kill()
    group.elect(2, 3)
    group.brokers[3].call("POST", routes.I_DROP, {"partitions": [[group.topic_id, 0, group.epoch + 1]]})
    group.brokers[2].kill()
    group.start(1)
    refused = group.brokers[1].call("POST", group.records, {"value": "lost"}, status=503)
    assert refused["error"]["code"] in ("unavailable", "outcome_unknown", "not_leader"), refused
    assert group.values(1) == ["first"]
    group.start(2)
    leader = group.elect(1, 2)
    group.send("second")
    group.wait_equal()
    assert group.values(leader) == group.values(3) == ["first", "second"]


def test_without_a_majority_nothing_is_acknowledged_and_the_answer_comes_soon(group: Replicas):
    """503 and not done within 3 s; when a follower is back, writes go on by themselves."""
    group.send("before")
    group.brokers[2].kill()
    group.brokers[3].kill()
    group.wait_for_silence(2, 3)
    refused = group.send("lost", status=503, timeout_seconds=3.0)
    assert refused["error"]["outcome"] == "not_done"
    assert group.values(1) == ["before"]
    assert group.brokers[1].call("GET", group.records, offset=5, status=503)["error"]["outcome"] == "not_done"
    group.start(2)

    def goes_on() -> bool:
        answer = requests.post(group.brokers[1].url + group.records, json={"value": "after"}, timeout=15)
        return answer.status_code == 200

    wait_until(goes_on, timeout_seconds=10, what="writes to go on")
    assert group.values(1)[:2] == ["before", "after"]


def test_a_paused_leader_acknowledges_nothing_after_another_was_elected(group: Replicas):
    """Its waiting and its late requests are lost to it: unknown or refused, never acknowledged; it then follows."""
    group.send("first", seq=0)
    old = group.brokers[1]
    os.killpg(old.process.pid, signal.SIGSTOP)
    answers: list[int] = []

    def late() -> None:
        answer = requests.post(old.url + group.records, json={"value": "late"}, timeout=30)
        answers.append(answer.status_code)

    sender = threading.Thread(target=late)
    sender.start()
    try:
        leader = group.elect(2, 3)
        group.send("second", seq=1)
    finally:
        os.killpg(old.process.pid, signal.SIGCONT)
    sender.join(30)
    assert answers == [503]
    group.wait_equal()
    assert group.values(leader) == group.values(1) == ["first", "second"]


def test_a_leader_that_was_replaced_while_it_was_away_does_not_tell_an_old_offset(group: Replicas):
    """It begins anew with a log whose end it knows to be committed, and has heard of nobody since. A consumer that asks it would go back."""
    path = f"/v1/topics/{group.topic}/partitions/0/offsets/7"
    for number in range(3):
        group.send(f"m{number}")
    group.brokers[1].call("PUT", path, {"offset": 1})
    group.wait_equal()
    group.brokers[1].kill()
    leader = group.elect(2, 3)
    group.brokers[leader].call("PUT", path, {"offset": 3})
    for other in (2, 3):
        os.killpg(group.brokers[other].process.pid, signal.SIGSTOP)
    try:
        group.start(1)
        assert group.status(1)["leading"], "as far as it knows"
        assert group.brokers[1].call("GET", path, status=503)["error"]["code"] == "unavailable"
    finally:
        for other in (2, 3):
            os.killpg(group.brokers[other].process.pid, signal.SIGCONT)
    assert group.brokers[leader].call("GET", path)["offset"] == 3
    wait_until(lambda: not group.status(1)["leading"], what="it to hear that another one leads")
    assert group.brokers[1].call("GET", path, status=503)["error"]["code"] == "not_leader"


def test_two_dequeues_at_once_get_two_messages(group: Replicas):
    """And none is told that the leadership has not settled, only because others were told of their messages a moment ago."""
    def dequeue(_number: int) -> Any:
        return requests.post(group.brokers[1].url + group.dequeue, json={"consumer": "#7"}, timeout=15).json()

    for first in range(0, 80, 8):
        for number in range(8):
            group.send(f"m{first + number}")
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(dequeue, range(8)))
        assert [one for one in answers if "offset" not in one] == []
        assert sorted(answer["offset"] for answer in answers) == list(range(first, first + 8))
    assert group.brokers[1].call("POST", group.dequeue, {"consumer": "#7"}) == {"empty": True}


def test_a_replica_that_managers_declare_damaged_serves_nothing_but_only_in_the_epoch_that_is_meant(group: Replicas):
    """A later epoch may have it as a voter. A repeat is answered again; what it held is said."""
    group.send("m0")
    group.wait_equal()

    def declare(**changes: object) -> dict:
        item = {"topic_id": group.topic_id, "partition": 0, "epoch": group.epoch, "reason": "told so", **changes}
        return group.brokers[3].call("POST", routes.I_DAMAGED, {"replicas": [item]})["results"][0]

    assert declare(partition=7)["error"]["code"] == "unknown_partition"
    group.elect(1, 2, 3)
    assert declare(epoch=group.epoch - 1)["error"]["code"] == "refused"
    assert group.status(3)["fault"] is None
    for _ in range(2):
        told = declare()
        assert (told["ok"], told["start_offset"], told["end_offset"]) == (True, 0, 1)
        assert group.status(3)["fault"] == "told so"
    assert group.brokers[3].call("GET", group.records, status=503, offset=0)["error"]["code"] == "unavailable"
    for wrong in ({"reason": ""}, {"reason": 5}, {"reason": "x" * 501}, {"epoch": 0}, {"epoch": "x"}):
        item = {"topic_id": group.topic_id, "partition": 0, "epoch": group.epoch, "reason": "told so", **wrong}
        assert group.brokers[3].call("POST", routes.I_DAMAGED, {"replicas": [item]}, status=400)["error"]["code"] == "bad_request", wrong


def test_a_follower_says_not_yet_above_what_it_knows(group: Replicas):
    """Never that an offset is outside the log: only the leader knows where that ends. Writes are refused."""
    group.send("m0")
    group.wait_equal()
    refused = group.brokers[2].call("GET", group.records, status=503, offset=5)
    assert refused["error"]["code"] == "not_yet"
    assert group.brokers[1].call("GET", group.records, status=416, offset=5)["error"]["details"]["latest"] == 1
    assert group.send("x", to=2, status=503)["error"]["code"] == "not_leader"


def test_a_learner_gets_the_log_and_does_not_count(brokers: Replicas):
    """From one replica to two: the log goes to the learner, whose answers commit nothing until it is a voter."""
    group = brokers
    group.begin(voters=(1,))
    for number in range(30):
        group.send(f"m{number}")
    answer = group.brokers[1].call("POST", routes.I_LEARNERS, {"learners": [group.item(learners=[2])]})["results"][0]
    assert answer["ok"], answer
    group.wait_equal((1, 2))
    group.send("still alone")
    group.wait_equal((1, 2))
    group.voters = (1, 2)
    group.elect(1, 2)
    group.send("by both")
    follower = 3 - group.leader
    group.brokers[follower].kill()
    group.wait_for_silence(follower)
    group.send("by one", status=503)


def test_another_disk_under_a_voters_name_does_not_count(group: Replicas):
    """Voters are named with their disks: answers of others are heard and change nothing."""
    group.disks[3] = "00000000-0000-4000-8000-000000000000"
    group.elect(1, 2)
    group.send("by 1 and 2")
    follower = 3 - group.leader
    group.brokers[follower].kill()
    group.wait_for_silence(follower)
    group.send("by 1 and a stranger", status=503)


def test_an_uncommitted_tail_is_cut_off_where_another_log_won(group: Replicas):
    """A leader without followers stores an entry that nobody acknowledged; when it comes back, its log is the new leader's."""
    group.send("m0", seq=0)
    group.wait_equal()
    for broker in (2, 3):
        os.killpg(group.brokers[broker].process.pid, signal.SIGSTOP)  # at once: the leader's lease lasts for 2 s
    with pytest.raises(requests.Timeout):
        requests.post(group.brokers[1].url + group.records, json={"value": "tail"}, timeout=1.0)
    wait_until(lambda: group.status(1)["end_offset"] == 2, timeout_seconds=5, what="the tail to be stored")
    for broker in (2, 3, 1):
        group.brokers[broker].kill()
    for broker in (2, 3):
        group.start(broker)
    group.elect(2, 3)
    group.send("m1", seq=1)
    group.start(1)
    group.wait_equal()
    assert group.values(1) == group.values(2) == group.values(3) == ["m0", "m1"]


def test_a_request_of_as_many_blocks_as_one_may_have_is_replicated(group: Replicas):
    """Its entries go in one call, since a request is never split; one block more is refused before anything is stored."""
    block = pack_values([b"x"])[4:]
    kind = {"Content-Type": BATCH_TYPE}
    leader = group.brokers[group.leader]
    assert leader.call("POST", group.records, b"MQB1" + block * BLOCKS_MAX, headers=kind)["record_count"] == BLOCKS_MAX
    leader.call("POST", group.records, b"MQB1" + block * (BLOCKS_MAX + 1), headers=kind, status=413)
    assert group.send("after")["base_offset"] == BLOCKS_MAX
