"""How times from outside are read."""

from __future__ import annotations

import argparse

import pytest

from myqueue.cli.connecting import moment
from myqueue.errors import BadRequestError
from myqueue.protocol.names import parse_time


@pytest.mark.parametrize(("text", "microseconds"), [
    ("0", 0), ("1700000000000001", 1_700_000_000_000_001), ("2026-03-01T12:00:00Z", 1_772_366_400_000_000), ("2026-03-01", 1_772_323_200_000_000),
    ("2026-03-01T12:00:00.000007", 1_772_366_400_000_007), ("2026-03-01 13:00:00+01:00", 1_772_366_400_000_000), ("1969-12-31T23:59:59Z", 0),
    ("0001-01-01T00:00:00+14:00", 0), ("9999-12-31T23:59:59.999999-14:00", 253_402_351_199_999_999)])
def test_a_time_is_microseconds_or_iso(text: str, microseconds: int) -> None:
    """UTC where no zone is given, and never before 1970."""
    assert microseconds == parse_time(text) == moment(text)


@pytest.mark.parametrize("text", ["", "-1", "yesterday", "2026-13-01", "1e9", "9" * 19, "9" * 5000, "\u0661"])
def test_what_is_no_time_is_refused(text: str) -> None:
    """In the caller's own way of refusing."""
    with pytest.raises(BadRequestError):
        parse_time(text)
    with pytest.raises(argparse.ArgumentTypeError):
        moment(text)
