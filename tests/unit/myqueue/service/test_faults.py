from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from myqueue.clock import SystemClock
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


def test_a_point_that_is_armed_stays_so() -> None:
    faults.arm({"MYQUEUE_FAULT": "a"} | TEST_MODE)
    assert [True, True, False] == [faults.is_armed(name) for name in ("a", "a", "b")]


def test_a_clock_file_moves_the_wall_clock_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "offset"
    path.write_bytes((0).to_bytes(8, "little"))
    clock = faults.make_clock({"MYQUEUE_CLOCK_FILE": str(path)})
    before = clock.monotonic()
    for offset_us in (3_600_000_000, -86_400_000_000):
        with open(path, "r+b") as file:
            file.write(offset_us.to_bytes(8, sys.byteorder, signed=True))
        assert abs(clock.now_us() - SystemClock().now_us() - offset_us) < 60_000_000
    assert 0 <= clock.monotonic() - before < 60


def test_outside_test_mode_a_clock_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="MYQUEUE_TEST_MODE=1"):
        faults.arm({"MYQUEUE_CLOCK_FILE": str(tmp_path / "offset")})
    with pytest.raises(ConfigurationError, match="cannot be used"):
        faults.make_clock({"MYQUEUE_CLOCK_FILE": str(tmp_path / "none")})
    assert type(faults.make_clock({})) is SystemClock
