"""A replica behind the start of its leader's log: it begins anew there, with the state; two brokers in one process, on logs in memory."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from broker.core import seeds
from broker.core.replica import Appointment
from broker.follower import Follower
from broker.retention import Retention
from broker.service import BrokerService, Self
from db.replication import AppendReply
from myqueue.clock import SystemClock
from myqueue.errors import NotLeaderError, NotYetError, RefusedError
from myqueue.protocol.entry import Border
from myqueue.protocol.types import PartitionId
from myqueue.service.wakeups import Wakeups
from tests.support.factories import blocks, sequence
from tests.support.two_brokers import TwoBrokers, two_brokers
from tests.support.waiting import wait_until

P = PartitionId(1, 0)
READ = {"bytes_max": 1 << 20, "records_max": 100}


def lead(group: TwoBrokers, *learners: int) -> None:
    """Broker 1 alone votes; broker 2 may learn."""
    group.service.appoint(P, topic="t", config={}, appointment=Appointment(1, {1: "disk-1"}, 1, learners))


def send(group: TwoBrokers, value: bytes, seq: int) -> int:
    return group.service.append(P, blocks(value), sequence(seq), size_bytes=len(value)).base_offset


def trimmed(group: TwoBrokers, *, messages: int = 6, before: int = 4) -> None:
    """A log with a producer's messages and a consumer, which begins above 0."""
    lead(group)
    for number in range(messages):
        send(group, b"m%d" % number, number)
    group.service.dequeue(P, "#1", "r")
    assert group.service.trim(P, before) == before
    Retention(group.store, group.replicator).look()
    assert group.store.head(P).start_lsn > 0


def has_all(group: TwoBrokers) -> bool:
    """Whether the follower holds as much as the leader; at first it holds nothing at all."""
    return P in [one.id for one in group.other.held()] and group.other.head(P).end == group.store.head(P).end


def wait_equal(group: TwoBrokers) -> None:
    """Both replicas hold the same from the same start on, and have folded it."""
    def equal() -> bool:
        group.replicator.look_around()
        group.other.fold(P)
        return group.other.snapshot(P) == seen(group)

    wait_until(lambda: P in [one.id for one in group.other.held()], what="the replica to be there")
    wait_until(equal, what="the replicas to be equal")


def seen(group: TwoBrokers):
    """The leader's head and state as a follower has them."""
    snapshot, own = group.store.snapshot(P), group.other.head(P)
    return type(snapshot)(type(own)(**{name: getattr(snapshot.head, name) for name in own.__slots__ if name not in NOT_COPIED},
                                    **{name: getattr(own, name) for name in NOT_COPIED}), snapshot.state)


NOT_COPIED = ("leader_epoch", "voters", "replication_factor", "learners")


def test_a_learner_of_a_trimmed_log_gets_the_start_and_the_state():
    """Then the log from there; a late repetition of the offer changes nothing; what comes next comes by appends."""
    with two_brokers() as group:
        trimmed(group)
        lead(group, 2)
        wait_equal(group)
        assert len(group.wire.seeds) == 1
        before = group.other.snapshot(P)
        assert before.head.start_lsn == group.store.head(P).start_lsn > 0
        assert (before.state.trim_offset, set(before.state.consumers), set(before.state.requests)) == (4, {"#1"}, {("#1", "r")})
        assert send(group, b"m6", 6) == 6
        wait_equal(group)
        held = group.other.snapshot(P)
        late = group.wire.follower.take_seed(seeds.decode(group.wire.seeds[0]))
        assert isinstance(late, AppendReply)
        assert (late.matched, late.counts, group.other.snapshot(P)) == (held.head.start_lsn, True, held)


def test_a_replica_that_is_seeded_serves_nothing_and_counts_for_nothing():
    """Until its log reaches the state that it was given: no read, no leadership, no part in a majority; but it promises."""
    with two_brokers() as group:
        trimmed(group)
        lead(group, 2)
        wait_equal(group)
        other, follower = group.other, group.wire.follower
        other.drop_partition(P, before_epoch=9)
        offer = seeds.decode(group.wire.seeds[0])
        assert offer.applied > offer.start.position
        reply = follower.take_seed(offer)
        assert isinstance(reply, AppendReply)
        assert (reply.matched, reply.counts) == (offer.start.position, False)
        service = BrokerService(other, Wakeups(), group.replicator, who=lambda: Self(2, "disk-2"), clock=SystemClock(), stopping=threading.Event(),
                                queue_bytes_max=1 << 20, long_polls_max=1, timeout_seconds=1.0)
        for ask in (lambda: service.reads.read(P, 4, **READ), lambda: service.reads.read(P, "earliest", **READ), lambda: service.standing.head(P)):
            with pytest.raises(NotYetError):
                ask()
        with pytest.raises(NotLeaderError):
            service.reads.sizes("#1", [P])
        assert service.promise(P, topic="t", config={}, epoch=2).seeding
        with pytest.raises(RefusedError):
            service.appoint(P, topic="t", config={}, appointment=Appointment(2, {2: "disk-2"}))
        stale = follower.take_seed(offer)
        assert isinstance(stale, AppendReply)
        assert (stale.epoch, stale.matched, stale.refusal) == (2, None, "stale_epoch")


