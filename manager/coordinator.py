"""The write manager's care for partitions: who leads them, who holds them, whether leaderships are even.

One thread, in the driver's process, while this manager leads. It looks at the brokers twice a second, holds the elections
that are due, and once a second takes the next step for partitions whose voters or learners are not as they should be.
All of it may be repeated, or stop anywhere: every decision is a command that is compare-and-set on the epoch.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from db.metadata_store import PartitionRow
from manager.appointer import Appointer
from manager.brokers import Brokers
from manager.catalogue import Catalogue, Topic, partition_id, replicas_of
from manager.cluster import commands
from manager.cluster.election import (
    Outlook,
    Replicas,
    damaged_leaderships,
    damaged_voters,
    election_due,
    has_all,
    is_following,
    is_in_step,
    is_settled,
    is_sound,
    retry_seconds,
    unbalanced,
)
from manager.cluster.leftovers import leftovers
from manager.cluster.reassignment import ChangeVoters, Step, needs_attention, next_step
from manager.elections import Election, Elections
from manager.replica import Replica
from manager.watch import BrokerWatch
from myqueue.clock import Clock
from myqueue.errors import MyQueueError
from myqueue.protocol.types import PartitionId

LOOK_SECONDS = 0.5
LOOK_AGAIN_SECONDS = 0.15  # while a refused connection waits for its confirmation
CARE_SECONDS = 1.0
CARE_MAX = 200  # partitions in one turn of care
GENTLE_MAX = 20  # partitions that are led and elect at the same time, to change their voters or leader
MOVES_MAX = 50  # leaderships that move in one turn
MOVE_AGAIN_SECONDS = 5.0  # a leadership that did not move is tried again
STATUS_SECONDS = 2.0
AT_HAND_SECONDS = 1.0  # an election that somebody else has begun is left to him for so long
_log = logging.getLogger(__name__)


class Coordinator:
    """Cares for all partitions while this manager leads."""

    def __init__(self, *, propose: Callable[[commands.Command], dict[str, Any]], elections: Elections, replica: Replica, brokers: Brokers,
                 appointer: Appointer, watch: BrokerWatch, clock: Clock, inventory_seconds: float = 60.0) -> None:
        self._propose, self._elections, self._replica, self._brokers = propose, elections, replica, brokers
        self._appointer, self._watch, self._clock, self._inventory_seconds = appointer, watch, clock, inventory_seconds
        self._failed: dict[PartitionId, tuple[int, float]] = {}  # elections that found nobody: how many in a row, not again before
        self._damaged: dict[int, dict[PartitionId, int]] = {}  # by broker: what it follows with a damaged replica, and in which epoch that was seen
        self._moved: dict[PartitionId, float] = {}  # when a leadership was last asked to move
        self._electing: dict[PartitionId, tuple[int, float]] = {}  # what others began: the epoch, and when it was seen first
        self._has_looked = False  # in this leadership
        self._care_due = self._tidy_due = 0.0
        self._rows: tuple[Catalogue | None, list[tuple[Topic, PartitionRow, Replicas]]] = None, []

    def begin(self) -> None:
        """This manager begins to lead."""
        self._failed, self._moved, self._damaged, self._care_due, self._tidy_due = {}, {}, {}, 0.0, 0.0
        self._electing, self._has_looked = {}, False
        self._watch.begin()

    def run(self, leading: threading.Event, stopping: threading.Event) -> None:
        led = False
        while not stopping.is_set():
            if not leading.wait(LOOK_SECONDS):
                led = False
                continue
            if not led:
                self.begin()
                led = True
            try:
                self._turn()
            except MyQueueError as error:
                _log.warning("coordinator: %s", error.message, extra={"code": error.code})
            stopping.wait(LOOK_AGAIN_SECONDS if self._watch.is_in_doubt else LOOK_SECONDS)

    def _turn(self) -> None:
        catalogue = self._replica.catalogue()
        outlook = self._watch.outlook(catalogue)
        rows = self._rows_of(catalogue)
        if self._elect(rows, outlook):
            return  # look again before anything else is changed
        now = self._clock.monotonic()
        if now >= self._care_due:
            self._care_due = now + CARE_SECONDS
            self._care(catalogue, rows, outlook)
        if now >= self._tidy_due:
            self._tidy_due = now + self._inventory_seconds
            self._tidy(catalogue, outlook)

    def _rows_of(self, catalogue: Catalogue) -> list[tuple[Topic, PartitionRow, Replicas]]:
        """Every partition with what the rules see of it, made once for a catalogue."""
        if self._rows[0] is not catalogue:
            self._rows = catalogue, [(topic, row, replicas_of(row)) for topic in catalogue.topics.values() for row in topic.partitions]
        return self._rows[1]

    # --- elections that are due ---

    def _elect(self, rows: Iterable[tuple[Topic, PartitionRow, Replicas]], outlook: Outlook) -> bool:
        now, due = self._clock.monotonic(), []
        for topic, row, replicas in rows:
            if self._failed.get(replicas.partition, (0, 0.0))[1] > now:
                continue
            reason = election_due(replicas, outlook, begun_here=self._is_at_hand(replicas, now), refused=self._appointer.is_refused(row))
            if reason is not None:
                due.append(Election(topic, row, replicas.voters, reason))
        self._has_looked = True
        if due:
            self._hold(due, outlook)
        return bool(due)

    def _is_at_hand(self, replicas: Replicas, now: float) -> bool:
        """Whether somebody else (an operator's request, on any manager) is holding the partition's election just now.

        What was begun before this manager led, or was begun by this coordinator and found nobody, is at nobody's hand.
        """
        if not replicas.electing or replicas.partition in self._failed:
            self._electing.pop(replicas.partition, None)
            return False
        epoch, since = self._electing.get(replicas.partition, (None, now))
        if epoch != replicas.epoch:
            since = now if self._has_looked else now - AT_HAND_SECONDS
            self._electing[replicas.partition] = replicas.epoch, since
        return now - since < AT_HAND_SECONDS

    def _hold_gently(self, elections: list[Election], outlook: Outlook) -> None:
        """Of partitions that are led: few at a time are without a leader for that, and no more once one of them finds none."""
        for first in range(0, len(elections), GENTLE_MAX):
            if not self._hold(elections[first:first + GENTLE_MAX], outlook):
                break

    def _hold(self, elections: list[Election], outlook: Outlook) -> bool:
        """Whether all have found a leader."""
        found: set[PartitionId] = set()
        try:
            attempts = max(self._failed.get(election.partition, (0, 0.0))[0] for election in elections)
            found = self._elections.hold(elections, outlook, attempts=attempts)
        finally:
            now = self._clock.monotonic()
            for election in elections:
                attempts = self._failed.pop(election.partition, (0, 0.0))[0]
                if election.partition not in found:
                    self._failed[election.partition] = (attempts + 1, now + retry_seconds(attempts))
        return found.issuperset(election.partition for election in elections)

    # --- voters, learners, balance ---

    def _care(self, catalogue: Catalogue, rows: list[tuple[Topic, PartitionRow, Replicas]], outlook: Outlook) -> None:
        odd = [one for one in rows if needs_attention(one[2], outlook) or self._damaged_voters(one[2])][:CARE_MAX]
        moves = self._wanted_moves([replicas for _, _, replicas in rows], outlook)
        asked = [one for one in rows if one[2].partition in moves]
        if not odd and not asked:
            return
        statuses = self._statuses(catalogue, [*odd, *asked], outlook)
        held = _held(replicas for _, _, replicas in rows)
        learners: list[commands.Learners] = []
        elections: list[Election] = []
        for topic, row, replicas in odd:
            step = self._step(replicas, outlook, statuses.get(replicas.partition), held)
            if isinstance(step, ChangeVoters):
                elections.append(Election(topic, row, step.voters, "its voters change", preferred=row.leader))
            elif step is not None:
                learners.append(commands.Learners(*replicas.partition, replicas.epoch, step.learners))
        if learners:
            self._propose(commands.SetLearners(tuple(learners)))
        self._tell_learners(odd, statuses)
        if not elections:
            elections = [Election(topic, row, replicas.voters, "leaderships are uneven", preferred=moves[replicas.partition], spared=row.leader)
                         for topic, row, replicas in asked if is_in_step(statuses.get(replicas.partition), replicas, moves[replicas.partition])]
            self._moved |= {election.partition: self._clock.monotonic() for election in elections}
        if elections:
            self._hold_gently(elections, outlook)

    def _step(self, replicas: Replicas, outlook: Outlook, status: Mapping[str, Any] | None, held: Mapping[int, int]) -> Step | None:
        caught_up = frozenset(broker_id for broker_id in replicas.learners
                              if has_all(status, broker_id, outlook.disk(broker_id)))
        following = frozenset(broker_id for broker_id in replicas.voters if replicas.wanted is not None and is_following(status, broker_id))
        return next_step(replicas, outlook, settled=is_settled(status, replicas) and is_sound(status), caught_up=caught_up, held=held,
                         following=following, damaged=self._damaged_voters(replicas))

    def _damaged_voters(self, replicas: Replicas) -> frozenset[int]:
        """The voters that were seen with a damaged replica in the present epoch: what was seen in an earlier one is mended by now, or seen again."""
        return frozenset(broker_id for broker_id, seen in self._damaged.items() if seen.get(replicas.partition) == replicas.epoch)

    def _wanted_moves(self, rows: list[Replicas], outlook: Outlook) -> dict[PartitionId, int]:
        now = self._clock.monotonic()
        wanted = unbalanced(rows, outlook)
        ready = [partition for partition in wanted if now >= self._moved.get(partition, 0.0) + MOVE_AGAIN_SECONDS]
        return {partition: wanted[partition] for partition in ready[:MOVES_MAX]}

    def _statuses(self, catalogue: Catalogue, rows: Iterable[tuple[Topic, PartitionRow, Replicas]], outlook: Outlook) -> dict[PartitionId, Mapping]:
        """What the leaders say of their partitions, by partition; a leader that does not answer says nothing."""
        groups: dict[int, list[PartitionId]] = {}
        for _, _, replicas in rows:
            if replicas.leader is not None and outlook.is_up(replicas.leader):
                groups.setdefault(replicas.leader, []).append(replicas.partition)

        def ask(broker_id: int, partitions: list[PartitionId]) -> Callable[[], list[dict[str, Any]]]:
            return lambda: self._brokers.status(broker_id, catalogue.address(broker_id), partitions, timeout_seconds=STATUS_SECONDS)

        found = {}
        for outcome in self._brokers.each([ask(*group) for group in groups.items()]):
            if not isinstance(outcome, MyQueueError):
                found |= {PartitionId(one["topic_id"], one["partition"]): one for one in outcome}
        return found

    # --- what is left over ---

    def _tidy(self, catalogue: Catalogue, outlook: Outlook) -> None:
        """Ask brokers what they hold. What the metadata does not know they drop: after a restart of a manager nobody else remembers it. What they
        lead with a damaged replica somebody else leads, and what they follow with one they get anew.
        """
        asked = [broker_id for broker_id in catalogue.brokers if outlook.is_up(broker_id)]

        def ask(broker_id: int) -> Callable[[], list[dict[str, Any]]]:
            return lambda: self._brokers.status(broker_id, catalogue.address(broker_id))

        told = self._brokers.each([ask(broker_id) for broker_id in asked])
        self._replica.require(self._replica.confirmed_index())  # read after the brokers' answers, as the agreed log is then
        known = {replicas.partition: replicas for _, _, replicas in self._rows_of(self._replica.current())}
        self._failed = {partition: tried for partition, tried in self._failed.items() if partition in known}
        self._moved = {partition: asked for partition, asked in self._moved.items() if partition in known}
        for broker_id, held in zip(asked, told, strict=True):
            if isinstance(held, MyQueueError):
                continue  # asked again the next time
            self._appointer.refuse(damaged_leaderships(broker_id, held, known))
            self._damaged[broker_id] = damaged_voters(broker_id, held, known)
            found = leftovers(broker_id, [PartitionId(one["topic_id"], one["partition"]) for one in held], known)
            if found:
                _log.info("broker %d drops %d topic(s) and %d partition(s) that it is not to hold", broker_id, len(found.topic_ids),
                          len(found.partitions))
                self._brokers.drop(broker_id, catalogue.address(broker_id), found.topic_ids, found.partitions)

    def _tell_learners(self, rows: Iterable[tuple[Topic, PartitionRow, Replicas]], statuses: Mapping[PartitionId, Mapping]) -> None:
        """Tell leaders that do not replicate to a learner yet, or still do."""
        wanted = {replicas.partition for _, _, replicas in rows}
        catalogue = self._replica.catalogue()
        groups: dict[int, list[dict[str, Any]]] = {}
        for topic in catalogue.topics.values():
            for row in topic.partitions:
                status = statuses.get(partition_id(row))
                if partition_id(row) not in wanted or row.leader is None or status is None or status["leader_epoch"] != row.epoch:
                    continue
                if set(row.learners) != {int(broker_id) for broker_id in status["replicas"]} - {int(broker_id) for broker_id in row.voters}:
                    groups.setdefault(row.leader, []).append({"topic_id": row.topic_id, "partition": row.partition, "epoch": row.epoch,
                                                              "learners": list(row.learners)})

        def tell(broker_id: int) -> Callable[[], list[dict[str, Any]]]:
            return lambda: self._brokers.learners(broker_id, catalogue.address(broker_id), groups[broker_id])

        for outcome in self._brokers.each([tell(broker_id) for broker_id in groups]):
            if isinstance(outcome, MyQueueError):
                _log.warning("a leader has not been told who learns: %s", outcome.message, extra={"code": outcome.code})


def _held(rows: Iterable[Replicas]) -> dict[int, int]:
    held: dict[int, int] = {}
    for replicas in rows:
        for broker_id in (*replicas.voters, *replicas.learners):
            held[broker_id] = held.get(broker_id, 0) + 1
    return held
