"""Lets a broker get its replica of a partition anew from the others, where an operator asks for it: an audit found what the broker cannot see.

First its slot among the voters is emptied, by an election, which another replica wins where the broker leads; then its replica is declared
damaged. What follows is the coordinator's, as for damage that a broker finds itself: the log goes, the leader sends it again, the slot is filled.
Cut short anywhere, the partition serves, and asking again is right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from db.metadata_store import PartitionRow
from manager.brokers import Brokers
from manager.catalogue import Catalogue, holders_of, partition_id, replicas_of
from manager.cluster.election import Outlook
from manager.cluster.repair import voters_without
from manager.elections import Election, Elections
from manager.replica import Replica
from myqueue.errors import MyQueueError, OutcomeUnknownError

STATUS_SECONDS = 2.0
REASON = "an operator asked for it to be made again"


class Repairs:
    """Takes replicas out to be filled again. May be used on any manager."""

    def __init__(self, *, elections: Elections, replica: Replica, brokers: Brokers, outlook: Callable[[Catalogue], Outlook]) -> None:
        self._elections, self._replica, self._brokers, self._outlook = elections, replica, brokers, outlook

    def repair(self, name: str, partition: int, broker_id: int) -> dict[str, Any]:
        """Throw a broker's replica away and let it be made again; what was thrown away, and who has it.

        Raises:
            UnknownTopicError, UnknownPartitionError, BadRequestError, RefusedError: nothing was done.
            UnavailableError: not now; nothing was done. Ask again.
            OutcomeUnknownError: the slot may be empty, and what fills it may still be the old replica. Ask again once it is filled.
        """
        catalogue = self._replica.fresh()
        topic = catalogue.topic(name)
        row = topic.partition(partition)
        outlook = self._outlook(catalogue)
        voters = voters_without(replicas_of(row), outlook, broker_id, self._statuses(catalogue, row))
        election = Election(topic, row, voters, "an operator has a replica made again", preferred=row.leader)  # who loses its slot is not asked
        try:
            self._elections.hold([election], outlook)
        except OutcomeUnknownError:
            raise
        except MyQueueError as error:
            raise OutcomeUnknownError(f"the election was cut short: {error.message}", **error.details) from error
        now = self._replica.catalogue().topic(name).partition(partition)
        if now.leader is None or now.voters.get(str(broker_id)) is not None:
            raise OutcomeUnknownError(f"broker {broker_id} is a voter still, or nobody leads the partition: look, and ask again", leader=now.leader)
        gone = self._declare_damaged(catalogue, broker_id, row.topic_id, partition, now.epoch)
        return {"topic": name, "partition": partition, "broker_id": broker_id, "epoch": now.epoch, "leader": now.leader, **gone}

    def _statuses(self, catalogue: Catalogue, row: PartitionRow) -> dict[int, Mapping[str, Any] | None]:
        holders = sorted(broker_id for broker_id in holders_of(row) if broker_id in catalogue.brokers)

        def ask(broker_id: int) -> Callable[[], list[dict[str, Any]]]:
            return lambda: self._brokers.status(broker_id, catalogue.address(broker_id), [partition_id(row)], timeout_seconds=STATUS_SECONDS)

        told = self._brokers.each([ask(broker_id) for broker_id in holders])
        return {broker_id: None if isinstance(found, MyQueueError) or not found else found[0] for broker_id, found in zip(holders, told, strict=True)}

    def _declare_damaged(self, catalogue: Catalogue, broker_id: int, topic_id: int, partition: int, epoch: int) -> dict[str, Any]:
        try:
            [result] = self._brokers.declare_damaged(broker_id, catalogue.address(broker_id), [
                {"topic_id": topic_id, "partition": partition, "epoch": epoch, "reason": REASON}])
        except MyQueueError as error:
            raise OutcomeUnknownError(f"broker {broker_id} is no voter now, and whether it knows that its replica is to go is not known: "
                                      f"{error.message}", **error.details) from error
        if not result["ok"]:
            raise OutcomeUnknownError(f"broker {broker_id} keeps its replica: {result['error']['message']}")
        return {"start_offset": result["start_offset"], "end_offset": result["end_offset"]}
