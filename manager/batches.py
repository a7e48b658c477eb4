"""A batch of records to a topic: each goes to its partition, all or nothing in each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from manager.brokers import Brokers
from manager.catalogue import Catalogue, Topic, partition_id
from manager.records import Records
from manager.replica import Replica
from myqueue.errors import UNKNOWN, MyQueueError, OutcomeUnknownError, PartlyStoredError, TooLargeError
from myqueue.protocol import wire
from myqueue.protocol.batch import REQUEST_BYTES_MAX, pack
from myqueue.protocol.partitioner import partition_for
from myqueue.protocol.types import NodeAddress, Record


@dataclass(frozen=True, slots=True)
class Addressed:
    """A record, and the partition that it is for where the caller said so."""

    record: Record
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a partition's part of a batch: the first offset, or why it was not stored.

    Args:
        places: of these records in the batch, from 0, in the order in which they stand in the partition.
    """

    partition: int
    places: tuple[int, ...]
    result: int | MyQueueError

    def to_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {"partition": self.partition, "record_count": len(self.places), "records": list(self.places)}
        if isinstance(self.result, MyQueueError):
            return {**told, **wire.error_to_json(self.result)}
        return {**told, "base_offset": self.result}


def plan_batch(batch: Sequence[Addressed], *, partitions: int, turn: int) -> dict[int, list[int]]:
    """Which records go to which partition, by their places in the batch: where a record says to, else by its key, and those with
    neither all to the partition whose turn it is. A partition that a record names is there.
    """
    plan: dict[int, list[int]] = {}
    for place, one in enumerate(batch):
        key = one.record.key
        number = one.partition if one.partition is not None else partition_for(key, partitions) if key is not None else turn % partitions
        plan.setdefault(number, []).append(place)
    return dict(sorted(plan.items()))


def verdict(outcomes: Sequence[Outcome]) -> MyQueueError | None:
    """The error of a batch that is not stored as a whole, None where it is.

    Only where surely nothing is stored may the caller simply send the batch again; which of its records to send again the details say.
    """
    failures = [outcome.result for outcome in outcomes if isinstance(outcome.result, MyQueueError)]
    if not failures:
        return None
    told = {"partitions": [outcome.to_json() for outcome in outcomes]}
    stored = [outcome for outcome in outcomes if not isinstance(outcome.result, MyQueueError)]
    if stored:
        count = sum(len(outcome.places) for outcome in stored)
        return PartlyStoredError(f"{count} record(s) are stored, in {len(stored)} partition(s). Those for {len(failures)} other(s) are not, or it is "
                                 f"not known: {failures[0].message}. Send only these again", **told)
    unknown = next((error for error in failures if error.outcome == UNKNOWN), None)
    if unknown is not None:
        return OutcomeUnknownError(unknown.message, **{**unknown.details, **told})
    error = type(failures[0])(failures[0].message)
    error.details = {**failures[0].details, **told}
    return error


class Batches:
    """Produces batches to topics by way of the partitions' leaders."""

    def __init__(self, *, replica: Replica, brokers: Brokers, records: Records) -> None:
        self._replica, self._brokers, self._records = replica, brokers, records

    def produce(self, name: str, batch: Sequence[Addressed]) -> list[Outcome]:
        """Store a batch; when this returns all of it is durable, and what became of each partition's part is told.

        Raises:
            UnknownTopicError, UnknownPartitionError, TooLargeError: nothing was stored.
            PartlyStoredError: some partitions have stored their part; details.partitions names them, and the others with their errors.
            OutcomeUnknownError: none surely has, and some may have.
            UnavailableError: no partition's leader could take it now; nothing was stored.
        """
        topic, plan = self._replica.certain(lambda known: self._plan(known, name, batch))
        parts = {number: pack([batch[place].record for place in places]) for number, places in plan.items()}
        size = max(map(len, parts.values()))
        if size > REQUEST_BYTES_MAX:
            raise TooLargeError(f"the records for one partition have {size} bytes, the most is {REQUEST_BYTES_MAX}", size=size,
                                maximum=REQUEST_BYTES_MAX)
        results = self._brokers.each([self._append(topic, number, part) for number, part in parts.items()])
        outcomes = [Outcome(number, tuple(plan[number]), result) for number, result in zip(parts, results, strict=True)]
        error = verdict(outcomes)
        if error is not None:
            raise error
        return outcomes

    def _plan(self, known: Catalogue, name: str, batch: Sequence[Addressed]) -> tuple[Topic, Mapping[int, list[int]]]:
        topic = known.topic(name)
        for number in {one.partition for one in batch if one.partition is not None}:
            topic.partition(number)  # its error
        return topic, plan_batch(batch, partitions=len(topic.partitions), turn=self._records.turn(topic))

    def _append(self, topic: Topic, number: int, part: bytes) -> Callable[[], int]:
        row = topic.partitions[number]

        def ask(broker_id: int, address: NodeAddress) -> int:
            return int(self._brokers.append_batch(broker_id, address, partition_id(row), part)["base_offset"])

        return lambda: self._records.at_leader(topic, row, ask)
