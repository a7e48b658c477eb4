"""Medians, quantiles and ratios of what was measured."""

from __future__ import annotations

import pytest

from tests.bench.figures import Round, quantile, ratio, rows


def measured(who: str, turn: int, per_second: float, **more: object) -> Round:
    """A round of a thousand messages; its client used half of the time, its server a quarter."""
    seconds = 1000 / per_second
    return Round("produce", "a case", who, "fsync", turn, 1000, seconds,
                 {"client": seconds / 2, "caller": seconds / 4, "server": seconds / 4, "else": seconds}, **more)  # type: ignore[arg-type]


def test_a_quantile_is_a_value_that_was_measured() -> None:
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert (3.0, 5.0, 1.0) == (quantile(values, 0.5), quantile(values, 0.99), quantile(values, 0.0))
    assert 7.0 == quantile([7.0], 0.5)
    with pytest.raises(ValueError, match="needs a value"):
        quantile([], 0.5)


def test_a_row_has_the_medians_of_its_rounds() -> None:
    [row] = rows([measured("ours", turn, rate) for turn, rate in enumerate((100.0, 400.0, 200.0))], {})
    assert (3, 200.0, 1.5) == (row.rounds, row.per_second, row.spread)
    assert {"client": 2500.0, "caller": 1250.0, "server": 1250.0} == {kind: round(us, 6) for kind, us in row.cpu_us.items()}
    assert {"client": 0.5, "servers": 0.25, "else": 1.0} == row.cores


def test_ratios_are_taken_turn_by_turn() -> None:
    """A turn in which everything is ten times slower changes nothing, though it changes both medians."""
    ours = [measured("ours", turn, rate) for turn, rate in enumerate((100.0, 10.0, 12.0))]
    base = [measured("base", turn, rate) for turn, rate in enumerate((200.0, 20.0, 24.0))]
    assert 0.5 == ratio(ours, base)
    first, second = rows([*ours, *base], {("produce", "a case"): ("base", "not measured")})
    assert ({"base": 0.5}, {}) == (first.ratios, second.ratios)
    assert ratio(ours[:1], base[1:]) is None, "no turn in common"


def test_latencies_and_further_figures_are_medians_too() -> None:
    [row] = rows([measured("ours", turn, 100.0, p50_ms=p50, p99_ms=2 * p50, extra={"growth_MiB": p50})
                  for turn, p50 in enumerate((3.0, 1.0, 2.0))], {})
    assert (2.0, 4.0, {"growth_MiB": 2.0}) == (row.p50_ms, row.p99_ms, row.extra)
