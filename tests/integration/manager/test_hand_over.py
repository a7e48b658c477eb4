"""A clean stop of the manager that leads: it hands over first, and whoever waits for a command does not notice."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.broker_stub import BrokerStub
from tests.support.managers import ManagerCluster, ManagerProcess, manager_cluster, register


@pytest.fixture(scope="module")
def own(postgres) -> Iterator[ManagerCluster]:
    """With an election timeout that nobody could overlook."""
    with manager_cluster(postgres, flags=("--election-timeout-seconds", "15", "--propose-timeout-seconds", "20")) as cluster, BrokerStub() as stub:
        cluster.start()
        register(cluster.write, stub)
        stub.beat_to([manager.url for manager in cluster.managers])
        yield cluster


@pytest.mark.timeout(90)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_nobody_waits_for_an_election_when_the_leader_is_stopped(own: ManagerCluster, number: signal.Signals) -> None:
    """Commands at the other managers all succeed, the slowest in far less than an election timeout, across the stop and the re-spawn."""
    leader, readers = own.write, own.reads
    term = leader.readiness()["term"]
    stopped = False

    def create(reader: ManagerProcess, turn: int) -> float:
        began = time.monotonic()
        answer = reader.post("/v1/topics", {"topic": f"t-{number}-{reader.node_id}-{turn}"})
        assert answer.status_code == 201, answer.text
        return time.monotonic() - began

    def create_until_stopped(reader: ManagerProcess) -> list[float]:
        taken: list[float] = []
        while not stopped or len(taken) < 5:
            taken.append(create(reader, len(taken)))
        return taken

    with ThreadPoolExecutor(2) as pool:
        loads = [pool.submit(create_until_stopped, reader) for reader in readers]
        leader.end(number)
        stopped = True
        taken = [seconds for load in loads for seconds in load.result(60)]
    assert max(taken) < 2.5, sorted(taken)[-3:]
    assert '"handed the leadership over to manager' in leader.log()
    following = own.write
    assert (following in readers, following.readiness()["term"]) == (True, term + 1)
    leader.start()
    own.wait_ready()
    assert leader.post("/v1/topics", {"topic": f"after-{number}"}).status_code == 201


@pytest.mark.timeout(60)
def test_what_a_stopping_leader_has_in_hand_is_answered(own: ManagerCluster) -> None:
    """A command that was given to it before the signal is done, and a later one is refused so that another manager may be asked."""
    leader = own.write

    def create(turn: int) -> tuple[int, str | None]:
        try:
            answer = leader.post("/v1/topics", {"topic": f"in-hand-{turn}"})
        except OSError:  # a connection that nobody took any more
            return 0, None
        return answer.status_code, answer.headers.get("MyQueue-Not-Taken")

    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(create, range(60))
        leader.end(signal.SIGTERM)
        said = set(answers)
    assert (201, None) in said
    assert said <= {(201, None), (503, "1"), (0, None)}
    leader.start()
    own.wait_ready()
