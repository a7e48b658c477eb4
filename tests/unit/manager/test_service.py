"""What a manager answers when a command is done and what comes after it fails: never that nothing was done."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from manager.service import ManagerService
from myqueue.errors import MyQueueError, OutcomeUnknownError, StaleMetadataError, UnavailableError, UnknownTopicError
from myqueue.protocol.types import NodeAddress
from myqueue.testing import ManualClock

REPLIES = {"partition": 3, "replication_factor": 3, "producers": {"t": {"producer_id": 1}}, "consumers": {"t": {"consumer_id": 1, "partitions": 1}},
           "broker_id": 1}
CALLS: dict[str, Callable[[ManagerService], Any]] = {
    "create a topic": lambda service: service.create_topic("t"),
    "add a partition": lambda service: service.add_partition("t"),
    "register a producer": lambda service: service.register_producers(["t"]),
    "start a broker": lambda service: service.start_broker(lambda: NodeAddress("127.0.0.1", 9096)),
    "register a consumer": lambda service: service.register_consumers(["t"], start="latest"),
}


def service(later: MyQueueError) -> ManagerService:
    """One whose commands are done, and whose every look into its metadata afterwards fails."""
    def fail(*_: object, **__: object) -> Any:
        raise later

    clock = ManualClock()
    replica = SimpleNamespace(certain=fail, catalogue=lambda: SimpleNamespace(topics={}))
    return ManagerService(proposer=SimpleNamespace(propose=lambda command: REPLIES), replica=replica,  # type: ignore[arg-type]
                          records=SimpleNamespace(pin_latest=fail), brokers=SimpleNamespace(each=lambda calls: [], identity=fail),  # type: ignore[arg-type]
                          appointer=SimpleNamespace(has=lambda broker_id, row: True), book=SimpleNamespace(heard=lambda kind, actor_id: None),  # type: ignore[arg-type]
                          liveness=SimpleNamespace(), peers=SimpleNamespace(), role=SimpleNamespace(), clock=clock, pause=clock.advance,  # type: ignore[arg-type]
                          appoint_timeout_seconds=1.0, propose_timeout_seconds=1.0, drain_wait_seconds=1.0)


@pytest.mark.parametrize("later", [StaleMetadataError("cannot ask the write manager"), UnavailableError("database gone")], ids=["stale", "gone"])
@pytest.mark.parametrize("call", CALLS)
def test_what_fails_after_the_command_is_no_refusal(call: str, later: MyQueueError):
    with pytest.raises(OutcomeUnknownError, match=later.message):
        CALLS[call](service(later))


@pytest.mark.parametrize("call", ["create a topic", "add a partition", "register a producer"])
def test_a_topic_that_is_deleted_meanwhile_was_created(call: str):
    """Nobody has to lead it any more, and the command was done."""
    CALLS[call](service(UnknownTopicError("Topic 't' does not exist")))
