"""AdminClient: what exists, who is there, who lags."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from ..clock import Clock
from ..errors import MyQueueError, OutcomeUnknownError, TopicExistsError, UnavailableError
from ..protocol import routes, wire
from ..protocol.names import check_group_name, check_topic_name
from ..protocol.types import Message, OffsetRange, TopicPartition
from .connection import Connection
from .transport import Transport

REMOVE_SECONDS = 30.0  # a manager waits for the drain


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition, and which broker leads it."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    epoch: int
    status: str
    wanted: tuple[int, ...] | None = None  # the brokers that its replicas are moving to
    missing: tuple[int, ...] = ()  # those whose replica counts for nothing yet: it is being made, or made again


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic. ``topic_id`` is its identity: one that is deleted and created again has a new one."""

    topic: str
    topic_id: int
    partitions: int
    replication_factor: int
    config: Mapping[str, Any] = field(default_factory=dict)
    partition_list: tuple[PartitionDescription, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a consumer is in a partition: ``lag`` messages are between its offset and the committed end."""

    topic: str
    partition: int
    offset: int
    start_offset: int
    end_offset: int

    @property
    def lag(self) -> int:
        return max(0, self.end_offset - max(self.offset, self.start_offset))


class AdminClient:
    """Calls that create, describe and watch. Retries what is safe for ``max_block_seconds``. Safe to share between threads."""

    def __init__(self, broker: str | Sequence[str] = "localhost:9092", *, token: str | None = None, max_block_seconds: float = 10.0,
                 transport: Transport | None = None, clock: Clock | None = None) -> None:
        self._connection = Connection(broker, token=token, transport=transport, clock=clock)
        self._max_block_seconds = max_block_seconds

    def __repr__(self) -> str:
        return f"AdminClient({self._connection!r})"

    def create_topic(self, topic: str, *, partitions: int = 1, replication_factor: int | None = None, config: Mapping[str, Any] | None = None,
                     exist_ok: bool = False) -> TopicDescription:
        """Create a topic.

        Args:
            replication_factor: replicas of each partition; by default as many as brokers are alive, at most three.

        Raises:
            TopicExistsError: it is there already; with ``exist_ok`` what is there is returned instead, whatever its
                partitions, unless a config is asked for that it does not have.
            OutcomeUnknownError: nobody knows whether it was created; asking again is safe.
        """
        body = {"topic": check_topic_name(topic), "partitions": partitions, "config": dict(config or {})}
        if replication_factor is not None:
            body["replication_factor"] = replication_factor
        try:
            # An answer that was lost would come back as "exists": not repeated on its own.
            return _topic(self._connection.call("POST", routes.TOPICS, json=body, repeatable=False))
        except MyQueueError as error:
            if not exist_ok or error.code != "topic_exists":
                raise
        there = self.describe_topic(topic)
        if config is not None and dict(there.config) != dict(config):
            raise TopicExistsError(f"Topic '{topic}' already exists with another config: change that by alter_topic", topic=topic,
                                   config=dict(there.config))
        return there

    def alter_topic(self, topic: str, config: Mapping[str, int | None]) -> dict[str, Any]:
        """Change fields of a topic's config (``myqueue.protocol.topic_config`` lists them), None takes one out; the config as it is then.

        Raises:
            UnknownTopicError, BadRequestError: nothing was changed.
        """
        path = routes.TOPIC.format(topic=check_topic_name(topic))
        return dict(self._connection.call("PATCH", path, json={"config": dict(config)}, repeatable=True)["config"])

    def add_partitions(self, topic: str, partitions: int) -> int:
        """Let a topic have so many partitions in all; how many were added, 0 where it had as many. Partitions are never taken away.

        Records with a key go to ``crc32(key) % partitions``: from now on to another partition than before, so that records of one key
        that were sent before and after stand in two partitions, without an order between them.

        Raises:
            UnknownTopicError: nothing was changed.
            BadRequestError: it has more already. Nothing was changed.
            UnavailableError, OutcomeUnknownError: ask again.
        """
        path = routes.PARTITIONS.format(topic=check_topic_name(topic))
        return int(self._connection.call("POST", path, json={"partitions": partitions}, repeatable=True)["added"])

    def topics(self) -> list[TopicDescription]:
        """All topics by name, without their partitions' details."""
        return sorted((_topic(body) for body in self._get(routes.TOPICS)["topics"]), key=lambda topic: topic.topic)

    def describe_topic(self, topic: str) -> TopicDescription:
        """One topic with its partitions. Raises UnknownTopicError."""
        return _topic(self._get(routes.TOPIC.format(topic=check_topic_name(topic))))

    def brokers(self) -> list[dict[str, Any]]:
        """The brokers: broker_id, host, port, state, draining, how many partitions they hold and lead, last_heartbeat, age_seconds."""
        return list(self._get(routes.BROKERS)["brokers"])

    def add_broker(self, host: str, port: int) -> int:
        """Register the broker that listens at an address; its id. Again is a success.

        Raises:
            BadRequestError, ConflictError: nobody or no broker listens there, or it belongs to another cluster. Nothing was changed.
        """
        return int(self._connection.call("POST", routes.BROKERS, json={"host": host, "port": port}, repeatable=True)["broker_id"])

    def start_broker(self) -> int:
        """Have a broker started, where the managers run under a supervisor on this machine; its id.

        Raises:
            BadRequestError: there is no supervisor.
            OutcomeUnknownError: look at ``brokers()``; asked again, another one is started.
        """
        return int(self._connection.call("POST", routes.BROKERS, json={}, repeatable=False)["broker_id"])

    def drain_broker(self, broker_id: int, *, draining: bool = True) -> None:
        """Let a broker's partitions move away, or (not ``draining``) use it again.

        Raises:
            UnknownBrokerError, RefusedError: there is none, or it holds what nobody else has. Nothing was done.
        """
        self._connection.call("POST", routes.DRAIN.format(broker_id=broker_id), json={"draining": draining}, repeatable=True)

    def remove_broker(self, broker_id: int) -> None:
        """Drain a broker and remove it; stop it afterwards.

        Raises:
            UnknownBrokerError, RefusedError: there is none, or its data would be lost. Nothing was done.
            UnavailableError: it is still being drained, which goes on: ask again.
        """
        self._connection.call("DELETE", routes.BROKER.format(broker_id=broker_id), read_timeout_seconds=REMOVE_SECONDS, repeatable=False)

    def elect_leader(self, topic: str, partition: int, broker_id: int | None = None) -> int:
        """Let a broker lead a partition, or without one the replica whose broker leads the fewest; who leads then.

        The managers keep leaderships even: one that leaves a broker with two more than another is evened out again.

        Raises:
            UnknownTopicError, UnknownPartitionError, BadRequestError, RefusedError: nothing was done.
            UnavailableError: not now; nothing was done.
            OutcomeUnknownError: it was begun, and somebody else may lead; look at ``describe_topic``.
        """
        path = routes.ELECT.format(topic=check_topic_name(topic), partition=partition)
        return int(self._connection.call("POST", path, json={} if broker_id is None else {"broker_id": broker_id}, repeatable=False)["leader"])

    def repair_replica(self, topic: str, partition: int, broker_id: int) -> OffsetRange:
        """Throw a broker's replica of a partition away and have it made again from the others; the offsets that it held.

        It is made afterwards, while the partition serves: the broker is among ``missing`` until that is done.

        Raises:
            UnknownTopicError, UnknownPartitionError, BadRequestError, RefusedError: nothing was done.
            UnavailableError: an election is under way, and was for ``max_block_seconds``. Nothing was done.
            OutcomeUnknownError: look at ``describe_topic``, and ask again once the broker is not among ``missing``.
        """
        path = routes.REPAIR.format(topic=check_topic_name(topic), partition=partition)

        def attempt() -> OffsetRange | OutcomeUnknownError:
            try:
                thrown = self._connection.call("POST", path, json={"broker_id": broker_id}, repeatable=False)
            except OutcomeUnknownError as error:
                return error  # not to be repeated at once: the answer would be about the attempt before
            return OffsetRange(thrown["start_offset"], thrown["end_offset"])

        outcome = self._connection.persistently(attempt, self._max_block_seconds)
        if isinstance(outcome, OutcomeUnknownError):
            raise outcome
        return outcome

    def wait_for_repair(self, topic: str, partition: int, timeout_seconds: float) -> PartitionDescription:
        """The partition once all its replicas count again.

        Raises:
            UnavailableError: one still does not after this time. It goes on by itself.
        """
        def attempt() -> PartitionDescription:
            now = self._described(topic, partition)
            if now.missing:
                raise UnavailableError(f"partition {partition} of topic {topic} has no whole replica on {list(now.missing)} yet",
                                       missing=list(now.missing))
            return now

        return self._connection.persistently(attempt, timeout_seconds)

    def move_partition(self, topic: str, partition: int, brokers: Sequence[int] | None) -> PartitionDescription:
        """Say on which brokers a partition's replicas are to be, all of them, or (None) stop a move where it stands; the partition as it is then.

        The replicas move afterwards, while the partition serves; ``wanted`` is None when that is done. Its replication factor is the number of
        these brokers from now on. One of them that is down is waited for, and nobody gives its replica up meanwhile. Again is a success.

        Raises:
            UnknownTopicError, UnknownPartitionError, UnknownBrokerError, BadRequestError: nothing was changed.
            RefusedError: one of the brokers is being drained. Nothing was changed.
        """
        path = routes.MOVE.format(topic=check_topic_name(topic), partition=partition)
        return _partition(self._connection.call("POST", path, json={"brokers": None if brokers is None else list(brokers)}, repeatable=True))

    def wait_for_move(self, topic: str, partition: int, timeout_seconds: float) -> PartitionDescription:
        """The partition once it is not moving any more.

        Raises:
            UnavailableError: it still is after this time. The move goes on.
        """
        def attempt() -> PartitionDescription:
            now = self._described(topic, partition)
            if now.wanted is not None:
                raise UnavailableError(f"partition {partition} of topic {topic} is still moving from {list(now.replicas)} to {list(now.wanted)}",
                                       replicas=list(now.replicas), wanted=list(now.wanted))
            return now

        return self._connection.persistently(attempt, timeout_seconds)

    def _described(self, topic: str, partition: int) -> PartitionDescription:
        return next(at for at in self.describe_topic(topic).partition_list if at.partition == partition)

    def health(self) -> dict[str, Any]:
        """Liveness of every broker, manager, producer and consumer, by its last heartbeat."""
        return self._get(routes.HEALTH)

    def managers(self) -> list[dict[str, Any]]:
        """The members of the managers' group: node_id, url, role, state, voter, disk_id."""
        return list(self._get(routes.MANAGERS)["managers"])

    def add_manager(self, node_id: int, url: str) -> dict[str, Any]:
        """Add the manager that runs at an address: it gets the log, and a vote once it has caught up. Again is a success.

        Raises:
            BadRequestError, ConflictError: nobody or somebody else is there, or another change is under way; nothing was changed.
        """
        return self._connection.call("POST", routes.MANAGERS, json={"node_id": node_id, "url": url}, repeatable=True)

    def remove_manager(self, node_id: int) -> None:
        """Remove a manager from the group; stop it afterwards.

        Raises:
            NotFoundError: it is no member.
            RefusedError: too few of those left answer, another change is under way, or it is the last one; nothing was changed.
            OutcomeUnknownError: look at ``managers()``.
        """
        self._connection.call("DELETE", routes.MANAGER.format(node_id=node_id), repeatable=False)

    def recovery(self, topic: str) -> list[dict[str, Any]]:
        """The partitions that have lost the majority of their replicas: what survives of each and what may be lost without the rest."""
        return list(self._get(routes.RECOVERY.format(topic=check_topic_name(topic)))["partitions"])

    def recover(self, topic: str, partitions: Sequence[int] | None = None) -> list[dict[str, Any]]:
        """Let partitions without a majority (by default all of the topic's) go on with the replicas that are left. What only the others held is lost.

        Raises:
            RefusedError: one of them has its majority, or nothing is left of it. Nothing was done.
        """
        body: dict[str, Any] = {"accept_loss": True, **({} if partitions is None else {"partitions": list(partitions)})}
        return list(self._connection.call("POST", routes.RECOVERY.format(topic=check_topic_name(topic)), json=body, repeatable=False)["partitions"])

    def offsets(self, topic: str) -> dict[TopicPartition, OffsetRange]:
        """Each partition's earliest offset and committed end, as its leader knows them. Raises UnknownTopicError."""
        return {partition: self._offsets(partition) for partition in self._partitions(topic)}

    def trim(self, topic: str, partition: int, before_offset: int) -> int:
        """Drop a partition's messages below an offset, for all consumers and for good; the first offset that is left.

        Again is a success. The disk is given back later.

        Raises:
            UnknownTopicError, UnknownPartitionError: nothing was done.
            OffsetOutOfRangeError: the offset lies above the end, which it names. Nothing was done.
            OutcomeUnknownError: nobody knows whether it was done; do it again.
        """
        place = TopicPartition(check_topic_name(topic), partition)
        path, body = routes.TRIM.format(topic=topic, partition=partition), json.dumps({"before_offset": before_offset}).encode()
        self._partitions(topic)
        return int(self._persistent_call(place, "POST", path, headers={"Content-Type": "application/json"}, body=body)["start_offset"])

    def lag(self, topic: str, consumer_id: int) -> list[PartitionLag]:
        """How far a consumer is, by partition; where it has committed nothing it stands at the earliest offset.

        Raises:
            UnknownTopicError, UnknownConsumerError: no such topic, or the consumer is not registered for it.
        """
        body = self._get(routes.LAG.format(topic=check_topic_name(topic)), {"consumer_id": consumer_id})
        return [PartitionLag(topic, at["partition"], at["start_offset"] if at["offset"] is None else at["offset"], at["start_offset"],
                             at["end_offset"]) for at in body["partitions"]]

    def groups(self) -> list[dict[str, Any]]:
        """The consumer groups: group, group_id, generation, strategy, start, members (how many)."""
        return list(self._get(routes.GROUPS)["groups"])

    def describe_group(self, group: str) -> dict[str, Any]:
        """One group, and in ``member_list`` what each member reads. Raises UnknownGroupError."""
        return self._get(routes.GROUP.format(group=check_group_name(group)))

    def group_lag(self, group: str, topics: Sequence[str] = ()) -> list[PartitionLag]:
        """How far a group is, by partition: in these topics, or in those that its members read; without members, wherever it has committed.

        Raises:
            UnknownGroupError, UnknownTopicError.
        """
        path = routes.GROUP_OFFSETS.format(group=check_group_name(group))
        body = self._get(path, {"topic": [check_topic_name(topic) for topic in topics]})
        return [PartitionLag(one["topic"], one["partition"], one["start_offset"] if one["offset"] is None else one["offset"], one["start_offset"],
                             one["end_offset"]) for one in body["offsets"]]

    def set_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int | str]) -> dict[TopicPartition, int]:
        """Let a group without members go on from other offsets (``"earliest"``, ``"latest"`` or a number); the offsets set.

        Raises:
            UnknownGroupError, UnknownTopicError, UnknownPartitionError: nothing was done.
            RefusedError: it has members. Nothing was done.
            OffsetOutOfRangeError: others of them may have been set.
        """
        body = {"offsets": [{"topic": one.topic, "partition": one.partition, "offset": offset} for one, offset in offsets.items()]}
        done = self._connection.call("PUT", routes.GROUP_OFFSETS.format(group=check_group_name(group)), json=body, repeatable=True)
        return {TopicPartition(one["topic"], one["partition"]): one["offset"] for one in done["offsets"]}

    def delete_group(self, group: str) -> None:
        """Forget a group without members, and where it stands. Raises UnknownGroupError; RefusedError where it has members."""
        self._connection.call("DELETE", routes.GROUP.format(group=check_group_name(group)), repeatable=False)

    def search(self, topic: str, *, key: bytes | str | None = None, from_us: int | None = None, to_us: int | None = None,
               page_records: int = 1_000) -> Iterator[Message]:
        """Every message with this key, or appended from one time (inclusive) to another (exclusive), or both; by partition and offset.

        All partitions are looked at, whatever the key. What is appended after the first message was asked for is not among them. The brokers
        look through what they hold: a search by key through a large topic takes its time.

        Args:
            from_us, to_us: microseconds since 1970, of the brokers' clocks.
            page_records: asked for at a time, at most 1,000.

        Raises:
            UnknownTopicError: no such topic.
            ConflictError: the topic was deleted, and created again, in the middle of it.
        """
        raw = key.encode() if isinstance(key, str) else key
        asked: dict[str, Any] = {} if raw is None else {"key_base64": base64.b64encode(raw).decode()}
        asked |= {name: value for name, value in (("from_timestamp", from_us), ("to_timestamp", to_us)) if value is not None}
        path, cursor = routes.SEARCH.format(topic=check_topic_name(topic)), None
        while True:
            page = self._get(path, {**asked, "max_records": page_records, **({} if cursor is None else {"cursor": cursor})})
            for one in page["records"]:
                yield wire.message_from_json(one, topic=topic, partition=one["partition"])
            cursor = page["cursor"]
            if cursor is None:
                return

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> AdminClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _get(self, path: str, params: Mapping[str, Any] | None = None) -> Any:
        return self._connection.persistently(lambda: self._connection.call("GET", path, params=params), self._max_block_seconds)

    def _partitions(self, topic: str) -> list[TopicPartition]:
        self.describe_topic(topic)  # the error of a topic that is not there
        snapshot = self._connection.refresh_until([topic], self._max_block_seconds)
        return [partition for partition in sorted(snapshot.partitions) if partition.topic == topic]

    def _offsets(self, partition: TopicPartition) -> OffsetRange:
        body = self._persistent_call(partition, "GET", routes.PARTITION.format(topic=partition.topic, partition=partition.partition))
        return OffsetRange(body["start_offset"], body["end_offset"])

    def _persistent_call(self, partition: TopicPartition, method: str, path: str, **arguments: Any) -> Any:
        """A call to a partition's leader that may be made twice."""
        def attempt() -> Any:
            if self._connection.is_stale:
                self._connection.refresh(when_stale=True)
            return self._connection.partition_call(partition, method, path, repeatable=True, **arguments).json()

        return self._connection.persistently(attempt, self._max_block_seconds)


def _topic(body: Mapping[str, Any]) -> TopicDescription:
    partitions = tuple(map(_partition, body.get("partition_list", ())))
    return TopicDescription(body["topic"], body["topic_id"], body["partitions"], body["replication_factor"], body.get("config") or {}, partitions)


def _partition(body: Mapping[str, Any]) -> PartitionDescription:
    wanted = body.get("wanted")
    return PartitionDescription(body["partition"], body["leader"], tuple(body["replicas"]), body["epoch"], body["status"],
                                None if wanted is None else tuple(wanted), tuple(body.get("missing", ())))
