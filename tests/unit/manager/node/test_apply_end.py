"""How far applying goes at a time: bounded, and exactly to the indexes where a snapshot is due."""

from __future__ import annotations

import pytest

from db.wal import RaftState
from manager.node.wal import APPLY_ENTRIES_MAX, apply_end


@pytest.mark.parametrize(("applied", "commit", "snapshot_entries", "end"), [
    (0, 7, None, 7), (0, 1_000, None, APPLY_ENTRIES_MAX), (0, 7, 5, 5), (4, 7, 5, 5), (5, 7, 5, 7), (5, 30, 5, 10), (3, 3, 5, 3), (0, 0, 5, 0),
    (150, 1_000, 300, 300), (0, 1_000, 300, APPLY_ENTRIES_MAX), (6, 9, 1, 7)])
def test_apply_end(applied: int, commit: int, snapshot_entries: int | None, end: int) -> None:
    state = RaftState(node_id=1, disk_id="d", commit_index=commit, applied_index=applied)
    assert end == apply_end(state, snapshot_entries)
