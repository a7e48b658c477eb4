"""The WAL of this manager, every handler of it in the same order: lock ``raft_state``, decide with the pure core, write, commit.

What must never happen: an answer before the disk has it. So nothing here answers inside a transaction; whoever calls does,
after the block has ended. Fault points stand where a crash means something else: before the commit of a WAL entry,
between that and applying, and between applying and the answer.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from db import snapshots
from db.wal import RaftState, WalEntry
from db.wal_store import HeldWal, Session, WalStore
from manager.cluster import commands
from manager.cluster.draft import Event
from manager.cluster.state import Change, apply
from manager.node import signals as sig
from manager.node.role import Role
from manager.node.signals import Signals
from manager.raft.follower import handle
from manager.raft.life import LifeSign, Seen, is_registered_lost, loses_disk, plan_life, sign_of
from manager.raft.log import Proposal
from manager.raft.membership import MEMBER_COMMANDS, Member, Membership, changes_membership, in_force
from manager.raft.messages import Reply, Request, TimeoutNow, VoteRequest
from manager.raft.proposal import Admission, Outcome, admit, plan_propose, proposal_outcome
from manager.raft.state import Changes, Held, state_after
from myqueue.clock import Clock
from myqueue.errors import BadRequestError, DiskLostError, DuplicateSequenceError, MyQueueError, RefusedError, TooLargeError
from myqueue.protocol.chain import canonical_json
from myqueue.service.faults import fault_point, is_armed

APPLY_ENTRIES_MAX = 200  # in one transaction
COMMAND_BYTES_MAX = 1 << 20
SESSION_KEPT_ENTRIES = 100_000  # a client that was silent for so many entries is forgotten, on every manager at the same entry
SESSION_CHECK_ENTRIES = 1_000
_NUL = re.compile(rb"(?<!\\)(\\\\)*\\u0000")  # jsonb cannot hold one
CATALOGUE_TABLES = frozenset({"topic", "partition", "broker", "member", "raft_state", "consumer_group", "group_member"})
_log = logging.getLogger(__name__)


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
    """What one turn of applying did, which began at what was applied ``before``."""

    before: int
    applied_index: int
    commit_index: int
    results: tuple[tuple[str, str], ...] = ()  # (command type, "ok" or the error's code)
    events: tuple[Event, ...] = ()
    catalogue_changed: bool = False
    commit_rose: bool = False
    disk_lost: bool = False  # an entry says so of this manager's disk: it has become another one


class Desk:
    """One decision: what is on disk under the lock of ``raft_state``, and the way to change it."""

    def __init__(self, rows: HeldWal, role: Role, snapshot_entries: int | None) -> None:
        self._rows, self._role, self._snapshot_entries = rows, role, snapshot_entries
        self.held = Held(rows.state, rows.log, membership_in(rows), role.contact())

    @property
    def disk_id(self) -> str:
        """This manager's disk, as it is after what was written."""
        return self._rows.state.disk_id

    def write(self, changes: Changes, *, apply: bool = False) -> Applied:
        """Carry the changes out; with ``apply`` also what is committed then, as much as fits into one transaction."""
        rows = self._rows
        before, state = rows.state, state_after(rows.state, changes)
        if changes.install is not None:
            rows.write_state(state)  # first: the log never begins behind what is applied
            snapshots.install(rows, changes.install.state)
            if is_registered_lost(membership_in(rows), state.node_id):
                _renew(rows, self._role, "the state that it takes says so")
            return Applied(before.applied_index, state.applied_index, state.commit_index, commit_rose=state.commit_index > before.commit_index)
        if changes.delete_from is not None:
            rows.truncate(changes.delete_from)
        if changes.insert:
            rows.append(changes.insert)
        done = _apply(rows, state, self._snapshot_entries) if apply else Applied(state.applied_index, state.applied_index, state.commit_index)
        state = replace(state, applied_index=done.applied_index)
        if state != before:
            rows.write_state(state)
        if done.disk_lost:
            _renew(rows, self._role, "the write manager has found that it does not hold what it acknowledged")
        return replace(done, commit_rose=state.commit_index > before.commit_index)


