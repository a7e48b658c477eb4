"""Carries elections out: begins them with one command, collects promises broker by broker, appoints the winners with another.

Many partitions go through one round together, so that a dead broker with two hundred of them costs two commands and a few
calls; more take several rounds, so that the first ones are led again before the last one is asked for. What is decided in a
round is decided by ``cluster.election``; one that is cut short leaves ELECTING behind, and whoever comes next begins a new
epoch.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from db.metadata_store import PartitionRow
from db.replication import has_majority
from manager.appointer import Appointer
from manager.brokers import Brokers
from manager.catalogue import Topic, appointment, partition_id
from manager.cluster import commands
from manager.cluster.election import Ballot, Outlook, Promise, choose_leader
from manager.replica import Replica
from myqueue.clock import Clock
from myqueue.errors import MyQueueError
from myqueue.protocol.types import PartitionId
from myqueue.service import metrics

CHUNK = 20  # promises and appointments in one call: each costs the broker a transaction, and calls side by side share their syncs
ROUND_MAX = 200  # elections in one round: none of them has a leader before the slowest is decided
COLLECT_SECONDS, COLLECT_SECONDS_MAX = 3.0, 12.0  # for the promises; longer with each attempt, since brokers that have much to do need it
LATE_SECONDS = 0.1  # how long to wait for more promises once all is decided: a further log may answer yet
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Election:
    """One to be held.

    Args:
        voters: of the new epoch.
        preferred: wins among equal logs.
        spared: not asked as long as the others are a majority: a leader that is to be replaced would win by what it has
            taken a moment ago and nobody else holds yet.
    """

    topic: Topic
    row: PartitionRow
    voters: Mapping[int, str | None]
    reason: str
    preferred: int | None = None
    spared: int | None = None

    @property
    def partition(self) -> PartitionId:
        return partition_id(self.row)


class Elections:
    """Holds elections for the write manager's coordinator. Used by one thread."""

    def __init__(self, *, propose: Callable[[commands.Command], dict[str, Any]], replica: Replica, brokers: Brokers, appointer: Appointer,
                 clock: Clock) -> None:
        self._propose, self._replica, self._brokers, self._appointer, self._clock = propose, replica, brokers, appointer, clock

    def hold(self, elections: Sequence[Election], outlook: Outlook, *, attempts: int = 0) -> set[PartitionId]:
        """Hold some elections together; those of them that have found a leader, which was told.

        Args:
            attempts: how many in a row have failed. Promises to an earlier epoch count for nothing, so brokers that are too slow for one round
                would be too slow for each.

        Raises:
            MyQueueError: the managers did not take a command: elections may be left behind.
        """
        found: set[PartitionId] = set()
        for first in range(0, len(elections), ROUND_MAX):
            found |= self._round(elections[first:first + ROUND_MAX], outlook, min(COLLECT_SECONDS * (1 + attempts), COLLECT_SECONDS_MAX))
        return found

    def _round(self, elections: Sequence[Election], outlook: Outlook, collect_seconds: float) -> set[PartitionId]:
        began = self._clock.monotonic()
        begun = self._begin(elections)
        appointed = self._appoint(begun, self._collect(begun, outlook, collect_seconds)) if begun else []
        self._tell(appointed)
        metrics.PARTITION_ELECTIONS.labels("leader").inc(len(appointed))
        metrics.PARTITION_ELECTIONS.labels("no_leader").inc(len(elections) - len(appointed))
        _log.info("%d of %d election(s) found a leader in %.0f ms: %s", len(appointed), len(elections), 1e3 * (self._clock.monotonic() - began),
                  "; ".join(f"{count} because {reason}" for reason, count in Counter(election.reason for election in elections).items()))
        return set(appointed)

    def _begin(self, elections: Sequence[Election]) -> dict[PartitionId, tuple[Election, int]]:
        """The elections whose epoch was handed out to us, with that epoch."""
        items = tuple(commands.BeginElection(*election.partition, election.row.epoch, _json(election.voters)) for election in elections)
        reply = self._propose(commands.BeginElections(items))["items"]
        for election, item in zip(elections, reply, strict=True):
            if not item["ok"]:
                _log.info("no election of partition %s: %s", election.partition, item["message"])
        return {election.partition: (election, item["epoch"]) for election, item in zip(elections, reply, strict=True) if item["ok"]}

    def _collect(self, begun: Mapping[PartitionId, tuple[Election, int]], outlook: Outlook,
                 collect_seconds: float) -> dict[PartitionId, Ballot]:
        """Ask for the promises, until all is decided and a moment longer, or the time is over."""
        ballots = {partition: Ballot(epoch, election.voters) for partition, (election, epoch) in begun.items()}
        asked = [(broker_id, group[first:first + CHUNK]) for broker_id, group in _by_voter(begun.values(), outlook).items()
                 for first in range(0, len(group), CHUNK)]
        catalogue = self._replica.catalogue()

        def ask(broker_id: int, bodies: Sequence[Mapping[str, Any]]) -> Callable[[], list[dict[str, Any]]]:
            return lambda: self._brokers.promise(broker_id, catalogue.address(broker_id), bodies, timeout_seconds=collect_seconds)

        answers = self._brokers.as_they_come([ask(*one) for one in asked], timeout_seconds=collect_seconds,
                                             late_seconds=lambda: LATE_SECONDS if all(one.is_decided() for one in ballots.values()) else None)
        for number, outcome in answers:
            broker_id = asked[number][0]
            if isinstance(outcome, MyQueueError):
                _log.warning("broker %d has not promised: %s", broker_id, outcome.message, extra={"code": outcome.code})
                continue
            for result in outcome:
                partition = PartitionId(result["topic_id"], result["partition"])
                if result.get("ok") and partition in ballots and result["promised_epoch"] == ballots[partition].epoch:
                    ballots[partition] = ballots[partition].with_promise(broker_id, _promise(result))
        return ballots

    def _appoint(self, begun: Mapping[PartitionId, tuple[Election, int]], ballots: Mapping[PartitionId, Ballot]) -> list[PartitionId]:
        led = Counter(row.leader for topic in self._replica.catalogue().topics.values() for row in topic.partitions if row.leader is not None)
        winners = {}
        for partition, ballot in ballots.items():
            leader = choose_leader(ballot, led, preferred=begun[partition][0].preferred)
            if leader is not None:
                led[leader] += 1
                winners[partition] = commands.AppointLeader(*partition, ballot.epoch, leader)
        if not winners:
            return []
        reply = self._propose(commands.AppointLeaders(tuple(winners.values())))["items"]
        return [partition for partition, item in zip(winners, reply, strict=True) if item["ok"]]

    def _tell(self, appointed: Sequence[PartitionId]) -> None:
        """Tell the new leaders at once; who does not take it now is told again by the appointer."""
        catalogue, wanted = self._replica.catalogue(), set(appointed)
        groups: dict[int, list[tuple[PartitionRow, dict[str, Any]]]] = {}
        for topic in catalogue.topics.values():
            for row in topic.partitions:
                if partition_id(row) in wanted and row.leader is not None:
                    groups.setdefault(row.leader, []).append((row, appointment(topic, row)))

        def tell(broker_id: int, part: list[tuple[PartitionRow, dict[str, Any]]]) -> Callable[[], None]:
            return lambda: self._appointer.tell(broker_id, catalogue.address(broker_id), part)

        parts = [(broker_id, group[first:first + CHUNK]) for broker_id, group in groups.items() for first in range(0, len(group), CHUNK)]
        for outcome in self._brokers.each([tell(*part) for part in parts]):
            if isinstance(outcome, MyQueueError):
                _log.warning("a new leader has not been told: %s", outcome.message, extra={"code": outcome.code})


def _by_voter(begun: Iterable[tuple[Election, int]], outlook: Outlook) -> dict[int, list[dict[str, Any]]]:
    """What each voter that could answer is to promise."""
    groups: dict[int, list[dict[str, Any]]] = {}
    for election, epoch in begun:
        answering = outlook.answering(election.voters)
        others = {broker_id: disk_id for broker_id, disk_id in answering.items() if broker_id != election.spared}
        body = {**appointment(election.topic, election.row), "epoch": epoch}
        for broker_id in others if has_majority(election.voters, others) else answering:
            groups.setdefault(broker_id, []).append(body)
    return groups


def _json(voters: Mapping[int, str | None]) -> dict[str, str | None]:
    return {str(broker_id): disk_id for broker_id, disk_id in voters.items()}


def _promise(result: Mapping[str, Any]) -> Promise:
    return Promise(result["disk_id"], result["end_epoch"], result["end_lsn"], result["commit_lsn"], bool(result["seeding"]))
