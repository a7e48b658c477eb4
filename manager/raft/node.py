"""Raft's other half: timers, elections and leadership, as one step after another (Ongaro & Ousterhout 5; thesis 4, 6.4, 9.6).

One driver per manager owns a :class:`Node`. Its duties, in this order, for every step:

1. lock ``raft_state``; load :class:`Held`; call **one** of ``tick``, ``step``, ``advance``, ``read``, ``change_member``, ``repair``, ``hand_over``;
   take ``ready()``;
2. write ``ready.persist`` in the same transaction and commit. If that fails, or its outcome is unknown: ``abandon()``, and nothing is sent;
3. only then send ``ready.send`` and the states of ``ready.snapshots``, answer ``ready.reads`` (once their index is applied), report ``ready.events``;
4. apply the entries of ``ready.apply``, one transaction each with ``applied_index``;
5. after a commit that inserted entries (its own or a worker's ``plan_propose``): ``advance``.

Requests of other managers do not come here: any process answers them with ``follower.handle`` on the same rows. The node
sees what they did in the next ``Held``: a higher term, a contact, a longer log.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

from db.replication import AppendReply, epoch_before
from manager.raft.leader import HandOver, Leadership, ReadConfirmed, SnapshotOrder, WaitingRead
from manager.raft.life import is_copy
from manager.raft.log import Command, Proposal, entries_behind, marker
from manager.raft.membership import DISK_LOST, NO_SLOT, REMOVE_MEMBER, SET_MEMBER, Member, Membership, after_command, check_one_slot, repairs
from manager.raft.messages import Envelope, Reply, TimeoutNowReply, VoteReply, VoteRequest
from manager.raft.quorum import Tally
from manager.raft.state import NO_CHANGES, Changes, Held, TermVote
from myqueue.errors import NotLeaderError, OverloadedError, RefusedError

READS_MAX = 1_000  # that wait; several clients' reads can share one


class Role(StrEnum):
    """What the driver of this manager is doing."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre_candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class Event(NamedTuple):
    """Something worth a log line and a metric."""

    name: str
    term: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Ready:
    """What one step asks of the driver; see the module for the order."""

    persist: Changes = NO_CHANGES
    send: tuple[Envelope, ...] = ()
    snapshots: tuple[SnapshotOrder, ...] = ()
    reads: tuple[ReadConfirmed, ...] = ()
    events: tuple[Event, ...] = ()
    apply: range = range(0)  # indexes, after persist is on disk


