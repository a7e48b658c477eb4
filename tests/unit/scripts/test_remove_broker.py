"""Taking a broker out of a cluster: drained first, waited for, removed last."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "provision" / "remove_broker.py"
specification = importlib.util.spec_from_file_location("remove_broker", SCRIPT)
assert specification and specification.loader
remove_broker = importlib.util.module_from_spec(specification)
sys.modules["remove_broker"] = remove_broker  # dataclasses look their module up
specification.loader.exec_module(remove_broker)
Broker, NotNowError, RefusedError = remove_broker.Broker, remove_broker.NotNowError, remove_broker.RefusedError


class FakeCluster:
    """Answers a list of brokers from a script, the last one for ever; an exception in it is raised. ``calls`` is what was changed."""

    def __init__(self, *answers: object, fails: dict[str, list[Exception]] | None = None) -> None:
        self._answers, self._fails = list(answers), fails or {}
        self.calls: list[str] = []

    def broker_at(self, _host: str, _port: int) -> object:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def drain(self, broker_id: int, *, draining: bool) -> None:
        self._called("drain" if draining else "use", broker_id)

    def remove(self, broker_id: int) -> None:
        self._called("remove", broker_id)

    def _called(self, what: str, broker_id: int) -> None:
        self.calls.append(f"{what} {broker_id}")
        if self._fails.get(what):
            raise self._fails[what].pop(0)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sleeping is what moves the clock."""
    now = [0.0]
    monkeypatch.setattr(remove_broker.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(remove_broker.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))


def remove(cluster: FakeCluster, seconds: float = 600) -> str:
    return remove_broker.remove(cluster, "10.0.0.4", 9095, timeout_seconds=seconds)


def test_a_broker_is_removed_only_when_it_holds_nothing(capsys: pytest.CaptureFixture[str]):
    """However long the drain takes; it is told what is waited for."""
    cluster = FakeCluster(*[Broker(4, left) for left in (3, 3, 2, 1, 0)], None)
    assert "broker 4 is out of the cluster" == remove(cluster)
    assert ["drain 4", "remove 4"] == cluster.calls
    assert "still holds 3 partition(s)" in capsys.readouterr().err


def test_a_cluster_that_cannot_answer_now_is_asked_again():
    """An election, a lost answer: neither ends it, and what was done is not done twice where that is seen."""
    cluster = FakeCluster(NotNowError("an election"), Broker(4, 1), Broker(4, 0), Broker(4, 0), None,
                          fails={"drain": [NotNowError("no answer")], "remove": [NotNowError("still drained: ask again")]})
    assert "broker 4 is out of the cluster" == remove(cluster)
    assert ["drain 4", "drain 4", "remove 4", "remove 4"] == cluster.calls


def test_a_drain_that_does_not_end_is_given_up_by_the_clock():
    cluster = FakeCluster(Broker(4, 2))
    with pytest.raises(NotNowError, match=r"not done after 30 s: .*still holds 2"):
        remove(cluster, 30)
    assert ["drain 4"] == cluster.calls


def test_one_that_stays_on_the_list_is_removed_once_and_given_up_by_the_clock():
    """A list may be older than the removal."""
    cluster = FakeCluster(Broker(4, 0))
    with pytest.raises(NotNowError, match="not done after 30 s: broker 4 is removed and still listed"):
        remove(cluster, 30)
    assert ["drain 4", "remove 4"] == cluster.calls


def test_a_refusal_ends_it_at_once_and_nothing_is_removed():
    cluster = FakeCluster(Broker(4, 2), fails={"drain": [RefusedError("would lose their messages")]})
    with pytest.raises(RefusedError, match="would lose"):
        remove(cluster)
    assert ["drain 4"] == cluster.calls


def test_a_broker_that_is_not_there_is_out_already():
    cluster = FakeCluster(None)
    assert "there is no broker at 10.0.0.4:9095" == remove(cluster)
    assert [] == cluster.calls


def test_a_drain_can_be_ended():
    cluster = FakeCluster(Broker(4, 2))
    assert "broker 4 is used again" == remove_broker.cancel(cluster, "10.0.0.4", 9095)
    assert ["use 4"] == cluster.calls


@pytest.mark.parametrize(("age_seconds", "expected"), [(0.5, None), (60.0, NotNowError)])
def test_an_old_answer_does_not_prove_that_a_broker_is_not_there(monkeypatch: pytest.MonkeyPatch, age_seconds: float, expected: object):
    """Its machine would be deleted on that word."""
    cluster = remove_broker.Cluster("10.0.0.1:9092", None)
    monkeypatch.setattr(cluster, "_call", lambda *_: ({"brokers": []}, age_seconds))
    if expected is None:
        assert cluster.broker_at("10.0.0.4", 9095) is None
    else:
        with pytest.raises(NotNowError, match="for 60 s"):
            cluster.broker_at("10.0.0.4", 9095)
