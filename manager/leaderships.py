"""Lets another replica lead a partition, where an operator asks for it.

An election like the coordinator's own: a command that is compare-and-set on the epoch, so that both may be at it at the same time and one of
them is refused. It may be held on any manager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from db.metadata_store import PartitionRow
from manager.brokers import Brokers
from manager.catalogue import Catalogue, replicas_of
from manager.cluster.election import Outlook, choose_next_leader, is_in_step
from manager.elections import Election, Elections
from manager.replica import Replica
from myqueue.errors import MyQueueError, OutcomeUnknownError, UnavailableError

STATUS_SECONDS = 2.0


class Leaderships:
    """Moves leaderships on request. ``outlook`` is what this manager knows of the brokers by their heartbeats."""

    def __init__(self, *, elections: Elections, replica: Replica, brokers: Brokers, outlook: Callable[[Catalogue], Outlook]) -> None:
        self._elections, self._replica, self._brokers, self._outlook = elections, replica, brokers, outlook

    def elect(self, name: str, partition: int, wanted: int | None = None) -> dict[str, Any]:
        """Let the broker that is wanted lead a partition, or without one the replica whose broker leads the fewest; who leads then, in which epoch.

        Where that one leads already nothing is done. Producers of the partition may have to repeat what was under way, which the SDK does.

        Raises:
            UnknownTopicError, UnknownPartitionError, BadRequestError, RefusedError: nothing was done.
            UnavailableError: an election is under way, or the broker has not got all of the log yet. Nothing was done; ask again.
            OutcomeUnknownError: the election was begun and somebody else leads, or nobody yet.
        """
        catalogue = self._replica.fresh()
        topic = catalogue.topic(name)
        row = topic.partition(partition)
        replicas, outlook = replicas_of(row), self._outlook(catalogue)
        led = Counter(one.leader for each in catalogue.topics.values() for one in each.partitions if one.leader is not None)
        target = choose_next_leader(replicas, outlook, led, wanted=wanted)
        if target == row.leader:
            return _told(name, row, changed=False)
        if row.leader is not None and outlook.is_up(row.leader):
            self._check_in_step(catalogue, row, target)
        held = Election(topic, row, replicas.voters, "an operator asked for it", preferred=target, spared=row.leader)
        try:
            self._elections.hold([held], outlook)
        except OutcomeUnknownError:
            raise
        except MyQueueError as error:
            raise OutcomeUnknownError(f"the election was cut short: {error.message}", **error.details) from error
        now = self._replica.catalogue().topic(name).partition(partition)
        if now.leader != target:
            who = "nobody leads the partition yet" if now.leader is None else f"broker {now.leader} leads the partition"
            raise OutcomeUnknownError(f"broker {target} was not elected, {who}: look, and ask again", leader=now.leader)
        return _told(name, now, changed=True)

    def _check_in_step(self, catalogue: Catalogue, row: PartitionRow, target: int) -> None:
        """Only who holds all that is committed can win at once."""
        replicas, leader = replicas_of(row), row.leader
        assert leader is not None
        [status] = self._brokers.status(leader, catalogue.address(leader), [replicas.partition], timeout_seconds=STATUS_SECONDS) or [None]
        if not is_in_step(status, replicas, target):
            raise UnavailableError(f"broker {target} has not got all of the partition's log yet: ask again; nothing was done", broker_id=target)


def _told(name: str, row: PartitionRow, *, changed: bool) -> dict[str, Any]:
    return {"topic": name, "partition": row.partition, "leader": row.leader, "epoch": row.epoch, "changed": changed}
