"""What may be asked of the cluster's metadata: frozen values and their JSON form, which is what the WAL stores.

A command decides nothing and reads no clock: the times, random ids and lists of live brokers that ``apply`` needs are in
it, put there by the manager that proposes it. A type's name and fields never change their meaning, because old WAL
entries are folded again; a new meaning is a new type. Golden vectors: tests/data/commands.json.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from dataclasses import dataclass
from typing import Any, ClassVar

from myqueue.errors import BadRequestError

LATER = {"left_out_by_default": True}  # of a field that older logs do not have: they are written as they were


@dataclass(frozen=True, slots=True)
class Noop:
    """Changes nothing: the marker with which a leader begins its term."""

    TYPE: ClassVar[str] = "noop"


@dataclass(frozen=True, slots=True)
class Member:
    """A manager as a voter: it counts only with this disk."""

    node_id: int
    url: str
    disk_id: str


@dataclass(frozen=True, slots=True)
class InitCluster:
    """The first entry of the log: names the cluster and its voters."""

    cluster_id: str
    members: tuple[Member, ...]
    TYPE: ClassVar[str] = "init_cluster"


@dataclass(frozen=True, slots=True)
class SetMember:
    """A manager belongs to the group, as a voter with this disk or without a vote. Changes one slot; never refused once it is committed."""

    node_id: int
    url: str
    disk_id: str | None
    voter: bool
    TYPE: ClassVar[str] = "set_member"


@dataclass(frozen=True, slots=True)
class RemoveMember:
    """A manager leaves the group. Never refused once it is committed."""

    node_id: int
    TYPE: ClassVar[str] = "remove_member"


@dataclass(frozen=True, slots=True)
class DiskLost:
    """A manager's disk does not hold any more what it acknowledged, or is an older copy of itself: it has no vote, and who runs on it takes
    a new identity. Changes nothing where the member has another disk by now; never refused once it is committed."""

    node_id: int
    disk_id: str
    TYPE: ClassVar[str] = "disk_lost"


@dataclass(frozen=True, slots=True)
class AddBroker:
    """A broker is there. The disk is its identity: the same disk keeps its id and takes the new address."""

    disk_id: str
    host: str
    port: int
    database: dict
    TYPE: ClassVar[str] = "add_broker"


@dataclass(frozen=True, slots=True)
class RemoveBroker:
    """Refused while the broker holds partitions."""

    broker_id: int
    TYPE: ClassVar[str] = "remove_broker"


@dataclass(frozen=True, slots=True)
class ReplaceDisk:
    """A known broker came with another disk, because its old one was lost or restored: what it held it must be given again."""

    broker_id: int
    old_disk_id: str
    disk_id: str
    host: str
    port: int
    database: dict
    TYPE: ClassVar[str] = "replace_disk"


@dataclass(frozen=True, slots=True)
class DrainBroker:
    """The broker is to hold nothing any more (or is to be used again): it gets no new partitions, and its own move away."""

    broker_id: int
    draining: bool = True
    TYPE: ClassVar[str] = "drain_broker"


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """A new topic with one replica a partition, its leaders spread over the live brokers."""

    topic: str
    partitions: int = 1
    replication_factor: int = 1
    config: dict = dataclasses.field(default_factory=dict)
    created_at: int = 0  # microseconds since 1970
    live_brokers: tuple[int, ...] | None = None  # filled in by the write manager
    TYPE: ClassVar[str] = "create_topic"


@dataclass(frozen=True, slots=True)
class CreateReplicatedTopic:
    """A new topic; without a replication factor with as many replicas as brokers are alive, at most three.

    Args:
        absent_brokers: of the live ones those at whose address nobody listens just now: they get replicas, and lead only where nobody else can.
    """

    topic: str
    partitions: int = 1
    replication_factor: int | None = None
    config: dict = dataclasses.field(default_factory=dict)
    created_at: int = 0
    live_brokers: tuple[int, ...] | None = None
    absent_brokers: tuple[int, ...] = dataclasses.field(default=(), metadata=LATER)
    TYPE: ClassVar[str] = "create_replicated_topic"


@dataclass(frozen=True, slots=True)
class AlterTopic:
    """Fields of a topic's config change, those that are null go. Refused where the name belongs to another topic by now."""

    topic: str
    topic_id: int
    changes: dict
    TYPE: ClassVar[str] = "alter_topic"


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """The topic and its registrations go; its name may be used again, its id never."""

    topic: str
    TYPE: ClassVar[str] = "delete_topic"


