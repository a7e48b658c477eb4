"""What runs is what is simulated: the shell over PostgreSQL and the shell of the simulation call the same functions."""

from __future__ import annotations

import ast
from pathlib import Path

import manager.node
import manager.node.driver as driver
import manager.node.wal as wal
import tests.simulation.manager as simulated

RULES = {"plan_append", "plan_send", "after_reply", "commit_position", "holders", "accepts_start", "Progress", "Tally", "Leadership"}


def test_both_shells_call_the_same_functions():
    assert driver.Node is simulated.Node
    assert wal.handle is simulated.handle
    assert wal.state_after is simulated.state_after
    assert wal.in_force is simulated.in_force
    assert wal.proposal_outcome is simulated.proposal_outcome
    assert wal.Held is simulated.Held


def test_the_shell_applies_no_rule_by_itself():
    """Log matching, progress, the commit rule and votes are called through the core only."""
    modules = sorted(Path(manager.node.__file__).parent.glob("*.py"))
    named = {path.name: {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)} & RULES for path in modules}
    assert {name: rules for name, rules in named.items() if rules} == {}
