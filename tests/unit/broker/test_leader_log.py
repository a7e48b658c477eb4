"""A leader's own log: the newest entries from memory, older ones from the store."""

from __future__ import annotations

import pytest

from broker.leader_log import READ_ENTRIES_MIN, BeginsLaterError, LeaderLog
from db.log_store import LogStore
from db.memory_log import MemoryLogStore
from myqueue.errors import LogFaultError
from myqueue.protocol.entry import Border, marker_entry, record_entries
from tests.support.factories import PARTITION, blocks

EVERYTHING = 1 << 30


class Counting(MemoryLogStore):
    """Counts the entries that it is asked to look at."""

    def __init__(self) -> None:
        super().__init__()
        self.looked_at: list[int] = []

    def entries(self, partition, first, end, *, bytes_max):
        self.looked_at.append(end - first)
        return super().entries(partition, first, end, bytes_max=bytes_max)


def filled(store: LogStore, *values: bytes) -> LeaderLog:
    """A log of a marker and these records, none of them in memory."""
    store.create(PARTITION, topic="t", config={})
    with store.locked(PARTITION) as held:
        entries, end = marker_entry(PARTITION, held.head.end, epoch=1, append_time=1)
        for value in values:
            more, end = record_entries(PARTITION, end, epoch=1, append_time=1, blocks=blocks(value), sequence=None)
            entries += more
        held.append(entries, end)
    return LeaderLog(store, PARTITION, store.head(PARTITION))


def write(store: LogStore, log: LeaderLog, value: bytes) -> None:
    with store.locked(PARTITION) as held:
        planned = record_entries(PARTITION, held.head.end, epoch=1, append_time=1, blocks=blocks(value), sequence=None)
        entries, end = held.append(*planned)
    log.extend(entries, end)


def test_what_was_just_written_comes_from_memory_and_what_was_before_does_not():
    store = Counting()
    log = filled(store, b"a", b"b")
    write(store, log, b"c")
    write(store, log, b"d")
    assert [entry.head.lsn for entry in log.recent(3, bytes_max=EVERYTHING)] == [3, 4]  # type: ignore[union-attr]
    assert [entry.head.lsn for entry in log.recent(3, bytes_max=1)] == [3]  # type: ignore[union-attr]
    assert log.recent(5, bytes_max=1) == []
    assert log.recent(2, bytes_max=EVERYTHING) is None
    assert store.looked_at == []
    assert [entry.head.lsn for entry in log.stored(1, 5, bytes_max=EVERYTHING)] == [1, 2, 3, 4]


def test_a_request_comes_whole_from_memory():
    """It is sent whole in any case: what did not fit would be read from the database."""
    store = Counting()
    log = filled(store)
    with store.locked(PARTITION) as held:
        request = [block for value in (b"a", b"b", b"c") for block in blocks(value)]
        entries, end = held.append(*record_entries(PARTITION, held.head.end, epoch=1, append_time=1, blocks=request, sequence=None))
    log.extend(entries, end)
    write(store, log, b"d")
    for first, bytes_max, lsns in ((1, 1, [1, 2, 3]), (1, EVERYTHING, [1, 2, 3, 4]), (4, 1, [4])):
        assert lsns == [entry.head.lsn for entry in log.recent(first, bytes_max=bytes_max)]  # type: ignore[union-attr]
    assert store.looked_at == []


def test_a_read_looks_at_about_as_many_entries_as_fit():
    """Large entries: few are looked at, small ones: more and more."""
    store = Counting()
    large = filled(store, *[b"x" * 7_000] * 600)
    for _ in range(3):
        large.stored(0, large.end, bytes_max=700_000)
    assert store.looked_at[0] == 256
    assert READ_ENTRIES_MIN <= store.looked_at[-1] <= 110
    store = Counting()
    small = filled(store, *[b"x"] * 2_000)
    small.stored(0, small.end, bytes_max=1 << 20)
    small.stored(0, small.end, bytes_max=1 << 20)
    assert store.looked_at == [256, 2_001]


def test_a_missing_entry_is_a_fault():
    store = MemoryLogStore()
    log = filled(store, b"a", b"b", b"c")
    store._log(PARTITION).entries = store._log(PARTITION).entries[:2]
    assert [entry.head.lsn for entry in log.stored(0, 2, bytes_max=EVERYTHING)] == [0, 1]
    with pytest.raises(LogFaultError, match="lsn 2"):
        log.stored(2, 4, bytes_max=EVERYTHING)


def test_what_was_dropped_is_no_damage():
    """The head says that the log begins later: whoever asks for what is gone is told so, and the log knows its new start."""
    store = MemoryLogStore()
    log = filled(store, b"a", b"b", b"c")
    chain = store.entries(PARTITION, 0, 9, bytes_max=EVERYTHING)[1].chain
    with store.locked(PARTITION) as held:
        held.begin_at(Border(2, 1))
    for ask in (lambda: log.stored(0, 4, bytes_max=EVERYTHING), lambda: log.epoch_at(0)):
        with pytest.raises(BeginsLaterError):
            ask()
    assert (log.start, log.start_epoch, log.start_chain, log.offset_at(2)) == (2, 1, chain, 1)
    assert [entry.head.lsn for entry in log.stored(2, 4, bytes_max=EVERYTHING)] == [2, 3]
    store._log(PARTITION).entries = store._log(PARTITION).entries[:1]
    with pytest.raises(LogFaultError):
        log.stored(3, 4, bytes_max=EVERYTHING)


def test_a_log_that_is_known_to_begin_later_keeps_that():
    """A head that was read before is of no use."""
    store = MemoryLogStore()
    log = filled(store, b"a", b"b")
    before = store.head(PARTITION)
    with store.locked(PARTITION) as held:
        held.begin_at(Border(2, 1))
    log.begin_at(store.head(PARTITION))
    log.begin_at(before)
    assert log.start == 2
