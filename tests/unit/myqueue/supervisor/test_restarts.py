"""When a node that died by itself is started again."""

from __future__ import annotations

from myqueue.supervisor.restarts import RestartPolicy

POLICY = RestartPolicy(first_seconds=0.5, factor=2, most_seconds=15, stable_after_seconds=30)


def test_the_wait_doubles_up_to_the_longest():
    """Half a second first, then ever longer, never more than the longest, however many deaths."""
    assert [POLICY.delay_seconds(deaths) for deaths in (1, 2, 3, 4, 5, 6, 7, 10_000)] == [0.5, 1, 2, 4, 8, 15, 15, 15]


def test_a_node_that_lived_long_starts_with_a_clean_record():
    """Deaths add up only while the node dies young."""
    assert POLICY.deaths_in_a_row(4, lived_seconds=29.9) == 5
    assert POLICY.deaths_in_a_row(4, lived_seconds=30) == 1
