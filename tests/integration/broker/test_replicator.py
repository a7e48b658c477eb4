"""What a leader sends, and what it says while it does not know: two brokers in one process, on logs in memory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from broker.core.appends import BODY_BYTES
from broker.leader_log import LeaderLog
from db.log_store import EntryMark
from myqueue.clock import SystemClock
from myqueue.errors import NotLeaderError, OffsetOutOfRangeError, OutcomeUnknownError, UnavailableError
from myqueue.protocol.entry import LogEntry
from myqueue.protocol.types import PartitionId
from tests.support.factories import blocks
from tests.support.two_brokers import TwoBrokers, ends, two_brokers
from tests.support.waiting import wait_until

P = PartitionId(1, 0)
READ = {"bytes_max": 1 << 20, "records_max": 100}


def send(group: TwoBrokers, partition: PartitionId, *values: bytes) -> int:
    return group.service.append(partition, blocks(*values), None, size_bytes=sum(map(len, values))).base_offset


def unsent(group: TwoBrokers, partition: PartitionId, value: bytes) -> None:
    """A record that the leader has stored, keeps in no memory, and could not send; the wire stays cut."""
    group.wire.is_open = False
    with pytest.raises(OutcomeUnknownError):
        send(group, partition, value)
    group.replicator._led[partition].log.forget_recent()


def forget_commit(group: TwoBrokers, partition: PartitionId, lsn: int) -> None:
    """The commit position in the database is a lower bound: its crash took it back."""
    log = group.store._log(partition)
    log.head = replace(log.head, commit_lsn=lsn, commit_offset=0, applied_lsn=lsn)


def damage(group: TwoBrokers, partition: PartitionId, lsn: int) -> None:
    """One byte of a stored entry is another one."""
    entries = group.store._log(partition).entries
    head, chain, keys, stored, *rest = entries[lsn]
    spoilt = LogEntry(head, chain, keys, bytes(stored)[:-1] + b"!", *rest)
    group.store._log(partition).entries = [*entries[:lsn], spoilt, *entries[lsn + 1:]]


def test_a_follower_that_lacks_much_is_sent_it_in_bodies_that_it_takes():
    """Twelve partitions with a MiB each wait for it: no body is longer than what is gathered and one request, and all of it comes."""
    partitions = [PartitionId(1, number) for number in range(12)]
    with two_brokers() as group:
        for partition in partitions:
            group.lead(partition)
        wait_until(lambda: ends(group.other, partitions) == [1] * 12, what="the markers to be everywhere")
        group.wire.is_open = False
        with ThreadPoolExecutor(12) as pool:
            sent = [pool.submit(send, group, partition, b"x" * 1_000_000) for partition in partitions]
            wait_until(lambda: ends(group.store, partitions) == [2] * 12, what="the records to be stored here")
            group.wire.sizes.clear()
            group.wire.is_open = True
            assert [future.result(10) for future in sent] == [0] * 12
        assert ends(group.other, partitions) == [2] * 12
        assert max(group.wire.sizes) <= BODY_BYTES
        assert sum(group.wire.sizes) < 20_000_000, "most of it went once"


def test_a_log_that_cannot_be_read_holds_up_no_other():
    """A missing entry of one partition: that replica is served no more and says why; the partition beside it goes on."""
    other = PartitionId(1, 1)
    with two_brokers(timeout_seconds=2.0) as group:
        group.lead(P)
        group.lead(other)
        assert (send(group, P, b"a"), send(group, other, b"a")) == (0, 0)
        unsent(group, P, b"b")
        log = group.store._log(P)
        log.entries = log.entries[:2]
        group.wire.is_open = True
        fault = wait_until(lambda: group.store.head(P).fault, what="the fault to be recorded")
        assert "lsn 2" in fault
        assert send(group, other, b"b") == 1
        with pytest.raises(NotLeaderError):
            send(group, P, b"b")
        with pytest.raises(UnavailableError, match="damaged"):
            group.service.reads.read(P, 0, **READ)
        assert group.service.promise(P, topic="t", config={}, epoch=2).seeding, "it counts for no majority"


def test_a_leader_whose_entry_is_damaged_stops():
    """The follower refuses it by its digest, the leader looks at its own disk, finds the entry and leads no longer."""
    with two_brokers(timeout_seconds=2.0) as group:
        group.lead(P)
        send(group, P, b"a")
        unsent(group, P, b"damaged")
        damage(group, P, 2)
        group.wire.is_open = True
        fault = wait_until(lambda: group.store.head(P).fault, what="the fault to be recorded")
        assert "lsn 2" in fault
        assert group.other.head(P).fault is None
        assert ends(group.other, [P]) == [2]


def test_a_leader_that_does_not_know_yet_what_is_committed_says_so():
    """Not empty and not zero: messages were acknowledged before, and it has not heard that they are committed."""
    with two_brokers() as group:
        group.lead(P)
        send(group, P, b"a")
        group.wire.is_open = False
        forget_commit(group, P, 0)
        group.lead(P, epoch=2)
        for ask in (lambda: group.service.dequeue(P, "#1"), lambda: group.service.reads.sizes("#1", [P]), lambda: group.service.reads.offset(P, "#1"),
                    lambda: group.service.reads.read(P, "latest", **READ), lambda: group.service.reads.read(P, 1, **READ)):
            with pytest.raises(UnavailableError):
                ask()
        group.wire.is_open = True
        wait_until(lambda: group.replicator.is_ready(P), what="the marker to be committed")
        assert group.service.reads.sizes("#1", [P]) == [1]
        assert group.service.dequeue(P, "#1").record.value == b"a"  # type: ignore[union-attr]
        assert group.service.dequeue(P, "#1") is None


def test_the_end_of_a_log_is_told_only_with_a_majority():
    """A leader that nobody answers may have been replaced: beyond what it knows is not outside the log."""
    with two_brokers() as group:
        group.lead(P)
        send(group, P, b"a")
        with pytest.raises(OffsetOutOfRangeError) as error:
            group.service.reads.read(P, 5, **READ)
        assert error.value.latest == 1
        group.wire.is_open = False
        with pytest.raises(UnavailableError):
            group.service.reads.read(P, 5, **READ)
        assert group.service.reads.read(P, 0, **READ)[1].record_count == 1, "what is committed stays true"


def test_what_was_told_is_known_though_the_database_forgot_it():
    """The commit position in the database is a lower bound that its crash may take back: until it is recorded again nothing is called empty."""
    with two_brokers() as group:
        group.lead(P)
        send(group, P, b"a")
        forget_commit(group, P, 1)
        with pytest.raises(UnavailableError):
            group.service.dequeue(P, "#1")
        group.replicator.look_around()
        assert group.service.dequeue(P, "#1").record.value == b"a"  # type: ignore[union-attr]


def test_a_follower_far_behind_is_served_from_the_database():
    """Small requests and large ones, more than memory keeps: all of it comes, in order, in bodies that are taken, while others write."""
    with two_brokers(timeout_seconds=0.5) as group:
        group.lead(P)
        send(group, P, b"first")
        for value in (*(b"%d" % number for number in range(3)), b"x" * 1_000_000, b"y"):
            unsent(group, P, value)
            group.replicator._led[P].leading.heard[2] = replace(group.replicator._led[P].leading.heard[2], asked_at=SystemClock().monotonic())
        group.wire.sizes.clear()
        group.wire.is_open = True
        wait_until(lambda: ends(group.other, [P]) == ends(group.store, [P]), what="the follower to hold everything")
        assert group.other.head(P).end == group.store.head(P).end, "with the same chain"
        assert max(group.wire.sizes) <= BODY_BYTES
        assert send(group, P, b"last") == 6


def test_a_long_request_that_was_just_written_is_sent_from_memory(monkeypatch: pytest.MonkeyPatch):
    """Also where it is longer than what is sent at once of several."""
    monkeypatch.setattr("broker.replicator.REQUEST_BYTES", 100)
    with two_brokers() as group:
        group.lead(P)
        send(group, P, b"first")
        monkeypatch.setattr(group.store, "entries", None)
        request = [block for number in range(20) for block in blocks(b"%d" % number)]
        assert 1 == group.service.append(P, request, None, size_bytes=200).base_offset
        assert ends(group.other, [P]) == [22]


def test_a_long_request_is_sent_from_the_database_with_few_looks(monkeypatch: pytest.MonkeyPatch):
    """Each look is a question to the database while the leadership is locked: with one for each entry a broker that had just started stood still."""
    many, looks = [block for number in range(2_000) for block in blocks(b"%d" % number)], list[int]()
    with two_brokers(timeout_seconds=0.5) as group:
        group.lead(P)
        send(group, P, b"first")
        group.wire.is_open = False
        with pytest.raises(OutcomeUnknownError):
            group.service.append(P, many, None, size_bytes=10_000)
        group.replicator._led[P].log = LeaderLog(group.store, P, group.store.head(P))  # as in a process that has just started
        mark = group.store.mark

        def counted(partition: PartitionId, lsn: int) -> EntryMark | None:
            looks.append(lsn)
            return mark(partition, lsn)

        monkeypatch.setattr(group.store, "mark", counted)
        group.wire.is_open = True
        wait_until(lambda: ends(group.other, [P]) == ends(group.store, [P]) == [2_002], what="the follower to hold everything")
    assert len(looks) < 100


def test_the_ends_of_many_partitions_are_confirmed_in_few_rounds_and_not_where_nobody_follows():
    """Their rounds travel together; a leader that is cut off does not say where a log ends."""
    partitions = [PartitionId(1, number) for number in range(40)]
    with two_brokers(timeout_seconds=5.0) as group:
        for partition in partitions:
            group.lead(partition)
        wait_until(lambda: ends(group.other, partitions) == [1] * 40, what="the markers to be everywhere")
        for partition in partitions[::2]:
            send(group, partition, b"x")
        wait_until(lambda: ends(group.other, partitions) == [2, 1] * 20, what="the records to be everywhere")
        group.wire.sizes.clear()
        assert group.service.reads.ends(partitions) == [1, 0] * 20
        assert len(group.wire.sizes) < 20
        group.wire.is_open = False
        with pytest.raises(UnavailableError):
            group.service.reads.ends(partitions)
