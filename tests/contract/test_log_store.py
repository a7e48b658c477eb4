"""One suite for every LogStore: what holds in memory holds on PostgreSQL."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker.core.append import AppendRequest
from broker.core.group import Request, plan_group
from broker.core.offsets import ClaimRequest, CommitRequest, DequeueRequest, LogRange, TrimRequest
from broker.core.retention import plan_begin
from broker.service import wanted
from db.engine import make_engine
from db.log_store import HeadMovedError, HeldLog, LogBusyError, LogStore, Remembered, Snapshot, Wanted
from db.memory_log import MemoryLogStore
from db.postgres_log import AT_ONCE_BYTES_MAX, REMEMBERED_PRODUCERS_MAX, PostgresLogStore
from db.segments import RollPolicy
from myqueue.errors import CorruptBatchError, UnknownPartitionError
from myqueue.protocol.batch import ENTRIES_MAGIC, Block, messages_of
from myqueue.protocol.chain import GENESIS
from myqueue.protocol.entry import Border, LogEnd, LogEntry, chained, end_chained, marker_entry, record_entries
from myqueue.protocol.fold import LogState
from myqueue.protocol.types import CommitStamp, PartitionId, Record
from tests.support.factories import PARTITION, blocks, record_blocks, sequence

EVERYTHING = {"bytes_max": 1 << 20, "records_max": 10_000}


@pytest.fixture(params=["memory", "postgres"])
def store(request: pytest.FixtureRequest) -> Iterator[LogStore]:
    """A store that holds one partition, with the marker of epoch 1 in it."""
    if request.param == "memory":
        store: LogStore = MemoryLogStore()
        begin(store, PARTITION)
        yield store
        return
    url = request.getfixturevalue("broker_database")
    engines = [make_engine(url, application_name="tests", pool_size=4) for _ in range(2)]
    store = PostgresLogStore(*engines)
    begin(store, PARTITION)
    yield store
    for engine in engines:
        engine.dispose()


def begin(store: LogStore, partition: PartitionId, topic: str = "t") -> None:
    store.create(partition, topic=topic, config={})
    with store.locked(partition) as held:
        held.lead(1, {1: "disk"}, 1)
        entries, end = marker_entry(partition, held.head.end, epoch=1, append_time=100)
        held.append(entries, end)
        held.commit(end.lsn, end.offset, LogState())


def write(store: LogStore, *requests: Request, partition: PartitionId = PARTITION, committed: bool = True, now_us: int = 1_000):
    with store.locked(partition, wanted(requests)) as held:
        head = held.head
        plan = plan_group(partition, head.end, held.state, LogRange(head.start_offset, head.commit_offset), requests, epoch=1, now_us=now_us)
        held.append(plan.entries, plan.end)
        if committed:
            held.commit(plan.end.lsn, plan.end.offset, plan.changes)
    return plan.outcomes


def append(store: LogStore, *values: bytes, seq: int | None = None, **more):
    return write(store, AppendRequest(blocks(*values), None if seq is None else sequence(seq)), **more)[0]


def values(store: LogStore, offset: int = 0, **bounds: int) -> list[tuple[int, bytes]]:
    body = store.read(PARTITION, offset, **EVERYTHING | bounds).body
    return [(message.offset, message.value) for message in messages_of(body, topic="t", partition=0)]


def offset_of(store: LogStore, consumer: str) -> int | None:
    return store.consumer_offsets([PARTITION], consumer)[PARTITION][1]


def test_what_was_written_is_read(store: LogStore):
    """In order, with its offsets, byte for byte."""
    append(store, b"a", bytes(range(256)), b"")
    append(store, b"b")
    assert values(store) == [(0, b"a"), (1, bytes(range(256))), (2, b""), (3, b"b")]


def test_every_column_comes_back(store: LogStore):
    records = [Record(b"v", b"k", (("h", b"x"), ("é", None)), 5), Record(b"w"), Record(b"\xff\xff\xff\xff", b"")]
    write(store, AppendRequest(record_blocks(records)))
    found = list(messages_of(store.read(PARTITION, 0, **EVERYTHING).body, topic="t", partition=0))
    assert [(message.value, message.key, message.headers) for message in found] == [(record.value, record.key, record.headers) for record in records]
    assert [message.timestamp for message in found] == [5, 1_000, 1_000]


def test_the_head_moves_with_the_log(store: LogStore):
    append(store, b"a" * 5_000, b"b" * 5_000)
    head = store.head(PARTITION)
    assert (head.promised_epoch, head.leader_epoch, head.voters) == (1, 1, {1: "disk"})
    assert (head.end.lsn, head.end.offset, head.end.epoch, head.end.append_time) == (3, 2, 1, 1_000)
    assert (head.commit_lsn, head.commit_offset, head.applied_lsn) == (3, 2, 3)


def test_a_transaction_that_fails_leaves_nothing(store: LogStore):
    """Neither entries nor ends nor folded state."""
    before = store.head(PARTITION)
    with pytest.raises(RuntimeError), store.locked(PARTITION) as held:
        entries, end = record_entries(PARTITION, held.head.end, epoch=1, append_time=200, blocks=blocks(b"a"), sequence=sequence(0))
        held.append(entries, end)
        raise RuntimeError
    assert store.head(PARTITION) == before
    assert append(store, b"b", seq=0).base_offset == 0
    assert values(store) == [(0, b"b")]


@pytest.mark.parametrize("make", [
    lambda: Block(2, None, memoryview(b"\0\0\0\4abcd"), None, None),
    lambda: Block(1, None, memoryview(b"\0\0\0\1abcd"), None, None),
    lambda: Block(1, None, memoryview(b"\0\0\0\7abcd"), None, None),
    lambda: Block(1, memoryview(b"\0\0\0\0\0\0\0\0"), memoryview(b"\0\0\0\0"), None, None),
    lambda: Block(1, None, memoryview(b"\0\0\0\0"), None, memoryview(b"\0\0\0\1x")),
    lambda: Block(2, None, memoryview(b"\xff\xff\xff\xfe\0\0\0\0"), None, None),
], ids=["fewer elements", "bytes left", "too long", "two keys for one value", "a short timestamp", "a negative length"])
def test_elements_that_do_not_fit_are_refused(store: LogStore, make: Callable[[], Block]):
    """Framing looks at columns only; what is in them is checked where it is stored, and the log goes on."""
    with pytest.raises(CorruptBatchError):
        write(store, AppendRequest([make()]))
    append(store, b"good")
    assert values(store) == [(0, b"good")]


def test_reads_see_committed_entries_only(store: LogStore):
    append(store, b"a")
    append(store, b"b", committed=False)
    found = store.read(PARTITION, 0, **EVERYTHING)
    assert (found.end_offset, found.record_count) == (1, 1)
    assert values(store) == [(0, b"a")]
    assert store.read(PARTITION, 1, **EVERYTHING).body == ENTRIES_MAGIC


def test_decisions_see_every_entry(store: LogStore):
    """A duplicate is known and an offset has moved although nothing of it is committed or folded yet."""
    append(store, b"a", b"b")
    assert append(store, b"c", seq=0, committed=False).base_offset == 2
    assert append(store, b"c", seq=0, committed=False).duplicate is True
    first, second = (write(store, DequeueRequest("#1", request_id), committed=False)[0] for request_id in ("r", None))
    assert (first.offset, second.offset) == (0, 1)
    assert write(store, DequeueRequest("#1", "r"), committed=False)[0].offset == 0
    assert offset_of(store, "#1") is None


def test_folded_state_survives(store: LogStore):
    """The next transaction finds producers, consumers and requests as the last one left them."""
    append(store, b"a", b"b", seq=0)
    write(store, DequeueRequest("#1", "r"))
    with store.locked(PARTITION, Wanted(frozenset({7, 8}), frozenset({"#1", "#2"}), frozenset({("#1", "r"), ("#1", "s")}))) as held:
        assert set(held.state.producers) == {7}
        assert held.state.producers[7].recent[0][:2] == (0, 0)
        assert {consumer: state.next_offset for consumer, state in held.state.consumers.items()} == {"#1": 1}
        assert {key: handed.message_offset for key, handed in held.state.requests.items()} == {("#1", "r"): 0}


def test_offsets_of_consumers(store: LogStore):
    append(store, b"a", b"b", b"c")
    write(store, CommitRequest("#1", 2))
    assert offset_of(store, "#1") == 2
    assert offset_of(store, "#2") is None
    found = store.consumer_offsets([PARTITION, PartitionId(1, 9)], "#1")
    assert {partition: offset for partition, (_, offset) in found.items()} == {PARTITION: 2}


@pytest.mark.parametrize("committed", [True, False])
def test_deaths_of_a_group_s_members_are_kept(store: LogStore, committed: bool):
    """Folded with the transaction, or later behind the commit position: a takeover from one that had a message alone in its hands counts, once."""
    append(store, *[b"%d" % number for number in range(9)])
    steps = [(ClaimRequest("@1", 1), (0, 0, 0)), (CommitRequest("@1", 2, 1, handed_end=3), (2, 0, 0)), (ClaimRequest("@1", 2), (2, 0, 1)),
             (ClaimRequest("@1", 3), (2, 0, 1)), (CommitRequest("@1", 2, 3, handed_end=3), (2, 0, 0)), (ClaimRequest("@1", 4), (2, 0, 2)),
             (CommitRequest("@1", 3, 4, handed_end=8), (3, 0, 0)), (ClaimRequest("@1", 5), (3, 8, 0))]
    for request, told in steps:
        [handed] = write(store, request, committed=committed)
        assert (handed.offset, handed.handed_end, handed.deaths) == told, request
        if not committed:
            head = store.head(PARTITION)
            store.advance(PARTITION, head.end.lsn, head.end.offset)
            store.fold(PARTITION)
    assert store.snapshot(PARTITION).state.consumers["@1"][4:6] == (8, 0)


@pytest.mark.parametrize("committed", [True, False])
def test_a_late_commit_is_told_by_its_stamp(store: LogStore, committed: bool):
    """Whether what it is compared with is folded yet or not."""
    append(store, *[b"%d" % number for number in range(9)])
    for offset, number, told in ((5, 2**62, 5), (4, 1, 5), (6, 2**62 + 1, 6), (5, 2**62, 6)):
        [handed] = write(store, CommitRequest("#1", offset, stamp=CommitStamp(2**53 - 1, number)), committed=committed)
        assert handed.offset == told
    head = store.head(PARTITION)
    store.advance(PARTITION, head.end.lsn, head.end.offset)
    store.fold(PARTITION)
    assert store.snapshot(PARTITION).state.consumers["#1"][-2:] == (2**53 - 1, 2**62 + 1)


def test_a_record_is_found_by_its_offset(store: LogStore):
    write(store, AppendRequest(record_blocks([Record(b"v", b"k", (("h", b"x"),), 5), Record(b"w")])))
    append(store, b"large" * 3_000, b"x")
    with store.locked(PARTITION) as held:
        found = [held.record_at(offset) for offset in range(4)]
    assert [(one.offset, one.record.value) for one in found] == [(0, b"v"), (1, b"w"), (2, b"large" * 3_000), (3, b"x")]
    assert found[0].record == Record(b"v", b"k", (("h", b"x"),), 5)
    assert found[1].record == Record(b"w")


def test_a_read_begins_with_the_block_that_holds_its_offset(store: LogStore):
    for number in range(20):
        append(store, *(b"%d-%d" % (number, place) for place in range(7)))
    for offset in range(140):
        assert values(store, offset)[0][0] == offset - offset % 7
        assert values(store, offset)[-1][0] == 139


def test_bounds_of_a_read(store: LogStore):
    """At least one record always comes, however small the bound."""
    append(store, b"small")
    append(store, b"x" * 50_000)
    append(store, b"x" * 50_000)
    assert [offset for offset, _ in values(store, bytes_max=1)] == [0]
    assert [offset for offset, _ in values(store, 1, bytes_max=1)] == [1]
    assert [offset for offset, _ in values(store, 1, bytes_max=80_000)] == [1]
    assert [offset for offset, _ in values(store, 0, records_max=2)] == [0, 1]
    assert [offset for offset, _ in values(store, 2, records_max=1)] == [2]


def test_a_time_is_found_by_the_first_record_since(store: LogStore):
    """At or after it; None behind the last one that is committed. Commits and markers between records change nothing."""
    assert store.first_offset_since(PARTITION, 0) is None
    for number in range(40):
        append(store, *[b"x"] * (number % 3 + 1), now_us=1_000 + 10 * (number // 2))
        if number % 5 == 0:
            write(store, CommitRequest("#1", 0), now_us=1_005 + 10 * (number // 2))
    append(store, b"not committed", committed=False, now_us=9_000)
    times = [message.timestamp for message in messages_of(store.read(PARTITION, 0, **EVERYTHING).body, topic="t", partition=0)]
    for when in (-(2**63), 0, 99, 100, *range(990, 1_220), 9_000, 2**63 - 1):
        assert store.first_offset_since(PARTITION, when) == next((offset for offset, time in enumerate(times) if time >= when), None), when


def test_a_time_is_found_in_any_segment(store: LogStore):
    """Segments without a record of this partition, and with its commits alone, among them; below a trim nothing is found."""
    times: list[int] = []
    for part in range(12):
        if part % 4 == 3:
            write(store, CommitRequest("#1", 0), now_us=1_000 * part)
        elif part % 4 != 2:
            for number in range(part):
                append(store, b"x", b"y", now_us=1_000 * part + 100 * number)
                times += [1_000 * part + 100 * number] * 2
        roll(store)

    def expected(when: int, earliest: int = 0) -> int | None:
        return next((offset for offset, time in enumerate(times) if time >= when and offset >= earliest), None)

    moments = [when + near for when in (*times, *range(0, 13_000, 1_000)) for near in (-1, 0, 1)]
    assert [store.first_offset_since(PARTITION, when) for when in moments] == [expected(when) for when in moments]
    trim(store, 7, now_us=12_000)
    assert [store.first_offset_since(PARTITION, when) for when in moments] == [expected(when, 7) for when in moments]
    assert begin_later(store) is not None
    assert [store.first_offset_since(PARTITION, when) for when in moments] == [expected(when, 7) for when in moments]
    trim(store, len(times), now_us=12_000)
    assert [store.first_offset_since(PARTITION, when) for when in moments] == [None] * len(moments)


def test_outside_the_log_there_is_nothing(store: LogStore):
    append(store, b"a")
    for offset in (1, 2, 10**18, -1, -(10**18)):
        found = store.read(PARTITION, offset, **EVERYTHING)
        assert (found.body, found.record_count, found.start_offset, found.end_offset, found.epoch) == (ENTRIES_MAGIC, 0, 0, 1, 1)


def test_offset_commits_and_markers_do_not_hide_records(store: LogStore):
    """A thousand entries without records between two messages: one read finds both."""
    append(store, b"a")
    write(store, *[CommitRequest("#1", number % 2) for number in range(1_000)])
    append(store, b"b")
    assert values(store) == [(0, b"a"), (1, b"b")]
    assert values(store, 1) == [(1, b"b")]


def test_a_promise_is_kept_and_changes_nothing_else(store: LogStore):
    write(store, AppendRequest(blocks(b"a")))
    before = store.head(PARTITION)
    with store.locked(PARTITION) as held:
        held.promise(7)
    assert store.head(PARTITION) == dataclasses.replace(before, promised_epoch=7)


def texts(store: LogStore) -> list[bytes]:
    return [value for _, value in values(store)]


def two(first: bytes, second: bytes) -> list[Block]:
    """The blocks of one request, two entries."""
    return [*blocks(first), *blocks(second)]


def lsns(store: LogStore, first: int, end: int, bytes_max: int = 1 << 20) -> list[int]:
    return [entry.head.lsn for entry in store.entries(PARTITION, first, end, bytes_max=bytes_max)]


def test_entries_come_as_they_were_stored(store: LogStore):
    """Committed or not, every column, with a chain that follows; at least one whatever the bound."""
    records = [Record(b"v", b"k", (("h", b"x"),), 5), Record(b"w")]
    write(store, AppendRequest(record_blocks(records)), CommitRequest("#1", 1), committed=False)
    found = store.entries(PARTITION, 0, 10, bytes_max=1 << 20)
    chain = GENESIS
    for entry in found:
        chain = entry.chain_after(chain)
        assert chain == entry.chain
    assert chain == store.head(PARTITION).end.chain
    assert lsns(store, 1, 2) == [1]
    assert lsns(store, 1, 9, bytes_max=1) == [1]
    assert lsns(store, 9, 12) == []
    mark = store.mark(PARTITION, 1)
    assert mark is not None
    assert (mark.head, mark.chain) == (found[1].head, found[1].chain)
    assert store.mark(PARTITION, 99) is None


def test_a_tail_is_cut_off_and_the_log_goes_on(store: LogStore):
    write(store, AppendRequest(blocks(b"a", b"b")))
    before = store.head(PARTITION)
    write(store, AppendRequest(blocks(b"lost")), CommitRequest("#1", 1), committed=False)
    with store.locked(PARTITION) as held:
        held.truncate(before.end.lsn)
        assert held.head.end == before.end
    assert store.head(PARTITION) == before
    assert lsns(store, 0, 99) == list(range(before.end.lsn))
    write(store, AppendRequest(blocks(b"c")))
    assert texts(store) == [b"a", b"b", b"c"]


def test_a_whole_log_may_be_cut_off(store: LogStore):
    """Nothing was committed: what comes then begins at the start."""
    other = PartitionId(PARTITION.topic_id, 9)
    store.create(other, topic="t", config={})
    entries, end = marker_entry(other, LogEnd(), epoch=1, append_time=100)
    with store.locked(other) as held:
        entries, end = held.append(entries, end)
    with store.locked(other) as held:
        held.truncate(0)
    with store.locked(other) as held:
        assert held.head.end[:4] == LogEnd()[:4]
        assert (entries, end) == held.append(entries, end), "what has a chain keeps it"
    assert store.head(other).end == end


def test_a_log_under_its_lock_is_read_by_position(store: LogStore):
    write(store, AppendRequest(two(b"a", b"b")), AppendRequest(blocks(b"c")))
    end = store.head(PARTITION).end
    with store.locked(PARTITION) as held:
        log = held.log
        assert (log.start, log.start_epoch, log.start_chain, log.end) == (0, 0, GENESIS, end.lsn)
        assert [log.epoch_at(at) for at in range(end.lsn)] == [1] * end.lsn
        assert log.chain_at(end.lsn - 1) == end.chain
        assert (log.first_position_of_epoch(1), log.first_position_of_epoch(2)) == (0, end.lsn)
        assert [log.request_start(at) for at in range(end.lsn + 1)] == [0, 1, 1, 3, 4]
        assert [held.offset_at(at) for at in range(end.lsn + 1)] == [0, 0, 1, 2, 3]


def test_the_commit_position_rises_by_itself_and_never_falls(store: LogStore):
    """Without the log's lock; what is committed is read, and folded when asked."""
    start = store.head(PARTITION).commit_lsn
    write(store, AppendRequest(blocks(b"a"), sequence(0)), CommitRequest("#1", 0), committed=False)
    assert texts(store) == []
    store.advance(PARTITION, start + 1, 1)
    store.advance(PARTITION, start, 0)
    head = store.head(PARTITION)
    assert (head.commit_lsn, head.commit_offset, head.applied_lsn) == (start + 1, 1, start)
    assert texts(store) == [b"a"]
    assert store.fold(PARTITION) is False
    assert (store.head(PARTITION).applied_lsn, offset_of(store, "#1")) == (start + 1, None)
    store.advance(PARTITION, start + 2, 1)
    assert offset_of(store, "#1") == 0, "committed, though not folded yet"
    assert store.fold(PARTITION) is False
    assert offset_of(store, "#1") == 0
    with store.locked(PARTITION, Wanted(producers=frozenset({sequence(0).producer_id}))) as held:
        assert held.state.producers[sequence(0).producer_id].last_seq == 0


