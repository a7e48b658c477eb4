"""How a manager answers another one: the stateless half of Raft.

Each function takes what is on disk under the lock of ``raft_state`` and a request, and returns what to write and the reply.
Any process of a manager may run it; nothing is remembered between calls but what is written. The reply leaves after the commit.
"""

from __future__ import annotations

from dataclasses import replace

from db.replication import AppendReply, Refusal, accepts_start, holds_border, plan_append
from manager.raft.life import is_copy
from manager.raft.log import is_up_to_date
from manager.raft.messages import Append, InstallSnapshot, Request, TimeoutNow, TimeoutNowReply, VoteReply, VoteRequest
from manager.raft.state import Changes, Contact, Handled, Held, Install, TermVote
from myqueue.errors import DiskLostError, LogFaultError


def handle(held: Held, request: Request, *, now: float, election_timeout_seconds: float) -> Handled:
    """Answer a request of another manager.

    Args:
        election_timeout_seconds: the shortest one; within it of a leader's last word no pre-vote is given.

    Raises:
        LogFaultError: the request contradicts what was agreed. Write nothing but the fault, and stop serving.
        DiskLostError: this manager runs on an older copy of its disk. Write nothing but another identity; who asked hears that from the next answer.
    """
    if isinstance(request, VoteRequest | Append) and is_copy(request.lives, held.state.disk_id, held.state.life):
        raise DiskLostError(f"life number {request.lives[held.state.disk_id]} was seen of this disk, it has {held.state.life}: it is an older copy",
                            disk_id=held.state.disk_id)
    if isinstance(request, VoteRequest):
        if request.pre:
            return plan_pre_vote(held, request, now=now, election_timeout_seconds=election_timeout_seconds)
        return plan_vote(held, request, now=now)
    if isinstance(request, Append):
        return plan_follow(held, request, now=now)
    if isinstance(request, TimeoutNow):
        return plan_take_over(held, request, now=now)
    return plan_install(held, request, now=now)


def plan_pre_vote(held: Held, request: VoteRequest, *, now: float, election_timeout_seconds: float) -> Handled:
    """Say whether the vote would be given (thesis 9.6): nothing changes, so a node that was cut off disturbs nobody."""
    state, contact = held.state, held.contact
    led = state.leading or (contact.leader is not None and now - contact.at < election_timeout_seconds)
    granted = request.term > state.current_term and not led and _may_lead(held, request)
    return Handled(Changes(), VoteReply(state.current_term, request.term, True, granted, state.disk_id, state.life))


def plan_vote(held: Held, request: VoteRequest, *, now: float) -> Handled:
    """Give the vote of a term once, and only for a log at least as up to date (Raft 5.2, 5.4.1)."""
    state = held.state
    if request.term < state.current_term:
        return Handled(Changes(), VoteReply(state.current_term, request.term, False, False, state.disk_id, state.life))
    voted_for = state.voted_for if request.term == state.current_term else None
    granted = voted_for in (None, request.candidate) and _may_lead(held, request)
    after = TermVote(request.term, request.candidate if granted else voted_for)
    changes = Changes(term_vote=after) if after != (state.current_term, state.voted_for) else Changes()
    reply = VoteReply(request.term, request.term, False, granted, state.disk_id, state.life)
    return Handled(changes, reply, _heard(held, now, None) if granted else None)


def plan_follow(held: Held, append: Append, *, now: float) -> Handled:
    """Take a leader's entries: the replication core's append, with the term as the promise."""
    plan = plan_append(held.state.as_replica(), held.log, append.request)
    changes = Changes(term_vote=_new_term(plan.promise), delete_from=plan.delete_from, insert=plan.insert, commit_index=plan.commit)
    contact = None if plan.reply.refusal is Refusal.STALE_EPOCH else _heard(held, now, append.leader)
    return Handled(changes, replace(plan.reply, life=held.state.life), contact)


def plan_install(held: Held, offer: InstallSnapshot, *, now: float) -> Handled:
    """Take a leader's state in place of a log that ends before the leader's begins; a late or needless offer changes nothing.

    Raises:
        LogFaultError: we hold a committed entry that the offered state contradicts.
    """
    state, log, start = held.state, held.log, offer.start
    if offer.term < state.current_term:
        return Handled(Changes(), AppendReply(state.current_term, state.disk_id, start.position, offer.round, refusal=Refusal.STALE_EPOCH))
    if state.leading and offer.term == state.current_term:
        raise LogFaultError(f"two leaders in term {offer.term}")
    install = Install(start, offer.state) if accepts_start(log, start) else None
    if start.position <= state.commit_index and start.position >= log.start and not holds_border(log, start.position, start.epoch):
        raise LogFaultError(f"the state offered at {start.position} of term {start.epoch} contradicts what is committed here")
    promise = offer.term if offer.term > state.current_term else None
    reply = AppendReply(offer.term, state.disk_id, start.position, offer.round, matched=start.position, life=state.life)
    return Handled(Changes(term_vote=_new_term(promise), install=install), reply, _heard(held, now, offer.leader))


def plan_take_over(held: Held, request: TimeoutNow, *, now: float) -> Handled:
    """Note that the leader wants this manager to follow it (thesis 3.10); the driver then asks for votes. Nothing changes on disk."""
    state = held.state
    may_lead = held.membership.is_voter(state.node_id, state.disk_id) and not held.contact.leaving
    taken = request.term == state.current_term and not state.leading and may_lead
    contact = replace(_heard(held, now, request.leader), handed_over=request.term) if taken else None
    return Handled(Changes(), TimeoutNowReply(state.current_term, taken), contact)


def _heard(held: Held, now: float, leader: int | None) -> Contact:
    """A sign of a leader, or a vote given; a hand-over that was asked for stays asked for."""
    return replace(held.contact, at=now, leader=leader)


def _may_lead(held: Held, request: VoteRequest) -> bool:
    """A vote only for a log at least as up to date (Raft 5.4.1), and never for an older copy of a disk: it counts its own vote."""
    return (is_up_to_date(held.log, last_term=request.last_term, last_index=request.last_index)
            and not is_copy(held.state.lives, request.disk_id, request.life))


def _new_term(promise: int | None) -> TermVote | None:
    return None if promise is None else TermVote(promise, None)
