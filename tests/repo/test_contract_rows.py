"""The table of the HTTP contract in tests/README.md: every test in it is there, and so is every path that a service answers."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.repo.test_operations import app_of

TESTS = Path(__file__).resolve().parents[1]
TEXT = (TESTS / "README.md").read_text()
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", TEXT)))


def names_in(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def missing(named: list[tuple[str, str]]) -> list[str]:
    return [f"{file}::{name}" for file, name in named if not (TESTS / file).exists() or name not in names_in(TESTS / file)]


def test_every_test_that_a_row_names_is_there() -> None:
    assert len(NAMED) > 50
    assert [] == missing(NAMED)


def test_a_test_that_is_not_there_is_found() -> None:
    """So that the test above can fail."""
    assert ["repo/test_no.py::test_x", "repo/test_docs.py::test_x"] == missing([("repo/test_no.py", "test_x"), ("repo/test_docs.py", "test_x")])


def test_a_row_that_is_done_names_a_test_and_one_that_is_not_names_none() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("| ") and not line.startswith(("| rule", "| call", "| what"))]
    assert [] == [row for row in rows if ("| not yet |" in row) is ("::" in row)]


@pytest.mark.parametrize("service", ["manager", "broker"])
def test_every_path_that_is_served_has_a_row(service: str) -> None:
    paths = {rule.rule.replace("<", "{").replace(">", "}") for rule in app_of(service).url_map.iter_rules() if "/internal/" not in rule.rule}
    assert [] == sorted(path for path in paths if not re.search(rf"[` ]{re.escape(path)}`", TEXT))
