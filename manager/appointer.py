"""Tells brokers which partitions they lead, until they say that they have taken them.

At the start of a write manager nothing is known of what brokers have taken, so each is told once; after that only what
is new, and everything again when a broker registers. A repeat changes nothing on the broker. Also has the topics dropped
that were deleted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from db.metadata_store import PartitionRow
from manager.brokers import Brokers
from manager.catalogue import Catalogue, appointment, partition_id
from manager.cluster.draft import BrokerRegistered, Event, MajorityForced, TopicDeleted
from manager.node import signals as sig
from manager.node.signals import Signals
from manager.replica import Replica
from myqueue.errors import MyQueueError, RefusedError, UnavailableError
from myqueue.protocol.types import NodeAddress, PartitionId

BATCH = 500  # appointments in one call
RETRY_SECONDS = 1.0
IDLE_SECONDS = 10.0
_log = logging.getLogger(__name__)
Epochs = dict[PartitionId, int]  # the latest epoch of which something is known, by partition


class Appointer:
    """Runs beside the driver of the write manager."""

    def __init__(self, *, replica: Replica, brokers: Brokers, signals: Signals) -> None:
        self._replica, self._brokers, self._signals = replica, brokers, signals
        self._taken: dict[int, Epochs] = {}  # by broker
        self._refused: Epochs = {}  # by leaders that say they cannot lead: somebody else has to
        self._to_drop: dict[int, set[int]] = {}
        self._trouble: dict[int, str] = {}  # the last failure's code, so that each is logged once
        self._lock = threading.Lock()

    def on_events(self, events: Sequence[Event]) -> None:
        """Called by the driver after it applied something."""
        with self._lock:
            for event in events:
                if isinstance(event, BrokerRegistered):
                    self._taken.pop(event.broker_id, None)
                elif isinstance(event, MajorityForced):
                    _log.critical("partition %d/%d goes on without the replicas on brokers %s by an operator's decision: what only they held is lost",
                                  event.topic_id, event.partition, list(event.left_out), extra={"epoch": event.epoch})
                elif isinstance(event, TopicDeleted):
                    self._forget(event.topic_id)
                    for broker_id in event.brokers:
                        self._to_drop.setdefault(broker_id, set()).add(event.topic_id)

    def _forget(self, topic_id: int) -> None:
        for epochs in (*self._taken.values(), self._refused):
            for partition in [partition for partition in epochs if partition.topic_id == topic_id]:
                del epochs[partition]

    def begin(self) -> None:
        """This manager begins to lead: what brokers have taken meanwhile is not known."""
        with self._lock:
            self._taken, self._refused = {}, {}

    def is_refused(self, row: PartitionRow) -> bool:
        """Whether the partition's leader said that it cannot lead in its present epoch."""
        return self._refused.get(partition_id(row)) == row.epoch

    def refuse(self, epochs: Mapping[PartitionId, int]) -> None:
        """The leaders of these epochs cannot lead any more, though they had taken their appointments."""
        with self._lock:
            self._refused |= epochs

    def has(self, broker_id: int, row: PartitionRow) -> bool:
        """Whether a broker is known to have taken a partition in its present epoch."""
        return self._taken.get(broker_id, {}).get(partition_id(row)) == row.epoch

    def tell(self, broker_id: int, address: NodeAddress, batch: Sequence[tuple[PartitionRow, Mapping[str, Any]]]) -> None:
        """Appoint a broker for some partitions.

        Raises:
            UnavailableError: it cannot be reached, or has not taken all of them; what it has taken is remembered.
        """
        for first in range(0, len(batch), BATCH):
            part = batch[first:first + BATCH]
            results = self._brokers.appoint(broker_id, address, [body for _, body in part])
            refused = [result for result in results if not result.get("ok")]
            answers = [(row, result) for (row, _), result in zip(part, results, strict=True)]
            with self._lock:
                self._taken.setdefault(broker_id, {}).update({partition_id(row): row.epoch for row, result in answers if result.get("ok")})
                self._refused |= {partition_id(row): row.epoch for row, result in answers if _code(result) == RefusedError.code}
            if refused:
                raise UnavailableError(f"broker-{broker_id} has not taken {len(refused)} partition(s): {refused[0].get('error')}",
                                       component=f"broker-{broker_id}")

    def run(self, leading: threading.Event, stopping: threading.Event) -> None:
        while not stopping.is_set():
            if not leading.wait(RETRY_SECONDS):
                continue
            stamp = self._signals.stamp(sig.CATALOGUE)
            try:
                missing = self._turn()
            except MyQueueError as error:
                _log.warning("appointer: %s", error.message, extra={"code": error.code})
                missing = True
            if missing:
                stopping.wait(RETRY_SECONDS)
            else:
                self._signals.wait(sig.CATALOGUE, stamp, IDLE_SECONDS)

    def _turn(self) -> bool:
        """Tell every broker what it does not have yet; True if something is left to tell."""
        catalogue = self._replica.catalogue()
        led: dict[int, list[tuple[PartitionRow, dict[str, Any]]]] = {}
        for topic in catalogue.topics.values():
            for row in topic.partitions:
                if row.leader is not None and not self.has(row.leader, row):
                    led.setdefault(row.leader, []).append((row, appointment(topic, row)))
        missing = [not self._told(catalogue, broker_id, batch) for broker_id, batch in led.items() if broker_id in catalogue.brokers]
        return any(missing + [not self._drop(catalogue, broker_id) for broker_id in list(self._to_drop)])

    def _told(self, catalogue: Catalogue, broker_id: int, batch: Sequence[tuple[PartitionRow, Mapping[str, Any]]]) -> bool:
        try:
            self.tell(broker_id, catalogue.address(broker_id), batch)
        except MyQueueError as error:
            if self._trouble.get(broker_id) != error.code:
                _log.warning("broker %d has not been told what it leads: %s", broker_id, error.message, extra={"code": error.code})
            self._trouble[broker_id] = error.code
            return False
        self._trouble.pop(broker_id, None)
        return True

    def _drop(self, catalogue: Catalogue, broker_id: int) -> bool:
        with self._lock:
            topic_ids = sorted(self._to_drop.get(broker_id, ()))
        if broker_id in catalogue.brokers:
            try:
                self._brokers.drop(broker_id, catalogue.address(broker_id), topic_ids)
            except MyQueueError as error:
                _log.info("broker %d cannot be told to drop topics: %s", broker_id, error.message)
                return False
        with self._lock:
            left = self._to_drop.pop(broker_id, set()) - set(topic_ids)
            if left:
                self._to_drop[broker_id] = left
        return not left


def _code(result: Mapping[str, Any]) -> str | None:
    error = result.get("error")
    return error.get("code") if isinstance(error, dict) else None
