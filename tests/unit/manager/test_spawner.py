"""What a caller is told when a broker is to be started; that one is, is shown on a real cluster."""

from __future__ import annotations

import subprocess
import threading

import pytest

from manager import spawner as module
from manager.spawner import Spawner
from myqueue.errors import BadRequestError, OutcomeUnknownError, OverloadedError, UnavailableError
from myqueue.protocol.types import NodeAddress


@pytest.fixture
def spawner() -> Spawner:
    return Spawner("/data")


def answer_with(monkeypatch: pytest.MonkeyPatch, code: int, out: str, error: str = "") -> list[list[str]]:
    """Stand in for the supervisor's command; the commands that were run."""
    ran: list[list[str]] = []

    def run(command: list[str], **_how: object) -> subprocess.CompletedProcess[str]:
        ran.append(command[1:])
        return subprocess.CompletedProcess(command, code, out, error)

    monkeypatch.setattr(subprocess, "run", run)
    return ran


def test_without_a_supervisor_it_is_the_caller_s_mistake() -> None:
    with pytest.raises(BadRequestError, match="does not run under a supervisor"):
        Spawner(None).spawn()


def test_the_command_says_where_the_broker_listens(spawner: Spawner, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = answer_with(monkeypatch, 0, '{"name": "broker-2", "url": "http://127.0.0.1:17001"}\n')
    assert [NodeAddress("127.0.0.1", 17001)] * 2 == [spawner.spawn(), spawner.spawn()]
    assert [["-m", "myqueue", "cluster", "add-broker", "--json", "--data", "/data"]] * 2 == ran


@pytest.mark.parametrize(("out", "outcome", "told"), [
    ('{"error": "there are 99 brokers", "outcome": "not_done"}', "not_done", "the broker could not be started: there are 99 brokers"),
    ('{"error": "broker-2 is not ready", "outcome": "unknown"}', "unknown", "the broker could not be started: broker-2 is not ready"),
    ("", "unknown", "ended with 1 and did not say what it did")])
def test_why_it_did_not_start_is_passed_on(spawner: Spawner, monkeypatch: pytest.MonkeyPatch, out: str, outcome: str, told: str) -> None:
    """With what was done, as far as it is known. The next one may be tried."""
    answer_with(monkeypatch, 1, out)
    for _ in range(2):
        with pytest.raises(UnavailableError, match=told) as raised:
            spawner.spawn()
        assert outcome == raised.value.outcome


def test_one_is_started_at_a_time_and_nobody_waits_for_ever(spawner: Spawner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waited too long does not know; who comes meanwhile is refused, and nothing is done for him."""
    go_on = threading.Event()

    def run(command: list[str], **_how: object) -> subprocess.CompletedProcess[str]:
        assert go_on.wait(30)
        return subprocess.CompletedProcess(command, 0, '{"name": "broker-2", "url": "http://127.0.0.1:17001"}', "")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.05)
    with pytest.raises(OutcomeUnknownError, match="may be listed in a moment"):
        spawner.spawn()
    with pytest.raises(OverloadedError, match="just being started"):
        spawner.spawn()
    go_on.set()
