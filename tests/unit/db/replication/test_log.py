"""Borders, and the log in memory."""

from __future__ import annotations

import pytest

from db.replication import MemoryLog, chain_before, end_epoch, epoch_before, holds_border
from myqueue.errors import LogFaultError
from myqueue.protocol.chain import GENESIS
from tests.unit.db.replication.entries import TextEntry, chained, log_of


def test_a_border_is_known_by_the_epoch_before_it() -> None:
    """At the start it is the remembered one; the empty beginning is (0, 0)."""
    whole, compacted = log_of(1, 2, 2, 3), log_of(1, 2, 2, 3, start=2)
    assert [epoch_before(whole, border) for border in range(5)] == [0, 1, 2, 2, 3]
    assert [epoch_before(compacted, border) for border in range(2, 5)] == [2, 2, 3]
    assert (chain_before(whole, 0), chain_before(compacted, 2)) == (GENESIS, whole.chain_at(1))
    assert (end_epoch(whole), end_epoch(log_of()), end_epoch(log_of(1, 2, start=2))) == (3, 0, 2)


def test_a_log_holds_its_borders_from_start_to_end() -> None:
    """Both included, and only with the right epoch."""
    log = log_of(1, 2, 2, 3, start=2)
    assert [border for border in range(6) for epoch in (0, 1, 2, 3) if holds_border(log, border, epoch)] == [2, 3, 4]
    assert not holds_border(log, 4, 2)


def test_positions_stay_what_they_are_when_the_beginning_is_gone() -> None:
    """Compaction moves the start and nothing else."""
    whole, log = log_of(1, 2, 2, 3, 3), log_of(1, 2, 2, 3, 3)
    log.compact(1)
    log.compact(3)
    assert (log.start, log.end, log.start_epoch, log.start_chain) == (3, 5, 2, whole.chain_at(2))
    assert log.between(0, 9) == whole.between(3, 5)
    assert log.between(4, 5) == whole.between(4, 5)
    assert log.first_position_of_epoch(3) == 3
    assert log.first_position_of_epoch(4) == 5
    log.truncate(4)
    assert (log.end, log.chain_at(3)) == (4, whole.chain_at(3))


@pytest.mark.parametrize("position", [1, 4])
def test_what_is_not_held_is_a_fault(position: int) -> None:
    """Below the start, and from the end on."""
    with pytest.raises(LogFaultError, match="not held"):
        log_of(1, 2, 2, 3, start=2).at(position)


def test_every_position_knows_where_its_request_begins() -> None:
    """The end is a border already."""
    log = MemoryLog(list(chained([TextEntry(1, "m"), TextEntry(1, "a", 0, 3), TextEntry(1, "b", 1, 3), TextEntry(1, "c", 2, 3)])))
    assert [log.request_start(position) for position in range(5)] == [0, 1, 1, 1, 4]
