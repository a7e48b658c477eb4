"""Every face of a real cluster: the command lines of its description, requests drawn from a seed, and all operations from many threads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from myqueue.protocol.openapi import curl
from myqueue.protocol.operations import OPERATIONS, Operation
from myqueue.supervisor import Cluster, ClusterSpec
from tests.fuzz.rules import Rules
from tests.fuzz.run import run_on
from tests.fuzz.wire import NATIVE, Got, Sent
from tests.stress.faces import FACES
from tests.stress.run import Size, run
from tests.support.clusters import PATIENT, kinds_with, running_cluster
from tests.support.curl import answer_to
from tests.support.long import LONG

SMALL = ClusterSpec(brokers=2, managers=1, ports=(0,))
REQUESTS = 50_000 if LONG else 225
SEED = 20  # the same in every run: what it finds is there to stay
pytestmark = pytest.mark.timeout(180)  # the first test's time includes the start of the cluster, on a machine that may be busy
FIRST = ("create_topic", "register_producers", "register_consumers", "join_group", "member_heartbeat", "claim_partitions")
LAST = ("leave_group", "set_group_offsets", "delete_group", "delete_topic")
# What the examples of these name is not there, has nothing wrong with it, or is of another generation.
REFUSED = {"recover_topic": {409}, "remove_broker": {404}, "drain_broker": {404}, "add_broker": {400, 409}, "add_manager": {400, 409},
           "remove_manager": {404}, "repair_replica": {200, 409}, "claim_partitions": {200, 409}, "commit_offsets": {200, 409}}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster(ClusterSpec(brokers=3, managers=3, ports=(0,)) if LONG else SMALL, kinds=kinds_with(PATIENT)) as cluster:
        yield cluster


def test_every_command_line_of_the_description_does_what_it_says() -> None:
    """Each is run by a shell as it stands, but for the address; its answer is as the document has it. In a new cluster the first number is 1."""
    with running_cluster(SMALL, kinds=kinds_with(PATIENT)) as cluster:
        assert [] == _wrong_command_lines(cluster.bootstrap)


def _wrong_command_lines(address: str) -> list[str]:
    rules, wrong = Rules(), []
    for one in sorted(OPERATIONS, key=_turn):
        answered = answer_to(curl(one, address))
        got = Got(answered.status, answered.headers, answered.body, 0.0)
        wrong += [f"{one.name}: {sentence}" for sentence in rules.broken(Sent(NATIVE, one.name, one.method, one.path), got)]
        if got.status not in REFUSED.get(one.name, {one.answer.status}):
            wrong.append(f"{one.name}: {got.status} {got.body[:300]!r}")
    return wrong


def _turn(one: Operation) -> int:
    """The examples build on one another: what is made first and what is removed last has its turn."""
    if one.name in FIRST:
        return FIRST.index(one.name)
    return len(FIRST) + (1 + LAST.index(one.name) if one.name in LAST else 0)


@pytest.mark.timeout(10_800 if LONG else 300)
def test_requests_drawn_from_a_seed_find_nothing_wrong(cluster: Cluster) -> None:
    report = run_on(cluster, requests=REQUESTS, seed=SEED)
    assert {} == report.findings
    assert REQUESTS <= report.requests
    assert report.accepted > 0, "some of it must have been taken"
    assert {200, 400} <= set(report.statuses)


@pytest.mark.timeout(1_800 if LONG else 300)
@pytest.mark.parametrize("size", [Size(1, 1, 2, 9), Size(16, 4, 6, 300) if LONG else Size(5, 2, 3, 10)], ids=["one thread", "many threads"])
def test_counts_and_order_agree_whoever_uses_which_face(cluster: Cluster, size: Size) -> None:
    results = run(cluster.bootstrap, size)
    assert [] == [f"{result.face}: {fault}" for result in results for fault in result.faults]
    due = size.threads * size.topics * size.messages
    assert dict.fromkeys(FACES, due) == {result.face: result.sent for result in results}
