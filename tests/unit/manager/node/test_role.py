from __future__ import annotations

import pytest

from manager.node.role import Role
from manager.raft.state import Contact
from myqueue.errors import UnavailableError
from myqueue.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def role(clock: ManualClock) -> Role:
    return Role(1, clock, leader_kept_seconds=2.0)


def test_at_the_start_nobody_leads_and_the_timers_begin_now(role: Role, clock: ManualClock):
    assert (role.leader(), role.is_write_manager, role.silence_seconds()) == (None, False, float("inf"))
    assert role.contact() == Contact(clock.monotonic())
    with pytest.raises(UnavailableError, match="no write manager is known"):
        role.require_leader()


def test_a_leader_that_falls_silent_is_not_believed_for_long(role: Role, clock: ManualClock):
    role.note_contact(Contact(clock.monotonic(), 3), 7)
    assert (role.require_leader(), role.term, role.contact().leader) == (3, 7, 3)
    clock.advance(1.5)
    assert (role.leader(), role.silence_seconds()) == (3, 1.5)
    clock.advance(1.0)
    assert role.leader() is None


def test_a_vote_that_was_given_is_a_contact_and_no_leader(role: Role, clock: ManualClock):
    """It puts the election timer back and makes nothing here fresher."""
    role.note_contact(Contact(clock.monotonic(), 3), 7)
    clock.advance(1.0)
    role.note_contact(Contact(clock.monotonic()), 8)
    assert (role.leader(), role.contact(), role.silence_seconds(), role.term) == (None, Contact(clock.monotonic()), 1.0, 7)


def test_leading_is_fresh_and_counts_from_its_beginning(role: Role, clock: ManualClock):
    clock.advance(100.0)
    role.lead(5)
    clock.advance(3.0)
    assert (role.leader(), role.led_term, role.term, role.silence_seconds(), role.leading_seconds()) == (1, 5, 5, 0.0, 3.0)
    role.stop_leading()
    assert (role.leader(), role.led_term, role.leading_seconds()) == (None, 0, 0.0)
    assert role.silence_seconds() >= 2.0  # since when a majority may have followed another one is not known
