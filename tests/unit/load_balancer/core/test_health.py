from __future__ import annotations

from load_balancer.core.health import SLOW_POLLS_MAX, Ejection, Health

A, B = "http://a", "http://b"


def test_a_backend_nobody_has_heard_of_is_used() -> None:
    assert Health().is_live(A)


def test_a_failure_ejects_at_once_and_only_the_one_that_failed() -> None:
    health = Health().failed(A, reason="refused", now=1.0)
    assert (False, True) == (health.is_live(A), health.is_live(B))


def test_the_first_reason_and_time_are_kept() -> None:
    health = Health().failed(A, reason="refused", now=1.0).failed(A, reason="again", now=2.0)
    assert {A: Ejection(1.0, "refused")} == health.ejected


def test_a_good_poll_readmits_and_forgets() -> None:
    health = Health().failed(A, reason="refused", now=1.0).failed(B, reason="refused", now=1.0).answered(A)
    assert (True, False) == (health.is_live(A), health.is_live(B))


def test_slow_polls_eject_only_when_enough_come_in_a_row() -> None:
    health = Health()
    for _ in range(SLOW_POLLS_MAX - 1):
        health = health.was_slow(A, reason="slow", now=1.0)
    assert health.is_live(A)
    assert not health.was_slow(A, reason="slow", now=2.0).is_live(A)
    forgiven = health.answered(A).was_slow(A, reason="slow", now=3.0)
    assert forgiven.is_live(A)


def test_a_change_leaves_the_old_value_as_it_was() -> None:
    before = Health()
    before.failed(A, reason="refused", now=1.0)
    assert before.is_live(A)


def test_how_long_a_backend_is_silent_counts_from_the_first_poll_without_an_answer() -> None:
    health = Health().asked("a", now=1.0).asked("a", now=3.0).was_slow("a", reason="slow", now=3.0)
    assert (4.0, 0.0) == (health.silent_seconds("a", 5.0), health.silent_seconds("b", 5.0))
    assert (True, False) == (health.is_slow("a"), health.is_slow("b"))
    assert Health() == health.answered("a")
    assert 0.0 == health.failed("a", reason="refused", now=5.0).silent_seconds("a", 6.0)
