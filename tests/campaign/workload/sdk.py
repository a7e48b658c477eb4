"""The SDK as its users use it: producers that batch and retry, consumers that commit, stop and go on."""

from __future__ import annotations

import contextlib
import time
from collections import deque

from myqueue import MyConsumer, MyProducer
from myqueue.client.delivery import Delivery
from myqueue.errors import BufferFullError, DeliveryError, MyQueueError, UnavailableError
from tests.campaign.history import FAILED, OK, UNKNOWN, Committed, Read, Resumed, Sent

from .client import FILLER, Client, Reader, Setting

ROUND_SECONDS = 0.05
UNDER_WAY_MAX = 5_000
RESULT_SECONDS = 150.0
STOP_SECONDS = 60.0
SESSION_SECONDS = 6.0
SILENCE_SECONDS = 0.5


class SdkProducer(Client):
    """Sends numbered messages at a rate, as far as the cluster lets it.

    Args:
        small: requests of some kilobytes, so that after each pause of the cluster two of them are on their way to a partition.
    """

    def __init__(self, name: str, setting: Setting, topic: str, *, rate: float, small: bool = False) -> None:
        super().__init__(name, setting)
        self._topic, self._number, self._owed, self._rate = topic, 0, 0.0, rate
        sizes = {"batch_records_max": 10, "request_bytes_max": 4_096} if small else {}
        self._producer = MyProducer(topics=[topic], broker=setting.bootstrap, delivery_timeout_seconds=120.0, max_block_seconds=20.0, **sizes)
        self._under_way: deque[tuple[int, float, Delivery]] = deque()

    def work(self) -> float:
        self._owed = min(self._owed + self._rate * ROUND_SECONDS, self._rate)
        while self._owed >= 1 and len(self._under_way) < UNDER_WAY_MAX:
            self._owed -= 1
            self._send()
        while self._under_way and self._under_way[0][2].is_done():
            self._collect()
        return ROUND_SECONDS

    def _send(self) -> None:
        number, began = self._number, self.now()
        self._number += 1
        try:
            delivery = self._producer.send(self._topic, f"{self.name}:{number}|{FILLER}")
        except (BufferFullError, DeliveryError):  # it says that this one was not accepted
            self.history.sent.append(Sent(self.name, number, self._topic, None, None, FAILED, began, self.now()))
            return
        self._under_way.append((number, began, delivery))

    def _collect(self) -> None:
        number, began, delivery = self._under_way.popleft()
        partition, offset, outcome = None, None, OK
        try:
            receipt = delivery.result(RESULT_SECONDS)
            partition, offset = receipt.partition, receipt.offset
        except MyQueueError as error:
            outcome = FAILED if error.outcome == "not_done" else UNKNOWN
        self.history.sent.append(Sent(self.name, number, self._topic, partition, offset, outcome, began, self.now()))

    def finish(self) -> None:
        super().finish()
        with contextlib.suppress(DeliveryError):  # each delivery says so itself
            self._producer.stop(STOP_SECONDS)
        while self._under_way:
            self._collect()


class SdkReader(Reader):
    """One consumer that lives through all faults."""

    def __init__(self, name: str, setting: Setting, topics: list[str]) -> None:
        super().__init__(name, setting)
        self._topics, self._session = topics, 0
        self._consumer = MyConsumer(topics, setting.bootstrap, max_block_seconds=30.0, auto_commit_seconds=2.0)
        self.next: dict[tuple[str, int], int] = {}

    def work(self) -> float:
        try:
            for message in self._consumer.get_next(timeout_seconds=SILENCE_SECONDS):
                value = message.value.partition(b"|")[0].decode(errors="replace")
                self.history.read.append(Read(self.name, self._session, message.topic, message.partition, message.offset, value, self.now()))
                self.next[message.topic, message.partition] = message.offset + 1
                self.progress += 1
                if self._is_to_turn():
                    break
        except UnavailableError:  # so it says that its silence is not that of an empty topic
            return 0.1
        return 0.0

    def is_at_end(self, ends: dict[tuple[str, int], int], since: float) -> bool:
        return all(self.next.get(where, 0) >= end for where, end in ends.items() if where[0] in self._topics)

    def finish(self) -> None:
        super().finish()
        self._consumer.stop(STOP_SECONDS)

    def _is_to_turn(self) -> bool:
        return self._worker.stopping.is_set()


class SdkRestarter(SdkReader):
    """A consumer that commits, stops and is started again under the same id: it goes on from its commit."""

    def __init__(self, name: str, setting: Setting, topics: list[str]) -> None:
        super().__init__(name, setting, topics)
        self._until = time.monotonic() + SESSION_SECONDS

    def work(self) -> float:
        if time.monotonic() > self._until and not self._worker.stopping.is_set():
            self._turn()
            self._until = time.monotonic() + SESSION_SECONDS
        return super().work()

    def _is_to_turn(self) -> bool:
        return time.monotonic() > self._until or super()._is_to_turn()

    def _turn(self) -> None:
        try:
            done = dict(self.next)
            self._consumer.commit()
            at = self.now()
            for (topic, partition), offset in done.items():
                self.history.committed.append(Committed(self.name, topic, partition, offset, at))
        except UnavailableError:
            pass  # nothing is known of this commit
        ids = self._consumer.consumer_ids
        self._consumer.stop(STOP_SECONDS)
        again = self._again(ids)
        if again is None:
            return
        self._consumer, resumed = again
        self._session += 1
        for (topic, partition), (offset, began) in resumed.items():
            self.history.resumed.append(Resumed(self.name, self._session, topic, partition, offset, began))
            self.next[topic, partition] = offset

    def _again(self, ids: dict[str, int]) -> tuple[MyConsumer, dict[tuple[str, int], tuple[int, float]]] | None:
        """The same consumer anew, and where it stands in every partition; None where it was told to end before anybody said that."""
        while not self._worker.stopping.is_set():
            consumer = None
            try:
                consumer = MyConsumer(self._topics, self.setting.bootstrap, consumer_id=ids, max_block_seconds=30.0, auto_commit_seconds=None)
                resumed = {}
                for where in sorted(self.next):
                    began = self.now()
                    resumed[where] = (consumer.position(*where), began)
                return consumer, resumed
            except UnavailableError:
                if consumer is not None:
                    consumer.stop(STOP_SECONDS)
                self._worker.stopping.wait(0.2)
        return None
