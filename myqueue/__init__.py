"""MyQueue: a distributed log queue that persists in PostgreSQL. The SDK's public names; see README.md and myqueue/DESIGN.md."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .client.admin import AdminClient
    from .client.consumer import MyConsumer
    from .client.delivery import Delivery, Receipt, Undelivered
    from .client.producer import MyProducer
    from .errors import (
        BufferFullError,
        ClosedError,
        DeliveryError,
        MyQueueError,
        OffsetOutOfRangeError,
        OutcomeUnknownError,
        ReceiptsError,
        TopicExistsError,
        UnavailableError,
        UnknownPartitionError,
        UnknownTopicError,
    )
    from .protocol.types import Message, Record

__all__ = [
    "AdminClient",
    "BufferFullError",
    "ClosedError",
    "Delivery",
    "DeliveryError",
    "Message",
    "MyConsumer",
    "MyProducer",
    "MyQueueError",
    "OffsetOutOfRangeError",
    "OutcomeUnknownError",
    "Receipt",
    "ReceiptsError",
    "Record",
    "TopicExistsError",
    "UnavailableError",
    "Undelivered",
    "UnknownPartitionError",
    "UnknownTopicError",
]

# Loaded when they are asked for: the services, db and Spark's workers import myqueue.protocol and need none of the SDK.
_HOME = {
    "AdminClient": "client.admin",
    "Delivery": "client.delivery",
    "Message": "protocol.types",
    "MyConsumer": "client.consumer",
    "MyProducer": "client.producer",
    "Receipt": "client.delivery",
    "Record": "protocol.types",
    "Undelivered": "client.delivery",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_HOME.get(name, 'errors')}"), name)
    return value
