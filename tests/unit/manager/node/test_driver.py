"""What the driver announces of what was applied."""

from __future__ import annotations

import pytest

from manager.node import signals as sig
from manager.node.driver import Driver
from manager.node.role import Role
from manager.node.wal import Applied
from myqueue.testing import ManualClock

OTHER, TOPIC = ("register_producer", "ok"), ("create_topic", "ok")


class Driving:
    """A driver that only announces: the signals given, each with the index that was shown by then."""

    def __init__(self) -> None:
        self.role, self.given, self.events = Role(1, ManualClock(), leader_kept_seconds=2.0), [], []
        self.driver = object.__new__(Driver)
        self.driver._role, self.driver._signals, self.driver._on_events = self.role, self, self.events.append

    def give(self, *keys: int) -> None:
        self.given += [(key, self.role.shown_index) for key in keys]

    def announce(self, done: Applied) -> list[tuple[int, int]]:
        self.given.clear()
        self.driver._effects(done)
        return list(self.given)


@pytest.fixture
def driving() -> Driving:
    return Driving()


def test_what_is_kept_in_memory_is_called_old_before_the_index_is_shown(driving: Driving) -> None:
    """Whoever sees the index then reads nothing older; what changes no catalogue leaves what is kept."""
    driving.role.show(5)
    assert driving.announce(Applied(5, 6, 6, (TOPIC,), catalogue_changed=True)) == [(sig.CATALOGUE, 5), (sig.APPLIED, 6)]
    assert driving.announce(Applied(6, 8, 8, (OTHER, OTHER))) == [(sig.APPLIED, 8)]
    assert driving.announce(Applied(8, 8, 9)) == []
    assert driving.announce(Applied(8, 9, 9)) == [(sig.APPLIED, 9)]  # an entry that does nothing: somebody may wait for it all the same


def test_what_another_driver_applied_and_did_not_announce_is_announced(driving: Driving) -> None:
    """It was killed right after the commit; or a state was taken over. What changed is not known: all that is kept is old."""
    driving.role.show(5)
    assert driving.announce(Applied(7, 7, 7)) == [(sig.CATALOGUE, 5), (sig.APPLIED, 7)]
    driving.role.show(5)
    assert driving.announce(Applied(7, 8, 8, (OTHER,))) == [(sig.CATALOGUE, 5), (sig.APPLIED, 8)]


def test_at_the_start_everything_is_announced(driving: Driving) -> None:
    assert driving.announce(Applied(7, 7, 7)) == [(sig.CATALOGUE, 0), (sig.APPLIED, 7)]
