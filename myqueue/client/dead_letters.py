"""Where messages go that could not be dealt with: a topic of their own, with headers that say where they stood."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import DeliveryError
from ..protocol.names import check_topic_name
from ..protocol.types import Message
from .producer import MyProducer

HEADERS = ("dead-letter-topic", "dead-letter-partition", "dead-letter-offset", "dead-letter-deliveries", "dead-letter-reason")
DELIVER_SECONDS = 30.0


class DeadLetters:
    """Sends to the dead-letter topic; its producer is made when the first message goes there. Without a topic nothing ever does."""

    def __init__(self, topic: str | None, max_deliveries: int, make_producer: Callable[[], MyProducer]) -> None:
        self._topic = None if topic is None else check_topic_name(topic)
        self._max_deliveries, self._make_producer = max_deliveries, make_producer
        self._producer: MyProducer | None = None

    def is_due(self, deliveries: int) -> bool:
        """Whether a message that was handed out so often goes there."""
        return self._topic is not None and deliveries >= self._max_deliveries

    def send(self, message: Message, *, deliveries: int, reason: str) -> None:
        """Store a message there, durably, with its key and headers. Raises DeliveryError, MyQueueError: it is not known to be there."""
        assert self._topic is not None
        if self._producer is None:
            self._producer = self._make_producer()
        values = (message.topic, message.partition, message.offset, deliveries, reason)
        told = tuple((name, str(value).encode()) for name, value in zip(HEADERS, values, strict=True))
        delivery = self._producer.send(self._topic, message.value, key=message.key, headers=(*message.headers, *told), timestamp_us=message.timestamp)
        self._producer.flush(DELIVER_SECONDS)
        delivery.result(0)

    def close(self) -> None:
        if self._producer is not None:
            try:
                self._producer.stop(DELIVER_SECONDS)
            except DeliveryError:
                return  # whoever sent it was told
