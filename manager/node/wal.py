"""The WAL of this manager, every handler of it in the same order: lock ``raft_state``, decide with the pure core, write, commit.

What must never happen: an answer before the disk has it. So nothing here answers inside a transaction; whoever calls does,
after the block has ended. Fault points stand where a crash means something else: before the commit of a WAL entry,
between that and applying, and between applying and the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from db.replication import AppendReply, AppendRequest, Holder, Voters, chain_before, commit_position, plan_append
from db.wal_store import HeldWal, RaftState, Session, WalEntry, WalStore
from manager.cluster import commands
from manager.cluster.state import Change, Event, apply
from manager.node.role import TERM, FixedRole
from myqueue.errors import (
    BadRequestError,
    DuplicateSequenceError,
    LogFaultError,
    MyQueueError,
    NotLeaderError,
    OverloadedError,
    TooLargeError,
    UnavailableError,
)
from myqueue.protocol.chain import canonical_json, wal_chain
from myqueue.service.faults import fault_point

APPLY_ENTRIES_MAX = 200  # in one transaction
TAIL_ENTRIES_MAX = 10_000  # not yet committed
COMMAND_BYTES_MAX = 1 << 20
SESSION_KEPT_ENTRIES = 100_000  # a client that was silent for so many entries is forgotten, on every manager at the same entry
SESSION_CHECK_ENTRIES = 1_000
_NUL = re.compile(rb"(?<!\\)(\\\\)*\\u0000")  # jsonb cannot hold one
CATALOGUE_TABLES = frozenset({"topic", "partition", "broker", "member", "raft_state"})


@dataclass(frozen=True, slots=True)
class Proposal:
    """A command somebody wants, named so that asking twice does it once."""

    command: commands.Command
    client_id: str | None
    client_seq: int | None

    @property
    def key(self) -> tuple[str | None, int | None]:
        return self.client_id, self.client_seq


@dataclass(frozen=True, slots=True)
class Placed:
    """The proposal is on this disk, at this index; it counts once a majority has it."""

    index: int
    term: int


@dataclass(frozen=True, slots=True)
class Answered:
    """The proposal was applied, at this index, with this answer."""

    index: int
    reply: dict


@dataclass(frozen=True, slots=True)
class Applied:
    """What one turn of applying did."""

    applied_index: int
    commit_index: int
    results: tuple[tuple[str, str], ...] = ()  # (command type, "ok" or the error's code)
    events: tuple[Event, ...] = ()
    catalogue_changed: bool = False
    commit_rose: bool = False


class Wal:
    """The log of one manager."""

    def __init__(self, store: WalStore, role: FixedRole) -> None:
        self._store, self._role = store, role

    def append(self, request: AppendRequest) -> tuple[AppendReply, bool]:
        """Take what the leader sends: the answer, to be sent now that it is on disk, and whether the commit index rose.

        Raises:
            LogFaultError: the request contradicts what was agreed; nothing was written.
        """
        with self._store.locked() as held:
            plan = plan_append(self._role.replica(held.state), held.log, request)
            if plan.promise is not None:
                held.set_term(plan.promise, None)
            if plan.delete_from is not None:
                held.truncate(plan.delete_from)
            if plan.insert:
                held.append(plan.insert)  # type: ignore[arg-type]
                fault_point("wal_before_commit")
            if plan.commit is not None:
                held.set_commit(plan.commit)
        return plan.reply, plan.commit is not None

    def begin_term(self) -> RaftState:
        """The write manager takes its term: on disk before it does anything in it.

        Raises:
            LogFaultError: this disk has promised a later term.
        """
        with self._store.locked() as held:
            if held.state.current_term > TERM:
                raise LogFaultError(f"this disk has promised term {held.state.current_term}, a fixed write manager knows only term {TERM}")
            if held.state.current_term < TERM:
                held.set_term(TERM, self._role.node_id)
        return self._store.state()

    def propose(self, proposals: Sequence[Proposal]) -> list[Placed | Answered | MyQueueError]:
        """Put commands at the end of the log; when this returns they are on this disk.

        A proposal that was made before is not made again: it is named where it stands, or with its first answer.

        Raises:
            NotLeaderError, OverloadedError: nothing was done.
            UnavailableError: the log does not begin with ``init_cluster`` yet; nothing was done.
            OutcomeUnknownError: the COMMIT's answer was lost; propose the same again.
        """
        with self._store.locked() as held:
            if not self._role.leads(held.state):
                raise NotLeaderError(f"manager {self._role.write_manager} is the write manager", leader=self._role.write_manager)
            if held.log.end == 0 and not isinstance(proposals[0].command, commands.InitCluster):  # nothing may come before the voters are named
                raise UnavailableError("the cluster is not initialised yet: its first start needs all managers; nothing was done")
            if held.log.end - held.state.commit_index + len(proposals) > TAIL_ENTRIES_MAX:
                raise OverloadedError("too many commands wait for a majority of the managers; nothing was done")
            outcomes, entries = _place(held, proposals)
            if entries:
                held.append(entries)
                fault_point("wal_before_commit")
        if entries:
            fault_point("wal_after_commit")
        return outcomes

    def advance(self, holders: Callable[[Holder], Mapping[int, Holder]]) -> Applied:
        """The leader's commit rule, and applying what it commits, in one transaction.

        Args:
            holders: given the leader's own part, who holds what in this term.
        """
        with self._store.locked() as held:
            commit = held.state.commit_index
            if self._role.leads(held.state):
                shown = holders(Holder(held.state.disk_id, held.log.end))
                commit = commit_position(voters(held), shown, epoch=TERM, log=held.log, commit=commit)
            done = _apply(held, commit)
        if done.results:
            fault_point("apply_after_commit")
        return done

    def apply_committed(self) -> Applied:
        """Apply what is known to be committed: a follower's part, and recovery."""
        with self._store.locked() as held:
            done = _apply(held, held.state.commit_index)
        if done.results:
            fault_point("apply_after_commit")
        return done

    def answer(self, placed: Placed, proposal: Proposal) -> Answered | None:
        """The answer to a proposal that was placed; None where its place is not applied, or holds something else."""
        assert proposal.client_id is not None
        with self._store.reading() as held:
            session = held.sessions([proposal.client_id]).get(proposal.client_id)
            if held.state.applied_index < placed.index or session is None or session.last_seq != proposal.client_seq:
                return None
        return Answered(session.last_index, session.reply)