def test_a_start_that_moves_meanwhile_is_offered_anew():
    """The replica has begun at the first one when the leader's log begins later still."""
    with two_brokers(kept_seconds=0.0) as group:
        trimmed(group)
        lead(group, 2)
        wait_equal(group)
        group.wire.is_open = False
        first = group.other.head(P).start_lsn
        for number in range(6, 10):
            send(group, b"m%d" % number, number)
        group.service.trim(P, 9)
        wait_until(lambda: Retention(group.store, group.replicator).look() or group.store.head(P).start_lsn > group.other.head(P).end.lsn,
                   what="the log to begin behind what the replica holds")
        group.wire.is_open = True
        wait_equal(group)
        assert group.other.head(P).start_lsn > first
        assert len(group.wire.seeds) == 2


def test_a_follower_that_is_heard_keeps_what_it_lacks():
    """It is away for less than the time that it is waited for: nothing goes, and it gets the log by appends."""
    with two_brokers() as group:
        lead(group, 2)
        send(group, b"m0", 0)
        wait_until(lambda: has_all(group), what="the follower to have it")
        group.wire.is_open = False
        for number in range(1, 5):
            send(group, b"m%d" % number, number)
        group.service.trim(P, 5)
        Retention(group.store, group.replicator).look()
        assert group.store.head(P).start_lsn <= group.other.head(P).end.lsn
        group.wire.is_open = True
        wait_until(lambda: has_all(group), what="the follower to have it")
        assert group.wire.seeds == []
        Retention(group.store, group.replicator).look()
        assert group.store.head(P).start_offset == 5


def test_state_that_cannot_be_sent_keeps_only_that_replica_from_being_made(monkeypatch: pytest.MonkeyPatch):
    """The leader says so, does not try again at once, and serves on."""
    monkeypatch.setattr(seeds, "STATE_BYTES_MAX", 10)
    with two_brokers() as group:
        trimmed(group)
        lead(group, 2)
        wait_until(lambda: group.replicator._led[P].offer_after, what="the leader to find that it is too much")
        assert send(group, b"m6", 6) == 6
        assert group.wire.seeds == []
        assert group.store.head(P).fault is None


def test_a_damaged_replica_that_is_a_voter_takes_no_start():
    with two_brokers() as group:
        trimmed(group)
        lead(group, 2)
        wait_equal(group)
        offered = seeds.decode(group.wire.seeds[0])
        with group.other.locked(P) as held:
            held.set_fault("damaged")
        before = group.other.head(P)
        follower: Follower = group.wire.follower
        told = json.loads(offered.introduction)
        for introduction in (b"", json.dumps({**told, "voter": True}).encode()):
            assert getattr(follower.take_seed(replace(offered, introduction=introduction)), "code", None) == "log_fault"
            assert getattr(follower.take([replace(offered.border, introduction=introduction)])[0], "code", None) == "log_fault"
        assert group.other.head(P) == before


@pytest.mark.parametrize("begin", [lead, trimmed], ids=["whole log", "log that begins later"])
def test_a_damaged_learner_gets_everything_anew(begin: Callable[[TwoBrokers], None]):
    """Also where its leader knew what it holds before."""
    with two_brokers() as group:
        begin(group)
        seq = group.store.head(P).commit_offset
        lead(group, 2)
        wait_equal(group)
        with group.other.locked(P) as held:
            held.set_fault("damaged")
        assert send(group, b"after", seq) == seq
        wait_until(lambda: group.other.head(P).fault is None, what="the replica to begin afresh")
        wait_equal(group)
        head, led = group.other.head(P), group.store.head(P)
        assert (head.end, head.start_lsn, head.promised_epoch) == (led.end, led.start_lsn, led.promised_epoch)
        assert group.other.snapshot(P).state == group.store.snapshot(P).state


def test_what_another_process_committed_and_dropped_is_no_damage():
    """This process of the broker has counted less than the database says, and the entries that it would count next are gone."""
    with two_brokers() as group:
        group.lead(P)
        for number in range(3):
            send(group, b"m%d" % number, number)
        group.service.trim(P, 3)
        wait_until(lambda: has_all(group), what="the follower to have it")
        led = group.replicator._led[P]
        with led.lock:
            led.leading.commit = 1
            led.leading.progress[2] = replace(led.leading.progress[2], matched=2, next=2)
            led.log.forget_recent()
            led.log._ends.clear()
        with group.store.locked(P) as held:
            held.begin_at(Border(4, 3))
        assert send(group, b"m3", 3) == 3
        assert (led.leading.commit, led.log.start, group.store.head(P).fault) == (6, 4, None)
        wait_until(lambda: has_all(group), what="the follower to have it")
        assert group.wire.seeds == []
