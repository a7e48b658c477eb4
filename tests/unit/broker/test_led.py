"""Who waits for a commit."""

from __future__ import annotations

from types import SimpleNamespace

from broker.led import Led, Waiting


def test_each_is_told_once_when_its_position_is_committed_and_its_round_confirmed() -> None:
    leading = SimpleNamespace(commit=5, confirmed=lambda rounds: rounds < 3)
    led = Led(leading, log=None)  # type: ignore[arg-type]
    twins = [Waiting(5, None, lambda error: None) for _ in range(2)]
    late, unconfirmed, confirmed = Waiting(6, None, print), Waiting(1, 3, print), Waiting(1, 2, print)
    led.waiting = [late, *twins, unconfirmed, confirmed]
    assert [*twins, confirmed] == led.take_done()
    assert [late, unconfirmed] == led.waiting
    assert [] == led.take_done()