def test_folding_takes_whole_requests_and_goes_on(store: LogStore):
    """So many entries at a time, never a part of a request; the state is the one that folding at once gives."""
    write(store, *(AppendRequest(two(b"a", b"b"), sequence(number)) for number in range(4)), committed=False)
    head = store.head(PARTITION)
    store.advance(PARTITION, head.end.lsn, head.end.offset)
    positions = []
    while store.fold(PARTITION, entries_max=3):
        positions.append(store.head(PARTITION).applied_lsn)
    assert [at - head.applied_lsn for at in positions] == [2, 4, 6]
    assert store.head(PARTITION).applied_lsn == head.end.lsn
    with store.locked(PARTITION, Wanted(producers=frozenset({sequence(0).producer_id}))) as held:
        state = held.state.producers[sequence(0).producer_id]
    assert [(request.seq, request.base_offset, request.record_count) for request in state.recent] == [(0, 0, 2), (1, 2, 2), (2, 4, 2), (3, 6, 2)]


def test_configs_are_set_for_topics_that_are_here(store: LogStore):
    store.configure({PARTITION.topic_id: {"retention_ms": 5}, 99: {"retention_ms": 6}})
    assert store.topic(PARTITION.topic_id) == ("t", {"retention_ms": 5})
    assert store.topic(99) is None
    store.configure({PARTITION.topic_id: {}})
    assert store.topic(PARTITION.topic_id) == ("t", {})


