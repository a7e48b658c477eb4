"""The replicated state: ``apply(view, command)`` says which rows change and what the answer is.

It is a deterministic fold over the committed log, so it reads only the view and the command: no clock, no chance, no
soft state. A command that cannot be applied is an answer too, the same on every manager, and never an exception.
The view is rows by key, so that SQL tables and a dictionary both serve.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from manager.cluster import commands, groups, partitions
from manager.cluster.draft import BrokerRegistered, Delete, Draft, Event, MetadataView, Put, Row, TopicDeleted
from myqueue.errors import (
    BadRequestError,
    ConflictError,
    MyQueueError,
    RefusedError,
    TopicExistsError,
    UnknownTopicError,
)
from myqueue.protocol import wire
from myqueue.protocol.limits import FACTOR_MAX, PARTITIONS_MAX
from myqueue.protocol.names import check_topic_name


@dataclass(frozen=True, slots=True)
class Change:
    """What a command does: rows, the answer (``{"result": …}`` or ``{"error": …}``), and what the shell should know of."""

    changes: tuple[Put | Delete, ...] = ()
    reply: Row = field(default_factory=dict)
    events: tuple[Event, ...] = ()


def apply(view: MetadataView, command: commands.Command) -> Change:
    """Decide what a committed command does."""
    draft = Draft(view)
    try:
        result = _HANDLERS[type(command)](draft, command)
    except MyQueueError as error:
        return Change(reply=wire.error_to_json(error))
    return Change(tuple(draft.changes), {"result": result}, tuple(draft.events))


def _noop(_draft: Draft, _command: commands.Noop) -> Row:
    return {}


def _init_cluster(draft: Draft, command: commands.InitCluster) -> Row:
    if draft.find("member"):
        raise ConflictError("the cluster was initialised before")
    draft.put("raft_state", {"only_row": True}, cluster_id=command.cluster_id)
    for member in command.members:
        draft.put("member", {"node_id": member.node_id}, url=member.url, disk_id=member.disk_id, voter=True)
    return {"cluster_id": command.cluster_id}


def _set_member(draft: Draft, command: commands.SetMember) -> Row:
    draft.put("member", {"node_id": command.node_id}, url=command.url, disk_id=command.disk_id, voter=command.voter)
    return {"node_id": command.node_id}


def _remove_member(draft: Draft, command: commands.RemoveMember) -> Row:
    draft.changes.append(Delete("member", {"node_id": command.node_id}))
    return {"node_id": command.node_id}


def _disk_lost(draft: Draft, command: commands.DiskLost) -> Row:
    row = draft.get("member", node_id=command.node_id)
    if row is not None and row["disk_id"] == command.disk_id:
        draft.put("member", {"node_id": command.node_id}, url=row["url"], disk_id=None, voter=False)
    return {"node_id": command.node_id}


def _add_broker(draft: Draft, command: commands.AddBroker) -> Row:
    known = draft.find("broker", disk_id=command.disk_id)
    broker_id = known[0]["broker_id"] if known else draft.next_id("broker")
    status = "DRAINING" if known and known[0]["status"] == "DRAINING" else "ACTIVE"
    draft.put("broker", {"broker_id": broker_id}, disk_id=command.disk_id, host=command.host, port=command.port, status=status,
              database=command.database)
    draft.events.append(BrokerRegistered(broker_id))
    return {"broker_id": broker_id, "new": not known}


def _replace_disk(draft: Draft, command: commands.ReplaceDisk) -> Row:
    row = draft.known_broker(command.broker_id)
    if row["disk_id"] != command.old_disk_id:
        raise ConflictError(f"broker {command.broker_id} has another disk by now")
    if draft.find("broker", disk_id=command.disk_id):
        raise ConflictError("this disk is registered already")
    draft.put("broker", {"broker_id": command.broker_id}, disk_id=command.disk_id, host=command.host, port=command.port, status=row["status"],
              database=command.database)
    draft.events.append(BrokerRegistered(command.broker_id))
    return {"broker_id": command.broker_id, "new": False}


def _drain_broker(draft: Draft, command: commands.DrainBroker) -> Row:
    row = draft.known_broker(command.broker_id)
    draft.put("broker", {"broker_id": command.broker_id},
              **{**_without(row, "broker_id"), "status": "DRAINING" if command.draining else "ACTIVE"})
    if command.draining:
        partitions.drop_wishes(draft, command.broker_id)
    return {"broker_id": command.broker_id, "draining": command.draining}


def _remove_broker(draft: Draft, command: commands.RemoveBroker) -> Row:
    row = draft.known_broker(command.broker_id)
    held = sum(1 for one in draft.find("partition") if str(command.broker_id) in one["voters"])
    if held:
        raise RefusedError(f"Broker {command.broker_id} holds {held} partition(s): its removal would lose their messages", partitions=held)
    draft.put("broker", {"broker_id": command.broker_id}, **{**_without(row, "broker_id"), "status": "REMOVED"})
    partitions.drop_wishes(draft, command.broker_id)
    return {"broker_id": command.broker_id}


def _create_topic(draft: Draft, command: commands.CreateTopic) -> Row:
    name = _new_topic(draft, command)
    if command.replication_factor != 1:
        raise RefusedError("replication_factor must be 1: replicas are not supported yet")  # the answer that is in old logs
    return _create(draft, name, command, 1, ())


def _create_replicated_topic(draft: Draft, command: commands.CreateReplicatedTopic) -> Row:
    name, factor = _new_topic(draft, command), command.replication_factor
    if factor is not None and not 1 <= factor <= FACTOR_MAX:
        raise BadRequestError(f"replication_factor must be from 1 to {FACTOR_MAX}, not {factor}", argument="replication_factor")
    return _create(draft, name, command, factor, command.absent_brokers)


def _new_topic(draft: Draft, command: commands.CreateTopic | commands.CreateReplicatedTopic) -> str:
    name = check_topic_name(command.topic)
    if draft.topic(name) is not None:
        raise TopicExistsError(f"Topic '{name}' already exists", topic=name)
    _check_partitions(command.partitions)
    return name


def _check_partitions(partitions: int) -> None:
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise BadRequestError(f"a topic has from 1 to {PARTITIONS_MAX} partitions, not {partitions}")


def _create(draft: Draft, name: str, command: commands.CreateTopic | commands.CreateReplicatedTopic, factor: int | None,
            absent: tuple[int, ...]) -> Row:
    topic = draft.create_topic(name, partitions=command.partitions, replication_factor=factor, config=command.config,
                               created_at=command.created_at, live=command.live_brokers, absent=absent)
    return {"topic": name, "topic_id": topic["topic_id"], "partitions": command.partitions,
            "replication_factor": topic["replication_factor"], "config": command.config}


def _same_topic(draft: Draft, command: commands.AlterTopic | commands.AddPartitions) -> Row:
    topic = draft.known_topic(command.topic)
    if topic["topic_id"] != command.topic_id:
        raise ConflictError(f"Topic '{command.topic}' was deleted and created again meanwhile", topic=command.topic)
    return topic


def _alter_topic(draft: Draft, command: commands.AlterTopic) -> Row:
    topic = _same_topic(draft, command)
    config = {name: value for name, value in {**topic["config"], **command.changes}.items() if value is not None}
    draft.put("topic", {"topic_id": command.topic_id}, **{**_without(topic, "topic_id"), "config": config})
    return {"topic": command.topic, "topic_id": command.topic_id, "config": config}


def _delete_topic(draft: Draft, command: commands.DeleteTopic) -> Row:
    topic = draft.known_topic(command.topic)
    holders = {broker_id for row in draft.find("partition", topic_id=topic["topic_id"]) for broker_id in partitions.holders(row)}
    draft.changes.append(Delete("topic", {"topic_id": topic["topic_id"]}))
    draft.events.append(TopicDeleted(topic["topic_id"], tuple(sorted(holders))))
    return {"topic": command.topic, "topic_id": topic["topic_id"]}


def _add_partition(draft: Draft, command: commands.AddPartition) -> Row:
    topic = draft.known_topic(command.topic)
    partition = len(draft.find("partition", topic_id=topic["topic_id"]))
    if partition >= PARTITIONS_MAX:
        raise RefusedError(f"Topic '{command.topic}' has {PARTITIONS_MAX} partitions: there cannot be more")
    draft.place(topic["topic_id"], partition, partitions=1, factor=topic["replication_factor"], live=command.live_brokers,
                absent=command.absent_brokers)
    return {"topic": command.topic, "topic_id": topic["topic_id"], "partition": partition}


def _add_partitions(draft: Draft, command: commands.AddPartitions) -> Row:
    topic = _same_topic(draft, command)
    present = len(draft.find("partition", topic_id=command.topic_id))
    _check_partitions(command.partitions)
    if command.partitions < present:
        raise BadRequestError(f"Topic '{command.topic}' has {present} partitions, and none is ever taken away: the new number is {present} or more, "
                              f"not {command.partitions}", topic=command.topic, partitions=present)
    if command.partitions > present:
        draft.place(command.topic_id, present, partitions=command.partitions - present, factor=topic["replication_factor"], live=command.live_brokers,
                    absent=command.absent_brokers)
    return {"topic": command.topic, "topic_id": command.topic_id, "partitions": command.partitions, "added": command.partitions - present}


def _register_producers(draft: Draft, command: commands.RegisterProducers) -> Row:
    producers: Row = {}
    for name in dict.fromkeys(command.topics):
        topic = draft.topic(check_topic_name(name))
        if topic is None and not command.create:
            raise UnknownTopicError(f"Topic '{name}' does not exist", topic=name, topics=[name])
        if topic is None:
            topic = draft.create_topic(name, partitions=1, replication_factor=None if command.replicate else 1, config={},
                                       created_at=command.created_at, live=command.live_brokers, absent=command.absent_brokers)
        producer_id = draft.next_id("producer")
        draft.put("producer", {"producer_id": producer_id, "topic_id": topic["topic_id"]}, created_at=command.created_at)
        producers[name] = {"producer_id": producer_id, "topic_id": topic["topic_id"]}
    return {"producers": producers}


def _register_consumers(draft: Draft, command: commands.RegisterConsumers) -> Row:
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


_HANDLERS: dict[type, Callable[[Draft, Any], Row]] = {
    commands.Noop: _noop,
    commands.InitCluster: _init_cluster,
    commands.SetMember: _set_member,
    commands.RemoveMember: _remove_member,
    commands.DiskLost: _disk_lost,
    commands.AddBroker: _add_broker,
    commands.RemoveBroker: _remove_broker,
    commands.ReplaceDisk: _replace_disk,
    commands.DrainBroker: _drain_broker,
    commands.CreateTopic: _create_topic,
    commands.CreateReplicatedTopic: _create_replicated_topic,
    commands.AlterTopic: _alter_topic,
    commands.DeleteTopic: _delete_topic,
    commands.AddPartition: _add_partition,
    commands.AddPartitions: _add_partitions,
    commands.RegisterProducers: _register_producers,
    commands.RegisterConsumers: _register_consumers,
    commands.BeginElections: partitions.begin_elections,
    commands.AppointLeaders: partitions.appoint_leaders,
    commands.SetLearners: partitions.set_learners,
    commands.ForceElections: partitions.force_elections,
    commands.MovePartitions: partitions.move_partitions,
    commands.JoinGroup: groups.join,
    commands.LeaveGroup: groups.leave,
    commands.AssignPartitions: groups.assign,
    commands.ReleasePartitions: groups.release,
    commands.DeleteGroup: groups.delete,
}
