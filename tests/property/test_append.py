"""The append path against a deliberately naive twin: random requests, retries, reordering, groups of any size."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from broker.core.append import AppendRequest, AppendResult
from broker.core.group import plan_group
from broker.core.offsets import DequeueRequest, LogRange
from broker.service import wanted
from db.log_store import Wanted
from db.memory_log import MemoryLogStore
from myqueue.errors import DuplicateSequenceError, EndOffsetMismatchError, ProducerFencedError, SequenceGapError
from myqueue.protocol.batch import messages_of
from myqueue.protocol.chain import GENESIS
from myqueue.protocol.types import ProducerSequence
from tests.support.factories import PARTITION, blocks


@dataclass
class Twin:
    """Keeps a list of messages and, per producer and epoch, every request ever stored."""

    messages: list[bytes] = field(default_factory=list)
    stored: dict[tuple[int, int], list[tuple[int, int]]] = field(default_factory=dict)  # (producer, epoch) -> (offset, count) by sequence
    epochs: dict[int, int] = field(default_factory=dict)

    def append(self, sequence: ProducerSequence | None, values: list[bytes], expected_end: int | None) -> object:
        if sequence is not None:
            newest = self.epochs.get(sequence.producer_id, sequence.epoch)
            if sequence.epoch < newest:
                return ProducerFencedError
            known = self.stored.get((sequence.producer_id, sequence.epoch), [])
            if sequence.seq > len(known):
                return SequenceGapError
            if sequence.seq < len(known):
                return (*known[sequence.seq], True) if sequence.seq >= len(known) - 8 else DuplicateSequenceError
        if expected_end is not None and expected_end != len(self.messages):
            return EndOffsetMismatchError
        if sequence is not None:
            self.epochs[sequence.producer_id] = sequence.epoch
            self.stored.setdefault((sequence.producer_id, sequence.epoch), []).append((len(self.messages), len(values)))
        self.messages += values
        return len(self.messages) - len(values), len(values), False


sequences = st.none() | st.builds(ProducerSequence, st.integers(1, 2), st.integers(0, 1), st.integers(0, 12))
expected_ends = st.none() | st.integers(0, 12)
appends = st.tuples(sequences, st.lists(st.binary(max_size=6), min_size=1, max_size=4), expected_ends)
PRODUCERS = Wanted(producers=frozenset({1, 2}))
groups = st.lists(st.lists(appends, min_size=1, max_size=5), max_size=30)


def shown(outcome: object) -> object:
    if isinstance(outcome, AppendResult):
        return outcome.base_offset, outcome.record_count, outcome.duplicate
    return type(outcome)


def in_order(group: list) -> list[int]:
    """The order in which a group is carried out: requests of one producer sorted among their places."""
    order = list(range(len(group)))
    for producer in {sequence.producer_id for sequence, *_ in group if sequence}:
        places = [place for place, (sequence, *_) in enumerate(group) if sequence and sequence.producer_id == producer]
        chosen = sorted(places, key=lambda place: (group[place][0].epoch, group[place][0].seq))
        for place, choice in zip(places, chosen, strict=True):
            order[place] = choice
    return order


@given(groups, st.lists(st.integers(0, 3), max_size=30))
def test_groups_of_appends_do_what_the_twin_does(given_groups, commits):
    """Every answer, every message, the chain and the folded state, with the folding now and then behind."""
    store, twin = MemoryLogStore(), Twin()
    store.create(PARTITION, topic="t", config={})
    for number, group in enumerate(given_groups):
        requests = [AppendRequest(blocks(*values), sequence, expected_end) for sequence, values, expected_end in group]
        expected: list[object] = [None] * len(group)
        for place in in_order(group):
            expected[place] = twin.append(*group[place])
        with store.locked(PARTITION, PRODUCERS) as held:
            plan = plan_group(PARTITION, held.head.end, held.state, LogRange(0, held.head.commit_offset), requests, epoch=1, now_us=number)
            held.append(plan.entries, plan.end)
            if number < len(commits) and commits[number]:
                held.commit(plan.end.lsn, plan.end.offset, _all_changes(held.state, plan.changes))
        assert [shown(outcome) for outcome in plan.outcomes] == expected
    with store.locked(PARTITION, PRODUCERS) as held:
        held.commit(held.head.end.lsn, held.head.end.offset, held.state)
    chain = GENESIS
    for entry in store._logs[PARTITION].entries:
        chain = entry.chain_after(chain)
        assert entry.chain == chain
    found = store.read(PARTITION, 0, bytes_max=1 << 30, records_max=1 << 30).body
    assert [message.value for message in messages_of(found, topic="t", partition=0)] == twin.messages
    assert store.head(PARTITION).end.offset == len(twin.messages)


def _all_changes(state, changes):
    """What lies above the applied position is folded now too."""
    merged = state.copy()
    merged.producers.update(changes.producers)
    return merged


@given(st.lists(st.tuples(st.sampled_from(["#1", "#2"]), st.none() | st.sampled_from(["r", "s"])), max_size=40), st.integers(0, 12), st.data())
def test_dequeues_hand_out_each_message_once(calls, messages, data):
    """Per consumer every message once and in order, however the calls are grouped; a request id repeats its message."""
    store = MemoryLogStore()
    store.create(PARTITION, topic="t", config={})
    _write(store, [AppendRequest(blocks(*(b"%d" % number for number in range(messages))))] if messages else [])
    handed: dict[str, list[int]] = {"#1": [], "#2": []}
    by_id: dict[tuple[str, str], int] = {}
    while calls:
        size = data.draw(st.integers(1, len(calls)))
        group, calls = calls[:size], calls[size:]
        for (consumer, request_id), outcome in zip(group, _write(store, [DequeueRequest(*call) for call in group]), strict=True):
            if request_id is not None and (consumer, request_id) in by_id:
                assert outcome.offset == by_id[consumer, request_id]
            elif outcome.offset is not None:
                handed[consumer].append(outcome.offset)
                if request_id is not None:
                    by_id[consumer, request_id] = outcome.offset
            else:
                assert len(handed[consumer]) == messages
    assert all(offsets == list(range(len(offsets))) for offsets in handed.values())


def _write(store: MemoryLogStore, requests: list) -> list:
    with store.locked(PARTITION, wanted(requests)) as held:
        plan = plan_group(PARTITION, held.head.end, held.state, LogRange(0, held.head.commit_offset), requests, epoch=1, now_us=5)
        held.append(plan.entries, plan.end)
        held.commit(plan.end.lsn, plan.end.offset, plan.changes)
    return plan.outcomes
