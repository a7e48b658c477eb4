"""What ``apply`` works with: the tables as they are, the changes of one command on top of them, and what the shell is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from manager.cluster.placement import DEFAULT_FACTOR, choose_replicas
from myqueue.errors import UnavailableError, UnknownBrokerError, UnknownTopicError
from myqueue.protocol.names import check_topic_name

Row = dict[str, Any]
FIRST_EPOCH = 1  # of a new partition: it needs no election, because no earlier epoch exists


class MetadataView(Protocol):
    """The metadata tables as they are before a command."""

    def get(self, table: str, **key: Any) -> Row | None:
        """The row with this primary key."""

    def find(self, table: str, **equals: Any) -> list[Row]:
        """The rows whose columns have these values, in any order."""

    def leader_counts(self) -> Mapping[int, int]:
        """How many partitions each broker leads; brokers without any may be missing."""

    def replica_counts(self) -> Mapping[int, int]:
        """Of how many partitions each broker is a voter; brokers without any may be missing."""


@dataclass(frozen=True, slots=True)
class Put:
    """The row with this key has these other columns from now on."""

    table: str
    key: Row
    values: Row


@dataclass(frozen=True, slots=True)
class Delete:
    """The row with this key, and what refers to it, is gone."""

    table: str
    key: Row


@dataclass(frozen=True, slots=True)
class BrokerRegistered:
    """A broker came (back): it may have to be told again what it leads."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class PartitionsCreated:
    topic_id: int
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    topic_id: int
    brokers: tuple[int, ...]  # who held a partition of it


@dataclass(frozen=True, slots=True)
class MajorityForced:
    """An operator let a partition go on with fewer voters than a majority: what only the others held is lost."""

    topic_id: int
    partition: int
    epoch: int
    voters: Row  # the new ones
    left_out: tuple[int, ...]


Event = BrokerRegistered | PartitionsCreated | TopicDeleted | MajorityForced


class Draft:
    """The view with the changes of the present command on top."""

    def __init__(self, view: MetadataView) -> None:
        self._view = view
        self.changes: list[Put | Delete] = []
        self.events: list[Event] = []
        self._ids: dict[str, int] = {}
        self._leaders: dict[int, int] | None = None
        self._replicas: dict[int, int] | None = None
        self._topics: dict[str, Row] = {}  # made by this command
        self._partitions: dict[tuple[int, int], Row] = {}  # changed by it

    def get(self, table: str, **key: Any) -> Row | None:
        return self._view.get(table, **key)

    def find(self, table: str, **equals: Any) -> list[Row]:
        return self._view.find(table, **equals)

    def put(self, table: str, key: Row, **values: Any) -> None:
        self.changes.append(Put(table, key, values))

    def partition(self, topic_id: int, partition: int) -> Row | None:
        """A partition's row, with what this command changed of it."""
        place = topic_id, partition
        return self._partitions.get(place) or self.get("partition", topic_id=topic_id, partition=partition)

    def put_partition(self, row: Row) -> None:
        self._partitions[row["topic_id"], row["partition"]] = row
        self.put("partition", {"topic_id": row["topic_id"], "partition": row["partition"]},
                 **{name: value for name, value in row.items() if name not in ("topic_id", "partition")})

    def next_id(self, kind: str) -> int:
        if kind not in self._ids:
            row = self.get("id_counter", kind=kind)
            self._ids[kind] = row["last_id"] if row else 0
        self._ids[kind] += 1
        self.put("id_counter", {"kind": kind}, last_id=self._ids[kind])
        return self._ids[kind]

    def topic(self, name: str) -> Row | None:
        if name in self._topics:
            return self._topics[name]
        rows = self.find("topic", name=name)
        return rows[0] if rows else None

    def known_topic(self, name: str) -> Row:
        topic = self.topic(check_topic_name(name))
        if topic is None:
            raise UnknownTopicError(f"Topic '{name}' does not exist", topic=name, topics=[name])
        return topic

    def known_broker(self, broker_id: int) -> Row:
        row = self.get("broker", broker_id=broker_id)
        if row is None or row["status"] == "REMOVED":
            raise UnknownBrokerError(f"There is no broker {broker_id}", broker_id=broker_id)
        return row

    def create_topic(self, name: str, *, partitions: int, replication_factor: int | None, config: Row, created_at: int,
                     live: tuple[int, ...] | None, absent: tuple[int, ...]) -> Row:
        """A new topic with its partitions; without a replication factor it gets as many replicas as there are brokers for, up to the default.

        Raises:
            UnavailableError: not so many brokers are alive. Nothing was created.
        """
        active = self._takers(live)
        if replication_factor is not None and replication_factor > len(active):
            raise UnavailableError(f"replication_factor {replication_factor} needs as many live brokers, there are {len(active)}; "
                                   "nothing was created", live_brokers=len(active))
        factor = min(DEFAULT_FACTOR, len(active)) if replication_factor is None else replication_factor
        row = {"name": name, "replication_factor": factor, "config": config, "created_at": created_at}
        topic_id = self.next_id("topic")
        self.put("topic", {"topic_id": topic_id}, **row)
        self.place(topic_id, 0, partitions=partitions, factor=factor, live=live, absent=absent)
        self._topics[name] = {"topic_id": topic_id, **row}
        return self._topics[name]

    def place(self, topic_id: int, first: int, *, partitions: int, factor: int, live: tuple[int, ...] | None, absent: tuple[int, ...]) -> None:
        """New partitions, each with as many replicas as the factor says or as brokers are alive, led by one that is not absent if there is any."""
        active = self._takers(live)
        if self._leaders is None or self._replicas is None:
            self._leaders, self._replicas = dict(self._view.leader_counts()), dict(self._view.replica_counts())
        chosen = choose_replicas(self._leaders, self._replicas, active, partitions=partitions, factor=factor, absent=absent)
        for partition, replicas in enumerate(chosen, first):
            self.put("partition", {"topic_id": topic_id, "partition": partition}, replication_factor=factor, epoch=FIRST_EPOCH, status="ACTIVE",
                     leader=replicas[0], voters={str(broker_id): active[broker_id]["disk_id"] for broker_id in sorted(replicas)}, learners=[],
                     wanted=None)
            self._leaders[replicas[0]] = self._leaders.get(replicas[0], 0) + 1
            for broker_id in replicas:
                self._replicas[broker_id] = self._replicas.get(broker_id, 0) + 1
        self.events.append(PartitionsCreated(topic_id, tuple(range(first, first + partitions))))

    def _takers(self, live: tuple[int, ...] | None) -> dict[int, Row]:
        """The brokers that new replicas may go to."""
        active = {row["broker_id"]: row for row in self.find("broker", status="ACTIVE") if row["broker_id"] in (live or ())}
        if not active:
            raise UnavailableError("no broker is alive to take the partitions; nothing was created")
        return active