def test_learners_and_faults_are_kept(store: LogStore):
    with store.locked(PARTITION) as held:
        held.set_learners([4, 5])
        held.set_fault("damaged")
    head = store.head(PARTITION)
    assert (tuple(head.learners), head.fault) == ((4, 5), "damaged")


def test_a_replica_that_is_dropped_has_promised_all_the_same(store: LogStore):
    """Made again it takes nothing of a leader from before; only with its topic the promise goes."""
    other = PartitionId(PARTITION.topic_id, 9)
    for epoch in (5, 8):
        store.create(other, topic="t", config={})
        with store.locked(other) as held:
            held.promise(epoch)
        store.drop_partition(other, before_epoch=99)
        store.create(other, topic="t", config={})
        assert (store.head(other).promised_epoch, store.head(other).leader_epoch, store.head(other).end.lsn) == (epoch, 0, 0)
    store.drop_partition(other, before_epoch=99)
    store.drop(PARTITION.topic_id)
    store.create(other, topic="t", config={})
    assert store.head(other).promised_epoch == 0


def test_a_replica_that_was_asked_for_again_is_not_dropped_by_what_was_said_before(store: LogStore):
    other = PartitionId(PARTITION.topic_id, 9)
    store.create(other, topic="t", config={})
    with store.locked(other) as held:
        held.promise(5)
    assert store.drop_partition(other, before_epoch=5) is False
    assert store.head(other).promised_epoch == 5
    assert store.drop_partition(other, before_epoch=6) is True
    assert store.drop_partition(other, before_epoch=1) is True, "it is not there"
    with pytest.raises(UnknownPartitionError):
        store.head(other)


