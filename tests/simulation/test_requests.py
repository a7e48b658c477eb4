"""Requests of several entries are replicated whole."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from tests.simulation.checker import Violation
from tests.simulation.mutants import splits_requests, takes_parts_of_requests
from tests.simulation.requests import run_requests


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_every_log_match_and_commit_is_at_a_requests_border(first: int) -> None:
    """Over random schedules with several leaders."""
    committed = 0
    for seed in range(first, first + 50):
        try:
            committed += run_requests(seed)
        except Violation as error:
            error.add_note(f"replay: .venv/bin/python -c 'from tests.simulation.requests import run_requests; run_requests({seed})'")
            raise
    assert committed > 50 * 5, "the schedules commit something"


def test_mutant_request_split_by_replication_is_caught() -> None:
    """A leader that cuts requests and a follower that takes the parts leave a log that ends inside one."""
    with (patch("tests.simulation.requests.plan_send", splits_requests), patch("tests.simulation.requests.plan_append", takes_parts_of_requests),
          pytest.raises(Violation, match="inside a request")):
        for seed in range(50):
            run_requests(seed)


def test_a_follower_refuses_what_such_a_leader_sends() -> None:
    """One honest side is enough: nothing is stored in part."""
    with patch("tests.simulation.requests.plan_send", splits_requests):
        for seed in range(30):
            run_requests(seed)
