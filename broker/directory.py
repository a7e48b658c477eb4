"""From a topic's name and a partition number to what is held here, and what to say when it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from db.log_store import LogStore
from myqueue.errors import NotFoundError, NotLeaderError, UnavailableError, UnknownPartitionError, UnknownTopicError
from myqueue.protocol import routes
from myqueue.protocol.types import PartitionId
from myqueue.service.wakeups import Wakeups

from .service import TOPICS_KEY

CACHED_TOPICS_MAX = 10_000


class Directory:
    """Topics by name, remembered until any process of this node learns of a change.

    Args:
        describe: a manager's description of a topic; raises NotFoundError where there is none.
    """

    def __init__(self, store: LogStore, wakeups: Wakeups, describe: Callable[[str], dict[str, Any]]) -> None:
        self._store, self._wakeups, self._describe = store, wakeups, describe
        self._known: tuple[int, dict[str, int]] = (-1, {})

    def find(self, topic: str, partition: int, wanted_id: int | None = None) -> PartitionId:
        """The identity of a partition of a topic known here; with an id, of that topic and no other of the name. Raises what :meth:`absent` says."""
        stamp = self._wakeups.stamp(TOPICS_KEY)
        known_stamp, known = self._known
        if known_stamp != stamp or len(known) > CACHED_TOPICS_MAX:
            self._known = known_stamp, known = stamp, {}
        topic_id = known.get(topic)
        if topic_id is None:
            topic_id = self._store.topic_id(topic)
            if topic_id is None:
                raise self.absent(topic, partition, wanted_id)
            known[topic] = topic_id
        if wanted_id is not None and wanted_id < topic_id:
            raise _another(topic, topic_id, wanted_id)  # ids rise: what is known here came after it
        if wanted_id not in (None, topic_id):
            raise self.absent(topic, partition, wanted_id)
        return PartitionId(topic_id, partition)

    def absent(self, topic: str, partition: int, wanted_id: int | None = None) -> NotFoundError | NotLeaderError:
        """Why a partition is not here: no such topic, another one of this name, no such partition of it, or another broker leads it."""
        try:
            found = self._describe(topic)
        except NotFoundError:
            return UnknownTopicError(f"topic {topic} does not exist", topic=topic)
        except UnavailableError:
            return NotLeaderError(f"partition {partition} of topic {topic} is not held here, and no manager can say where it is")
        if wanted_id not in (None, found["topic_id"]):
            return _another(topic, found["topic_id"], wanted_id)  # type: ignore[arg-type]
        count = found["partitions"]
        if partition >= count:
            return UnknownPartitionError(f"topic {topic} has {count} partitions, numbered from 0: there is no partition {partition}",
                                         topic=topic, partitions=count)
        leader = next((one["leader"] for one in found.get("partition_list", ()) if one["partition"] == partition), None)
        return NotLeaderError(f"partition {partition} of topic {topic} is led by broker {leader}", leader=leader)


def _another(topic: str, topic_id: int, wanted_id: int) -> UnknownTopicError:
    return UnknownTopicError(f"topic {topic} has the id {topic_id} and not {wanted_id}: it is another one of the same name", topic=topic,
                             topic_id=topic_id)


def describe_by(get: Callable[[str], Any]) -> Callable[[str], dict[str, Any]]:
    """A ``describe`` that asks over HTTP."""
    return lambda topic: get(routes.TOPIC.format(topic=quote(topic, safe="")))
