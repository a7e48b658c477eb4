"""Proposing a command from anywhere: name it, get it to the write manager, wait until it is applied, give its answer.

A command is named by (client_id, client_seq), so that asking again, after an answer was lost, does it once. A client id
has one command under way at a time; ids are kept in a pool and one whose outcome is not known is never used again.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from manager.cluster import commands
from manager.node import signals as sig
from manager.node.role import Role
from manager.node.signals import Signals
from manager.node.transport import Peers
from manager.node.wal import Answered, Placed, Wal
from manager.raft.log import Proposal
from manager.raft.proposal import Outcome
from manager.replica import Replica
from myqueue.clock import Clock
from myqueue.errors import MyQueueError, NotLeaderError, OutcomeUnknownError, OverloadedError, UnavailableError, UnreachableError
from myqueue.protocol import wire

T = TypeVar("T")
GROUP_MAX = 100  # proposals in one transaction
PAUSE_SECONDS = 0.05


class Clients:
    """A pool of client ids, each with its next sequence number."""

    def __init__(self, node_id: int) -> None:
        self._prefix = f"m{node_id}-{uuid.uuid4().hex[:16]}"
        self._numbers = itertools.count(1)
        self._free: deque[tuple[str, int]] = deque()

    @contextmanager
    def next(self) -> Iterator[tuple[str, int]]:
        """A (client_id, client_seq) that nobody has used; its id goes back to the pool unless the outcome is unknown."""
        try:
            client_id, seq = self._free.pop()
        except IndexError:
            client_id, seq = f"{self._prefix}-{next(self._numbers)}", 1
        try:
            yield client_id, seq
        except OutcomeUnknownError:
            raise
        except BaseException:
            self._free.append((client_id, seq + 1))
            raise
        self._free.append((client_id, seq + 1))


@dataclass
class _Waiting:
    proposal: Proposal
    outcome: Placed | Answered | MyQueueError | None = None


class Group:
    """Puts proposals that come at the same time into one transaction: who gets the turn writes for all that wait."""

    def __init__(self, write: Callable[[list[Proposal]], list[Placed | Answered | MyQueueError]]) -> None:
        self._write = write
        self._mutex, self._turn = threading.Lock(), threading.Lock()
        self._waiting: list[_Waiting] = []

    def submit(self, proposal: Proposal, timeout_seconds: float) -> Placed | Answered:
        """Raises what ``write`` raises, for this proposal or for all of its group."""
        mine = _Waiting(proposal)
        with self._mutex:
            self._waiting.append(mine)
        if not self._turn.acquire(timeout=max(0.0, timeout_seconds)):
            with self._mutex:
                if mine in self._waiting:
                    self._waiting.remove(mine)
                    raise OverloadedError("the write manager is too busy; nothing was done")
            raise OutcomeUnknownError("no answer in time: the command is being written")
        try:
            while mine.outcome is None:  # more than one group may wait before it
                self._write_group()
        finally:
            self._turn.release()
        if isinstance(mine.outcome, MyQueueError):
            raise mine.outcome
        assert mine.outcome is not None
        return mine.outcome

    def _write_group(self) -> None:
        with self._mutex:
            group, self._waiting = self._waiting[:GROUP_MAX], self._waiting[GROUP_MAX:]
        try:
            outcomes: list[Any] = list(self._write([waiting.proposal for waiting in group]))
        except MyQueueError as error:
            outcomes = [error] * len(group)
        except BaseException:
            outcomes = [OutcomeUnknownError("the command could not be written")] * len(group)
            raise
        finally:
            for waiting, outcome in zip(group, outcomes, strict=True):
                waiting.outcome = outcome


class Proposer:
    """Proposes on behalf of one manager's requests."""

    def __init__(self, *, wal: Wal, role: Role, replica: Replica, peers: Peers, signals: Signals, clock: Clock,
                 live_brokers: Callable[[], tuple[int, ...]], heard_brokers: Callable[[], Collection[int]],
                 absent_brokers: Callable[[Iterable[int]], tuple[int, ...]], late_brokers: Callable[[], tuple[int, ...]],
                 timeout_seconds: float) -> None:
        self._wal, self._role, self._replica, self._peers, self._signals, self._clock = wal, role, replica, peers, signals, clock
        self._live_brokers, self._heard_brokers, self._absent_brokers, self._late_brokers = live_brokers, heard_brokers, absent_brokers, late_brokers
        self._timeout_seconds = timeout_seconds
        self._clients = Clients(role.node_id)
        self._group = Group(wal.propose)

    def propose(self, command: commands.Command) -> dict[str, Any]:
        """Have a command done; this manager's metadata show it, unless it is too far behind to get there in time.

        Raises:
            OutcomeUnknownError: no answer in time; it may or may not be done.
            MyQueueError: the command was refused, or surely not done.
        """
        deadline = self._clock.monotonic() + self._timeout_seconds
        with self._clients.next() as (client_id, client_seq):
            answered = self._ask(Proposal(commands.to_json(command), client_id, client_seq), deadline)
        self._replica.note_written(answered.index)
        self._once_written(lambda: self._replica.wait_for(answered.index, max(0.1, deadline - self._clock.monotonic())))
        if "error" in answered.reply:
            raise wire.error_from_json(answered.reply, 400)
        return answered.reply["result"]

    def execute(self, proposal: Proposal, timeout_seconds: float | None = None) -> Answered:
        """Do a proposal here, on the write manager, and wait for its answer.

        Raises:
            NotLeaderError: this is not the write manager; nothing was done.
            StaleMetadataError: it has just become the write manager and could not catch up in time; nothing was done.
            OutcomeUnknownError: no majority took it in time, or another manager leads by now; propose the same again to find out.
        """
        if not self._role.is_write_manager:
            raise NotLeaderError(f"manager {self._role.node_id} is not the write manager", leader=self._role.leader())
        if self._role.is_handing_over:
            raise NotLeaderError(f"manager {self._role.node_id} hands its leadership over")
        deadline = self._clock.monotonic() + (timeout_seconds or self._timeout_seconds)
        proposal = dataclasses.replace(proposal, command=commands.to_json(self._stamped(commands.from_json(proposal.command))))
        placed = self._place(proposal, deadline)
        return placed if isinstance(placed, Answered) else self._once_written(lambda: self._wait(proposal, placed, deadline))

    def _ask(self, proposal: Proposal, deadline: float) -> Answered:
        """At the write manager, wherever that is and whoever becomes it meanwhile: asking twice under one name does it once.

        What may have been done by one attempt is *unknown* in the end, whatever the last one said.
        """
        unknown: OutcomeUnknownError | None = None
        failure: UnavailableError
        while True:
            try:
                leader, left = self._role.require_leader(), max(0.1, deadline - self._clock.monotonic())
                if leader == self._role.node_id:
                    return self.execute(proposal, left)
                return self._peers.propose(leader, proposal, timeout_seconds=left)
            except OutcomeUnknownError as error:
                unknown = failure = error
            except OverloadedError as error:
                raise unknown or error from error
            except UnreachableError as error:
                failure = UnavailableError(f"the write manager cannot be reached; nothing was done ({error.message})", **error.details)
            except UnavailableError as error:  # nobody leads, or who led does not any more: nothing was done
                failure = error
            if deadline - self._clock.monotonic() <= 2 * PAUSE_SECONDS:
                raise unknown or failure
            self._signals.wait(sig.CATALOGUE, self._signals.stamp(sig.CATALOGUE), PAUSE_SECONDS)

    def _place(self, proposal: Proposal, deadline: float) -> Placed | Answered:
        try:
            placed = self._group.submit(proposal, deadline - self._clock.monotonic())
        except OutcomeUnknownError as doubt:  # the COMMIT's answer was lost: looked at again under the lock
            try:
                placed = self._group.submit(proposal, deadline - self._clock.monotonic())
            except UnavailableError:
                raise doubt from None  # the second one surely not, the first one perhaps
        self._signals.give(sig.DRIVE)
        return placed

    def _wait(self, proposal: Proposal, placed: Placed, deadline: float) -> Answered:
        """Until the place is applied, or is known to be lost with the leadership."""
        while True:
            stamp = self._signals.stamp(sig.APPLIED)
            if self._replica.applied_index() >= placed.index or self._role.led_term != placed.term:
                found = self._wal.look(placed, proposal)
                if isinstance(found, Answered):
                    return found
                if found is Outcome.UNKNOWN:
                    raise OutcomeUnknownError("another command stands where this one was written")
            left = deadline - self._clock.monotonic()
            if left <= 0:
                raise OutcomeUnknownError(f"manager-{self._role.node_id}: no majority of the managers took the command in time; it may still be "
                                          "done", component=f"manager-{self._role.node_id}")
            if not self._role.is_write_manager:
                raise OutcomeUnknownError(f"manager-{self._role.node_id} does not lead any more: the command may still be done",
                                          component=f"manager-{self._role.node_id}")
            self._signals.wait(sig.APPLIED, stamp, left)

    @staticmethod
    def _once_written(ask: Callable[[], T]) -> T:
        """Where the command stands in a log already, a database that does not answer says nothing of what became of it."""
        try:
            return ask()
        except OutcomeUnknownError:
            raise
        except UnavailableError as error:
            raise OutcomeUnknownError(f"the command was written and may be done: {error.message}", **error.details) from error

    def _stamped(self, command: commands.Command) -> commands.Command:
        """The command with what ``apply`` may not find out by itself: the time, who is alive, and where nobody listens.

        A leader that was just elected may not know of brokers yet that its predecessor knew: it catches up first.
        """
        names = {field.name for field in dataclasses.fields(command)}
        filled: dict[str, Any] = {}
        if "created_at" in names and not command.created_at:  # type: ignore[union-attr]
            filled["created_at"] = self._clock.now_us()
        if "live_brokers" in names and command.live_brokers is None:  # type: ignore[union-attr]
            self._replica.settle()
            filled["live_brokers"] = self._live_brokers()
            if "absent_brokers" in names and self._may_place(command):
                filled["live_brokers"], filled["absent_brokers"] = self._looked_at(filled["live_brokers"])
        return dataclasses.replace(command, **filled)

    def _looked_at(self, live: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Who may take replicas, and at whose address of those nobody listens just now.

        A broker whose heartbeats come late and that says that it is ready gets replicas too: a topic would have fewer of them for good.
        Who was heard of lately gets replicas though nobody listens: a restart takes a second. Of a broker that is only believed in, since a new
        write manager has not heard of everyone, the door decides: a topic would have fewer replicas for good, or some on a dead machine.
        """
        live = tuple(sorted({*live, *self._late_brokers()}))
        absent, heard = self._absent_brokers(live), self._heard_brokers()
        there = tuple(broker_id for broker_id in live if broker_id in heard or broker_id not in absent) or live
        return there, tuple(broker_id for broker_id in absent if broker_id in there)

    def _may_place(self, command: commands.Command) -> bool:
        """Whether partitions may be made: most producers register for topics that are there, and need no look at the brokers' doors."""
        return not (isinstance(command, commands.RegisterProducers)
                    and (not command.create or self._replica.catalogue().topics.keys() >= set(command.topics)))
