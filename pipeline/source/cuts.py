"""A cut: the committed end of every partition at one moment. A job that reads at a cut gives the same answer every time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from myqueue.errors import BadRequestError
from myqueue.protocol.types import OffsetRange, PartitionId, TopicPartition

VERSION = 1


@dataclass(frozen=True, slots=True)
class CutPartition:
    """A partition's readable offsets at the cut. ``id`` holds the topic's identity: a re-created topic is another one."""

    name: TopicPartition
    id: PartitionId
    offsets: OffsetRange


@dataclass(frozen=True, slots=True)
class Cut:
    """The vector of readable offsets, by topic and partition."""

    cluster_id: str
    partitions: dict[TopicPartition, CutPartition] = field(default_factory=dict)

    def to_json(self) -> str:
        """The cut as text, for the ``cut`` option or a file."""
        entries = [{"topic": cut.name.topic, "partition": cut.name.partition, "topic_id": cut.id.topic_id,
                    "start_offset": cut.offsets.start, "end_offset": cut.offsets.end} for _, cut in sorted(self.partitions.items())]
        return json.dumps({"version": VERSION, "cluster_id": self.cluster_id, "partitions": entries}, sort_keys=True)

    def messages(self) -> int:
        """How many messages the cut holds."""
        return sum(len(cut.offsets) for cut in self.partitions.values())

    def messages_by_topic(self) -> dict[str, int]:
        totals: dict[str, int] = {}
        for name, cut in sorted(self.partitions.items()):
            totals[name.topic] = totals.get(name.topic, 0) + len(cut.offsets)
        return totals


def cut_of(cluster_id: str, partitions: Iterable[CutPartition]) -> Cut:
    return Cut(cluster_id, {cut.name: cut for cut in partitions})


def narrowed(cut: Cut, starts: Mapping[TopicPartition, int | None], ends: Mapping[TopicPartition, int | None]) -> Cut:
    """The part of a cut between offsets. A partition that is not named keeps its edge; None is its end: nothing lies so late."""
    def part(one: CutPartition) -> CutPartition:
        whole = one.offsets
        start, end = (whole.end if at is None else min(max(at, whole.start), whole.end)
                      for at in (starts.get(one.name, whole.start), ends.get(one.name, whole.end)))
        return CutPartition(one.name, one.id, OffsetRange(start, max(start, end)))

    return cut_of(cut.cluster_id, map(part, cut.partitions.values()))


def cut_from_json(text: str) -> Cut:
    """Raises BadRequestError where the text is not a cut of this version."""
    try:
        body = json.loads(text)
        if body["version"] != VERSION:
            raise BadRequestError(f"a cut of version {body['version']}: this code reads version {VERSION}")
        return cut_of(str(body["cluster_id"]), map(_cut_partition, body["partitions"]))
    except (KeyError, TypeError, ValueError) as error:
        raise BadRequestError(f"the cut cannot be read: {error!r}") from None


def _cut_partition(entry: Mapping[str, Any]) -> CutPartition:
    topic, partition, topic_id = str(entry["topic"]), int(entry["partition"]), int(entry["topic_id"])
    return CutPartition(TopicPartition(topic, partition), PartitionId(topic_id, partition),
                        OffsetRange(int(entry["start_offset"]), int(entry["end_offset"])))