def voters(held: HeldWal) -> Voters:
    """The managers that count, with their disks: from the tables, or before anything was applied from the first entry."""
    members = held.metadata.find("member")
    if members:
        return {row["node_id"]: row["disk_id"] for row in members if row["voter"]}
    first = held.log.entries(0, 1)
    named = first[0].command.get("members", []) if first else []
    return {member["node_id"]: member["disk_id"] for member in named}


def _place(held: HeldWal, proposals: Sequence[Proposal]) -> tuple[list[Placed | Answered | MyQueueError], list[WalEntry]]:
    client_ids = [proposal.client_id for proposal in proposals if proposal.client_id is not None]
    sessions, known = held.sessions(client_ids), {key: Placed(*place) for key, place in held.pending(client_ids).items()}
    index, chain = held.log.end, chain_before(held.log, held.log.end)
    outcomes: list[Placed | Answered | MyQueueError] = []
    entries = []
    for proposal in proposals:
        outcome: Placed | Answered | MyQueueError | None = known.get(proposal.key) or _from_session(sessions, proposal)  # type: ignore[call-overload]
        if outcome is None:
            entry = _entry(index + 1, chain, proposal)
            if isinstance(entry, MyQueueError):
                outcome = entry
            else:
                index, chain = entry.index, entry.chain
                entries.append(entry)
                outcome = Placed(index, TERM)
                if proposal.client_id is not None:
                    known[proposal.key] = outcome  # type: ignore[index]
        outcomes.append(outcome)
    return outcomes, entries


def _from_session(sessions: Mapping[str, Session], proposal: Proposal) -> Answered | MyQueueError | None:
    session = sessions.get(proposal.client_id) if proposal.client_id is not None else None
    if session is None or proposal.client_seq is None or session.last_seq < proposal.client_seq:
        return None
    if session.last_seq == proposal.client_seq:
        return Answered(session.last_index, session.reply)
    return DuplicateSequenceError(f"command {proposal.client_seq} of client {proposal.client_id} was done long ago; its answer is no longer known")


def _entry(index: int, previous: bytes, proposal: Proposal) -> WalEntry | MyQueueError:
    body = commands.to_json(proposal.command)
    try:
        text = canonical_json(body)
    except ValueError as error:
        return BadRequestError(f"the command cannot be stored: {error}")
    if _NUL.search(text):
        return BadRequestError("the command cannot be stored: a text holds a NUL")
    size = len(text)
    if size > COMMAND_BYTES_MAX:
        return TooLargeError(f"the command has {size} bytes, the most is {COMMAND_BYTES_MAX}")
    body = json.loads(text)
    chain = wal_chain(previous, index=index, term=TERM, command=body, client_id=proposal.client_id, client_seq=proposal.client_seq)
    return WalEntry(index, TERM, body, proposal.client_id, proposal.client_seq, chain)


def _apply(held: HeldWal, commit: int) -> Applied:
    """Apply from applied_index + 1 on, at most APPLY_ENTRIES_MAX entries; rows, sessions and index in this one transaction."""
    state = held.state
    entries = held.log.entries(state.applied_index, min(commit, state.applied_index + APPLY_ENTRIES_MAX))
    results: list[tuple[str, str]] = []
    events: list[Event] = []
    touched: set[str] = set()
    sessions = held.sessions([entry.client_id for entry in entries if entry.client_id is not None]) if entries else {}
    for entry in entries:
        change = _apply_one(held, entry, sessions)
        if change is not None:
            results.append((entry.command["type"], change.reply.get("error", {}).get("code", "ok")))
            events += change.events
            touched |= {row.table for row in change.changes}
    applied = entries[-1].index if entries else state.applied_index
    if applied > state.applied_index:
        held.set_applied(commit=commit, applied=applied)
    elif commit > state.commit_index:
        held.set_commit(commit)
    return Applied(applied, commit, tuple(results), tuple(events), bool(touched & CATALOGUE_TABLES), commit > state.commit_index)


def _apply_one(held: HeldWal, entry: WalEntry, sessions: dict[str, Session]) -> Change | None:
    """The change an entry made; None for one that its client's session shows to be applied already."""
    session = sessions.get(entry.client_id) if entry.client_id is not None else None
    change = None
    if session is None or entry.client_seq is None or session.last_seq < entry.client_seq:
        change = apply(held.metadata, commands.from_json(entry.command))
        held.metadata.write(change.changes)
        if entry.client_id is not None and entry.client_seq is not None:
            sessions[entry.client_id] = Session(entry.client_id, entry.client_seq, change.reply, entry.index)
            held.put_session(sessions[entry.client_id])
    if entry.index % SESSION_CHECK_ENTRIES == 0:
        oldest = entry.index - SESSION_KEPT_ENTRIES
        held.expire_sessions(oldest)
        for client_id in [name for name, session in sessions.items() if session.last_index < oldest]:
            del sessions[client_id]
    return change
