"""When a broker's replica may be thrown away and made again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from manager.cluster.election import Broker, Outlook, Replicas
from manager.cluster.repair import voters_without
from myqueue.errors import BadRequestError, MyQueueError, RefusedError, UnavailableError
from myqueue.protocol.types import PartitionId

BROKERS = {number: Broker(number, f"d{number}") for number in range(1, 5)}
UP = Outlook(BROKERS)
ROW = Replicas(PartitionId(1, 0), epoch=4, electing=False, leader=1, voters={1: "d1", 2: "d2", 3: "d3"}, replication_factor=3)


def status(*, epoch: int = 0, **changes: Any) -> dict[str, Any]:
    """What a broker says of the partition; with an epoch, that it leads and has committed in it."""
    return {"leading": epoch > 0, "leader_epoch": epoch, "committed_in_epoch": epoch > 0, "fault": None, "seeding": False, **changes}


SOUND = {1: status(epoch=4), 2: status(), 3: status()}


@pytest.mark.parametrize("broker_id", [1, 2, 3])
def test_a_slot_is_emptied_only_where_the_others_are_a_majority_without_it(broker_id: int):
    """The leader's too. Its own statement about itself counts for nothing, but that it has committed in its epoch."""
    assert {**ROW.voters, broker_id: None} == voters_without(ROW, UP, broker_id, SOUND)


@pytest.mark.parametrize(("row", "outlook", "statuses", "broker_id", "error"), [
    (ROW, UP, SOUND, 4, BadRequestError),                                                       # holds none
    (replace(ROW, voters={1: "d1", 2: "d2", 3: None}), UP, SOUND, 3, RefusedError),             # is filled just now
    (replace(ROW, learners=(4,)), UP, SOUND, 4, RefusedError),
    (replace(ROW, voters={1: "d1", 2: "d2", 3: None}), UP, SOUND, 2, RefusedError),             # two slots would be empty
    (replace(ROW, voters={1: "d1"}, replication_factor=1), UP, SOUND, 1, RefusedError),         # the only one
    (replace(ROW, voters={1: "d1", 2: "d2"}, replication_factor=2), UP, SOUND, 2, RefusedError),
    (ROW, Outlook(BROKERS, dead=frozenset({3})), SOUND, 2, RefusedError),
    (ROW, UP, {**SOUND, 3: status(fault="x")}, 2, RefusedError),                                # another one is damaged
    (ROW, UP, {**SOUND, 3: status(seeding=True)}, 2, RefusedError),
    (ROW, UP, {1: SOUND[1], 3: None}, 2, RefusedError),                                         # another one does not answer
    (ROW, UP, {**SOUND, 2: None}, 2, UnavailableError),                                         # it could not be told
    (ROW, UP, {**SOUND, 1: status(epoch=3)}, 2, UnavailableError),                              # the leader has not committed in its epoch
    (ROW, UP, {**SOUND, 1: status(epoch=4, committed_in_epoch=False)}, 2, UnavailableError),
    (replace(ROW, electing=True, leader=None), UP, SOUND, 2, UnavailableError),
])
def test_else_it_says_why_not(row: Replicas, outlook: Outlook, statuses: dict, broker_id: int, error: type[MyQueueError]):
    with pytest.raises(error):
        voters_without(row, outlook, broker_id, statuses)
