from __future__ import annotations

from collections.abc import Iterator

import pytest

from myqueue.errors import ConfigurationError
from myqueue.service import faults

TEST_MODE = {"MYQUEUE_TEST_MODE": "1"}


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    faults.arm({})


def test_outside_test_mode_a_fault_point_is_refused() -> None:
    for mode in ({}, {"MYQUEUE_TEST_MODE": "0"}, {"MYQUEUE_TEST_MODE": "true"}):
        with pytest.raises(ConfigurationError, match="MYQUEUE_TEST_MODE=1"):
            faults.arm({"MYQUEUE_FAULT": "a"} | mode)


def test_nothing_is_due_that_was_not_armed() -> None:
    faults.arm(TEST_MODE)
    assert not faults.is_due("a")


def test_a_point_is_due_once_at_its_number() -> None:
    faults.arm({"MYQUEUE_FAULT": "a,b:3"} | TEST_MODE)
    assert [True, False, False] == [faults.is_due("a") for _ in range(3)]
    assert [False, False, True, False] == [faults.is_due("b") for _ in range(4)]


def test_arming_again_forgets_what_was_armed() -> None:
    faults.arm({"MYQUEUE_FAULT": "a"} | TEST_MODE)
    faults.arm(TEST_MODE)
    assert not faults.is_due("a")


def test_a_point_that_is_not_due_is_passed() -> None:
    faults.arm({"MYQUEUE_FAULT": "other"} | TEST_MODE)
    faults.fault_point("a")
