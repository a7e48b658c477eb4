"""Gives topics more partitions by themselves, where their configs say so: the write manager looks now and then."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from manager.brokers import Brokers
from manager.catalogue import Topic
from manager.cluster import commands
from manager.cluster.growth import grown, may_grow
from manager.records import Records, consumer_key
from manager.replica import Replica
from myqueue.errors import MyQueueError

NOBODY = consumer_key(0)  # ids begin with 1
_log = logging.getLogger(__name__)


class Growth:
    """Looks at the topics that may grow, and adds a partition to each that is due."""

    def __init__(self, *, propose: Callable[[commands.Command], dict[str, Any]], replica: Replica, records: Records, brokers: Brokers) -> None:
        self._propose, self._replica, self._records, self._brokers = propose, replica, records, brokers

    def turn(self) -> None:
        """One look. A topic of which not every leader answers is looked at the next time; so is one that changed meanwhile."""
        for topic in self._replica.catalogue().topics.values():
            if not may_grow(topic.row.config, len(topic.partitions)):
                continue
            try:
                self._look(topic)
            except MyQueueError as error:
                _log.warning("topic %r was not looked at, or does not grow now: %s", topic.name, error.message, extra={"code": error.code})

    def _look(self, topic: Topic) -> None:
        said, failures = self._records.ask_leaders(topic, topic.partitions, lambda broker_id, address, group: self._brokers.positions(
            broker_id, address, NOBODY, group))
        if failures:
            raise failures[0]
        held = [max(0, said[row.partition]["end_offset"] - said[row.partition]["start_offset"]) for row in topic.partitions]
        wanted = grown(topic.row.config, held)
        if wanted is not None:
            self._propose(commands.AddPartitions(topic.name, topic.topic_id, wanted))
            _log.info("topic %r holds %d messages and has %d partitions now", topic.name, sum(held), wanted)
