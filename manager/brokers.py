"""Calls from a manager to the brokers, one method a call. An error names the broker that failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from manager.node.transport import named
from myqueue.client.transport import Transport, call
from myqueue.clock import Clock, SystemClock
from myqueue.errors import MyQueueError
from myqueue.protocol import routes
from myqueue.protocol.batch import BATCH_TYPE
from myqueue.protocol.types import NodeAddress, PartitionId

T = TypeVar("T")
PARALLEL_CALLS_MAX = 32
NONE: Mapping[PartitionId, int] = {}


class Brokers:
    """Speaks with brokers wherever they are. Every call is bounded, and only what is harmless twice is repeated."""

    def __init__(self, transport: Transport, *, timeout_seconds: float, clock: Clock | None = None) -> None:
        self._transport, self._timeout_seconds, self._clock = transport, timeout_seconds, clock or SystemClock()
        self._pool = ThreadPoolExecutor(PARALLEL_CALLS_MAX, thread_name_prefix="brokers")

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def identity(self, address: NodeAddress) -> dict[str, Any]:
        return self._call(f"the broker at {address.host}:{address.port}", address, "GET", routes.I_IDENTITY, None, repeatable=True)

    def appoint(self, broker_id: int, address: NodeAddress, appointments: Sequence[Mapping[str, Any]], *,
                timeout_seconds: float | None = None) -> list[dict[str, Any]]:
        """Tell a broker what it leads; repeats change nothing. One result per appointment."""
        return self._call(f"broker-{broker_id}", address, "POST", routes.I_APPOINT, {"appointments": list(appointments)},
                          timeout_seconds=timeout_seconds, repeatable=True)["results"]

    def promise(self, broker_id: int, address: NodeAddress, promises: Sequence[Mapping[str, Any]], *, timeout_seconds: float) -> list[dict[str, Any]]:
        """Ask a replica to promise epochs; a repeat is answered again. One result per promise."""
        return self._call(f"broker-{broker_id}", address, "POST", routes.I_PROMISE, {"promises": list(promises)},
                          timeout_seconds=timeout_seconds, repeatable=True)["results"]

    def learners(self, broker_id: int, address: NodeAddress, learners: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Tell a leader who learns from it. One result per partition."""
        return self._call(f"broker-{broker_id}", address, "POST", routes.I_LEARNERS, {"learners": list(learners)}, repeatable=True)["results"]

    def declare_damaged(self, broker_id: int, address: NodeAddress, replicas: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Have replicas serve nothing any more, until they are made again. One result per replica; a repeat is answered again."""
        return self._call(f"broker-{broker_id}", address, "POST", routes.I_DAMAGED, {"replicas": list(replicas)}, repeatable=True)["results"]

    def status(self, broker_id: int, address: NodeAddress, partitions: Sequence[PartitionId] | None = None, *,
               timeout_seconds: float | None = None) -> list[dict[str, Any]]:
        """How some partitions are on a broker, those that it holds of them; without any, all that it holds."""
        body = {} if partitions is None else {"partitions": [list(partition) for partition in partitions]}
        return self._call(f"broker-{broker_id}", address, "POST", routes.I_STATUS, body, timeout_seconds=timeout_seconds,
                          repeatable=True)["partitions"]

    def drop(self, broker_id: int, address: NodeAddress, topic_ids: Sequence[int], partitions: Mapping[PartitionId, int] = NONE) -> None:
        """Have topics, and single partitions of others, forgotten with all that they hold. A replica that has promised the epoch given with its
        partition stays: it was asked for again meanwhile.
        """
        body = {"topic_ids": list(topic_ids), "partitions": [[*partition, epoch] for partition, epoch in partitions.items()]}
        self._call(f"broker-{broker_id}", address, "POST", routes.I_DROP, body, repeatable=True)

    def is_ready(self, address: NodeAddress, *, timeout_seconds: float) -> bool:
        """Whether a broker says in time that it can do its part."""
        try:
            call(self._transport, "GET", address.url + routes.READYZ, read_timeout_seconds=timeout_seconds, repeatable=False)
        except MyQueueError:
            return False
        return True

    def append(self, broker_id: int, address: NodeAddress, partition: PartitionId, record: Mapping[str, Any]) -> dict[str, Any]:
        return self._call(f"broker-{broker_id}", address, "POST", _path(routes.I_RECORDS, partition), {"records": [record]})

    def append_batch(self, broker_id: int, address: NodeAddress, partition: PartitionId, batch: bytes) -> dict[str, Any]:
        """Append a packed batch; never repeated here."""
        return self._call(f"broker-{broker_id}", address, "POST", _path(routes.I_RECORDS, partition), batch)

    def dequeue(self, broker_id: int, address: NodeAddress, partition: PartitionId, body: Mapping[str, Any]) -> dict[str, Any]:
        """Take the consumer's next message; never repeated here."""
        return self._call(f"broker-{broker_id}", address, "POST", _path(routes.I_DEQUEUE, partition), dict(body))

    def set_offset(self, broker_id: int, address: NodeAddress, partition: PartitionId, body: Mapping[str, Any]) -> dict[str, Any]:
        """Set or claim a consumer's offset: ``offset``, and of a claim what is suspect there."""
        return self._call(f"broker-{broker_id}", address, "POST", _path(routes.I_OFFSETS, partition), dict(body), repeatable=True)

    def sizes(self, broker_id: int, address: NodeAddress, consumer: str, partitions: Sequence[PartitionId]) -> list[int]:
        """How many messages of each partition a consumer has not read."""
        return self._positions(broker_id, address, consumer, partitions)["sizes"]

    def positions(self, broker_id: int, address: NodeAddress, consumer: str, partitions: Sequence[PartitionId]) -> list[dict[str, Any]]:
        """Where a consumer stands in each partition: ``offset`` (None where it has committed nothing), ``start_offset``, ``end_offset``."""
        return self._positions(broker_id, address, consumer, partitions)["positions"]

    def _positions(self, broker_id: int, address: NodeAddress, consumer: str, partitions: Sequence[PartitionId]) -> dict[str, Any]:
        body = {"consumer": consumer, "partitions": [list(partition) for partition in partitions]}
        return self._call(f"broker-{broker_id}", address, "POST", routes.I_SIZES, body, repeatable=True)

    def ends(self, broker_id: int, address: NodeAddress, partitions: Sequence[PartitionId], *, before_us: int | None) -> list[int]:
        """Where each partition ends, or the part of it that was appended before a time."""
        body = {"partitions": [list(partition) for partition in partitions], "before": before_us}
        return self._call(f"broker-{broker_id}", address, "POST", routes.I_ENDS, body, repeatable=True)["ends"]

    def search(self, broker_id: int, address: NodeAddress, partition: PartitionId, body: Mapping[str, Any]) -> dict[str, Any]:
        """The next records of a partition that are searched for, and ``next_offset``."""
        return self._call(f"broker-{broker_id}", address, "POST", routes.I_SEARCH, {**body, "partition": list(partition)}, repeatable=True)

    def each(self, calls: Sequence[Callable[[], T]]) -> list[T | MyQueueError]:
        """Make several calls side by side: the answer or the error of each, in their order."""
        if len(calls) == 1:
            return [_outcome(calls[0])]
        return list(self._pool.map(_outcome, calls))

    def as_they_come(self, calls: Sequence[Callable[[], T]], *, timeout_seconds: float,
                     late_seconds: Callable[[], float | None]) -> Iterator[tuple[int, T | MyQueueError]]:
        """Make several calls side by side: (which one, its answer or error) as each ends, as many as end in time.

        Args:
            late_seconds: asked after each: None to go on, or how long the rest is still waited for.
        """
        futures = {self._pool.submit(_outcome, make): number for number, make in enumerate(calls)}
        end = self._clock.monotonic() + timeout_seconds
        while futures:
            done, _ = wait(futures, timeout=max(0.0, end - self._clock.monotonic()), return_when=FIRST_COMPLETED)
            if not done:
                return
            for future in done:
                yield futures.pop(future), future.result()
            late = late_seconds()
            end = end if late is None else min(end, self._clock.monotonic() + late)

    def _call(self, component: str, address: NodeAddress, method: str, path: str, body: Any, *, timeout_seconds: float | None = None,
              repeatable: bool = False) -> Any:
        try:
            if isinstance(body, bytes):
                return call(self._transport, method, address.url + path, body=body, headers={"Content-Type": BATCH_TYPE},
                            read_timeout_seconds=timeout_seconds or self._timeout_seconds, repeatable=repeatable)
            return call(self._transport, method, address.url + path, json=body, read_timeout_seconds=timeout_seconds or self._timeout_seconds,
                        repeatable=repeatable)
        except MyQueueError as error:
            raise named(error, component) from error


def _path(template: str, partition: PartitionId) -> str:
    return template.format(topic_id=partition.topic_id, partition=partition.partition)


def _outcome(make: Callable[[], T]) -> T | MyQueueError:
    try:
        return make()
    except MyQueueError as error:
        return error
