"""The nouns of the system: frozen, ordered, hashable, with a readable ``repr``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

Header = tuple[str, bytes | None]


class PartitionId(NamedTuple):
    """A partition as storage knows it. ``topic_id`` is the topic's identity: a re-created topic has a new one."""

    topic_id: int
    partition: int

    def __str__(self) -> str:
        return f"{self.topic_id}/{self.partition}"


class TopicPartition(NamedTuple):
    """A partition as people name it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


class Record(NamedTuple):
    """What a producer hands over. ``timestamp_us`` is the client's own time in microseconds since 1970, if it gave one."""

    value: bytes
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp_us: int | None = None


class Message(NamedTuple):
    """A record at its place in a partition.

    ``timestamp`` is in microseconds since 1970: the client's time where it gave one, else the broker's append time.
    """

    topic: str
    partition: int
    offset: int
    value: bytes
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp: int = 0

    def text(self, encoding: str = "utf-8") -> str:
        """The value decoded. Raises UnicodeDecodeError where it is not text in this encoding."""
        return self.value.decode(encoding)


@dataclass(frozen=True, slots=True)
class ProducerSequence:
    """Makes a retry safe: the same (producer, epoch, sequence) is stored once. One sequence number per request and partition."""

    producer_id: int
    epoch: int
    seq: int


class CommitStamp(NamedTuple):
    """Tells a consumer's commit from an earlier one of the same client, however late that one arrives."""

    committer: int  # a number that no other client has
    sequence: int  # of this client's commits, from 1 on

    def is_past(self, last: CommitStamp) -> bool:
        """Whether it comes late, or again, where ``last`` was taken last."""
        return self.committer == last.committer and self.sequence <= last.sequence


@dataclass(frozen=True, slots=True)
class Appended:
    """The answer to an append: the records stand at ``base_offset`` … ``base_offset + record_count - 1``."""

    topic: str
    partition: int
    base_offset: int
    record_count: int
    append_time_us: int
    duplicate: bool = False
    topic_id: int | None = None  # the topic's identity; None from a broker of the version before, and between nodes


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets ``start`` (included) to ``end`` (excluded)."""

    start: int
    end: int

    def __len__(self) -> int:
        return max(0, self.end - self.start)


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """Where a node listens."""

    host: str
    port: int

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition as the routing table has it."""

    topic: str
    topic_id: int
    partition: int
    epoch: int
    leader: int | None
    replicas: tuple[int, ...] = ()
    status: str = "ACTIVE"
    wanted: tuple[int, ...] | None = None  # the brokers that its replicas are moving to


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """What a client needs for routing, as of metadata index ``version``."""

    cluster_id: str
    version: int
    brokers: dict[int, NodeAddress] = field(default_factory=dict)
    partitions: dict[TopicPartition, PartitionInfo] = field(default_factory=dict)

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has here; 0 where the snapshot does not hold it."""
        return sum(1 for key in self.partitions if key.topic == topic)
