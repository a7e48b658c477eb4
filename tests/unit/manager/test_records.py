"""A consume that may be repeated, on a manager that is held up in the middle of it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from db.metadata_store import BrokerRow, CatalogueRows, PartitionRow, TopicRow
from manager.catalogue import Catalogue
from manager.records import REPEATABLE_SECONDS, Records
from myqueue.errors import OffsetOutOfRangeError, OverloadedError, UnavailableError
from myqueue.protocol.types import PartitionId
from myqueue.testing import ManualClock

ROWS = tuple(PartitionRow(7, number, 1, 1, "ACTIVE", 1, {"1": "d1"}) for number in (0, 1, 2))
CATALOGUE = Catalogue.of(CatalogueRows("cluster", 12, (), (BrokerRow(1, "d1", "h", 80, "ACTIVE", {}),), (TopicRow(7, "t", 1, {}, 0),), ROWS))


class Broker:
    """Leads all partitions and holds a message in each; a hook is called before it says what it knows of a request."""

    def __init__(self, before_it_says: Callable[[], object]) -> None:
        self._before, self.handed_out = before_it_says, 0
        self.partitions: list[int] = []

    def dequeue(self, _id: int, _address: object, partition: PartitionId, body: dict[str, Any]) -> dict[str, Any]:
        if body.get("known_only"):
            self._before()
            return {"empty": True}
        self.handed_out += 1
        self.partitions.append(partition.partition)
        return {"offset": 0, "timestamp": 0, "value": "x"}

    def each(self, calls: list[Callable[[], Any]]) -> list[Any]:
        return [call() for call in calls]


def records(broker: Broker, clock: ManualClock, *, held_up_seconds: float = 0.0) -> Records:
    """A manager that is held up for so long after a request came."""
    def certain(look: Callable[[Catalogue], Any]) -> Any:
        clock.advance(held_up_seconds)
        return look(CATALOGUE)

    replica = SimpleNamespace(certain=certain, catalogue=lambda: CATALOGUE, check_consumer=lambda *_: None)
    signals = SimpleNamespace(stamp=lambda key: 0, wait=lambda key, stamp, timeout_seconds: clock.advance(timeout_seconds))
    return Records(replica=replica, brokers=broker, book=SimpleNamespace(heard=lambda *_: None), clock=clock, signals=signals)  # type: ignore[arg-type]


def test_a_manager_that_was_held_up_hands_nothing_out():
    """The caller has long asked another manager the same, and got a message there."""
    clock = ManualClock()
    broker = Broker(lambda: clock.advance(REPEATABLE_SECONDS / 2))  # asked of three partitions
    with pytest.raises(OverloadedError, match="nothing was handed out"):
        records(broker, clock).consume(consumer_id=1, topic_name="t", request_id="r")
    assert broker.handed_out == 0


def test_a_manager_that_was_not_hands_one_message_out():
    clock = ManualClock()
    broker = Broker(lambda: clock.advance(REPEATABLE_SECONDS / 4))
    assert records(broker, clock).consume(consumer_id=1, topic_name="t", request_id="r").value == {"value": "x"}
    assert broker.handed_out == 1


class Silent:
    """A call beside others, as ``Brokers.each`` gives its error."""

    def __init__(self, *failures: Exception | None) -> None:
        self._failures, self.handed_out = failures, 0

    def each(self, calls: list[Callable[[], Any]]) -> list[Any]:
        return [failure or call() for failure, call in zip(self._failures, calls, strict=True)]

    def dequeue(self, _id: int, _address: object, _partition: PartitionId, body: dict[str, Any]) -> dict[str, Any]:
        self.handed_out += not body.get("known_only")
        return {"empty": True} if body.get("known_only") else {"offset": 0, "timestamp": 0, "value": "x"}


@pytest.mark.parametrize(("failures", "kind"), [
    ((None, OffsetOutOfRangeError("trimmed"), None), OffsetOutOfRangeError), ((UnavailableError(), None, None), UnavailableError),
    ((UnavailableError(), OffsetOutOfRangeError("trimmed"), None), OffsetOutOfRangeError)])
def test_what_was_handed_out_and_is_trimmed_is_told_for_good_and_what_cannot_be_told_now_for_now(failures: tuple, kind: type):
    """Nothing else is handed out in either case."""
    broker = Silent(*failures)
    with pytest.raises(kind) as raised:
        records(broker, ManualClock()).consume(consumer_id=1, topic_name="t", request_id="r")  # type: ignore[arg-type]
    assert (raised.value.retriable, broker.handed_out) == (kind is UnavailableError, 0)


def test_attempts_under_way_at_once_begin_at_the_same_partition():
    """Neither knows of the other; the partition does, and gives both the same. Requests of other ids begin elsewhere."""
    begun = []
    for number in range(8):
        broker, clock = Broker(lambda: None), ManualClock()
        for manager in (records(broker, clock), records(broker, clock)):
            for _ in range(number):  # each has served others before
                manager.consume(consumer_id=1, topic_name="t")
            broker.partitions.clear()
            manager.consume(consumer_id=1, topic_name="t", request_id=f"r{number}")
            begun.append(broker.partitions[0])
    assert begun[::2] == begun[1::2]
    assert set(begun) == {0, 1, 2}


@pytest.mark.parametrize("named", [{}, {"request_id": "r", "partition": 1}], ids=["without a request_id", "in one partition"])
def test_where_a_repetition_takes_nothing_more_it_may_take_long(named: dict[str, Any]):
    """Without a name nobody repeats it; in one partition the same name gets the same message."""
    broker = Broker(lambda: pytest.fail("nobody has to be asked"))
    assert records(broker, ManualClock(), held_up_seconds=2 * REPEATABLE_SECONDS).consume(consumer_id=1, topic_name="t", **named) is not None
    assert broker.handed_out == 1


@pytest.mark.parametrize(("led_after_seconds", "wait_seconds", "said", "failed"), [
    (0.0, 0.0, [0, 1, 2], 0), (1.0, 2.0, [0, 1, 2], 0), (5.0, 2.0, [0, 2], 1), (1.0, 0.0, [0, 2], 1)])
def test_a_partition_without_a_leader_is_waited_for_and_the_others_are_asked_all_the_same(led_after_seconds: float, wait_seconds: float,
                                                                                          said: list[int], failed: int):
    clock, broker = ManualClock(), Broker(lambda: None)
    leaderless = CATALOGUE.of(CatalogueRows("cluster", 12, (), (BrokerRow(1, "d1", "h", 80, "ACTIVE", {}),), (TopicRow(7, "t", 1, {}, 0),),
                                            (ROWS[0], ROWS[1]._replace(leader=None, status="ELECTING"), ROWS[2])))
    began = clock.monotonic()
    replica = SimpleNamespace(catalogue=lambda: CATALOGUE if clock.monotonic() - began >= led_after_seconds else leaderless)
    signals = SimpleNamespace(stamp=lambda key: 0, wait=lambda key, stamp, timeout_seconds: clock.advance(timeout_seconds))
    asking = Records(replica=replica, brokers=broker, book=None, clock=clock, signals=signals)  # type: ignore[arg-type]
    topic = CATALOGUE.topic("t")
    answers, failures = asking.ask_leaders(topic, topic.partitions, lambda _id, _address, group: [1] * len(group), wait_seconds=wait_seconds)
    assert (said, failed) == (sorted(answers), len(failures))
    assert clock.monotonic() - began <= wait_seconds + 0.2
