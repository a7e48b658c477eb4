"""The SDK."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from myqueue import MyConsumer, MyProducer

from ..check import Place
from .calls import Http
from .face import CALL_SECONDS, Consumer, Producer
from .native import NativeTopics, lag_of

PAUSE_SECONDS = 0.3  # after which nothing more is expected of the SDK


class SdkFace(NativeTopics):
    """The SDK's producer and consumer; topics as in the native face."""

    name = "sdk"

    def producer(self, topic: str, partitions: int, thread: int) -> Producer:
        return SdkProducer(self._url.removeprefix("http://"), topic, partitions, thread, self._token)

    def consumer(self, topic: str, partitions: int, number: int | None = None) -> Consumer:
        return SdkConsumer(self._url, topic, number, self._token)


class SdkProducer:
    """By turns with a partition, with a key, and without either."""

    def __init__(self, address: str, topic: str, partitions: int, thread: int, token: str | None) -> None:
        self._producer, self._topic, self._partitions = MyProducer([topic], broker=address, token=token), topic, partitions
        self._turn = itertools.count(thread)

    def send(self, texts: Sequence[str]) -> list[Place]:
        deliveries = []
        for text in texts:
            turn = next(self._turn)
            more: dict[str, Any] = ({"partition": turn % self._partitions}, {"key": f"k{turn}"}, {})[turn % 3]
            deliveries.append(self._producer.send(self._topic, text, **more))
        receipts = [delivery.result(CALL_SECONDS) for delivery in deliveries]
        return [Place(receipt.partition, receipt.offset, text) for receipt, text in zip(receipts, texts, strict=True)]

    def close(self) -> None:
        self._producer.stop()


class SdkConsumer:
    def __init__(self, url: str, topic: str, number: int | None, token: str | None) -> None:
        self._http, self._topic = Http(url, token), topic
        self._consumer = MyConsumer([topic], broker=url.removeprefix("http://"), token=token, consumer_id=number)
        self.number = self._consumer.consumer_ids[topic]

    def take(self, due: int = 0) -> list[Place]:
        """All that is due, or what comes without a pause where nothing is; committed. Its silence says nothing: the machine may be busy."""
        found = []
        for message in self._consumer.get_next(timeout_seconds=CALL_SECONDS if due else PAUSE_SECONDS):
            found.append(Place(message.partition, message.offset, message.text()))
            if len(found) == due:
                break
        self._consumer.commit()
        return found

    def left(self) -> int:
        return lag_of(self._http, self._topic, self.number)

    def close(self) -> None:
        self._consumer.stop()
