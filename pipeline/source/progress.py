"""A stream's progress as a registered consumer's offsets, so that ``myqueue lag`` and the dashboard see it."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from myqueue.errors import MyQueueError
from myqueue.protocol import routes
from myqueue.protocol.types import TopicPartition

from ..cluster import TOKEN

_log = logging.getLogger("myqueue.pipeline")


def publish(bootstrap: str, consumers: Mapping[str, int], offsets: Mapping[TopicPartition, int]) -> None:
    """Commit these offsets for the consumer that ``consumers`` names by topic.

    Only a report: the stream's own truth is its checkpoint. What cannot be committed is logged, and comes right with the next micro-batch.
    """
    from myqueue.client.transport import RequestsTransport, call  # heavy: only where a stream publishes

    transport, base = RequestsTransport(token=os.environ.get(TOKEN)), f"http://{bootstrap.split(',')[0].strip().removeprefix('http://')}"
    try:
        for name, offset in sorted(offsets.items()):
            if name.topic in consumers:
                path = routes.OFFSETS.format(topic=name.topic, partition=name.partition, consumer_id=consumers[name.topic])
                try:
                    call(transport, "PUT", base + path, json={"offset": offset}, repeatable=True)
                except MyQueueError as error:
                    _log.warning("the progress of consumer %d in %s could not be published: %s", consumers[name.topic], name, error.message)
    finally:
        transport.close()
