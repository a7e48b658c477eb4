"""Which server programs are taken, and who may reach them."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from db.postgres_binaries import can_enter, data_major, find_binaries
from myqueue.errors import ConfigurationError


def test_pg_bin_that_holds_no_server_is_said(tmp_path: Path):
    """A wrong PG_BIN is an error, not a reason to take another server quietly."""
    with pytest.raises(ConfigurationError, match=r"PG_BIN is .* which holds no PostgreSQL server"):
        find_binaries(tmp_path / "data", {"PG_BIN": str(tmp_path)})


def test_a_folder_without_data_has_no_version(tmp_path: Path):
    """None before the first start, the number afterwards, a sentence for rubbish."""
    assert data_major(tmp_path) is None
    (tmp_path / "PG_VERSION").write_text("18\n")
    assert data_major(tmp_path) == 18
    (tmp_path / "PG_VERSION").write_text("rubbish")
    with pytest.raises(ConfigurationError, match="cannot read"):
        data_major(tmp_path)


def test_a_closed_folder_on_the_way_closes_all_below(tmp_path: Path):
    """One folder without the x bit for an account is enough; a path that is not there yet counts as its nearest parent."""
    inner = tmp_path / "closed" / "inner"
    inner.mkdir(parents=True)
    stranger = pwd.struct_passwd(("stranger", "x", 4_000_000, 4_000_000, "", "/", "/bin/false"))
    for folder in (inner, *inner.parents):
        if folder.stat().st_uid == os.geteuid() and folder.is_relative_to(tmp_path):
            folder.chmod(0o711)
    open_above = can_enter(stranger, tmp_path)
    assert can_enter(stranger, inner / "not" / "yet") is open_above
    (tmp_path / "closed").chmod(0o700)
    assert not can_enter(stranger, inner)
    assert can_enter(pwd.getpwuid(os.geteuid()), inner)