def test_a_damaged_log_is_discarded_some_entries_at_a_time(store: LogStore):
    """And no other."""
    for number in range(4):
        append(store, b"a", seq=number)
    assert store.discard_damaged(PARTITION, rows_max=2) is True, "it has no fault"
    assert len(store.entries(PARTITION, 0, 10, bytes_max=1 << 20)) == 5
    with store.locked(PARTITION) as held:
        held.set_fault("damaged")
    assert [store.discard_damaged(PARTITION, rows_max=2) for _ in range(2)] == [False, False]
    assert [entry.head.lsn for entry in store.entries(PARTITION, 0, 10, bytes_max=1 << 20)] == [4]
    assert store.discard_damaged(PARTITION, rows_max=2) is True
    assert store.entries(PARTITION, 0, 10, bytes_max=1 << 20) == []


def test_a_damaged_log_begins_afresh(store: LogStore):
    """Nothing is left of it but what was promised."""
    write(store, AppendRequest(blocks(b"a", b"b"), sequence(0)), DequeueRequest("#1"))
    before = store.head(PARTITION)
    with store.locked(PARTITION) as held:
        held.set_fault("damaged")
    with store.locked(PARTITION) as held:
        held.promise(before.promised_epoch + 1)
        held.begin_anew(LogEnd(), LogState(), 0)
    head = store.head(PARTITION)
    assert (head.fault, head.end, head.start_lsn, head.commit_lsn, head.applied_lsn, head.seeding_until) == (None, LogEnd(), 0, 0, 0, None)
    assert (head.promised_epoch, head.leader_epoch) == (before.promised_epoch + 1, before.leader_epoch)
    assert store.entries(PARTITION, 0, 10, bytes_max=1 << 20) == []
    assert state_of(store, PARTITION) == LogState()


def test_parts_that_may_be_dropped_whole(store: LogStore):
    """Each with its end, the time of its last entry, and its size; what is written to is none, where there are segments."""
    append(store, b"a" * 500, seq=0)
    roll(store)
    append(store, b"b" * 700, b"c", seq=1)
    roll(store)
    append(store, b"d", seq=2)
    assert store.parts(PARTITION, with_sizes=False)[0].size_bytes is None
    first, second = store.parts(PARTITION, with_sizes=True)[-3 if isinstance(store, MemoryLogStore) else 0:][:2]
    assert (first.end.offset, second.end.offset) == (1, 3)
    assert first.append_time is not None
    assert second.append_time is not None
    assert first.append_time <= second.append_time
    assert first.size_bytes is not None
    assert second.size_bytes is not None
    assert 500 <= first.size_bytes < second.size_bytes < 1_500
    assert store.parts(PARTITION, with_sizes=True)[-1].end.offset == (4 if isinstance(store, MemoryLogStore) else 3)
    roll(store)
    assert store.parts(PARTITION, with_sizes=True)[-1].end == Border(*store.head(PARTITION).end[:2])


def roll(store: LogStore) -> None:
    """What comes next goes to another segment."""
    if isinstance(store, PostgresLogStore):
        store.maintain_segments(RollPolicy(1, 1e9))


def test_one_replica_is_dropped_and_its_topic_stays(store: LogStore):
    other = PartitionId(PARTITION.topic_id, 9)
    begin(store, other)
    write(store, AppendRequest(blocks(b"a")))
    write(store, AppendRequest(blocks(b"b")), partition=other)
    store.drop_partition(other, before_epoch=99)
    store.drop_partition(other, before_epoch=99)
    with pytest.raises(UnknownPartitionError):
        store.head(other)
    assert texts(store) == [b"a"]
    assert store.topic(PARTITION.topic_id) == ("t", {})
    assert store.topic(99) is None
    begin(store, other)
    assert store.head(other).end.lsn == 1


def test_has_entry_tells_by_chain(store: LogStore):
    """The same position with other content is another entry."""
    append(store, b"a")
    with store.locked(PARTITION) as held:
        end = held.head.end
        assert held.has_entry(end.lsn - 1, end.chain)
        assert not held.has_entry(end.lsn - 1, bytes(32))
        assert not held.has_entry(end.lsn, end.chain)


def test_one_transaction_at_a_time(store: LogStore):
    """Who comes second waits, and is told when it is too long; another partition is not concerned."""
    other = PartitionId(1, 1)
    begin(store, other)
    inside, leave, seen = threading.Event(), threading.Event(), []

    def hold() -> None:
        with store.locked(PARTITION) as held:
            entries, end = record_entries(PARTITION, held.head.end, epoch=1, append_time=200, blocks=blocks(b"first"), sequence=None)
            held.append(entries, end)
            held.commit(end.lsn, end.offset, LogState())
            inside.set()
            leave.wait(10)

    def wait() -> None:
        with store.locked(PARTITION, lock_timeout_seconds=10) as held:
            seen.append(held.head.end.offset)

    first, second = threading.Thread(target=hold), threading.Thread(target=wait)
    first.start()
    assert inside.wait(10)
    with pytest.raises(LogBusyError), store.locked(PARTITION, lock_timeout_seconds=0.05):
        pass
    append(store, b"elsewhere", partition=other)
    second.start()
    leave.set()
    first.join(10)
    second.join(10)
    assert seen == [1], "the second one saw the log without what the first one wrote"


def test_unknown_partitions_are_told(store: LogStore):
    nowhere = PartitionId(1, 5)
    for call in (lambda: store.head(nowhere), lambda: store.read(nowhere, 0, **EVERYTHING), lambda: enter(store, nowhere)):
        with pytest.raises(UnknownPartitionError):
            call()


def enter(store: LogStore, partition: PartitionId) -> HeldLog:
    with store.locked(partition) as held:
        return held


def test_create_is_idempotent(store: LogStore):
    """What is there stays; name and config are the latest."""
    append(store, b"a")
    store.create(PARTITION, topic="renamed", config={"x": 1})
    assert values(store) == [(0, b"a")]
    assert (store.topic_id("renamed"), store.topic_id("t")) == (1, None)


def test_the_newest_topic_has_the_name(store: LogStore):
    """A topic that was made again has another identity."""
    begin(store, PartitionId(4, 0))
    assert store.topic_id("t") == 4
    assert store.topic_id("never") is None