@dataclass(frozen=True, slots=True)
class AddPartition:
    """One partition more."""

    topic: str
    live_brokers: tuple[int, ...] | None = None
    absent_brokers: tuple[int, ...] = dataclasses.field(default=(), metadata=LATER)
    TYPE: ClassVar[str] = "add_partition"


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """A topic has so many partitions in all: done again it changes nothing. Refused where the name belongs to another topic by now."""

    topic: str
    topic_id: int
    partitions: int
    live_brokers: tuple[int, ...] | None = None
    absent_brokers: tuple[int, ...] = dataclasses.field(default=(), metadata=LATER)
    TYPE: ClassVar[str] = "add_partitions"


@dataclass(frozen=True, slots=True)
class RegisterProducers:
    """An id for each topic; with ``create`` a topic that is not there is made, with one partition, and with ``replicate`` replicas of it."""

    topics: tuple[str, ...]
    create: bool = True
    created_at: int = 0
    live_brokers: tuple[int, ...] | None = None
    replicate: bool = dataclasses.field(default=False, metadata=LATER)
    absent_brokers: tuple[int, ...] = dataclasses.field(default=(), metadata=LATER)
    TYPE: ClassVar[str] = "register_producers"


@dataclass(frozen=True, slots=True)
class RegisterConsumers:
    """An id for each topic, or none at all where a topic is unknown."""

    topics: tuple[str, ...]
    start: str = "earliest"
    created_at: int = 0
    TYPE: ClassVar[str] = "register_consumers"


@dataclass(frozen=True, slots=True)
class BeginElection:
    """A partition's next epoch, if its present one is the expected one. The voters differ from the present ones in one slot at most."""

    topic_id: int
    partition: int
    expected_epoch: int
    voters: dict  # {str(broker_id): the registered disk, or null for an empty slot}


@dataclass(frozen=True, slots=True)
class BeginElections:
    """Elections of several partitions: each is begun or refused by itself."""

    items: tuple[BeginElection, ...]
    TYPE: ClassVar[str] = "begin_elections"


@dataclass(frozen=True, slots=True)
class AppointLeader:
    """Who leads in an epoch: the winner of its election."""

    topic_id: int
    partition: int
    epoch: int
    leader: int


@dataclass(frozen=True, slots=True)
class AppointLeaders:
    """Ends elections, each by itself, and only in the epoch that it was begun in."""

    items: tuple[AppointLeader, ...]
    TYPE: ClassVar[str] = "appoint_leaders"


@dataclass(frozen=True, slots=True)
class Learners:
    """Who gets a partition's log without counting for its majority."""

    topic_id: int
    partition: int
    epoch: int
    learners: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SetLearners:
    """Changes the learners of several partitions, in their present epochs."""

    items: tuple[Learners, ...]
    TYPE: ClassVar[str] = "set_learners"


@dataclass(frozen=True, slots=True)
class ForceElections:
    """An operator's way out where a majority is gone for good: the voters that are left out are given up, and with them what only they held."""

    items: tuple[BeginElection, ...]
    TYPE: ClassVar[str] = "force_elections"


@dataclass(frozen=True, slots=True)
class Move:
    """The brokers that a partition's replicas are wanted on, all of them; without any, a move that is under way stops where it stands."""

    topic_id: int
    partition: int
    brokers: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class MovePartitions:
    """Says where partitions are to be, each by itself; the coordinator moves them there step by step. The last word counts."""

    items: tuple[Move, ...]
    TYPE: ClassVar[str] = "move_partitions"


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """A member comes into a consumer group, which is made where it is not there. The same instance again is the same member, in a new generation."""

    group: str
    instance_id: str
    topics: tuple[str, ...]
    strategy: str
    start: str
    session_timeout_ms: int
    created_at: int = 0
    TYPE: ClassVar[str] = "join_group"


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """Members are gone, because they said so or fell silent; who is not there is passed over."""

    group_id: int
    member_ids: tuple[int, ...]
    TYPE: ClassVar[str] = "leave_group"


