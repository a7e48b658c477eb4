"""What the rows that PostgreSQL answers mean."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.audit.log_checks import Damage, StretchFacts, findings_of, judge_entry, judge_head

HEAD: dict[str, Any] = {
    "start_lsn": 0, "start_offset": 0, "end_lsn": 10, "end_offset": 100, "end_epoch": 2, "end_chain": b"c", "fault": None, "commit_lsn": 10,
    "commit_offset": 100, "last_lsn": 9, "last_end": 100, "last_epoch": 2, "last_chain": b"c", "last_computed": b"c", "base_at_commit": None}
ENTRY: dict[str, Any] = {
    "lsn": 5, "base_offset": 50, "record_count": 10, "before_lsn": 4, "before_end": 50, "is_gap": False, "is_offset_gap": False,
    "is_disordered": False, "is_broken": False, "follows": None, "next_follows": None}


@pytest.mark.parametrize("changes", [
    {}, {"commit_lsn": 7, "commit_offset": 70, "base_at_commit": 70}, {"last_chain": b"changed"},
    {"commit_lsn": 7, "commit_offset": 1, "base_at_commit": None},
    {"end_lsn": 0, "end_offset": 0, "last_lsn": None, "commit_lsn": None, "commit_offset": None}])
def test_a_sound_head_gives_nothing(changes: dict) -> None:
    """Committed behind the end; an empty log; and what other checks find (a missing entry, a changed chain) is not told twice."""
    assert [] == judge_head({**HEAD, **changes})


@pytest.mark.parametrize(("changes", "check", "lsn"), [
    ({"commit_offset": 101}, "commit_position", 10), ({"commit_lsn": 7, "base_at_commit": 70}, "commit_position", 7),
    ({"commit_lsn": 11}, "commit_position", 11),
    ({"commit_lsn": None, "commit_offset": None}, "commit_position", -1), ({"end_epoch": 3}, "head_row", 9),
    ({"end_lsn": 12}, "head_row", 9), ({"end_chain": b"x"}, "head_row", 9), ({"fault": "bit rot"}, "fault", -1), ({"last_lsn": None}, "gap", 0)])
def test_each_contradiction_of_a_head_is_found(changes: dict, check: str, lsn: int) -> None:
    """The check and its place."""
    assert (check, lsn) in [(damage.check, damage.lsn) for damage in judge_head({**HEAD, **changes})]


@pytest.mark.parametrize(("changes", "expected"), [
    ({"is_gap": True, "before_lsn": 2, "before_end": 30}, Damage("gap", 3, 30, 50, "entries 3 to 4 are missing, 20 records with it")),
    ({"is_gap": True, "before_lsn": 3, "before_end": None}, Damage("gap", 4, -1, 50, "entry 4 is missing, some records with it")),
    ({"is_offset_gap": True, "before_end": 48}, Damage("offset_gap", 5, 50, 60, "the entry begins at offset 50, the one before it ends at 48")),
    ({"is_broken": True}, Damage("chain_content", 5, 50, 60, "the chain recomputed from its content is another one")),
    ({"is_broken": True, "next_follows": True}, Damage("chain_value", 5, 50, 60, "its stored chain was changed"))])
def test_each_fault_of_an_entry_is_named_and_placed(changes: dict, expected: Damage) -> None:
    """The kind, the lsn and the offsets."""
    assert [expected] == judge_entry({**ENTRY, **changes})


def test_damage_that_is_not_shown_is_counted() -> None:
    """A stretch with more damage than is named says how much more."""
    fact = StretchFacts(1, "t", 0, 0, 100, damage=(Damage("gap", 3),), damage_count=8)
    assert ["", "and 7 more between lsn 0 and 99"] == [finding.detail for finding in findings_of([fact])]