def test_sizes_are_told_by_topic(store: LogStore):
    """What a topic takes on disk: more where more was stored, of topics that are here alone."""
    store.create(PartitionId(2, 0), topic="a", config={})
    before = store.sizes()["t"]
    append(store, *[b"x" * 1_000] * 200)
    assert store.sizes()["t"] >= before + 150_000
    assert set(store.sizes()) <= {"a", "t"}


def test_held_lists_what_is_here(store: LogStore):
    begin(store, PartitionId(2, 0), "a")
    begin(store, PartitionId(1, 1))
    assert [(one.topic, one.id) for one in store.held()] == [("a", PartitionId(2, 0)), ("t", PARTITION), ("t", PartitionId(1, 1))]
    assert [one.id for one in store.held("a")] == [PartitionId(2, 0)]
    assert store.held()[1].head == store.head(PARTITION)


def test_drop_forgets_a_topic(store: LogStore):
    """Its logs and offsets are gone, others stay, a second time is no error, and a new topic of that name begins empty."""
    begin(store, PartitionId(2, 0), "other")
    append(store, b"a", seq=0)
    write(store, DequeueRequest("#1", "r"))
    assert store.drop(1) == [PARTITION]
    assert store.drop(1) == []
    assert (store.topic_id("t"), [one.id for one in store.held()]) == (None, [PartitionId(2, 0)])
    with pytest.raises(UnknownPartitionError):
        store.head(PARTITION)
    begin(store, PARTITION)
    assert append(store, b"new", seq=0).base_offset == 0
    assert write(store, DequeueRequest("#1", "r"))[0].offset == 0


def test_a_damaged_log_is_not_served(store: LogStore):
    """A read says why, and holds nothing."""
    append(store, b"a")
    with store.locked(PARTITION) as held:
        held.set_fault("an entry changed")
    found = store.read(PARTITION, 0, **EVERYTHING)
    assert (found.fault, found.record_count, found.body) == ("an entry changed", 0, ENTRIES_MAGIC)


def test_the_commit_position_never_falls(store: LogStore):
    """Whoever raises it late changes nothing."""
    append(store, b"a", b"b")
    before = store.head(PARTITION)
    with store.locked(PARTITION) as held:
        held.raise_commit(1, 0)
    store.advance(PARTITION, 1, 0)
    assert store.head(PARTITION) == before


# --- trims ---

def trim(store: LogStore, before_offset: int, **more):
    return write(store, TrimRequest(before_offset), **more)[0]


def test_what_is_trimmed_is_not_read_any_more(store: LogStore):
    """Nothing below the offset, in the middle of a block too; the bounds say where the log begins now."""
    append(store, b"a", b"b", b"c")
    append(store, b"d")
    assert trim(store, 2).offset == 2
    head = store.head(PARTITION)
    assert (head.start_offset, head.trim_offset, head.earliest) == (0, 2, 2)
    assert (head.end.lsn, head.commit_lsn, head.applied_lsn) == (4, 4, 4)
    found = store.read(PARTITION, 1, **EVERYTHING)
    assert (found.body, found.start_offset, found.end_offset) == (ENTRIES_MAGIC, 2, 4)
    assert [value for offset, value in values(store, 2) if offset >= 2] == [b"c", b"d"]
    assert trim(store, 1).offset == 2, "it never goes back"
    assert store.head(PARTITION).end.lsn == 4, "and nothing is written for it"
    assert trim(store, 4).offset == 4
    assert values(store, 4) == []


def test_a_trim_counts_once_it_is_committed_and_folded(store: LogStore):
    """Decisions see it at once, readers when it is folded."""
    append(store, b"a", b"b", b"c")
    assert trim(store, 2, committed=False).offset == 2
    assert write(store, DequeueRequest("#1"), committed=False)[0].offset == 2
    assert [value for _, value in values(store)] == [b"a", b"b", b"c"]
    head = store.head(PARTITION)
    store.advance(PARTITION, head.end.lsn, head.end.offset)
    assert store.fold(PARTITION) is False
    assert store.head(PARTITION).trim_offset == 2
    assert store.read(PARTITION, 0, **EVERYTHING).start_offset == 2


def test_a_trim_that_is_cut_off_was_none(store: LogStore):
    append(store, b"a", b"b")
    before = store.head(PARTITION)
    trim(store, 2, committed=False)
    with store.locked(PARTITION) as held:
        held.truncate(before.end.lsn)
    assert store.head(PARTITION) == before
    assert write(store, DequeueRequest("#1"))[0].offset == 0


def fill(store: LogStore, *groups: int) -> None:
    """So many records of one byte each, a segment for each number where the store has any; the last one is open."""
    for place, count in enumerate(groups):
        if place and isinstance(store, PostgresLogStore):
            store.maintain_segments(RollPolicy(1, 1e9))
        for number in range(count):
            append(store, b"%d" % number)


def begin_later(store: LogStore, *, partition: PartitionId = PARTITION, kept_from: int = 1 << 40) -> Border | None:
    with store.locked(partition) as held:
        border = plan_begin(held.head, held.borders(), kept_from=kept_from)
        if border is not None:
            held.begin_at(border)
    return border


def test_a_log_begins_later_at_a_border_below_what_is_trimmed(store: LogStore):
    """The head says so before anything of it goes, with epoch and chain of the entry before; what is left is read, and the chain goes on."""
    fill(store, 3, 3, 2)
    chains = {entry.head.lsn: entry.chain for entry in store.entries(PARTITION, 0, 99, bytes_max=1 << 20)}
    assert begin_later(store) is None, "nothing is trimmed"
    trim(store, 5)
    assert store.may_begin_later() == [PARTITION]
    assert begin_later(store, kept_from=0) is None, "a follower needs it"
    border = begin_later(store, kept_from=5)
    assert border is not None
    assert border.offset <= 5 and 1 < border.lsn <= 5
    head = store.head(PARTITION)
    assert (head.start_lsn, head.start_offset, head.start_epoch, head.start_chain) == (*border, 1, chains[border.lsn - 1])
    assert (head.earliest, head.end.lsn) == (5, 10)
    for _ in range(2):
        store.drop_segments()
    assert [values(store, offset)[0] for offset in (5, 6, 7)] == [(5, b"2"), (6, b"0"), (7, b"1")]
    with store.locked(PARTITION) as held:
        assert (held.log.start, held.offset_at(border.lsn), held.log.first_position_of_epoch(1)) == (border.lsn, border.offset, border.lsn)
        assert held.record_at(5).record.value == b"2"
    chain = head.start_chain
    found = store.entries(PARTITION, head.start_lsn, 99, bytes_max=1 << 20)
    for entry in found:
        chain = entry.chain_after(chain)
    assert (found[0].head.lsn, chain) == (border.lsn, head.end.chain)


def test_a_whole_log_may_go_and_the_next_entry_continues_it(store: LogStore):
    """All of it trimmed, and nothing in the open segment: the log is empty, and knows where it goes on."""
    fill(store, 3)
    trim(store, 3)
    if isinstance(store, PostgresLogStore):
        store.maintain_segments(RollPolicy(1, 1e9))
    before = store.head(PARTITION)
    assert begin_later(store) == (before.end.lsn, 3)
    store.drop_segments()
    head = store.head(PARTITION)
    assert (head.start_lsn, head.start_offset, head.start_chain, head.end) == (before.end.lsn, 3, before.end.chain, before.end)
    assert append(store, b"next").base_offset == 3
    assert values(store, 3) == [(3, b"next")]
    [entry] = store.entries(PARTITION, 0, 99, bytes_max=1 << 20)
    assert entry.chain_after(before.end.chain) == entry.chain


