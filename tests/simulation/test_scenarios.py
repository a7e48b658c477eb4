"""Scenario files: the trace is the expected one. ``scripts/simulate --rewrite-scenarios`` writes them anew, to be reviewed as a diff."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.scenario import Scenario


@pytest.mark.parametrize("path", Scenario.files(), ids=lambda path: path.stem)
def test_the_trace_is_the_expected_one(path: Path) -> None:
    """Step by step, as the file says."""
    text = path.read_text()
    assert Scenario().run(text) == text, "if this is meant: scripts/simulate --rewrite-scenarios, and read the diff"
