"""The replicated state: ``apply(view, command)`` says which rows change and what the answer is.

It is a deterministic fold over the committed log, so it reads only the view and the command: no clock, no chance, no
soft state. A command that cannot be applied is an answer too, the same on every manager, and never an exception.
The view is rows by key, so that SQL tables and a dictionary both serve.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from manager.cluster import commands
from manager.cluster.placement import choose_leaders
from myqueue.errors import (
    BadRequestError,
    ConflictError,
    MyQueueError,
    RefusedError,
    TopicExistsError,
    UnavailableError,
    UnknownBrokerError,
    UnknownTopicError,
)
from myqueue.protocol import wire
from myqueue.protocol.names import check_topic_name

Row = dict[str, Any]
FIRST_EPOCH = 1
PARTITIONS_MAX = 10_000  # of one topic


class MetadataView(Protocol):
    """The metadata tables as they are before a command."""

    def get(self, table: str, **key: Any) -> Row | None:
        """The row with this primary key."""

    def find(self, table: str, **equals: Any) -> list[Row]:
        """The rows whose columns have these values, in any order."""

    def leader_counts(self) -> Mapping[int, int]:
        """How many partitions each broker leads; brokers without any may be missing."""


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


Event = BrokerRegistered | PartitionsCreated | TopicDeleted


@dataclass(frozen=True, slots=True)
class Change:
    """What a command does: rows, the answer (``{"result": …}`` or ``{"error": …}``), and what the shell should know of."""

    changes: tuple[Put | Delete, ...] = ()
    reply: Row = field(default_factory=dict)
    events: tuple[Event, ...] = ()


def apply(view: MetadataView, command: commands.Command) -> Change:
    """Decide what a committed command does."""
    draft = _Draft(view)
    try:
        result = _HANDLERS[type(command)](draft, command)
    except MyQueueError as error:
        return Change(reply=wire.error_to_json(error))
    return Change(tuple(draft.changes), {"result": result}, tuple(draft.events))


class _Draft:
    """The view with the changes of the present command on top."""

    def __init__(self, view: MetadataView) -> None:
        self._view = view
        self.changes: list[Put | Delete] = []
        self.events: list[Event] = []
        self._ids: dict[str, int] = {}
        self._leaders: dict[int, int] | None = None
        self._topics: dict[str, Row] = {}  # made by this command

    def get(self, table: str, **key: Any) -> Row | None:
        return self._view.get(table, **key)

    def find(self, table: str, **equals: Any) -> list[Row]:
        return self._view.find(table, **equals)

    def put(self, table: str, key: Row, **values: Any) -> None:
        self.changes.append(Put(table, key, values))

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

    def create_topic(self, name: str, *, partitions: int, replication_factor: int, config: Row, created_at: int,
                     live: tuple[int, ...] | None) -> Row:
        row = {"name": name, "replication_factor": replication_factor, "config": config, "created_at": created_at}
        leaders = self.choose_leaders(live, partitions)
        topic_id = self.next_id("topic")
        self.put("topic", {"topic_id": topic_id}, **row)
        self.place(topic_id, 0, leaders, replication_factor)
        self._topics[name] = {"topic_id": topic_id, **row}
        return self._topics[name]

    def choose_leaders(self, live: tuple[int, ...] | None, partitions: int) -> list[Row]:
        """A broker row for each new partition."""
        active = {row["broker_id"]: row for row in self.find("broker", status="ACTIVE") if row["broker_id"] in (live or ())}
        if not active:
            raise UnavailableError("no broker is alive to take the partitions; nothing was created")
        if self._leaders is None:
            self._leaders = dict(self._view.leader_counts())
        chosen = choose_leaders(self._leaders, active, partitions=partitions)
        for broker_id in chosen:
            self._leaders[broker_id] = self._leaders.get(broker_id, 0) + 1
        return [active[broker_id] for broker_id in chosen]

    def place(self, topic_id: int, first: int, leaders: list[Row], replication_factor: int) -> None:
        for partition, broker in enumerate(leaders, first):
            self.put("partition", {"topic_id": topic_id, "partition": partition}, replication_factor=replication_factor,
                     epoch=FIRST_EPOCH, status="ACTIVE", leader=broker["broker_id"],
                     voters={str(broker["broker_id"]): broker["disk_id"]}, learners=[])
        self.events.append(PartitionsCreated(topic_id, tuple(range(first, first + len(leaders)))))


def _noop(_draft: _Draft, _command: commands.Noop) -> Row:
    return {}


def _init_cluster(draft: _Draft, command: commands.InitCluster) -> Row:
    if draft.find("member"):
        raise ConflictError("the cluster was initialised before")
    draft.put("raft_state", {"only_row": True}, cluster_id=command.cluster_id)
    for member in command.members:
        draft.put("member", {"node_id": member.node_id}, url=member.url, disk_id=member.disk_id, voter=True)
    return {"cluster_id": command.cluster_id}


def _set_member(draft: _Draft, command: commands.SetMember) -> Row:
    draft.put("member", {"node_id": command.node_id}, url=command.url, disk_id=command.disk_id, voter=command.voter)
    return {"node_id": command.node_id}


def _remove_member(draft: _Draft, command: commands.RemoveMember) -> Row:
    draft.changes.append(Delete("member", {"node_id": command.node_id}))
    return {"node_id": command.node_id}


def _add_broker(draft: _Draft, command: commands.AddBroker) -> Row:
    known = draft.find("broker", disk_id=command.disk_id)
    broker_id = known[0]["broker_id"] if known else draft.next_id("broker")
    draft.put("broker", {"broker_id": broker_id}, disk_id=command.disk_id, host=command.host, port=command.port, status="ACTIVE",
              database=command.database)
    draft.events.append(BrokerRegistered(broker_id))
    return {"broker_id": broker_id, "new": not known}


def _remove_broker(draft: _Draft, command: commands.RemoveBroker) -> Row:
    row = draft.get("broker", broker_id=command.broker_id)
    if row is None or row["status"] == "REMOVED":
        raise UnknownBrokerError(f"There is no broker {command.broker_id}", broker_id=command.broker_id)
    held = draft.find("partition", leader=command.broker_id)
    if held:
        raise RefusedError(f"Broker {command.broker_id} holds {len(held)} partition(s): its removal would lose their messages",
                           partitions=len(held))
    draft.put("broker", {"broker_id": command.broker_id}, **{**_without(row, "broker_id"), "status": "REMOVED"})
    return {"broker_id": command.broker_id}


def _create_topic(draft: _Draft, command: commands.CreateTopic) -> Row:
    name = check_topic_name(command.topic)
    if draft.topic(name) is not None:
        raise TopicExistsError(f"Topic '{name}' already exists", topic=name)
    if not 1 <= command.partitions <= PARTITIONS_MAX:
        raise BadRequestError(f"a topic has from 1 to {PARTITIONS_MAX} partitions, not {command.partitions}")
    if command.replication_factor != 1:
        raise RefusedError("replication_factor must be 1: replicas are not supported yet")
    topic = draft.create_topic(name, partitions=command.partitions, replication_factor=command.replication_factor,
                               config=command.config, created_at=command.created_at, live=command.live_brokers)
    return {"topic": name, "topic_id": topic["topic_id"], "partitions": command.partitions,
            "replication_factor": command.replication_factor, "config": command.config}


def _delete_topic(draft: _Draft, command: commands.DeleteTopic) -> Row:
    topic = draft.known_topic(command.topic)
    holders = {row["leader"] for row in draft.find("partition", topic_id=topic["topic_id"])}
    draft.changes.append(Delete("topic", {"topic_id": topic["topic_id"]}))
    draft.events.append(TopicDeleted(topic["topic_id"], tuple(sorted(holders - {None}))))
    return {"topic": command.topic, "topic_id": topic["topic_id"]}


def _add_partition(draft: _Draft, command: commands.AddPartition) -> Row:
    topic = draft.known_topic(command.topic)
    partition = len(draft.find("partition", topic_id=topic["topic_id"]))
    if partition >= PARTITIONS_MAX:
        raise RefusedError(f"Topic '{command.topic}' has {PARTITIONS_MAX} partitions: there cannot be more")
    draft.place(topic["topic_id"], partition, draft.choose_leaders(command.live_brokers, 1), topic["replication_factor"])
    return {"topic": command.topic, "topic_id": topic["topic_id"], "partition": partition}


def _register_producers(draft: _Draft, command: commands.RegisterProducers) -> Row:
    producers: Row = {}
    for name in dict.fromkeys(command.topics):
        topic = draft.topic(check_topic_name(name))
        if topic is None and not command.create:
            raise UnknownTopicError(f"Topic '{name}' does not exist", topic=name, topics=[name])
        if topic is None:
            topic = draft.create_topic(name, partitions=1, replication_factor=1, config={}, created_at=command.created_at,
                                       live=command.live_brokers)
        producer_id = draft.next_id("producer")
        draft.put("producer", {"producer_id": producer_id, "topic_id": topic["topic_id"]}, created_at=command.created_at)
        producers[name] = {"producer_id": producer_id, "topic_id": topic["topic_id"]}
    return {"producers": producers}


def _register_consumers(draft: _Draft, command: commands.RegisterConsumers) -> Row:
    if command.start not in ("earliest", "latest"):
        raise BadRequestError("start must be earliest or latest")
    names = list(dict.fromkeys(check_topic_name(name) for name in command.topics))
    unknown = [name for name in names if draft.topic(name) is None]
    if unknown:
        listed = ", ".join(f"'{name}'" for name in unknown)
        raise UnknownTopicError(f"Topic {listed} does not exist" if len(unknown) == 1 else f"Topics {listed} do not exist", topics=unknown)
    consumers: Row = {}
    for name in names:
        topic_id = draft.known_topic(name)["topic_id"]
        consumer_id = draft.next_id("consumer")
        draft.put("consumer", {"consumer_id": consumer_id, "topic_id": topic_id}, start=command.start, created_at=command.created_at)
        partitions = len(draft.find("partition", topic_id=topic_id))
        consumers[name] = {"consumer_id": consumer_id, "topic_id": topic_id, "partitions": partitions}
    return {"consumers": consumers}


def _without(row: Row, *names: str) -> Row:
    return {name: value for name, value in row.items() if name not in names}


_HANDLERS: dict[type, Callable[[_Draft, Any], Row]] = {
    commands.Noop: _noop,
    commands.InitCluster: _init_cluster,
    commands.SetMember: _set_member,
    commands.RemoveMember: _remove_member,
    commands.AddBroker: _add_broker,
    commands.RemoveBroker: _remove_broker,
    commands.CreateTopic: _create_topic,
    commands.DeleteTopic: _delete_topic,
    commands.AddPartition: _add_partition,
    commands.RegisterProducers: _register_producers,
    commands.RegisterConsumers: _register_consumers,
}