def test_what_is_not_folded_stays(store: LogStore):
    """A trim that is committed and not folded drops nothing yet; nor one of a log that is damaged."""
    fill(store, 3, 1)
    trim(store, 3, committed=False)
    head = store.head(PARTITION)
    store.advance(PARTITION, head.end.lsn, head.end.offset)
    assert begin_later(store) is None
    store.fold(PARTITION)
    with store.locked(PARTITION) as held:
        held.set_fault("damaged")
    assert begin_later(store) is None


# --- seeding ---

EVERYBODY = Wanted(frozenset({7, 8}), frozenset({"#1", "#2"}), frozenset({("#1", "r"), ("#1", "old")}), trim=True)
OTHER = PartitionId(PARTITION.topic_id, 9)


def state_of(store: LogStore, partition: PartitionId = PARTITION) -> LogState:
    """What decisions see, folded or not."""
    with store.locked(partition, EVERYBODY) as held:
        return held.state


def seeded(store: LogStore) -> tuple[list[LogEntry], Snapshot]:
    """A log of a replica that begins later, in full and as it is offered; another replica, OTHER, that holds something of its own."""
    append(store, b"a", b"b", seq=0)
    append(store, b"c", b"d", seq=1)
    write(store, DequeueRequest("#1", "r"))
    write(store, TrimRequest(4))
    if isinstance(store, PostgresLogStore):
        store.maintain_segments(RollPolicy(1, 1e9))
    append(store, b"e", seq=2)
    write(store, CommitRequest("#2", 3))
    with store.locked(PARTITION) as held:
        held.begin_at(next(border for border in held.borders() if border.lsn >= 3))
    begin(store, OTHER)
    append(store, b"own", seq=0, partition=OTHER)
    write(store, DequeueRequest("#1", "old"), partition=OTHER)
    append(store, b"never committed", b"x", b"y", b"z", b"beyond", partition=OTHER, committed=False)
    snapshot = store.snapshot(PARTITION)
    return store.entries(PARTITION, snapshot.head.start_lsn, 99, bytes_max=1 << 20), snapshot


def offer(store: LogStore, snapshot: Snapshot, entries: list[LogEntry]) -> None:
    head = snapshot.head
    with store.locked(OTHER) as held:
        held.begin_anew(LogEnd(head.start_lsn, head.start_offset, head.start_epoch, head.start_chain, head.end.append_time), snapshot.state,
                        head.applied_lsn)
    for entry in entries[:-1]:
        add(store, entry)


def add(store: LogStore, entry: LogEntry) -> None:
    moved = entry._replace(head=entry.head._replace(partition=OTHER.partition))
    head = moved.head
    with store.locked(OTHER) as held:
        held.append([moved], LogEnd(head.lsn + 1, head.base_offset + head.record_count, head.epoch, moved.chain, head.append_time))
        held.raise_commit(head.lsn + 1, head.base_offset + head.record_count)
        if head.lsn + 1 == held.head.seeding_until:
            held.end_seeding(head.base_offset + head.record_count)


def test_a_snapshot_holds_all_that_is_folded(store: LogStore):
    _, snapshot = seeded(store)
    assert snapshot.head == store.head(PARTITION)
    assert snapshot.state == state_of(store)
    assert (set(snapshot.state.producers), set(snapshot.state.consumers), set(snapshot.state.requests), snapshot.state.trim_offset) == (
        {7}, {"#1", "#2"}, {("#1", "r")}, 4)
    with pytest.raises(UnknownPartitionError):
        store.snapshot(PartitionId(1, 5))


def test_a_log_begins_anew_at_an_offered_start(store: LogStore):
    """What was held is gone, the uncommitted tail too; while the log follows nothing is folded and nothing served; then it is what the sender has."""
    entries, snapshot = seeded(store)
    until = snapshot.head.applied_lsn
    offer(store, snapshot, entries)
    head = store.head(OTHER)
    assert (head.start_lsn, head.start_offset, head.start_epoch, head.start_chain) == (
        snapshot.head.start_lsn, snapshot.head.start_offset, snapshot.head.start_epoch, snapshot.head.start_chain)
    assert (head.seeding_until, head.end.lsn, head.commit_lsn, head.applied_lsn, head.trim_offset) == (until, until - 1, until - 1, head.start_lsn, 4)
    assert store.fold(OTHER) is False
    assert store.head(OTHER).applied_lsn == head.start_lsn
    found = store.read(OTHER, 4, **EVERYTHING)
    assert (found.seeding, found.body) == (True, ENTRIES_MAGIC)
    add(store, entries[-1])
    head = store.head(OTHER)
    assert (head.seeding_until, head.end.lsn, head.commit_lsn, head.commit_offset, head.applied_lsn) == (
        None, until, until, snapshot.head.commit_offset, until)
    assert state_of(store, OTHER) == snapshot.state, "nothing of what it held before is left, and nothing was folded twice"
    assert head.end == snapshot.head.end
    body = store.read(OTHER, 4, **EVERYTHING).body
    assert [(one.offset, one.value) for one in messages_of(body, topic="t", partition=9)] == [(4, b"e")]
    with store.locked(OTHER) as held:
        held.lead(2, {1: "disk"}, 1)
    assert append(store, b"f", seq=3, partition=OTHER).base_offset == 5
    assert append(store, b"e", seq=2, partition=OTHER).base_offset == 4
    assert write(store, DequeueRequest("#1"), partition=OTHER)[0].offset == 4
    assert append(store, b"elsewhere", seq=3).base_offset == 5, "the other partition is as it was"


def test_a_start_that_holds_all_the_state_needs_no_seeding(store: LogStore):
    """Nothing lies between the start and the state: it serves at once."""
    _, snapshot = seeded(store)
    end = snapshot.head.end
    with store.locked(OTHER) as held:
        held.begin_anew(end, snapshot.state, end.lsn)
    head = store.head(OTHER)
    assert (head.seeding_until, head.start_lsn, head.end, head.commit_lsn, head.applied_lsn) == (None, end.lsn, end, end.lsn, end.lsn)
    assert (head.commit_offset, store.read(OTHER, 5, **EVERYTHING).seeding) == (5, False)
    assert append(store, b"next", seq=3, partition=OTHER).base_offset == 5


def test_another_start_may_come_before_the_first_is_reached(store: LogStore):
    """The sender's log began later meanwhile: all of it is replaced once more."""
    entries, snapshot = seeded(store)
    offer(store, snapshot, entries)
    end = snapshot.head.end
    state = LogState(trim_offset=5)
    with store.locked(OTHER) as held:
        held.begin_anew(end, state, end.lsn)
    assert state_of(store, OTHER) == state
    assert append(store, b"next", seq=0, partition=OTHER).base_offset == 5


# --- search ---

SEARCHED = {"records_max": 1_000, "bytes_max": 1 << 20, "scan_max": 100_000}


def search(store: LogStore, offset: int = 0, end: int = 1 << 40, *, key: bytes | None = None, **bounds: int) -> tuple[list[tuple[int, bytes]], int]:
    found = store.search(PARTITION, offset, end, key=key, **SEARCHED | bounds)
    return [(one.offset, one.record.value) for one in found.records], found.next_offset