class Node:
    """The driver's part of one manager. It keeps nothing that must survive; what must is in ``Held``."""

    def __init__(self, *, heartbeat_seconds: float, election_timeout_seconds: float, entries_max: int = 500) -> None:
        """A follower.

        Args:
            heartbeat_seconds: the interval of a leader's rounds.
            election_timeout_seconds: the shortest; each wait is between this and twice this, drawn by the driver. A leader
                that a majority has not answered for so long steps down.
            entries_max: in one append.
        """
        assert heartbeat_seconds < election_timeout_seconds
        self.role = Role.FOLLOWER
        self._heartbeat_seconds = heartbeat_seconds
        self._election_timeout_seconds = election_timeout_seconds
        self._entries_max = entries_max
        self._since: float | None = None  # when this role, or its last attempt, began
        self._timeout_seconds = 2 * election_timeout_seconds
        self._tally: Tally | None = None
        self._lead: Leadership | None = None
        self._changes: dict[str, Any] = {}
        self._ready: dict[str, Any] = {}
        self._taken = True

    def __repr__(self) -> str:
        return f"Node({self.role}, term={self.term or '-'})"

    @property
    def term(self) -> int:
        """The term that is led or asked for; 0 for a follower."""
        return self._lead.term if self._lead else self._tally.term if self._tally else 0

    @property
    def handing_over(self) -> int:
        """The term that is led and being handed over; 0 otherwise."""
        return self._lead.term if self._lead is not None and self._lead.hand_over is not None else 0

    def is_at_rest(self, held: Held) -> bool:
        """Whether this manager leads and nothing waits for an answer: one that agrees may be taken with the next round."""
        return self._lead is not None and not self._lead.waits(held)

    # --- what the driver calls ---

    def tick(self, held: Held, *, now: float, timeout_seconds: float) -> None:
        """Time has passed. ``timeout_seconds`` is a fresh random election timeout, used if one begins."""
        self._begin(held, now)
        if self.role is Role.LEADER:
            self._keep_leading(held, now)
        elif self._is_handed_over(held):
            self._take_over(held, now, timeout_seconds)
        elif self._since is None:
            self._since, self._timeout_seconds = now, timeout_seconds
        elif now - max(self._since, held.contact.at) >= self._timeout_seconds:
            self._ask_for_votes(held, now, timeout_seconds)
        self._finish(held, now)

    def step(self, held: Held, source: int, reply: Reply, *, now: float) -> None:
        """Another manager has answered."""
        self._begin(held, now)
        reply = self._in_its_name(reply)
        term = reply.term if isinstance(reply, (VoteReply, TimeoutNowReply)) else reply.epoch
        if term > held.state.current_term:
            self._persist(term_vote=TermVote(term, None))
            self._follow(now, f"manager {source} is in term {term}")
        elif not isinstance(reply, TimeoutNowReply) and is_copy(held.state.lives, reply.disk_id, reply.life):
            pass  # late, or of an older copy that was asked by somebody who could not tell: it counts for nothing, and accuses nobody
        elif isinstance(reply, VoteReply):
            self._count_vote(held, source, reply, now)
        elif isinstance(reply, TimeoutNowReply):
            if self._lead is not None and self._lead.hand_over is not None and not reply.taken:
                self._lead.hand_over.refused.add(source)
        elif self._lead is not None and term == self._lead.term:
            self._learn(held, source, reply, now)
        self._finish(held, now)

    def advance(self, held: Held, *, now: float) -> None:
        """What was written before is on disk now: it may be counted and sent."""
        self._begin(held, now)
        self._finish(held, now)

    def read(self, held: Held, read_id: Any, *, now: float) -> None:
        """Ask for a fresh read (thesis 6.4): it is confirmed by a round that begins now.

        Raises:
            NotLeaderError: this manager does not lead, or has not committed an entry of its term yet.
            OverloadedError: too many reads wait for an answer of a majority.
        """
        self._begin(held, now)
        if self._lead is None or not self._marker_is_committed(held):
            self._finish(held, now)
            raise NotLeaderError(leader=held.contact.leader)
        if len(self._lead.reads) >= READS_MAX:
            self._finish(held, now)
            raise OverloadedError("too many fresh reads wait for an answer of a majority of the managers")
        self._lead.begin_round(now)
        self._lead.reads.append(WaitingRead(read_id, held.state.commit_index, self._lead.round))
        self._finish(held, now, all_peers=True)

    def change_member(self, held: Held, command: Command, *, now: float) -> None:
        """Append a member command, if the rules of ``membership`` allow it now.

        Raises:
            NotLeaderError: this manager does not lead.
            RefusedError: not now (a change is under way, the marker or the new voter is not there yet) or not at all. Nothing is stored.
        """
        self._begin(held, now)
        try:
            self._check_member_change(held, command, now)
        except (NotLeaderError, RefusedError):
            self._finish(held, now)
            raise
        self._persist(insert=entries_behind(held.log, held.state.current_term, (Proposal(command),)))
        self._finish(held, now)

    def hand_over(self, held: Held, *, now: float) -> None:
        """End this leadership by giving it to the follower that has the most of the log (thesis 3.10), without an election timeout.

        From now on nothing new should be taken (``handing_over``). Once that is known to all processes (``Contact.handing_over``), the follower is
        told to ask for votes when it holds all of the log and that is committed. What has not succeeded within an election timeout, or is refused
        by all, is given up, and this manager leads on.

        Raises:
            NotLeaderError: this manager does not lead.
            RefusedError: no other voter has answered lately.
        """
        self._begin(held, now)
        try:
            if self._lead is None:
                raise NotLeaderError(leader=held.contact.leader)
            self._lead.follow_membership(held)
            if self._lead.successor(held, now=now, seconds=self._election_timeout_seconds) is None:
                raise RefusedError("there is no other voter to hand the leadership over to")
        except (NotLeaderError, RefusedError):
            self._finish(held, now)
            raise
        self._lead.hand_over = HandOver(now + self._election_timeout_seconds)
        self._finish(held, now)

    def repair(self, held: Held, *, now: float) -> None:
        """Where this manager leads: make the one change that is most urgent to have every member vote with the disk it has, if any is allowed now.

        So a disk that lost what it held leaves, a new one is registered without a vote, and who has caught up gets the vote.
        """
        self._begin(held, now)
        if self._lead is not None:
            shown = self._lead.shown(now=now, seconds=self._election_timeout_seconds)
            command = next((each for each in repairs(held.membership, shown, self._lead.lost) if self._objection(held, each, now) is None), None)
            if command is not None:
                self._report("repair", self._lead.term, str(command))
                self._persist(insert=entries_behind(held.log, held.state.current_term, (Proposal(command),)))
        self._finish(held, now)

    def abandon(self) -> None:
        """The changes were not written, or nobody knows: forget what rests on them."""
        self.role, self._tally, self._lead = Role.FOLLOWER, None, None
        self._changes, self._ready, self._taken = {}, {}, True

    def ready(self) -> Ready:
        """What the last step asks for. Take it after each, also after one that raised."""
        self._taken = True
        return Ready(persist=Changes(**self._changes) if self._changes else NO_CHANGES, **self._ready)

    # --- one step ---

    def _begin(self, held: Held, now: float) -> None:
        assert self._taken, "the result of the last step was not taken"
        self._changes, self._ready, self._taken = {}, {}, False
        state = held.state
        if self._lead is not None and not (state.leading and state.current_term == self._lead.term):
            self._follow(now, f"the term is {state.current_term}")
        elif self._lead is None and state.leading:
            self._persist(leader_term=0)  # of a driver before us, whose knowledge is gone
        elif self._tally is not None and self._outdated(held):
            self._follow(now, "another leader or term")

    def _finish(self, held: Held, now: float, *, all_peers: bool = False) -> None:
        commit = held.state.commit_index
        if self.role is Role.CANDIDATE and self._won(held):
            self._lead_from(held, now)
        elif self._lead is not None:
            self._lead.follow_membership(held)
            commit = self._commit(held)
            sends, orders = self._lead.sends(held, now=now, commit=commit, all_peers=all_peers or self._round_is_due(now))
            sends += self._pass_on(held, commit, now)
            self._ready.update(send=tuple(sends), snapshots=tuple(orders), reads=self._lead.confirmed_reads(held, now))
            self._leave_if_removed(held, commit, now)
        self._ready["apply"] = range(held.state.applied_index + 1, commit + 1)

    def _round_is_due(self, now: float) -> bool:
        assert self._lead is not None
        if now - self._lead.last_round_at < self._heartbeat_seconds:
            return False
        self._lead.begin_round(now)
        return True

    def _persist(self, **fields: Any) -> None:
        self._changes.update(fields)

    def _report(self, name: str, term: int, detail: str = "") -> None:
        self._ready["events"] = (*self._ready.get("events", ()), Event(name, term, detail))

    # --- elections ---

    def _is_handed_over(self, held: Held) -> bool:
        """The leader of this term wants us to follow it, and we have not asked for votes in a later one."""
        return self.role is not Role.CANDIDATE and held.contact.handed_over == held.state.current_term and self._may_campaign(held)

    def _take_over(self, held: Held, now: float, timeout_seconds: float) -> None:
        """Ask for votes at once, without the question before: with a leader that is heard nobody would say yes to that."""
        self._timeout_seconds, self._tally = timeout_seconds, Tally(held.state.current_term + 1)
        self._campaign(held, now)

    def _ask_for_votes(self, held: Held, now: float, timeout_seconds: float) -> None:
        """An election timeout has passed: ask first whether we would be elected (pre-vote)."""
        state = held.state
        self._since, self._timeout_seconds = now, timeout_seconds
        self.role, self._tally = Role.FOLLOWER, None
        if not self._may_campaign(held):
            return
        self.role, self._tally = Role.PRE_CANDIDATE, Tally(state.current_term + 1, {state.node_id: state.disk_id})
        if self._tally.won(held.membership.voters):
            self._campaign(held, now)
        else:
            self._request_votes(held, pre=True)

    def _may_campaign(self, held: Held) -> bool:
        """A voter, or one whose removal is in its log but not committed: perhaps nobody else can bring that about (thesis 4.2.2).

        Not one that is about to end.
        """
        state, membership = held.state, held.membership
        if held.contact.leaving:
            return False
        return membership.is_voter(state.node_id, state.disk_id) or membership.index > state.commit_index

    def _campaign(self, held: Held, now: float) -> None:
        """Take the next term and our own vote in it. The requests leave after that is on disk; our vote counts from then on."""
        assert self._tally is not None
        term = self._tally.term
        self.role, self._tally, self._since = Role.CANDIDATE, Tally(term), now
        self._persist(term_vote=TermVote(term, held.state.node_id))
        self._report("campaign", term)
        self._request_votes(held, pre=False)

    def _request_votes(self, held: Held, *, pre: bool) -> None:
        assert self._tally is not None
        log, own = held.log, held.state.node_id
        request = VoteRequest(self._tally.term, own, epoch_before(log, log.end), log.end, pre, held.state.disk_id, held.state.life,
                              held.state.lives)
        self._ready["send"] = tuple(Envelope(own, node, request) for node in sorted(held.membership.voters) if node != own)

    def _count_vote(self, held: Held, source: int, reply: VoteReply, now: float) -> None:
        wanted = Role.PRE_CANDIDATE if reply.pre else Role.CANDIDATE
        if self.role is not wanted or self._tally is None or reply.asked != self._tally.term or not reply.granted:
            return
        self._tally.granted[source] = reply.disk_id
        if self.role is Role.PRE_CANDIDATE and self._tally.won(held.membership.voters):
            self._campaign(held, now)

    def _outdated(self, held: Held) -> bool:
        """Whether the election we are in is over: its term has passed, or a leader has shown itself since."""
        assert self._tally is not None and self._since is not None
        term = self._tally.term - 1 if self.role is Role.PRE_CANDIDATE else self._tally.term
        led = held.contact.leader is not None and held.contact.at > self._since
        return held.state.current_term != term or led

    def _won(self, held: Held) -> bool:
        """Whether a majority granted the term that is on our disk with our own vote."""
        assert self._tally is not None
        state = held.state
        if (state.current_term, state.voted_for) != (self._tally.term, state.node_id):
            return False
        return Tally(self._tally.term, {**self._tally.granted, state.node_id: state.disk_id}).won(held.membership.voters)

    # --- leadership ---

    def _lead_from(self, held: Held, now: float) -> None:
        """Begin to lead: with the marker, which is sent and counted after it is on disk."""
        term = held.state.current_term
        self.role, self._tally, self._since = Role.LEADER, None, now
        self._lead = Leadership(term, now, resend_seconds=3 * self._heartbeat_seconds, entries_max=self._entries_max)
        self._lead.follow_membership(held)
        self._persist(leader_term=term, insert=entries_behind(held.log, term, (marker(),)))
        self._report("leading", term)

    def _keep_leading(self, held: Held, now: float) -> None:
        """Step down where a majority has been silent for an election timeout: somebody else may lead already (thesis 6.2)."""
        assert self._lead is not None
        self._lead.follow_membership(held)
        if not self._lead.has_quorum(held, now=now, seconds=self._election_timeout_seconds):
            self._persist(leader_term=0)
            self._follow(now, "no majority has answered for an election timeout")

    def _pass_on(self, held: Held, commit: int, now: float) -> list[Envelope]:
        """The next step of a hand-over, if one is under way."""
        assert self._lead is not None
        going = self._lead.hand_over
        if going is None:
            return []
        if now >= going.until or self._lead.successor(held, now=now, seconds=self._election_timeout_seconds) is None:
            self._lead.hand_over = None
            self._report("hand_over_given_up", self._lead.term)
            return []
        if held.contact.handing_over != self._lead.term:
            return []  # a process of this manager may take a command yet, and then nobody would vote for one without it
        word = None if "insert" in self._changes else self._lead.pass_on(held, now=now, commit=commit, seconds=self._election_timeout_seconds)
        if word is None:
            return []
        self._report("hand_over", self._lead.term, f"to manager {word.target}")
        return [word]

    def _learn(self, held: Held, source: int, reply: AppendReply, now: float) -> None:
        assert self._lead is not None
        self._lead.learn(source, reply, now=now, log=held.log)
        if reply.disk_id in self._lead.lost:  # from now on it comes here in nobody's name
            self._report("disk_lost", self._lead.term, f"manager {source} no longer holds what it acknowledged")

    def _in_its_name(self, reply: Reply) -> Reply:
        """The answer; in nobody's name where it comes from a disk that was found to be lost."""
        if isinstance(reply, TimeoutNowReply):
            return reply
        known = self._lead is None or reply.disk_id not in self._lead.lost
        return reply if known else replace(reply, disk_id=NO_SLOT)

    def _commit(self, held: Held) -> int:
        assert self._lead is not None
        commit = self._lead.commit(held)
        if commit > held.state.commit_index:
            self._persist(commit_index=commit)
        return commit

    def _leave_if_removed(self, held: Held, commit: int, now: float) -> None:
        """A leader that is no voter any more leads until that is committed (thesis 4.2.2)."""
        state, membership = held.state, held.membership
        if not membership.is_voter(state.node_id, state.disk_id) and membership.index <= commit and "insert" not in self._changes:
            self._persist(leader_term=0)
            self._follow(now, "no longer a voter")

    def _follow(self, now: float, reason: str) -> None:
        if self._lead is not None:
            self._report("step_down", self._lead.term, reason)
        self.role, self._tally, self._lead, self._since = Role.FOLLOWER, None, None, now

    def _marker_is_committed(self, held: Held) -> bool:
        commit = held.state.commit_index
        return commit >= held.log.start and epoch_before(held.log, commit) == held.state.current_term

    # --- membership ---

    def _objection(self, held: Held, command: Command, now: float) -> RefusedError | None:
        try:
            self._check_member_change(held, command, now)
        except RefusedError as error:
            return error
        return None

    def _check_member_change(self, held: Held, command: Command, now: float) -> None:
        if self._lead is None:
            raise NotLeaderError(leader=held.contact.leader)
        if command.get("type") not in (SET_MEMBER, REMOVE_MEMBER, DISK_LOST):
            raise RefusedError(f"{command.get('type')} is no change of one member")
        if self._lead.hand_over is not None:
            raise RefusedError("this leader is handing over to another one")
        if not self._marker_is_committed(held):
            raise RefusedError("this leader has not committed an entry of its term yet")
        if held.membership.index > held.state.commit_index:
            raise RefusedError("another membership change is under way")
        after = after_command(held.membership, command, held.log.end + 1)
        check_one_slot(held.membership, after)
        self._check_reached(held, after, now)
        member = after.members.get(int(command["node_id"]))
        if member is not None and member.voter and not held.membership.is_voter(member.node_id, member.disk_id or ""):
            self._check_caught_up(held, member)

    def _check_reached(self, held: Held, after: Membership, now: float) -> None:
        """A majority of the voters as they will be answers now: otherwise nothing would be committed any more, this change included."""
        assert self._lead is not None
        if not self._lead.reaches(after.voters, held, now=now, seconds=self._election_timeout_seconds):
            raise RefusedError("too few of the managers that would be left to vote are answering: the change would stop all writes")

    def _check_caught_up(self, held: Held, member: Member) -> None:
        """A new voter holds everything that is committed, on the disk that is registered, before it counts."""
        assert self._lead is not None
        peer = self._lead.peers.get(member.node_id)
        holder = None if peer is None else peer.progress.holder
        if holder is None or holder.disk_id != member.disk_id or holder.matched < held.state.commit_index:
            raise RefusedError(f"manager {member.node_id} does not hold what is committed yet")
