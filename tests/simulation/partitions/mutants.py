"""Rules of the partitions taken out one at a time; the simulation must notice each. See tests/simulation/mutants.py for how."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from db.replication.log import end_epoch
from myqueue.protocol.fold import LogState
from tests.simulation import mutants as of_managers
from tests.simulation.partitions.broker import Broker, Waiting
from tests.simulation.partitions.disk import Disk
from tests.simulation.partitions.world import Kinds


@dataclass(frozen=True)
class Mutant:
    """One rule taken out: functions replaced by path, or another class for broker or disk."""

    name: str
    rule: str  # what is missing, in words
    notices: str  # the rules of which one must fail, or what the product itself says
    patches: tuple[tuple[str, Any], ...] = ()
    broker: type[Broker] = Broker
    disk: type[Disk] = Disk

    @contextmanager
    def planted(self) -> Iterator[Kinds]:
        """The classes to run with, while the functions are replaced."""
        with ExitStack() as stack:
            for path, broken in self.patches:
                stack.enter_context(patch(path, broken))
            yield Kinds(self.broker, self.disk)


class _ForgetsItsPromise(Disk):
    def crash_database(self) -> None:
        super().crash_database()
        self.head = replace(self.head, promised_epoch=max(self.head.leader_epoch, end_epoch(self.log)))


class _DecidesOnFoldedState(Disk):
    def state_with_tail(self) -> LogState:
        return self.folded.copy()


class _ForgetsTheStartEpoch(Disk):
    def trim(self, lsn: int) -> None:
        super().trim(lsn)
        self.log.start_epoch = 0


class _AnswersByPosition(Broker):
    def answers(self) -> list[tuple[Waiting, Any]]:
        done = [(wait, wait.outcome) for wait in self.waiting if self.disk.head.commit_lsn >= wait.position]
        self.waiting = [wait for wait in self.waiting if self.disk.head.commit_lsn < wait.position]
        return done


def _anybody(voters: Any, answers: Any) -> bool:
    return bool(answers)


_PLAN_APPEND = "tests.simulation.partitions.broker.plan_append"
_ALL = (
    Mutant("promise_not_durable", "a promise is on disk before the answer", "R4", disk=_ForgetsItsPromise),
    Mutant("folded_state_only", "decisions see the entries above the folded state", "R8", disk=_DecidesOnFoldedState),
    Mutant("start_epoch_forgotten", "the epoch before the start is remembered", "fault|assertion", disk=_ForgetsTheStartEpoch),
    Mutant("acknowledged_by_position", "an answer is told only in the epoch that wrote the entry", "R6", broker=_AnswersByPosition),
    Mutant("no_up_to_date_check", "the furthest log of a majority leads", "R3", (("manager.cluster.election.Promise.reach", (0, 0)),)),
    Mutant("election_by_a_minority", "a majority elects", "R3|R1|fault", (("manager.cluster.election.has_majority", _anybody),)),
    Mutant("truncation_without_conflict", "delete only from a conflicting entry on", "R3|R5|fault|assertion|convergence",
           ((_PLAN_APPEND, of_managers._cuts_what_is_longer),)),
    Mutant("stale_append_truncates", "an append below the promise is refused", "R4|R8", ((_PLAN_APPEND, of_managers._takes_stale_epochs),)),
)
MUTANTS = {mutant.name: mutant for mutant in _ALL}
