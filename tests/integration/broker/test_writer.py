"""The group writer by itself: what shares a transaction, what is refused, what is given up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from broker.writer import GroupWriter, Turn
from db.log_store import LogBusyError
from myqueue.clock import SystemClock
from myqueue.errors import OutcomeUnknownError, OverloadedError, UnavailableError
from myqueue.protocol.types import PartitionId
from tests.support.waiting import wait_until

P0, P1 = PartitionId(1, 0), PartitionId(1, 1)


@contextmanager
def running(write: Callable[[PartitionId, Sequence[int], Turn], Sequence[int]], *, threads: int = 2) -> Iterator[GroupWriter]:
    writer: GroupWriter[int, int] = GroupWriter(write, clock=SystemClock(), queue_bytes_max=1 << 20)
    stopping = threading.Event()
    workers = [threading.Thread(target=writer.run, args=(stopping,)) for _ in range(threads)]
    for worker in workers:
        worker.start()
    wait_until(lambda: writer._threads == threads, what="the writers to run")
    try:
        yield writer
    finally:
        stopping.set()
        for worker in workers:
            worker.join(10)
            assert not worker.is_alive()


def submit(writer: GroupWriter, request: int, partition: PartitionId = P0, timeout_seconds: float = 10.0) -> int:
    return writer.submit(partition, request, size_bytes=10, timeout_seconds=timeout_seconds)


def test_what_comes_during_a_write_goes_into_the_next():
    """One at a time per partition, in the order they came, all that waits together."""
    groups, go = [], threading.Event()

    def write(_: PartitionId, requests: Sequence[int], _turn: Turn) -> list[int]:
        groups.append(list(requests))
        if len(groups) == 1:
            go.wait(10)
        return [request * 10 for request in requests]

    with running(write) as writer, ThreadPoolExecutor(6) as pool:
        first = pool.submit(submit, writer, 0)
        wait_until(lambda: groups, what="the first write")
        others = []
        for number in range(1, 6):
            before = writer.queued_bytes
            others.append(pool.submit(submit, writer, number))
            wait_until(lambda before=before: writer.queued_bytes > before, what="the next to be queued")
        go.set()
        assert [future.result(5) for future in (first, *others)] == [0, 10, 20, 30, 40, 50]
    assert groups == [[0], [1, 2, 3, 4, 5]]
    assert writer.queued_bytes == 0


def test_partitions_are_written_side_by_side():
    """A write under way on one does not hold the other."""
    go = threading.Event()

    def write(partition: PartitionId, requests: Sequence[int], _turn: Turn) -> list[int]:
        if partition == P0:
            go.wait(10)
        return list(requests)

    with running(write) as writer, ThreadPoolExecutor(1) as pool:
        slow = pool.submit(submit, writer, 1, P0)
        assert submit(writer, 2, P1) == 2
        assert not slow.done()
        go.set()
        assert slow.result(5) == 1


def test_an_error_of_the_group_is_everybody_s():
    def write(_: PartitionId, requests: Sequence[int], _turn: Turn) -> list[int]:
        raise UnavailableError("no database")

    with running(write) as writer, pytest.raises(UnavailableError, match="no database"):
        submit(writer, 1)
    assert writer.queued_bytes == 0


def test_a_busy_log_is_tried_again():
    attempts = []

    def write(_: PartitionId, requests: Sequence[int], _turn: Turn) -> list[int]:
        attempts.append(list(requests))
        if len(attempts) < 3:
            raise LogBusyError
        return list(requests)

    with running(write) as writer:
        assert submit(writer, 1) == 1
    assert attempts == [[1]] * 3


def test_the_next_group_may_begin_while_only_a_commit_is_waited_for():
    """It is told how the log is left then, and commits behind it; no third one begins before the first is over."""
    begun, go, ended = [], {number: threading.Event() for number in (0, 1)}, []

    def write(_: PartitionId, requests: Sequence[int], turn: Turn) -> list[int]:
        begun.append((requests[0], turn.expected))
        turn.let_follow(f"behind {requests[0]}")  # type: ignore[arg-type]
        turn.wait()
        if requests[0] in go:
            go[requests[0]].wait(10)
        ended.append(requests[0])
        return list(requests)

    with running(write, threads=3) as writer, ThreadPoolExecutor(3) as pool:
        futures = []
        for number in range(3):
            futures.append(pool.submit(submit, writer, number))
            wait_until(lambda number=number: len(begun) == min(number, 1) + 1 and writer.queued_bytes > 500 * (number + 1), what="it to be taken")
        assert begun == [(0, None), (1, "behind 0")]
        go[1].set()
        assert not ended
        go[0].set()
        assert [future.result(5) for future in futures] == [0, 1, 2]
    assert ended == [0, 1, 2]
    assert begun[2] in ((2, "behind 1"), (2, None))  # whether the second was over already
    assert not writer._lines


def test_who_could_have_followed_and_gave_up_is_no_more_there():
    """It was offered to the threads, and its time was over before one took it."""
    offered, go = threading.Event(), threading.Event()

    def write(_: PartitionId, requests: Sequence[int], turn: Turn) -> list[int]:
        turn.let_follow("expected")  # type: ignore[arg-type]
        offered.set()
        go.wait(10)
        return list(requests)

    with running(write, threads=1) as writer, ThreadPoolExecutor(1) as pool:
        first = pool.submit(submit, writer, 0)
        assert offered.wait(10)
        with pytest.raises(OverloadedError):
            submit(writer, 1, timeout_seconds=0.1)
        assert list(writer._ready) == [P0]
        go.set()
        assert first.result(5) == 0
        assert submit(writer, 2) == 2
    assert not writer._lines


def test_what_followed_a_group_that_failed_comes_again_behind_it():
    """In the order in which they came, and not before the group that failed has come again."""
    tries, stored, sent = [], [], threading.Event()

    def write(_: PartitionId, requests: Sequence[int], turn: Turn) -> list[int]:
        tries.append(list(requests))
        if requests[0] == 0 and len(tries) == 1:
            turn.let_follow("expected")  # type: ignore[arg-type]
            sent.wait(10)
            turn.fail()
            wait_until(lambda: writer._lines[P0].under_way == 1, what="the one that followed to be put back")
            raise LogBusyError
        if turn.expected is not None:
            sent.set()
        turn.wait()
        stored.extend(requests)
        return list(requests)

    with running(write, threads=3) as writer, ThreadPoolExecutor(2) as pool:
        first = pool.submit(submit, writer, 0)
        wait_until(lambda: tries, what="the first to begin")
        second = pool.submit(submit, writer, 1)
        assert [first.result(5), second.result(5)] == [0, 1]
    assert tries[:2] == [[0], [1]]
    assert stored == [0, 1]
    assert writer.queued_bytes == 0


def test_who_waits_too_long_was_not_written():
    """Still in the queue when its time is over: taken out, and never written afterwards."""
    written, go = [], threading.Event()

    def write(_: PartitionId, requests: Sequence[int], _turn: Turn) -> list[int]:
        written.extend(requests)
        go.wait(10)
        return list(requests)

    with running(write) as writer, ThreadPoolExecutor(1) as pool:
        first = pool.submit(submit, writer, 1)
        wait_until(lambda: written, what="the first write")
        with pytest.raises(OverloadedError) as error:
            submit(writer, 2, timeout_seconds=0.1)
        assert error.value.outcome == "not_done"
        go.set()
        assert first.result(5) == 1
        assert submit(writer, 3) == 3
    assert written == [1, 3]


def test_who_is_being_written_is_unknown():
    go = threading.Event()

    def write(_: PartitionId, requests: Sequence[int], _turn: Turn) -> list[int]:
        go.wait(10)
        return list(requests)

    with running(write) as writer:
        with pytest.raises(OutcomeUnknownError):
            submit(writer, 1, timeout_seconds=0.1)
        go.set()
    assert writer.queued_bytes == 0


def test_what_waits_is_written_before_the_end_and_then_nothing_is_taken():
    """Told to stop, a writer first writes what it has promised to."""
    go = threading.Event()

    def write(_: PartitionId, requests: Sequence[int], _turn: Turn) -> list[int]:
        go.wait(10)
        return list(requests)

    with ThreadPoolExecutor(3) as pool:
        with running(write, threads=1) as writer:
            futures = [pool.submit(submit, writer, number) for number in range(3)]
            wait_until(lambda: writer.queued_bytes > 1_500, what="all to be queued")
            threading.Timer(0.1, go.set).start()
        assert [future.result(5) for future in futures] == [0, 1, 2]
    with pytest.raises(UnavailableError, match="starting or stopping"):
        submit(writer, 4)