class Wal:
    """The log of one manager."""

    def __init__(self, store: WalStore, role: Role, signals: Signals, clock: Clock, *, election_timeout_seconds: float,
                 snapshot_entries: int | None = None) -> None:
        """
        Args:
            snapshot_entries: applying stops for a moment at every so manieth entry, so that a snapshot can be taken just there.
        """
        self._snapshot_entries = snapshot_entries
        self._store, self._role, self._signals, self._clock = store, role, signals, clock
        self._election_timeout_seconds = election_timeout_seconds

    @contextmanager
    def deciding(self) -> Iterator[Desk]:
        """The lock, and what a decision sees. What it wrote is on disk when the block has ended."""
        with self._locked() as rows:
            yield Desk(rows, self._role, self._snapshot_entries)

    def live(self, shown: Seen) -> LifeSign:
        """Raise this disk's life number, if others have the present one, and keep what they have shown; what may be said of it now.

        Where others have seen a higher number than this disk has, it is an older copy of itself: it takes a new identity.
        """
        with self._locked() as rows:
            state = rows.state
            if shown.get(state.disk_id, 0) > state.life:
                _renew(rows, self._role, f"others have seen life number {shown[state.disk_id]} of it, it has {state.life}")
            else:
                members = membership_in(rows).members.values()
                life, lives = plan_life(state, shown, disks=[member.disk_id for member in members if member.disk_id is not None])
                if (life, lives) != (state.life, state.lives):
                    rows.write_life(life, lives)
            return sign_of(rows.state)

    def renew_disk(self, lost: DiskLostError) -> None:
        """Let the disk that was found to be lost be another one from now on. It keeps its log, and has no vote until it was added again."""
        with self._store.locked() as rows:
            if rows.state.disk_id == lost.disk_id:
                _renew(rows, self._role, lost.message)

    @contextmanager
    def _locked(self) -> Iterator[HeldWal]:
        """The lock. Raises DiskLostError where an older copy was put in the place of the database while this manager ran."""
        with self._store.locked() as rows:
            if rows.state.life < self._role.life:
                raise DiskLostError(f"life number {rows.state.life} after {self._role.life}: an older copy of this manager's database was put back",
                                    disk_id=rows.state.disk_id)
            self._role.note_life(rows.state.life)
            yield rows

    def handle(self, request: Request) -> Reply:
        """Answer another manager: the reply, to be sent now that it is on disk.

        Raises:
            LogFaultError: the request contradicts what was agreed; nothing was written.
            DiskLostError: this is an older copy of the disk; it is another disk from now on.
        """
        try:
            return self._handle(request)
        except DiskLostError as lost:
            self.renew_disk(lost)
            raise

    def _handle(self, request: Request) -> Reply:
        with self.deciding() as desk:
            forgets = is_armed("vote_not_stored") and isinstance(request, VoteRequest)
            held = replace(desk.held, state=replace(desk.held.state, voted_for=None)) if forgets else desk.held
            handled = handle(held, request, now=self._clock.monotonic(), election_timeout_seconds=self._election_timeout_seconds)
            if forgets:
                handled = replace(handled, changes=Changes(), contact=None)
            before, done = desk.held.state, desk.write(handled.changes)
            if handled.changes.insert:
                fault_point("wal_before_commit")
            disk_id = desk.disk_id  # perhaps another one than it was: then that is who answers
            if handled.changes.install is not None:
                fault_point("install_before_commit")
        if handled.changes.install is not None:
            self._installed(handled.changes.install.start.position)
        term = before.current_term if handled.changes.term_vote is None else handled.changes.term_vote.term
        if handled.changes.term_vote is not None:
            self._role.stop_leading()
        known = self._role.leader()
        if handled.contact is not None:
            self._role.note_contact(handled.contact, term)
        if self._role.leader() != known:
            self._signals.give(sig.CATALOGUE)
        if done.commit_rose or handled.changes.term_vote is not None or isinstance(request, TimeoutNow):
            self._signals.give(sig.DRIVE, sig.APPLIED)
        return handled.reply if disk_id == before.disk_id else replace(handled.reply, disk_id=disk_id)

    def _installed(self, index: int) -> None:
        """Another manager's state is on this disk: whatever was read of the metadata before is void."""
        fault_point("install_after_commit")
        _log.warning("took the state at index %d in place of a log that ended before the leader's begins", index)
        self._signals.give(sig.CATALOGUE, sig.APPLIED, sig.DRIVE)

    def propose(self, proposals: Sequence[Proposal]) -> list[Placed | Answered | MyQueueError]:
        """Put commands at the end of the log; when this returns they are on this disk.

        A proposal that was made before is not made again: it is named where it stands, or with its first answer.

        Raises:
            NotLeaderError, OverloadedError: nothing was done.
            OutcomeUnknownError: the COMMIT's answer was lost; propose the same again.
        """
        with self._locked() as rows:
            outcomes, fresh = _sort_out(rows, proposals)
            changes = plan_propose(Held(rows.state, rows.log, Membership(), self._role.contact()), fresh)
            if changes.insert:
                rows.append(changes.insert)
                fault_point("wal_before_commit")
        if changes.insert:
            fault_point("wal_after_commit")
        placed = {proposal.key: Placed(entry.index, entry.term) for proposal, entry in zip(fresh, changes.insert, strict=True)}
        return [outcome or placed[proposal.key] for outcome, proposal in zip(outcomes, proposals, strict=True)]

    def look(self, placed: Placed, proposal: Proposal) -> Answered | Outcome:
        """The answer to a proposal that was placed, or what is known of it."""
        assert proposal.client_id is not None
        with self._store.reading() as rows:
            session = rows.sessions([proposal.client_id]).get(proposal.client_id)
            if session is not None and session.last_seq == proposal.client_seq:
                return Answered(session.last_index, session.reply)
            outcome = proposal_outcome(rows.state, rows.log, index=placed.index, term=placed.term)
            return Outcome.UNKNOWN if outcome is Outcome.COMMITTED and rows.state.applied_index >= placed.index else outcome


