"""Promise and appointment."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from broker.core.replica import Appointment, AppointPlan, PromisePlan, check_leading, is_leading, may_begin_afresh, plan_appoint, plan_promise
from myqueue.errors import NotLeaderError, RefusedError
from myqueue.protocol.entry import LogEnd


@dataclass(frozen=True)
class Row:
    promised_epoch: int = 0
    leader_epoch: int = 0
    end: LogEnd = LogEnd()  # noqa: RUF009 - a tuple
    seeding_until: int | None = None
    fault: str | None = None


def appoint(row: Row, epoch: int, voters: dict[int, str | None] | None = None) -> AppointPlan:
    return plan_appoint(row, Appointment(epoch, {1: "disk"} if voters is None else voters), broker_id=1, disk_id="disk")


def test_a_new_epoch_is_promised_and_led():
    assert appoint(Row(), 1) == AppointPlan(1, starts=True)
    assert appoint(Row(promised_epoch=4, end=LogEnd(9, 9, 3)), 4) == AppointPlan(4, starts=True)


def test_a_repeat_changes_nothing():
    assert appoint(Row(4, 4, LogEnd(9, 9, 4)), 4) == AppointPlan(4, starts=False)


def test_a_promise_never_falls():
    with pytest.raises(RefusedError) as error:
        appoint(Row(5), 4)
    assert error.value.details["promised_epoch"] == 5


@pytest.mark.parametrize("voters", [{}, {1: None}, {1: "another disk"}, {2: "disk"}])
def test_only_the_registered_disk_may_lead(voters: dict[int, str | None]):
    with pytest.raises(RefusedError, match="is not a voter"):
        appoint(Row(), 1, voters)


def test_an_epoch_that_was_not_promised_is_not_led():
    """Only the first one needs no promise, on a log where nothing was ever promised or stored."""
    for row in (Row(), Row(3), Row(0, end=LogEnd(9, 9, 3))):
        with pytest.raises(RefusedError):
            appoint(row, 4)
    with pytest.raises(RefusedError):
        appoint(Row(0, end=LogEnd(1, 1, 0)), 1)


@pytest.mark.parametrize("row", [Row(4, seeding_until=9), Row(4, fault="damaged")])
def test_who_serves_nothing_does_not_lead(row: Row):
    with pytest.raises(RefusedError, match="serves nothing"):
        appoint(row, 4)


def test_a_promise_rises_and_ends_a_leadership():
    assert plan_promise(Row(3, 3, LogEnd(9, 9, 3)), 4) == PromisePlan(4, changes=True)


def test_a_promise_is_repeated_until_something_begins_in_its_epoch():
    assert plan_promise(Row(4, 3, LogEnd(9, 9, 3)), 4) == PromisePlan(4, changes=False)
    for row in (Row(4, 4, LogEnd(9, 9, 3)), Row(4, 3, LogEnd(9, 9, 4)), Row(5)):
        with pytest.raises(RefusedError) as error:
            plan_promise(row, 4)
        assert error.value.details["promised_epoch"] == row.promised_epoch


def test_an_epoch_is_led_once():
    """A log that holds an entry of this epoch and does not lead in it has had another leader."""
    with pytest.raises(RefusedError, match="entry of epoch 4 already"):
        appoint(Row(4, 3, LogEnd(9, 9, 4)), 4)


@pytest.mark.parametrize(("row", "leads"), [
    (Row(), False), (Row(2, 2), True), (Row(3, 2), False), (Row(2, 2, seeding_until=5), False), (Row(2, 2, fault="damaged"), False)])
def test_who_leads(row: Row, leads: bool):
    """The promise, what was begun, and nothing that is wrong."""
    assert is_leading(row) is leads
    if not leads:
        with pytest.raises(NotLeaderError):
            check_leading(row)


@pytest.mark.parametrize(("row", "epoch", "is_voter", "may"), [
    (Row(4, 0, LogEnd(9, 9, 3), fault="damaged"), 4, False, True),
    (Row(4, 2, LogEnd(9, 9, 3), fault="damaged"), 7, False, True),
    (Row(4, 0, LogEnd(9, 9, 3), fault="damaged"), 4, True, False),  # what it holds may be needed
    (Row(4, 0, LogEnd(9, 9, 3), fault="damaged"), 3, False, False),  # said by a leader that leads no longer
    (Row(4, 4, LogEnd(9, 9, 3), fault="damaged"), 4, False, False),  # two leaders in one epoch: nothing of that is believed
    (Row(4, 0, LogEnd(9, 9, 3)), 4, False, False),
])
def test_a_damaged_replica_forgets_its_log_only_where_it_is_no_voter(row: Row, epoch: int, is_voter: bool, may: bool):
    assert may_begin_afresh(row, epoch=epoch, is_voter=is_voter) is may
