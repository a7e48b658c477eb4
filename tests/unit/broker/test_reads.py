"""What a leader says of offsets above what it knows to be committed."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from broker.reads import Query, Reads
from db.memory_log import MemoryLogStore
from myqueue.errors import BadRequestError, MyQueueError, NotYetError, OffsetOutOfRangeError
from myqueue.service.wakeups import Wakeups
from myqueue.testing import ManualClock
from tests.contract.test_log_store import append, begin
from tests.support.factories import PARTITION


class Confirmed:
    """A leadership that a majority follows."""

    def __init__(self, store: MemoryLogStore) -> None:
        self.head = store.head

    @staticmethod
    def knows_the_end(_partition: object) -> bool:
        return True


@pytest.fixture
def reads() -> Reads:
    """Two records are committed as far as is known here, two more are in the log."""
    store = MemoryLogStore()
    begin(store, PARTITION)
    append(store, b"0", b"1")
    append(store, b"2", b"3", committed=False)
    clock = ManualClock()
    return Reads(store, Wakeups(), Confirmed(store), clock=clock, stopping=threading.Event(), long_polls_max=1)  # type: ignore[arg-type]


def read(reads: Reads, offset: int) -> object:
    return reads.read(PARTITION, offset, bytes_max=1_000, records_max=10)


def search(reads: Reads, end: int) -> object:
    return reads.search(PARTITION, Query(None, end, 0), records_max=10, bytes_max=1_000, scan_max=10)


@pytest.mark.parametrize(("ask", "refusal"), [(read, OffsetOutOfRangeError), (search, BadRequestError)])
def test_an_offset_lies_outside_the_log_only_above_all_that_is_in_it(reads: Reads, ask: Callable[[Reads, int], object],
                                                                     refusal: type[MyQueueError]) -> None:
    """Somebody may have been given what is in the log and not known to be committed here: a follower that heard of it first served it."""
    ask(reads, 2)
    for offset in (3, 4):
        with pytest.raises(NotYetError, match="2 is"):
            ask(reads, offset)
    with pytest.raises(refusal):
        ask(reads, 5)
