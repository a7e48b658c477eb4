"""Scenario files: the trace is the expected one. ``scripts/simulate --rewrite-scenarios`` writes them anew, to be reviewed as a diff."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.partitions.scenario import Scenario as PartitionsScenario
from tests.simulation.scenario import Scenario
from tests.simulation.script import Script

FILES = [pytest.param(kind, path, id=f"{of}/{path.stem}") for of, kind in (("managers", Scenario), ("partitions", PartitionsScenario))
         for path in kind.files()]


@pytest.mark.parametrize(("kind", "path"), FILES)
def test_the_trace_is_the_expected_one(kind: type[Script], path: Path) -> None:
    """Step by step, as the file says."""
    text = path.read_text()
    assert kind().run(text) == text, "if this is meant: scripts/simulate --rewrite-scenarios, and read the diff"