def walk(store: LogStore, offset: int, end: int, **more) -> list[tuple[int, bytes]]:
    """Search after search, until the end is reached."""
    found = []
    while offset < end:
        hits, after = search(store, offset, end, **more)
        assert after > offset
        found, offset = found + hits, after
    return found


def keyed(store: LogStore, count: int, *, every: int, size: int = 40, now_us: int = 1_000) -> list[tuple[int, bytes]]:
    """Append records of which every so many-th has the key b"k", others another one or none; those with b"k"."""
    first = store.head(PARTITION).commit_offset
    records = [Record(b"%d" % number + b"x" * size, b"k" if number % every == 0 else (None, b"K", b"")[number % 3])
               for number in range(first, first + count)]
    write(store, AppendRequest(record_blocks(records)), now_us=now_us)
    return [(number, one.value) for number, one in enumerate(records, first) if one.key == b"k"]


def test_a_search_finds_exactly_what_has_the_key(store: LogStore):
    """From the first block to the last, and nothing outside the range."""
    hits = keyed(store, 400, every=7) + keyed(store, 300, every=11)
    assert search(store, key=b"k") == (hits, 700)
    assert search(store, 14, 430, key=b"k") == ([hit for hit in hits if 14 <= hit[0] < 430], 430)
    assert search(store, 15, 21, key=b"k") == ([], 21)
    assert [offset for offset, _ in search(store, 0, 30, key=b"")[0]] == [number for number in range(30) if number % 7 and number % 3 == 2]
    assert search(store, key=b"nobody") == ([], 700)


def test_a_search_without_a_key_finds_all(store: LogStore):
    append(store, b"a", b"b")
    append(store, b"c")
    assert search(store, 1, 3) == ([(1, b"b"), (2, b"c")], 3)


@pytest.mark.parametrize("bounds", [{"records_max": 3}, {"scan_max": 10}, {"bytes_max": 100}, {"bytes_max": 1}, {"records_max": 1, "scan_max": 1}])
@pytest.mark.parametrize("key", [b"k", None])
def test_a_search_that_is_cut_short_goes_on_where_it_ended(store: LogStore, bounds: dict, key: bytes | None):
    """Whatever bound it met: nothing is left out, nothing comes twice, and it always comes further."""
    hits = keyed(store, 120, every=5)
    expected = hits if key else walk(store, 0, 120)
    assert len(expected) == (24 if key else 120)
    assert walk(store, 0, 120, key=key, **bounds) == expected


def test_a_search_goes_through_all_segments(store: LogStore):
    """Also through one that holds no record of the partition."""
    hits = keyed(store, 50, every=4, now_us=1_000)
    roll(store)
    write(store, CommitRequest("#1", 3))
    roll(store)
    hits += keyed(store, 50, every=9, now_us=2_000)
    roll(store)
    hits += keyed(store, 5, every=2, now_us=3_000)
    assert walk(store, 0, 105, key=b"k") == hits
    assert [offset for offset, _ in walk(store, 45, 103)] == list(range(45, 103))
    assert [store.first_offset_since(PARTITION, time_us) for time_us in (1_000, 1_500, 2_000, 2_500, 3_500)] == [0, 50, 50, 100, None]


def test_a_hit_larger_than_the_bound_comes_alone(store: LogStore):
    write(store, AppendRequest(record_blocks([Record(b"x" * 20_000, b"k"), Record(b"y", b"k")])))
    assert search(store, key=b"k", bytes_max=100) == ([(0, b"x" * 20_000)], 1)
    assert search(store, 1, key=b"k", bytes_max=100) == ([(1, b"y")], 2)


def test_a_search_tells_all_of_a_record(store: LogStore):
    record = Record(b"v", b"k", (("h", b"x"), ("é", None)), 5)
    write(store, AppendRequest(record_blocks([Record(b"before"), record])), now_us=2_000)
    [found] = store.search(PARTITION, 0, 9, key=b"k", **SEARCHED).records
    assert (found.offset, found.record, found.append_time) == (1, record, 2_000)


def test_a_search_sees_what_is_committed_and_not_trimmed(store: LogStore):
    keyed(store, 30, every=1)
    write(store, TrimRequest(12))
    keyed(store, 5, every=1)
    append(store, b"tail", committed=False)
    assert [offset for offset, _ in search(store, key=b"k")[0]] == list(range(12, 35))
    assert search(store, 0, 12, key=b"k") == ([], 12)
    assert search(store, 35, 36) == ([], 35)
    with pytest.raises(UnknownPartitionError):
        store.search(PartitionId(9, 9), 0, 1, key=None, **SEARCHED)


# --- on a log that is as it was remembered ---

LITTLE, MUCH = b"", b"x" * (AT_ONCE_BYTES_MAX + 1)  # beside what is appended: in one exchange, or in two
sizes = pytest.mark.parametrize("more", [LITTLE, MUCH], ids=["little", "much"])


def expecting(store: LogStore, *values: bytes, seq: int | None = None, commits: bool = True, remembered: Remembered | None = None,
              **more: Any) -> Remembered:
    """Append by what is remembered of the log; what that was."""
    request = AppendRequest(blocks(*values), None if seq is None else sequence(seq))
    remembered = remembered or store.remembered(PARTITION, wanted([request]))
    assert remembered is not None
    head = remembered.head
    plan = plan_group(PARTITION, head.end, remembered.state, LogRange(head.start_offset, head.commit_offset), [request], epoch=1, now_us=2_000)
    entries, end = store.append_expecting(PARTITION, remembered, plan.entries, plan.end, plan.changes, commits=commits, lock_timeout_seconds=0.2,
                                          **more)
    assert list(entries) == list(chained(head.end.chain, plan.entries))
    assert end == end_chained(plan.end, entries, head.end.chain)
    return remembered


def known(store: LogStore, *values: bytes, seq: int | None = None, committed: bool = True) -> None:
    """Append under the lock, so that the log is remembered."""
    request = AppendRequest(blocks(*values), None if seq is None else sequence(seq))
    with store.locked(PARTITION, wanted([request])) as held:
        head = held.head
        plan = plan_group(PARTITION, head.end, held.state, LogRange(head.start_offset, head.commit_offset), [request], epoch=1, now_us=1_000)
        held.append(plan.entries, plan.end, plan.changes)
        if committed:
            held.commit(plan.end.lsn, plan.end.offset, plan.changes)


def test_nothing_is_remembered_that_was_not_said(store: LogStore):
    """Not before the first append, not behind one that does not say what it changes, and no producer that was not looked up."""
    assert store.remembered(PARTITION, Wanted()) is None
    known(store, b"a", seq=0)
    assert store.remembered(PARTITION, Wanted(producers=frozenset({7}))) is not None
    assert store.remembered(PARTITION, Wanted(producers=frozenset({7, 8}))) is None
    for more in (Wanted(consumers=frozenset({"#1"})), Wanted(requests=frozenset({("#1", "r")})), Wanted(trim=True)):
        assert store.remembered(PARTITION, more) is None
    append(store, b"b")
    assert store.remembered(PARTITION, Wanted()) is None


