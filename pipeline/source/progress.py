"""A stream's progress as a registered consumer's offsets, so that ``myqueue lag`` and the dashboard see it."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from myqueue.errors import MyQueueError, UnavailableError
from myqueue.protocol import routes
from myqueue.protocol.types import TopicPartition

from ..cluster import connected

PICTURE_SECONDS = 5.0
_log = logging.getLogger("myqueue.pipeline")


def publish(bootstrap: str, consumers: Mapping[str, int], offsets: Mapping[TopicPartition, int]) -> None:
    """Commit these offsets for the consumer that ``consumers`` names by topic.

    Only a report: the stream's own truth is its checkpoint. What cannot be committed is logged, and comes right with the next micro-batch; a
    cluster that does not answer is asked no further.
    """
    wanted = {name: offset for name, offset in sorted(offsets.items()) if name.topic in consumers}
    with connected(bootstrap) as connection:
        try:
            connection.refresh_until(sorted({name.topic for name in wanted}), PICTURE_SECONDS)
        except MyQueueError as error:
            _log.warning("the progress of consumers could not be published: %s", error.message)
            return
        for name, offset in wanted.items():
            path = routes.OFFSETS.format(topic=name.topic, partition=name.partition, consumer_id=consumers[name.topic])
            try:
                connection.partition_call(name, "PUT", path, headers={"Content-Type": "application/json"},
                                          body=json.dumps({"offset": offset}).encode(), repeatable=True)
            except MyQueueError as error:
                _log.warning("the progress of consumer %d in %s could not be published: %s", consumers[name.topic], name, error.message)
                if isinstance(error, UnavailableError):
                    return
