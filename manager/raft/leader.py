"""A leader's knowledge: its followers' progress, its rounds, the reads that wait. Lost with the process, learnt again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from db.replication import (
    AppendReply,
    AppendRequest,
    Holder,
    LogView,
    Progress,
    Refusal,
    Voters,
    after_reply,
    commit_position,
    epoch_before,
    holders,
    plan_send,
)
from manager.raft.messages import Append, Envelope, TimeoutNow
from manager.raft.quorum import Heard, heard_round, heard_since
from manager.raft.state import Held


class SnapshotOrder(NamedTuple):
    """Send this follower the state at ``applied_index`` as an InstallSnapshot with this round."""

    target: int
    round: int


class ReadConfirmed(NamedTuple):
    """The read may be answered once ``index`` is applied: when it was asked, nobody else could have committed beyond."""

    read_id: Any
    index: int


@dataclass(slots=True)
class Peer:
    """A follower as the leader knows it."""

    progress: Progress
    sent_at: float | None = None  # when the request now under way left; None: none is
    sent_round: int = -1  # its round, by which its answer is known
    sent_commit: int = -1  # the commit index it was told last


@dataclass(slots=True)
class WaitingRead:
    """A fresh read that waits for its round."""

    read_id: Any
    index: int
    round: int


@dataclass(slots=True)
class HandOver:
    """The way to another leader that was asked for (thesis 3.10); given up at ``until``."""

    until: float
    target: int | None = None  # who is to follow us, as long as it may
    sent_at: float = float("-inf")
    refused: set[int] = field(default_factory=set)  # who does not want to follow, or is gone


@dataclass(slots=True)
class Leadership:
    """One term as leader."""

    term: int
    since: float
    resend_seconds: float
    entries_max: int
    round: int = 0
    last_round_at: float = float("-inf")
    peers: dict[int, Peer] = field(default_factory=dict)
    heard: dict[int, Heard] = field(default_factory=dict)
    reads: list[WaitingRead] = field(default_factory=list)
    hand_over: HandOver | None = None
    lost: set[str] = field(default_factory=set)  # disks that do not hold any more what they acknowledged in this term

    def follow_membership(self, held: Held) -> None:
        """Know exactly the other members."""
        others = held.membership.others(held.state.node_id)
        self.peers = {node: self.peers.get(node) or Peer(Progress(next=held.log.end)) for node in others}
        self.heard = {node: answer for node, answer in self.heard.items() if node in self.peers}

    def learn(self, source: int, reply: AppendReply, *, now: float, log: LogView) -> None:
        """Take a follower's answer of this term."""
        peer = self.peers.get(source)
        if peer is None:
            return
        before = self.heard.get(source)
        newest = reply.round if before is None or before.disk_id != reply.disk_id else max(before.round, reply.round)
        self.heard[source] = Heard(now, reply.disk_id, newest)
        peer.progress = after_reply(peer.progress, reply, epoch=self.term, rounds=self.round, log=log)
        if peer.progress.disk_lost and reply.hint is not None:
            self.lost.add(reply.disk_id)
            peer.progress = Progress(next=max(log.start, min(reply.hint.next, log.end)))  # it gets the log, and counts for nothing
        if reply.round == peer.sent_round and reply.refusal not in (Refusal.BROKEN_CHAIN, Refusal.SPLIT_REQUEST):
            peer.sent_at = None  # after those two the same again would be refused again: not before the time to resend

    def commit(self, held: Held) -> int:
        """The commit index by what is on a majority's disks; our own entries are those of ``held``, so they are on ours."""
        own = (held.state.node_id, Holder(held.state.disk_id, held.log.end))
        shown = holders(own, ((node, peer.progress) for node, peer in self.peers.items()))
        return commit_position(held.membership.voters, shown, epoch=self.term, log=held.log, commit=held.state.commit_index)

    def has_quorum(self, held: Held, *, now: float, seconds: float) -> bool:
        """Whether a majority has answered within these seconds, or the term is younger."""
        return now - self.since < seconds or self.reaches(held.membership.voters, held, now=now, seconds=seconds)

    def reaches(self, voters: Voters, held: Held, *, now: float, seconds: float) -> bool:
        """Whether a majority of these has answered within these seconds."""
        return heard_since(voters, self._with_own(held, now), now - seconds)

    def shown(self, *, now: float, seconds: float) -> dict[int, str]:
        """The disk for which each follower answered within these seconds."""
        return {node: answer.disk_id for node, answer in self.heard.items() if answer.at >= now - seconds}

    def successor(self, held: Held, *, now: float, seconds: float) -> int | None:
        """Who could lead next: of the voters that were heard within these seconds the furthest, or the one that was chosen before."""
        voters = held.membership.voters
        matched = {node: peer.progress.matched for node, peer in self.peers.items()
                   if peer.progress.holder is not None and voters.get(node) == peer.progress.disk_id
                   and node in self.heard and self.heard[node].at >= now - seconds
                   and (self.hand_over is None or node not in self.hand_over.refused)}
        if self.hand_over is not None and self.hand_over.target in matched:
            return self.hand_over.target
        return max(matched, key=lambda node: (matched[node], -node), default=None)

    def pass_on(self, held: Held, *, now: float, commit: int, seconds: float) -> Envelope | None:
        """The word that ends this leadership, once the follower that is chosen holds all of this log and it is committed."""
        assert self.hand_over is not None
        target = self.successor(held, now=now, seconds=seconds)
        if target != self.hand_over.target:
            self.hand_over.target, self.hand_over.sent_at = target, float("-inf")
        if target is None or not self.peers[target].progress.matched == commit == held.log.end:
            return None
        if now - self.hand_over.sent_at < self.resend_seconds:
            return None
        self.hand_over.sent_at = now
        return Envelope(held.state.node_id, target, TimeoutNow(self.term, held.state.node_id))

    def waits(self, held: Held) -> bool:
        """Whether more than the next round depends on an answer: a read, a hand-over, entries that are not everywhere or not committed."""
        return (bool(self.reads) or self.hand_over is not None or held.state.commit_index < held.log.end
                or any(peer.progress.matched != held.log.end for peer in self.peers.values()))

    def begin_round(self, now: float) -> None:
        self.round += 1
        self.last_round_at = now

    def confirmed_reads(self, held: Held, now: float) -> tuple[ReadConfirmed, ...]:
        """Take out the reads whose round a majority has answered."""
        voters, heard = held.membership.voters, self._with_own(held, now)
        waiting, confirmed = [], []
        for read in self.reads:
            (confirmed if heard_round(voters, heard, read.round) else waiting).append(read)
        self.reads = waiting
        return tuple(ReadConfirmed(read.read_id, read.index) for read in confirmed)

    def sends(self, held: Held, *, now: float, commit: int, all_peers: bool) -> tuple[list[Envelope], list[SnapshotOrder]]:
        """What goes out now: to all for a round, otherwise to those for whom there is news and nothing is under way."""
        envelopes, orders = [], []
        for node, peer in self.peers.items():
            idle = peer.sent_at is None or now - peer.sent_at >= self.resend_seconds
            if idle and peer.progress.needs_snapshot:
                orders.append(SnapshotOrder(node, self.round))
                peer.sent_at, peer.sent_round = now, self.round
            elif idle and (all_peers or self._has_news(peer, held.log, commit)):
                envelopes.append(self._append(held, node, commit))
                peer.sent_at, peer.sent_round, peer.sent_commit = now, self.round, commit
            elif all_peers:
                envelopes.append(self._life_sign(held, node, commit))
        return envelopes, orders

    def _append(self, held: Held, node: int, commit: int) -> Envelope:
        plan = plan_send(self.peers[node].progress, held.log, entries_max=self.entries_max)
        assert plan is not None
        return self._envelope(held, node, AppendRequest(self.term, plan.position, plan.prev_epoch, held.log.between(plan.position, plan.end),
                                                        commit, self.round))

    def _life_sign(self, held: Held, node: int, commit: int) -> Envelope:
        """While something larger is under way: an empty append at a border that is known to match."""
        position = max(self.peers[node].progress.matched, held.log.start)
        return self._envelope(held, node, AppendRequest(self.term, position, epoch_before(held.log, position), (), commit, self.round))

    def _envelope(self, held: Held, node: int, request: AppendRequest) -> Envelope:
        return Envelope(held.state.node_id, node, Append(held.state.node_id, request, held.state.lives))

    def _has_news(self, peer: Peer, log: LogView, commit: int) -> bool:
        return peer.progress.next < log.end or peer.sent_commit < commit

    def _with_own(self, held: Held, now: float) -> dict[int, Heard]:
        return {**self.heard, held.state.node_id: Heard(now, held.state.disk_id, self.round)}