def _renew(rows: HeldWal, role: Role, reason: str) -> None:
    """Under the lock: this is another disk from now on."""
    before, disk_id = rows.state.disk_id, rows.take_new_disk()
    role.note_life(0)
    _log.critical("disk %s is lost: %s; this is disk %s from now on, which has no vote yet", before, reason, disk_id)


def membership_in(rows: HeldWal) -> Membership:
    """The membership in force: the applied one, with the member commands above it."""
    applied = {row["node_id"]: Member(row["node_id"], row["url"], row["disk_id"], row["voter"]) for row in rows.metadata.find("member")}
    return in_force(Membership(applied), rows.log.of_types(MEMBER_COMMANDS, behind=rows.state.applied_index))


Outcomes = list[Placed | Answered | MyQueueError | None]


def _sort_out(rows: HeldWal, proposals: Sequence[Proposal]) -> tuple[Outcomes, list[Proposal]]:
    """What is known of each proposal already (None: nothing), and those that are to be placed, each name once, as the WAL will hold them."""
    client_ids = [proposal.client_id for proposal in proposals if proposal.client_id is not None]
    sessions, known = rows.sessions(client_ids), {key: Placed(*place) for key, place in rows.pending(client_ids).items()}
    outcomes: Outcomes = []
    fresh: list[Proposal] = []
    for proposal in proposals:
        outcome: Placed | Answered | MyQueueError | None = known.get(proposal.key) or _from_session(sessions, proposal)  # type: ignore[call-overload]
        if outcome is None and all(proposal.key != other.key for other in fresh):
            stored = _as_stored(proposal)
            if isinstance(stored, MyQueueError):
                outcome = stored
            else:
                fresh.append(stored)
        outcomes.append(outcome)
    return outcomes, fresh


def _from_session(sessions: Mapping[str, Session], proposal: Proposal) -> Answered | MyQueueError | None:
    session = sessions.get(proposal.client_id) if proposal.client_id is not None else None
    if session is None or proposal.client_seq is None or session.last_seq < proposal.client_seq:
        return None
    if session.last_seq == proposal.client_seq:
        return Answered(session.last_index, session.reply)
    return DuplicateSequenceError(f"command {proposal.client_seq} of client {proposal.client_id} was done long ago; its answer is no longer known")


def _as_stored(proposal: Proposal) -> Proposal | MyQueueError:
    """The proposal with its command exactly as the WAL gives it back."""
    if changes_membership(proposal.command):
        return RefusedError("a member command is checked against the followers' progress first")
    try:
        text = canonical_json(proposal.command)
    except ValueError as error:
        return BadRequestError(f"the command cannot be stored: {error}")
    if _NUL.search(text):
        return BadRequestError("the command cannot be stored: a text holds a NUL")
    if len(text) > COMMAND_BYTES_MAX:
        return TooLargeError(f"the command has {len(text)} bytes, the most is {COMMAND_BYTES_MAX}")
    return replace(proposal, command=json.loads(text))


def apply_end(state: RaftState, snapshot_entries: int | None) -> int:
    """How far to apply in one transaction: at most APPLY_ENTRIES_MAX entries, and never past an index where a snapshot is due."""
    end = min(state.commit_index, state.applied_index + APPLY_ENTRIES_MAX)
    return min(end, (state.applied_index // snapshot_entries + 1) * snapshot_entries) if snapshot_entries else end


def _apply(held: HeldWal, state: RaftState, snapshot_entries: int | None) -> Applied:
    """Apply from applied_index + 1 on, up to ``apply_end``; the caller writes the index in the same transaction."""
    entries = held.log.between(state.applied_index, apply_end(state, snapshot_entries))
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
    lost = any(loses_disk(entry.command, state) for entry in entries)
    return Applied(state.applied_index, applied, state.commit_index, tuple(results), tuple(events), bool(touched & CATALOGUE_TABLES), disk_lost=lost)


def _apply_one(held: HeldWal, entry: WalEntry, sessions: dict[str, Session]) -> Change | None:
    """The change an entry made; None for one that its client's session shows to be applied already."""
    session = sessions.get(entry.client_id) if entry.client_id is not None else None
    change = None
    if entry.client_seq is None or admit(session.last_seq if session else None, entry.client_seq) is Admission.APPLY:
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
