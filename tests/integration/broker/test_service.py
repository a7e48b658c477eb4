"""The broker's operations on a real database: group commit, lost commits, stuck partitions, waiting reads."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg2
import pytest

from broker.core.append import AppendRequest
from broker.core.replica import Appointment, PromiseAnswer
from broker.reads import Query
from broker.service import BrokerService, Self
from broker.writer import Turn
from db.log_store import StoredRecord
from myqueue.errors import (
    BadRequestError,
    CorruptBatchError,
    NotLeaderError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    OverloadedError,
    RefusedError,
    SequenceGapError,
    UnavailableError,
    UnknownPartitionError,
    UnknownTopicError,
)
from myqueue.protocol.batch import Block, messages_of
from myqueue.protocol.types import PartitionId, Record
from tests.integration.broker.conftest import running_service
from tests.support.factories import blocks, record_blocks, sequence
from tests.support.waiting import wait_until

P0, P1 = PartitionId(1, 0), PartitionId(1, 1)
BROKEN = [Block(2, None, memoryview(b"\0\0\0\4abcd"), None, None)]


def send(service: BrokerService, *values: bytes, partition: PartitionId = P0, seq: int | None = None, producer_id: int = 7):
    return service.append(partition, blocks(*values), None if seq is None else sequence(seq, producer_id=producer_id), size_bytes=100)


def values(service: BrokerService, partition: PartitionId = P0) -> list[bytes]:
    found, offset = [], 0
    while True:
        _, part = service.reads.read(partition, offset, bytes_max=1 << 20, records_max=10_000)
        new = list(messages_of(part.body, topic="t", partition=0, from_offset=offset))
        if not new:
            return found
        found += [message.value for message in new]
        offset = new[-1].offset + 1


def at_once(count: int, action: Callable[[int], object]) -> list[object]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(action, range(count)))


def test_many_callers_share_commits(broker_database: str):
    """All are stored once, each gets its own offset, and a commit carries several of them."""
    commits = []
    with running_service(broker_database, on_event=lambda event: commits.append(event)) as service:
        before = len(commits)
        answers = at_once(32, lambda number: [send(service, b"%d-%d" % (number, turn)).base_offset for turn in range(10)])
        stored = values(service)
    assert sorted(offset for offsets in answers for offset in offsets) == list(range(320))
    assert all(stored[offset] == b"%d-%d" % (number, turn) for number, offsets in enumerate(answers) for turn, offset in enumerate(offsets))
    assert commits[before:].count("after_commit") < 320


def test_a_bad_request_does_not_spoil_its_group(broker_database: str):
    """One request whose elements PostgreSQL refuses: it alone is told, the others of its transaction are stored."""
    with running_service(broker_database) as service:
        answers = service.write_group(P0, [AppendRequest(blocks(b"a")), AppendRequest(BROKEN), AppendRequest(blocks(b"b"))], Turn())
        assert [type(answer).__name__ for answer in answers] == ["AppendResult", "CorruptBatchError", "AppendResult"]
        assert answers[1].details == {"block": 0}, "it says where"
        assert values(service) == [b"a", b"b"]
        with pytest.raises(CorruptBatchError):
            service.append(P0, BROKEN, None, size_bytes=10)


sizes = pytest.mark.parametrize("size", [1, 100_000], ids=["in one exchange", "in two"])


@sizes
def test_a_lost_commit_reply_is_looked_up(broker_database: str, size: int):
    """The commit was done, its answer was lost: the producer gets its offset, nothing is stored twice."""
    lose = threading.Event()

    def on_event(event: str) -> None:
        if event == "after_commit" and lose.is_set():
            lose.clear()
            raise OutcomeUnknownError

    with running_service(broker_database, on_event=on_event) as service:
        send(service, b"before")
        for answer in range(3):
            lose.set()
            assert send(service, b"%d" % answer * size).base_offset == answer + 1
            assert not lose.is_set()
        lose.set()
        assert service.dequeue(P0, "#1").record.value == b"before"
        assert service.dequeue(P0, "#1").record.value == b"0" * size
        assert values(service) == [b"before", b"0" * size, b"1" * size, b"2" * size]


@sizes
def test_a_commit_that_was_not_done_is_done_again(broker_database: str, size: int):
    """The session dies before the commit arrives: nobody knows, so it is looked up, found missing, and written anew, once."""
    kill = threading.Event()

    def on_event(event: str) -> None:
        if event == "before_commit" and kill.is_set():
            kill.clear()
            _terminate(broker_database, "application_name = 'tests'")

    with running_service(broker_database, on_event=on_event) as service:
        send(service, b"before", seq=0)
        for answer in range(3):
            kill.set()
            assert send(service, b"%d" % answer * size, seq=answer + 1).base_offset == answer + 1
            assert not kill.is_set()
        assert values(service) == [b"before", b"0" * size, b"1" * size, b"2" * size]


def test_groups_that_follow_one_another_lose_and_double_nothing(broker_database: str, monkeypatch: pytest.MonkeyPatch):
    """Producers of large batches, whose sessions die again and again before and behind the commit; who is not told sends the same again."""
    monkeypatch.setattr("db.postgres_log.FOLLOWED_BYTES_MIN", 0)
    followed, commits, producers, batches, value = [], itertools.count(1), 4, 25, b"x" * 70_000
    wait = Turn.wait
    monkeypatch.setattr(Turn, "wait", lambda turn: followed.append(turn.expected is not None) or wait(turn))

    def on_event(event: str) -> None:
        if next(commits) % 17 == 0:
            _terminate(broker_database, "application_name = 'tests'")

    def produce(service: BrokerService, producer_id: int) -> None:
        for seq in range(batches):
            while True:
                try:
                    send(service, b"%d-%d" % (producer_id, seq), value, seq=seq, producer_id=producer_id)
                except UnavailableError:
                    continue
                break

    with running_service(broker_database, on_event=on_event) as service, ThreadPoolExecutor(producers) as pool:
        for future in [pool.submit(produce, service, producer_id) for producer_id in range(1, producers + 1)]:
            future.result(60)
        found = [name for name in values(service) if name != value]
    for producer_id in range(1, producers + 1):
        own = b"%d-" % producer_id
        assert [name for name in found if name.startswith(own)] == [own + b"%d" % seq for seq in range(batches)]
    assert any(followed), "no group followed another one"


def test_two_processes_write_one_partition(broker_database: str):
    """What one remembers of the log is old as soon as the other has written: it finds that out, and neither stores anything twice or in between."""
    with running_service(broker_database) as first, running_service(broker_database) as second:
        for turn in range(30):
            for place, service in enumerate((first, second, second)):
                assert send(service, b"%d" % (3 * turn + place), seq=3 * turn + place).base_offset == 3 * turn + place
            assert send(first, b"again", seq=3 * turn + 1).duplicate
        with pytest.raises(SequenceGapError):
            send(first, b"too early", seq=92)
        offsets = at_once(16, lambda number: [send((first, second)[number % 2], b"x").base_offset for _ in range(10)])
        assert sorted(offset for found in offsets for offset in found) == list(range(90, 250))
        assert values(second) == [b"%d" % number for number in range(90)] + [b"x"] * 160


def test_a_leadership_that_ended_elsewhere_is_not_remembered(broker_database: str):
    """Another process of this broker got a learner, or promised a later epoch: the next append is decided by that."""
    with running_service(broker_database) as first, running_service(broker_database) as second:
        for partition in (P0, P1):
            send(first, b"before", partition=partition)
        second.set_learners(P0, epoch=1, learners=[9])
        assert not first._replicator.knows(P0, 1)
        send(first, b"for the learner too")
        assert first._replicator.knows(P0, 1), "it is sent to the learner"
        second.promise(P1, topic="t", config={}, epoch=2)
        with pytest.raises(NotLeaderError):
            send(first, b"too late", partition=P1)
        assert values(second, P1) == [b"before"]


def test_when_nothing_can_be_found_out_the_outcome_is_unknown(broker_database: str, monkeypatch: pytest.MonkeyPatch):
    """The look is bounded too; a retry with the same sequence tells."""
    monkeypatch.setattr("broker.service.LOOK_AGAIN_SECONDS", 0.2)
    blocker = psycopg2.connect(broker_database)

    def on_event(event: str) -> None:
        if event == "after_commit" and lose.is_set():
            lose.clear()
            with blocker.cursor() as cursor:
                cursor.execute("SELECT 1 FROM partition_state WHERE partition = 0 FOR UPDATE")
            raise OutcomeUnknownError

    lose = threading.Event()
    try:
        with running_service(broker_database, on_event=on_event) as service:
            lose.set()
            with pytest.raises(OutcomeUnknownError):
                send(service, b"a", seq=0)
            blocker.rollback()
            assert send(service, b"a", seq=0).duplicate is True
            assert values(service) == [b"a"]
    finally:
        blocker.close()


def test_a_stuck_partition_delays_no_other(broker_database: str):
    """Its head row is held by somebody: with fewer threads than stuck requests, other partitions are written all the time."""
    blocker = psycopg2.connect(broker_database)
    try:
        with running_service(broker_database, partitions=3, writers=1, timeout_seconds=3.0) as service:
            with blocker.cursor() as cursor:
                cursor.execute("SELECT 1 FROM partition_state WHERE partition = 0 FOR UPDATE")
            with ThreadPoolExecutor(2) as pool:
                stuck = [pool.submit(send, service, b"stuck") for _ in range(2)]
                began = time.monotonic()
                for _ in range(5):
                    send(service, b"free", partition=P1)
                assert time.monotonic() - began < 2.5
                assert not any(future.done() for future in stuck)
                blocker.rollback()
                assert sorted(future.result(10).base_offset for future in stuck) == [0, 1]
    finally:
        blocker.close()


def test_a_partition_that_stays_stuck_is_refused_in_time(broker_database: str):
    """Nothing was stored, and the answer says so."""
    blocker = psycopg2.connect(broker_database)
    try:
        with running_service(broker_database, timeout_seconds=0.6) as service:
            with blocker.cursor() as cursor:
                cursor.execute("SELECT 1 FROM partition_state WHERE partition = 0 FOR UPDATE")
            began = time.monotonic()
            with pytest.raises(UnavailableError) as error:
                send(service, b"stuck")
            assert time.monotonic() - began < 2
            blocker.rollback()
            assert (error.value.outcome, values(service)) in [("not_done", []), ("unknown", []), ("unknown", [b"stuck"])]
    finally:
        blocker.close()


def test_too_much_waiting_is_refused(broker_database: str):
    """The queue is bounded in bytes; what is refused was not stored."""
    blocker = psycopg2.connect(broker_database)
    try:
        with running_service(broker_database, queue_bytes_max=10_000, timeout_seconds=5.0) as service:
            with blocker.cursor() as cursor:
                cursor.execute("SELECT 1 FROM partition_state WHERE partition = 0 FOR UPDATE")
            with ThreadPoolExecutor(1) as pool:
                first = pool.submit(service.append, P0, blocks(b"a"), None, size_bytes=6_000)
                wait_until(lambda: service.writer.queued_bytes > 6_000, what="the first to be queued")
                with pytest.raises(OverloadedError):
                    service.append(P0, blocks(b"b"), None, size_bytes=6_000)
                blocker.rollback()
                first.result(10)
            service.append(P0, blocks(b"c"), None, size_bytes=6_000)
            assert values(service) == [b"a", b"c"]
            assert service.writer.queued_bytes == 0
    finally:
        blocker.close()


def test_two_calls_of_a_consumer_get_two_messages(broker_database: str):
    """However many calls at once: each message once, none passed over, then empty."""
    with running_service(broker_database) as service:
        send(service, *(b"%d" % number for number in range(40)))
        got = at_once(8, lambda number: [service.dequeue(P0, "#1") for _ in range(6)])
        handed = [one.offset for part in got for one in part if isinstance(one, StoredRecord)]
        assert sorted(handed) == list(range(40))
        assert all(part == sorted(part) for part in ([one.offset for one in part if one] for part in got))
        assert service.dequeue(P0, "#1") is None
        assert service.reads.offset(P0, "#1") == 40


def test_a_request_id_is_repeatable(broker_database: str):
    """Also through another broker process on the same database."""
    with running_service(broker_database) as service:
        send(service, b"a", b"b")
        assert [service.dequeue(P0, "#1", "r").offset for _ in range(3)] == [0, 0, 0]
    with running_service(broker_database) as service:
        assert service.dequeue(P0, "#1", "r").record.value == b"a"
        assert service.dequeue(P0, "#1").record.value == b"b"


def test_an_empty_dequeue_writes_nothing(broker_database: str):
    with running_service(broker_database) as service:
        before = service.standing.head(P0)
        assert service.dequeue(P0, "#1", "r") is None
        assert service.standing.head(P0) == before
        assert service.reads.offset(P0, "#1") is None


def test_sizes_and_offsets(broker_database: str):
    with running_service(broker_database) as service:
        send(service, b"a", b"b", b"c")
        assert service.reads.sizes("#1", [P0, P1]) == [3, 0]
        assert service.commit_offset(P0, "#1", 2) == 2
        assert service.commit_offset(P0, "#2", None) == 3
        assert (service.reads.sizes("#1", [P0]), service.reads.sizes("#2", [P0])) == ([1], [0])
        with pytest.raises(OffsetOutOfRangeError):
            service.commit_offset(P0, "#1", 4)
        with pytest.raises(NotLeaderError):
            service.reads.sizes("#1", [P0, PartitionId(1, 9)])


def test_a_search_ends_where_it_was_cut_and_is_refused_beyond_the_end(broker_database: str):
    """By key in several calls; a time cuts too; nothing above the committed end is promised."""
    with running_service(broker_database) as service:
        records = [Record(b"%d" % number, b"k" if number % 10 == 0 else None) for number in range(500)]
        service.append(P0, record_blocks(records), None, size_bytes=1)
        assert service.reads.ends([P0, P1]) == [500, 0]
        service.append(P0, record_blocks([Record(b"late", b"k")]), None, size_bytes=1)
        bounds = {"records_max": 7, "bytes_max": 1 << 20, "scan_max": 100}
        found, offset = [], None
        while offset != 500:
            part = service.reads.search(P0, Query(b"k", 500, offset), **bounds)
            found, offset = found + [one.offset for one in part.records], part.next_offset
            assert part.scanned <= 100
        assert found == list(range(0, 500, 10))
        assert service.reads.ends([P0], before_us=1) == [0]
        assert service.reads.ends([P0], before_us=2**62) == [501]
        assert service.reads.search(P0, Query(None, 501, None, 2**62), **bounds).next_offset == 501
        assert service.reads.search(P1, Query(b"k", 0), **bounds).records == []
        with pytest.raises(BadRequestError, match="ends before"):
            service.reads.search(P0, Query(b"k", 502), **bounds)
        with pytest.raises(NotLeaderError):
            service.reads.ends([P0, PartitionId(1, 9)])


def test_a_waiting_read_answers_at_once(broker_database: str):
    """Within a quarter of a second after the append, and with nothing when its time is over."""
    with running_service(broker_database) as service, ThreadPoolExecutor(1) as pool:
        for turn in range(5):
            waiting = pool.submit(service.reads.read, P0, turn, bytes_max=1_000, records_max=10, wait_seconds=20)
            wait_until(lambda: service._wakeups._waiters == 1, what="the read to wait")
            send(service, b"%d" % turn)
            stored = time.monotonic()
            assert waiting.result(5)[1].record_count == 1
            assert time.monotonic() - stored < 0.25
        began = time.monotonic()
        assert service.reads.read(P0, 5, bytes_max=1_000, records_max=10, wait_seconds=0.3)[1].record_count == 0
        assert 0.3 <= time.monotonic() - began < 2


def test_waiting_reads_are_bounded(broker_database: str):
    """One more than may wait is refused; the others stay, and stopping ends them."""
    with running_service(broker_database) as service, ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(service.reads.read, P0, 0, bytes_max=1_000, records_max=10, wait_seconds=20) for _ in range(4)]
        wait_until(lambda: service._wakeups._waiters == 4, what="four reads to wait")
        with pytest.raises(OverloadedError):
            service.reads.read(P0, 0, bytes_max=1_000, records_max=10, wait_seconds=20)
        service._stopping.set()
        assert [future.result(5)[1].record_count for future in waiting] == [0] * 4


def test_a_dropped_topic_ends_its_waiting_reads(broker_database: str):
    with running_service(broker_database) as service, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(service.reads.read, P0, 0, bytes_max=1_000, records_max=10, wait_seconds=20)
        wait_until(lambda: service._wakeups._waiters == 1, what="the read to wait")
        service.drop([1])
        with pytest.raises(UnknownTopicError):
            waiting.result(5)
        with pytest.raises(UnknownPartitionError):
            send(service, b"a")


def test_appointments(broker_database: str):
    """A repeat changes nothing, a later epoch appends a marker, an older one is refused, another disk never leads."""
    with running_service(broker_database, partitions=1) as service:
        send(service, b"a")
        first = service.standing.head(P0)
        again = Appointment(1, {1: "disk"})
        assert service.appoint(P0, topic="t", config={}, appointment=again) == 1
        assert service.standing.head(P0) == first
        with pytest.raises(RefusedError):
            service.appoint(P0, topic="t", config={}, appointment=Appointment(3, {1: "disk"}))
        promised = PromiseAnswer(3, "disk", 1, first.end.lsn, first.commit_lsn, seeding=False)
        assert [service.promise(P0, topic="t", config={}, epoch=3) for _ in range(2)] == [promised, promised]
        with pytest.raises(NotLeaderError):
            send(service, b"nobody leads")
        assert service.appoint(P0, topic="t", config={}, appointment=Appointment(3, {1: "disk"})) == 3
        head = service.standing.head(P0)
        assert (head.end.lsn, head.end.offset, head.end.epoch, head.commit_lsn) == (first.end.lsn + 1, 1, 3, first.end.lsn + 1)
        with pytest.raises(RefusedError):
            service.appoint(P0, topic="t", config={}, appointment=again)
        with pytest.raises(RefusedError):
            service.promise(P0, topic="t", config={}, epoch=3)
        send(service, b"b")
        assert values(service) == [b"a", b"b"]
        service._who = lambda: Self(1, "a copy of the disk")
        with pytest.raises(NotLeaderError):
            send(service, b"c")


def _terminate(url: str, condition: str) -> None:
    connection = psycopg2.connect(url)
    try:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() AND {condition}")
    finally:
        connection.close()