@sizes
@pytest.mark.parametrize("committed", [True, False])
def test_what_is_appended_expecting_is_as_under_the_lock(store: LogStore, committed: bool, more: bytes):
    """The same head, entries and state as a log that was written step by step; also where nothing is committed yet."""
    other = MemoryLogStore()
    begin(other, PARTITION)
    known(store, b"0", seq=0, committed=committed)
    append(other, b"0", seq=0, committed=committed)
    for number in range(1, 12):
        expecting(store, b"%d" % number, b"x" * number, more, seq=number, commits=committed)
        append(other, b"%d" % number, b"x" * number, more, seq=number, committed=committed, now_us=2_000)
    assert store.head(PARTITION) == other.head(PARTITION)
    assert store.snapshot(PARTITION) == other.snapshot(PARTITION)
    assert [entry.chain for entry in store.entries(PARTITION, 0, 99, bytes_max=1 << 20)] == \
           [entry.chain for entry in other.entries(PARTITION, 0, 99, bytes_max=1 << 20)]
    assert append(store, b"again", seq=11, committed=committed).duplicate is True


def test_other_producers_stay_known(store: LogStore):
    """What is remembered of one is not lost when another one is looked up, as long as nobody writes in between who does not tell."""
    for producer_id in (7, 8):
        request = AppendRequest(blocks(b"x"), sequence(0, producer_id=producer_id))
        with store.locked(PARTITION, wanted([request])) as held:
            plan = plan_group(PARTITION, held.head.end, held.state, LogRange(0, 0), [request], epoch=1, now_us=1_000)
            held.append(plan.entries, plan.end, plan.changes)
            held.commit(plan.end.lsn, plan.end.offset, plan.changes)
    found = store.remembered(PARTITION, Wanted(producers=frozenset({7, 8})))
    assert found is not None
    assert {producer_id: state.last_seq for producer_id, state in found.state.producers.items()} == {7: 0, 8: 0}


def test_a_log_with_learners_is_appended_to_expecting_them(store: LogStore):
    with store.locked(PARTITION) as held:
        held.set_learners([5, 2**40])
    known(store, b"a", committed=False)
    expecting(store, b"b", commits=False)
    assert store.head(PARTITION).end.offset == 2


def test_of_too_many_producers_none_is_remembered(broker_database: str):
    """What is kept in memory of a log is bounded; they are looked up under the lock."""
    engines = [make_engine(broker_database, application_name="tests", pool_size=2) for _ in range(2)]
    store = PostgresLogStore(*engines)
    begin(store, PARTITION)
    for producer_id in range(REMEMBERED_PRODUCERS_MAX + 1):
        request = AppendRequest(blocks(b"x"), sequence(0, producer_id=producer_id + 1))
        with store.locked(PARTITION, wanted([request])) as held:
            plan = plan_group(PARTITION, held.head.end, held.state, LogRange(0, 0), [request], epoch=1, now_us=1_000)
            held.append(plan.entries, plan.end, plan.changes)
            held.commit(plan.end.lsn, plan.end.offset, plan.changes)
        found = store.remembered(PARTITION, wanted([request]))
        assert (found is not None) == (producer_id < REMEMBERED_PRODUCERS_MAX)
    for engine in engines:
        engine.dispose()


MOVES: dict[str, Callable[[LogStore, HeldLog], object]] = {
    "promise": lambda store, held: held.promise(2),
    "leadership": lambda store, held: held.lead(2, {1: "disk"}, 1),
    "learners": lambda store, held: held.set_learners([5]),
    "fault": lambda store, held: held.set_fault("a bit was flipped"),
    "truncation": lambda store, held: held.truncate(held.head.end.lsn - 1),
    "another start": lambda store, held: held.begin_anew(LogEnd(9, 9, 1, b"c" * 32, 900), LogState(), 12),
}


@sizes
@pytest.mark.parametrize("move", MOVES)
def test_a_log_that_moved_takes_nothing(store: LogStore, move: str, more: bytes):
    """Whatever has changed of it in another process; and it is not remembered any more."""
    known(store, b"a")
    known(store, b"b", committed=False)
    remembered = store.remembered(PARTITION, Wanted())
    with store.locked(PARTITION) as held:
        MOVES[move](store, held)
    before = store.snapshot(PARTITION)
    with pytest.raises(HeadMovedError):
        expecting(store, b"c", more, remembered=remembered)
    assert store.remembered(PARTITION, Wanted()) is None
    assert store.snapshot(PARTITION) == before
    assert store.entries(PARTITION, before.head.end.lsn, 99, bytes_max=1 << 20) == []


@sizes
def test_a_log_with_more_entries_takes_nothing(store: LogStore, more: bytes):
    known(store, b"a")
    remembered = store.remembered(PARTITION, Wanted())
    append(store, b"b")
    with pytest.raises(HeadMovedError):
        expecting(store, b"c", more, remembered=remembered)
    assert values(store) == [(0, b"a"), (1, b"b")]


def test_a_segment_that_was_closed_takes_nothing(store: LogStore):
    """Its entries belong to the next one, and that is found out under the lock."""
    known(store, b"a")
    remembered = store.remembered(PARTITION, Wanted())
    roll(store)
    if isinstance(store, PostgresLogStore):
        with pytest.raises(HeadMovedError):
            expecting(store, b"b", remembered=remembered)
    known(store, b"b")
    expecting(store, b"c")
    assert values(store)[0] == (0, b"a")
    assert values(store, 1) == [(1, b"b"), (2, b"c")]


def test_a_log_that_is_gone_takes_nothing(store: LogStore):
    known(store, b"a")
    remembered = store.remembered(PARTITION, Wanted())
    store.drop(PARTITION.topic_id)
    with pytest.raises((HeadMovedError, UnknownPartitionError)):
        expecting(store, b"b", remembered=remembered)


@sizes
def test_elements_that_do_not_fit_a_remembered_log_are_refused(store: LogStore, more: bytes):
    known(store, b"a")
    remembered = store.remembered(PARTITION, Wanted())
    assert remembered is not None
    entries, end = record_entries(PARTITION, remembered.head.end, epoch=1, append_time=2_000, sequence=None,
                                  blocks=[*blocks(more), Block(2, None, memoryview(b"\0\0\0\4abcd"), None, None)])
    with pytest.raises(CorruptBatchError):
        store.append_expecting(PARTITION, remembered, entries, end, LogState(), commits=True)
    known(store, b"good")
    expecting(store, b"too")
    assert values(store) == [(0, b"a"), (1, b"good"), (2, b"too")]


def _it_did_not() -> None:
    raise LogBusyError


@sizes
def test_what_did_not_become_as_expected_takes_nothing(store: LogStore, more: bytes):
    """The transaction before did not do what it was to do; where it did, this one goes on behind it."""
    known(store, b"a")
    remembered = store.remembered(PARTITION, Wanted())
    with pytest.raises(LogBusyError):
        expecting(store, b"b", more, remembered=remembered, wait=_it_did_not)
    assert values(store) == [(0, b"a")]
    expecting(store, b"c", more, remembered=remembered, wait=lambda: None)
    assert values(store) == [(0, b"a"), (1, b"c"), (2, more)]


def test_a_busy_log_takes_nothing_more(store: LogStore):
    """Within the time for the lock; what came before it is what counts."""
    known(store, b"a")
    remembered = store.remembered(PARTITION, Wanted())
    with store.locked(PARTITION) as held:
        with pytest.raises(LogBusyError):
            expecting(store, b"b", remembered=remembered)
        held.set_learners([])
    expecting(store, b"c", remembered=remembered)
    assert values(store) == [(0, b"a"), (1, b"c")]
