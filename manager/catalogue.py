"""What a manager routes by, in memory: topics, partitions, brokers and members as of one applied index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from db.metadata_store import BrokerRow, CatalogueRows, GroupMemberRow, GroupRow, MemberRow, PartitionRow, TopicRow
from manager.cluster.election import Broker, Replicas
from myqueue.errors import (
    UnavailableError,
    UnknownBrokerError,
    UnknownGroupError,
    UnknownMemberError,
    UnknownPartitionError,
    UnknownTopicError,
)
from myqueue.protocol.types import ClusterSnapshot, NodeAddress, PartitionId, PartitionInfo, TopicPartition


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic with its partitions in order."""

    row: TopicRow
    partitions: tuple[PartitionRow, ...]

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def topic_id(self) -> int:
        return self.row.topic_id

    def partition(self, number: int) -> PartitionRow:
        """Raises UnknownPartitionError, which says how many there are."""
        if not 0 <= number < len(self.partitions):
            count = len(self.partitions)
            raise UnknownPartitionError(f"Topic '{self.name}' has no partition {number}: it has {count} partition{'' if count == 1 else 's'}, "
                                        f"numbered from 0", topic=self.name, partition=number, partitions=count)
        return self.partitions[number]

    def to_json(self) -> dict[str, Any]:
        return {"topic": self.name, "topic_id": self.topic_id, "partitions": len(self.partitions),
                "replication_factor": self.row.replication_factor, "config": self.row.config}


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group with its members by id."""

    row: GroupRow
    members: Mapping[int, GroupMemberRow]

    @property
    def group_id(self) -> int:
        return self.row.group_id

    @property
    def name(self) -> str:
        return self.row.name

    def member(self, member_id: int) -> GroupMemberRow:
        """Raises UnknownMemberError."""
        if member_id not in self.members:
            raise UnknownMemberError(f"Group '{self.name}' has no member {member_id}: it left, or was silent for too long", group=self.name,
                                     member_id=member_id)
        return self.members[member_id]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All of it, never changed once made."""

    cluster_id: str
    version: int
    members: tuple[MemberRow, ...]
    brokers: dict[int, BrokerRow]  # the removed ones are left out
    topics: dict[str, Topic] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: CatalogueRows) -> Catalogue:
        partitions: dict[int, list[PartitionRow]] = {}
        for partition in rows.partitions:
            partitions.setdefault(partition.topic_id, []).append(partition)
        topics = {row.name: Topic(row, tuple(partitions.get(row.topic_id, ()))) for row in rows.topics}
        brokers = {row.broker_id: row for row in rows.brokers if row.status != "REMOVED"}
        members: dict[int, dict[int, GroupMemberRow]] = {}
        for member in rows.group_members:
            members.setdefault(member.group_id, {})[member.member_id] = member
        groups = {group.name: Group(group, members.get(group.group_id, {})) for group in rows.groups}
        return cls(rows.cluster_id or "", rows.applied_index, rows.members, brokers, topics, groups)

    def topic(self, name: str) -> Topic:
        topic = self.topics.get(name)
        if topic is None:
            raise UnknownTopicError(f"Topic '{name}' does not exist", topic=name, topics=[name])
        return topic

    def group(self, name: str) -> Group:
        """Raises UnknownGroupError."""
        if name not in self.groups:
            raise UnknownGroupError(f"There is no group '{name}'", group=name)
        return self.groups[name]

    def broker(self, broker_id: int) -> BrokerRow:
        broker = self.brokers.get(broker_id)
        if broker is None:
            raise UnknownBrokerError(f"There is no broker {broker_id}", broker_id=broker_id)
        return broker

    def address(self, broker_id: int) -> NodeAddress:
        broker = self.broker(broker_id)
        return NodeAddress(broker.host, broker.port)

    def leader(self, topic: Topic, partition: PartitionRow) -> tuple[int, NodeAddress]:
        """The broker that leads a partition. Raises UnavailableError where none does now."""
        if partition.leader is None or partition.leader not in self.brokers:
            raise UnavailableError(f"partition {partition.partition} of topic '{topic.name}' has no leader now")
        return partition.leader, self.address(partition.leader)

    def led_by(self, broker_id: int) -> list[tuple[Topic, PartitionRow]]:
        return [(topic, row) for topic in self.topics.values() for row in topic.partitions if row.leader == broker_id]

    def snapshot(self, names: Iterable[str] | None = None) -> ClusterSnapshot:
        """The routing snapshot, of all topics or of those named that exist."""
        chosen = self.topics.values() if names is None else [self.topics[name] for name in dict.fromkeys(names) if name in self.topics]
        partitions = {TopicPartition(topic.name, row.partition): partition_info(topic, row) for topic in chosen for row in topic.partitions}
        addresses = {broker_id: NodeAddress(row.host, row.port) for broker_id, row in self.brokers.items()}
        return ClusterSnapshot(self.cluster_id, self.version, addresses, partitions)


def partition_info(topic: Topic, row: PartitionRow) -> PartitionInfo:
    return PartitionInfo(topic.name, topic.topic_id, row.partition, row.epoch, row.leader, replicas(row), row.status,
                         None if row.wanted is None else tuple(row.wanted))


def partition_id(row: PartitionRow) -> PartitionId:
    return PartitionId(row.topic_id, row.partition)


def replicas(row: PartitionRow) -> tuple[int, ...]:
    return tuple(sorted(int(broker_id) for broker_id in row.voters))


def missing(row: PartitionRow) -> list[int]:
    """The brokers whose replica counts for nothing yet: it is being made, or made again."""
    return sorted(int(broker_id) for broker_id, disk_id in row.voters.items() if disk_id is None)


def holders_of(row: PartitionRow) -> set[int]:
    """Every broker that may have something of a partition: its voters, learners, and who leads it."""
    return {*map(int, row.voters), *row.learners, *([] if row.leader is None else [row.leader])}


def appointment(topic: Topic, row: PartitionRow) -> dict[str, Any]:
    """What a leader is told of its partition."""
    return {"topic_id": topic.topic_id, "topic": topic.name, "config": topic.row.config, "partition": row.partition, "epoch": row.epoch,
            "replication_factor": row.replication_factor, "voters": row.voters, "learners": list(row.learners)}


def brokers_of(catalogue: Catalogue) -> dict[int, Broker]:
    """The registered brokers as the rules of elections see them."""
    return {row.broker_id: Broker(row.broker_id, row.disk_id, row.status == "DRAINING") for row in catalogue.brokers.values()}


def replicas_of(row: PartitionRow) -> Replicas:
    """The row as the rules of elections see it."""
    voters = {int(broker_id): disk_id for broker_id, disk_id in row.voters.items()}
    return Replicas(partition_id(row), row.epoch, row.status == "ELECTING", row.leader, voters, tuple(row.learners), row.replication_factor,
                    None if row.wanted is None else tuple(row.wanted))
