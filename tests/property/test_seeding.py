"""Whatever a log holds and wherever it begins: a replica that gets its start, its state and the rest of it holds and knows the same."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.append import AppendRequest as Produce
from broker.core.appends import Append
from broker.core.group import Request, plan_group
from broker.core.offsets import CommitRequest, DequeueRequest, LogRange, TrimRequest
from broker.core.retention import plan_begin
from broker.core.seeds import Seed, decode, encode
from broker.follower import Follower
from broker.service import wanted
from db.log_store import Snapshot
from db.memory_log import MemoryLogStore
from db.replication import AppendReply, AppendRequest, OfferedStart
from myqueue.protocol.entry import LogEntry, marker_entry
from myqueue.protocol.fold import LogState
from myqueue.service.wakeups import Wakeups
from tests.support.factories import PARTITION, blocks, sequence

VALUES = st.lists(st.binary(max_size=3), min_size=1, max_size=3)
CONSUMERS = st.sampled_from(["#1", "#2"])
OFFSETS = st.integers(0, 12)
REQUESTS = st.one_of(
    VALUES.map(lambda values: Produce([block for value in values for block in blocks(value)])),
    st.builds(lambda seq, values: Produce(blocks(*values), sequence(seq)), st.integers(0, 3), VALUES),
    st.builds(DequeueRequest, CONSUMERS, st.sampled_from([None, "r", "s"])), st.builds(CommitRequest, CONSUMERS, OFFSETS),
    OFFSETS.map(TrimRequest))
BEGINNING = ([Produce(blocks(b"a", b"b"), sequence(0)), DequeueRequest("#1", "r"), Produce(blocks(b"c"))], [TrimRequest(2)])
INTRODUCTION = b'{"topic": "t", "config": {}}'


def leader(groups: Sequence[Sequence[Request]]) -> MemoryLogStore:
    """A log of these requests, all of it committed; a part of it is folded."""
    store = MemoryLogStore()
    store.create(PARTITION, topic="t", config={})
    with store.locked(PARTITION) as held:
        held.lead(1, {1: "disk"}, 1)
        held.append(*marker_entry(PARTITION, held.head.end, epoch=1, append_time=1))
    for number, group in enumerate(groups):
        commit(store)
        with store.locked(PARTITION, wanted(group)) as held:
            readable = LogRange(held.head.start_offset, held.head.commit_offset)
            plan = plan_group(PARTITION, held.head.end, held.state, readable, group, epoch=1, now_us=number)
            held.append(plan.entries, plan.end)
    commit(store)
    return store


def commit(store: MemoryLogStore) -> None:
    end = store.head(PARTITION).end
    store.advance(PARTITION, end.lsn, end.offset)
    store.fold(PARTITION, entries_max=2)


def fold(store: MemoryLogStore) -> Snapshot:
    while store.fold(PARTITION):
        pass
    return store.snapshot(PARTITION)


def whole_requests(entries: Sequence[LogEntry], sizes: Sequence[int]) -> list[list[LogEntry]]:
    """The entries in steps of about these sizes."""
    steps: list[list[LogEntry]] = [[]]
    for entry in entries:
        if entry.request_index == 0 and len(steps[-1]) >= sizes[(len(steps) - 1) % len(sizes)]:
            steps.append([])
        steps[-1].append(entry)
    return steps


@settings(deadline=None)
@given(st.lists(st.lists(REQUESTS, min_size=1, max_size=4), max_size=10).map(lambda groups: [*BEGINNING, *groups]), st.integers(1, 40),
       st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_a_replica_that_is_seeded_holds_and_knows_what_its_leader_does(groups, kept_from, sizes):
    """The offer may come again between any two steps: nothing is lost, nothing folded twice; it counts from the position of the state on."""
    store, other = leader(groups), MemoryLogStore()
    with store.locked(PARTITION) as held:
        border = plan_begin(held.head, held.borders(), kept_from=kept_from)
        if border is not None:
            held.begin_at(border)
    snapshot = store.snapshot(PARTITION)
    head = snapshot.head
    if not head.start_lsn:
        return
    assert head.start_offset <= snapshot.state.trim_offset
    follower = Follower(other, Wakeups(), disk_id=lambda: "other", stop_leading=lambda partition, epoch: None)
    seed = Seed(PARTITION, 1, 1, OfferedStart(head.start_lsn, head.start_epoch, head.start_chain), head.start_offset, head.end.append_time,
                head.applied_lsn, snapshot.state, INTRODUCTION)
    epoch = head.start_epoch
    for entries in whole_requests(store.entries(PARTITION, head.start_lsn, head.end.lsn, bytes_max=1 << 30), sizes):
        reply = follower.take_seed(decode(encode(seed)))
        assert isinstance(reply, AppendReply)
        position = other.head(PARTITION).end.lsn
        [reply] = follower.take([Append(PARTITION, AppendRequest(1, position, epoch, entries, head.commit_lsn, 2))])  # type: ignore[list-item]
        assert isinstance(reply, AppendReply)
        assert (reply.matched, reply.counts) == (position + len(entries), position + len(entries) >= head.applied_lsn)
        assert (other.head(PARTITION).seeding_until is None) == reply.counts
        other.fold(PARTITION, entries_max=1)
        epoch = entries[-1].epoch if entries else epoch
    leading, following = fold(store), fold(other)
    assert following.state == leading.state == folded(groups)
    assert (following.head.end, following.head.commit_lsn, following.head.applied_lsn) == (leading.head.end, head.end.lsn, head.end.lsn)


def folded(groups: Sequence[Sequence[Request]]) -> LogState:
    """The naive twin: everything from the beginning."""
    return fold(leader(groups)).state
