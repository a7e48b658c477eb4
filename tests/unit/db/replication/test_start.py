"""When a replica begins anew at an offered start."""

from __future__ import annotations

import pytest

from db.replication import OfferedStart, ReplicaState, takes_start
from myqueue.errors import LogFaultError
from tests.unit.db.replication.entries import log_of as log

REPLICA = ReplicaState(promised_epoch=3, commit=2, disk_id="d")


def offered(position: int, epoch: int = 3) -> OfferedStart:
    return OfferedStart(position, epoch, bytes(32))


def test_a_replica_behind_the_start_begins_there():
    assert takes_start(REPLICA, log(1, 1, 1), offered(9), epoch=3)
    assert takes_start(REPLICA, log(1, 1, 1), offered(9), epoch=4)
    assert takes_start(REPLICA, log(1, 1, 2, 2), offered(3), epoch=3), "what follows its committed part is another log's"


def test_an_old_offer_changes_nothing():
    """Of an older leader, at or below the start, or a border that is held, with whatever lies behind it."""
    assert not takes_start(REPLICA, log(1, 1, 1), offered(9), epoch=2)
    assert not takes_start(REPLICA, log(1, 1, 3), offered(3), epoch=3)
    assert not takes_start(REPLICA, log(1, 1, 3, 3, 3), offered(3), epoch=3)
    begun = log(1, 1, 3, 3, start=3)
    assert not takes_start(REPLICA, begun, offered(3), epoch=3)
    assert not takes_start(REPLICA, begun, offered(2, epoch=1), epoch=3)


def test_contradictions_are_faults():
    """Two leaders in one epoch; a start inside what is committed, with another entry before it."""
    with pytest.raises(LogFaultError):
        takes_start(ReplicaState(3, 2, "d", leader_epoch=3), log(1, 1, 1), offered(9), epoch=3)
    with pytest.raises(LogFaultError):
        takes_start(REPLICA, log(1, 1, 1), offered(2), epoch=3)
