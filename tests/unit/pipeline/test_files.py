"""Files that are there whole or not at all, and folders with one worker at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from myqueue.errors import ConflictError
from pipeline.files import alone_in, write_text


def test_a_file_is_replaced_and_nothing_stays_beside_it(tmp_path: Path) -> None:
    """Two files of one stem do not share what is written aside."""
    for name in ("a.json", "a.html", "a.json"):
        write_text(name, tmp_path / name)
    assert {"a.json": "a.json", "a.html": "a.html"} == {path.name: path.read_text() for path in tmp_path.iterdir()}


def test_two_runs_do_not_work_in_one_folder(tmp_path: Path) -> None:
    """The second one is told; after the first it may."""
    with alone_in(tmp_path), pytest.raises(ConflictError, match="another run works in"), alone_in(tmp_path):
        pass
    with alone_in(tmp_path):
        pass