@dataclass(frozen=True, slots=True)
class Assigned:
    """A partition, and the member that is to read it."""

    topic_id: int
    partition: int
    member_id: int


@dataclass(frozen=True, slots=True)
class AssignPartitions:
    """Who is to read what, all of it, if the group's generation is the expected one. What a member owns stays its own until it releases it."""

    group_id: int
    expected_generation: int
    items: tuple[Assigned, ...]
    TYPE: ClassVar[str] = "assign_partitions"


@dataclass(frozen=True, slots=True)
class ReleasePartitions:
    """A member reads these no more, if they are to be another's by now: the items name the member itself."""

    group_id: int
    items: tuple[Assigned, ...]
    TYPE: ClassVar[str] = "release_partitions"


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """A group without members goes; another one of its name begins anew."""

    group: str
    TYPE: ClassVar[str] = "delete_group"


Command = (Noop | InitCluster | SetMember | RemoveMember | DiskLost | AddBroker | RemoveBroker | CreateTopic | DeleteTopic | AddPartition
           | RegisterProducers | RegisterConsumers | ReplaceDisk | DrainBroker | CreateReplicatedTopic | BeginElections | AppointLeaders
           | SetLearners | ForceElections | AlterTopic | AddPartitions | JoinGroup | LeaveGroup | AssignPartitions | ReleasePartitions
           | DeleteGroup | MovePartitions)
BY_TYPE: dict[str, type] = {cls.TYPE: cls for cls in typing.get_args(Command)}
_HINTS = {cls: typing.get_type_hints(cls) for cls in (*BY_TYPE.values(), Member, BeginElection, AppointLeader, Learners, Assigned, Move)}


def to_json(command: Command) -> dict[str, Any]:
    """The command as the WAL stores it: ``type`` and every field."""
    return {"type": command.TYPE, **_fields_to_json(command)}


def from_json(body: object) -> Command:
    """The command that a JSON object stands for.

    Raises:
        BadRequestError: an unknown type or field, a missing one, or one of the wrong type.
    """
    cls = BY_TYPE.get(body.get("type", "")) if isinstance(body, dict) and isinstance(body.get("type"), str) else None
    if cls is None:
        raise BadRequestError(f"there is no such command; known are {', '.join(sorted(BY_TYPE))}")
    return _object(cls, {name: value for name, value in body.items() if name != "type"}, cls.TYPE)


def _fields_to_json(value: Any) -> dict[str, Any]:
    return {field.name: _value_to_json(getattr(value, field.name)) for field in dataclasses.fields(value)
            if field.metadata != LATER or getattr(value, field.name) != field.default}


def _value_to_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_value_to_json(item) for item in value]
    return _fields_to_json(value) if dataclasses.is_dataclass(value) else value


def _object(cls: type, body: dict[str, Any], where: str) -> Any:
    fields = {field.name: field for field in dataclasses.fields(cls)}
    unknown = sorted(set(body) - set(fields))
    missing = sorted(name for name, field in fields.items() if name not in body and field.default is dataclasses.MISSING
                     and field.default_factory is dataclasses.MISSING)
    if unknown or missing:
        raise BadRequestError(f"{where}: {'no field' if unknown else 'missing'} {', '.join(unknown or missing)}")
    return cls(**{name: _value(_HINTS[cls][name], value, f"{where}.{name}") for name, value in body.items()})


def _value(kind: Any, value: Any, where: str) -> Any:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return None if value is None else _value(typing.get_args(kind)[0], value, where)
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, (list, tuple)):
            raise BadRequestError(f"{where} must be a list")
        return tuple(_value(typing.get_args(kind)[0], item, where) for item in value)
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, dict):
            raise BadRequestError(f"{where} must be an object")
        return _object(kind, value, where)  # type: ignore[arg-type]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise BadRequestError(f"{where} must be of type {kind.__name__}")
    return value
