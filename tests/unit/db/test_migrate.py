"""What to apply, decided from what is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from db.migrate import KINDS, Applied, Migration, load_migrations, plan_migrations
from myqueue.errors import ConfigurationError

KNOWN = [Migration(1, "first", "aa", "SELECT 1"), Migration(2, "second", "bb", "SELECT 2")]
APPLIED = [Applied(1, "first", "aa"), Applied(2, "second", "bb")]


@pytest.mark.parametrize("done", [0, 1, 2])
def test_what_is_missing_is_applied_in_order(done: int):
    """A database that has the first n gets the others."""
    assert plan_migrations(KNOWN, APPLIED[:done]) == KNOWN[done:]


@pytest.mark.parametrize(("applied", "sentence"), [
    ([*APPLIED, Applied(3, "third", "cc")], "at version 3, this program knows versions up to 2"),
    ([Applied(1, "first", "changed")], "0001_first.sql has changed"),
    ([Applied(1, "other", "aa")], "a database of another kind"),
])
def test_a_database_that_does_not_fit_is_refused(applied: list[Applied], sentence: str):
    """Newer, changed or foreign: one sentence each."""
    with pytest.raises(ConfigurationError, match=sentence):
        plan_migrations(KNOWN, applied)


@pytest.mark.parametrize("kind", KINDS)
def test_the_shipped_files_are_numbered_without_gaps(kind: str):
    """Every kind of database starts at 0001."""
    assert [migration.version for migration in load_migrations(kind)] == list(range(1, len(load_migrations(kind)) + 1))


@pytest.mark.parametrize(("files", "sentence"), [
    (["0001_a.sql", "0003_b.sql"], "without gaps"),
    (["0001_a.sql", "0001_b.sql"], "without gaps"),
    (["0001_a.sql", "notes.txt"], r"notes\.txt is no name for a migration"),
    ([], "there are no migrations"),
])
def test_a_folder_that_cannot_be_right_is_refused(tmp_path: Path, files: list[str], sentence: str):
    """A gap, a number given twice, a stray file or an empty folder stops the start."""
    (tmp_path / "broker").mkdir()
    for name in files:
        (tmp_path / "broker" / name).write_text("SELECT 1")
    with pytest.raises(ConfigurationError, match=sentence):
        load_migrations("broker", tmp_path)
