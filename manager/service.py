"""What a manager does for its callers with topics, registrations and brokers: propose, let brokers know, answer."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from db.metadata_store import PartitionRow
from manager.appointer import Appointer
from manager.brokers import Brokers
from manager.catalogue import Catalogue, Topic, appointment, holders_of, replicas_of
from manager.cluster import commands
from manager.cluster.condition import conditions
from manager.cluster.liveness import State
from manager.heartbeats import HeartbeatBook, Liveness
from manager.node.role import Role
from manager.node.transport import Peers
from manager.proposer import Proposer
from manager.records import Records
from manager.replica import Replica
from myqueue.clock import Clock
from myqueue.errors import (
    BY_CODE,
    BadRequestError,
    ConflictError,
    MyQueueError,
    NotFoundError,
    OutcomeUnknownError,
    RefusedError,
    UnavailableError,
    UnknownBrokerError,
)
from myqueue.protocol.limits import FACTOR_MAX, TOPICS_MAX
from myqueue.protocol.names import check_topic_name, parse_integer
from myqueue.protocol.topic_config import check_config
from myqueue.protocol.types import NodeAddress, PartitionId

PAUSE_SECONDS = 0.1
LISTED_MAX = 100  # partitions named in an answer about health; their number is told too
TWO_REPLICAS = "with two replicas the death of either broker stops the writes: a majority of two is both"


@contextmanager
def _once_done(what: str) -> Iterator[None]:
    """Around all that follows a command that is done: a failure there may not say that nothing was done."""
    try:
        yield
    except OutcomeUnknownError:
        raise
    except UnavailableError as error:
        raise OutcomeUnknownError(f"{what}, but {error.message}", **error.details) from error


class ManagerService:
    """The operations on metadata. Each returns when it is committed by a majority of the managers and applied here."""

    def __init__(self, *, proposer: Proposer, replica: Replica, records: Records, brokers: Brokers, appointer: Appointer, book: HeartbeatBook,
                 liveness: Liveness, peers: Peers, role: Role, clock: Clock, pause: Callable[[float], Any],
                 appoint_timeout_seconds: float, propose_timeout_seconds: float, drain_wait_seconds: float) -> None:
        self._proposer, self._replica, self._records, self._brokers, self._appointer = proposer, replica, records, brokers, appointer
        self._book, self._liveness, self._peers, self._role, self._clock, self._pause = book, liveness, peers, role, clock, pause
        self._appoint_timeout_seconds, self._propose_timeout_seconds = appoint_timeout_seconds, propose_timeout_seconds
        self._drain_wait_seconds = drain_wait_seconds

    # --- topics ---

    def create_topic(self, name: str, *, partitions: int = 1, replication_factor: int | None = None, config: Any = None) -> dict[str, Any]:
        """Create a topic; when this returns, every partition has a leader that takes records.

        Args:
            replication_factor: as many replicas of each partition, on different brokers; by default as many as brokers are alive, at most three.

        Raises:
            TopicExistsError, BadRequestError, RefusedError, UnavailableError: nothing was created.
            OutcomeUnknownError: it may exist, or exists but not every leader has taken its partitions yet.
        """
        name, config = check_topic_name(name), check_config(config)
        self._check_factor(replication_factor)
        created = self._proposer.propose(commands.CreateReplicatedTopic(name, partitions, replication_factor, config))
        self._have_appointed([name])
        return created if created["replication_factor"] != 2 else {**created, "warning": TWO_REPLICAS}

    def _check_factor(self, factor: int | None) -> None:
        """Raises RefusedError where there are not as many brokers: that is no matter of waiting until they are alive."""
        if factor is None or factor > FACTOR_MAX:
            return

        def look(known: Catalogue) -> None:
            count = len(known.brokers)
            if count < factor:
                raise UnknownBrokerError(f"replication_factor {factor} needs as many brokers, there {'is' if count == 1 else 'are'} {count}; nothing "
                                         "was created", argument="replication_factor", brokers=count)

        try:
            self._replica.certain(look)
        except UnknownBrokerError as error:
            raise RefusedError(error.message, **error.details) from None

    def alter_topic(self, name: str, changes: Any) -> dict[str, Any]:
        """Change fields of a topic's config, None takes one out; the topic with its config as it is then. Brokers learn it soon.

        Raises:
            UnknownTopicError, BadRequestError: nothing was changed.
            ConflictError: the topic was deleted meanwhile, and created again. Nothing was changed.
        """
        name, checked = check_topic_name(name), check_config(changes, removals=True)
        if not checked:
            raise BadRequestError("config must have at least one field", argument="config")
        topic = self._replica.certain(lambda known: known.topic(name))
        return self._proposer.propose(commands.AlterTopic(name, topic.topic_id, checked))

    def delete_topic(self, name: str) -> dict[str, Any]:
        """Delete a topic with its messages and registrations.

        When this returns, the brokers that answer have dropped it: a produce that begins afterwards is not taken for it any more, though the
        client's or a balancer's picture is old. A broker that cannot be reached drops it when it is.
        """
        catalogue = self._replica.catalogue()
        topic = catalogue.topics.get(check_topic_name(name))
        deleted = self._proposer.propose(commands.DeleteTopic(name))
        if topic is not None and topic.topic_id == deleted["topic_id"]:
            self._have_dropped(topic, catalogue)
        return deleted

    def _have_dropped(self, topic: Topic, catalogue: Catalogue) -> None:
        """Have a deleted topic dropped everywhere at once; where that fails the appointer goes on."""
        holders = {broker_id for row in topic.partitions for broker_id in holders_of(row)}

        def drop(broker_id: int) -> Callable[[], None]:
            return lambda: self._brokers.drop(broker_id, catalogue.address(broker_id), [topic.topic_id])

        self._brokers.each([drop(broker_id) for broker_id in sorted(holders & set(catalogue.brokers))])

    def add_partition(self, name: str) -> int:
        """One partition more; its number. Raises like ``create_topic``."""
        partition = self._proposer.propose(commands.AddPartition(check_topic_name(name)))["partition"]
        self._have_appointed([name])
        return partition

    def add_partitions(self, name: str, partitions: int) -> dict[str, Any]:
        """Let a topic have so many partitions in all; how many were ``added``, each with a leader that takes records. Again changes nothing.

        Records with a key go to other partitions from then on. Raises like ``create_topic``, and:

        Raises:
            UnknownTopicError: nothing was changed.
            BadRequestError: it has more already. Nothing was changed.
            ConflictError: the topic was deleted meanwhile, and created again. Nothing was changed.
        """
        name = check_topic_name(name)
        topic = self._replica.certain(lambda known: known.topic(name))
        made = self._proposer.propose(commands.AddPartitions(name, topic.topic_id, partitions))
        self._have_appointed([name])
        return made

    def move_partition(self, name: str, partition: int, brokers: Sequence[int] | None) -> PartitionRow:
        """Say on which brokers a partition's replicas are to be, or (None) let a move stop where it stands; the partition as it is then.

        The replicas move afterwards, step by step, while the partition serves; that is done when its ``wanted`` is None again. As many replicas as
        brokers are named are its replication factor from now on; where a move was stopped, as many as it has.

        Raises:
            UnknownTopicError, UnknownPartitionError, UnknownBrokerError, BadRequestError: nothing was changed.
            RefusedError: one of the brokers is being drained. Nothing was changed.
        """
        topic = self._replica.certain(lambda known: known.topic(name))
        topic.partition(partition)
        move = commands.Move(topic.topic_id, partition, None if brokers is None else tuple(brokers))
        [item] = self._proposer.propose(commands.MovePartitions((move,)))["items"]
        if not item["ok"]:
            raise BY_CODE[item["error"]](item["message"])
        with _once_done("the partition is to move"):
            return self._replica.certain(lambda known: known.topic(name)).partition(partition)

    # --- registrations ---

    def register_producers(self, names: Sequence[str], *, create: bool = True) -> dict[str, int]:
        """A producer id for each topic, which is created where it is missing. Raises like ``create_topic``."""
        self._check_names(names)
        there = self._replica.catalogue().topics
        made = self._proposer.propose(commands.RegisterProducers(tuple(names), create, replicate=True))["producers"]
        self._have_appointed([name for name in made if name not in there])
        self._appoint([there[name] for name in made if name in there])  # one that another call creates just now; a failure is not ours
        ids = {name: registration["producer_id"] for name, registration in made.items()}
        for producer_id in ids.values():
            self._book.heard("producer", producer_id)
        return ids

    def register_consumers(self, names: Sequence[str], *, start: str = "earliest") -> dict[str, dict[str, int]]:
        """A consumer id for each topic, with the number of its partitions.

        Raises:
            UnknownTopicError: names every topic that is not there; nothing was registered.
            OutcomeUnknownError: they may be registered, or are but do not everywhere begin at the latest message.
        """
        self._check_names(names)
        if start not in ("earliest", "latest"):
            raise BadRequestError("start must be earliest or latest", argument="start")
        made = self._proposer.propose(commands.RegisterConsumers(tuple(names), start))["consumers"]
        with _once_done("the consumers are registered"):
            for name, registration in made.items():
                self._book.heard("consumer", registration["consumer_id"])
                if start == "latest":
                    self._records.pin_latest(consumer_id=registration["consumer_id"], topic_name=name)
        return {name: {"consumer_id": one["consumer_id"], "partitions": one["partitions"]} for name, one in made.items()}

    # --- brokers ---

    def add_broker(self, address: NodeAddress) -> int:
        """Register the broker that listens at an address; its id.

        Raises:
            BadRequestError: nobody listens there, or no broker.
            ConflictError: it belongs to another cluster.
        """
        try:
            identity = self._brokers.identity(address)
        except MyQueueError as error:
            raise BadRequestError(f"{error.message}", host=address.host, port=address.port) from error
        ours = self._replica.cluster_id()
        if not isinstance(identity, dict) or "disk_id" not in identity or "broker_id" not in identity:
            raise BadRequestError(f"what listens at {address.host}:{address.port} is not a broker")
        if identity.get("cluster_id") not in (None, ours):
            raise ConflictError(f"the broker at {address.host}:{address.port} belongs to another cluster")
        body = {**identity, "host": address.host, "port": address.port}
        return self.register_broker(body, forwarded=False)["broker_id"]

    def start_broker(self, spawn: Callable[[], NodeAddress]) -> int:
        """Have a broker started and register it; its id.

        Raises:
            OutcomeUnknownError: it was started and could not be registered here; it goes on presenting itself. Else what ``spawn`` raises.
        """
        address = spawn()
        try:
            return self.add_broker(address)
        except MyQueueError as error:
            raise OutcomeUnknownError(f"a broker was started at {address.host}:{address.port}, but {error.message}") from error

    def register_broker(self, body: Mapping[str, Any], *, forwarded: bool) -> dict[str, Any]:
        """A broker presents itself: its id, the same for the same disk."""
        if not self._role.is_write_manager and not forwarded:
            return self._peers.register_broker(self._role.require_leader(), body, timeout_seconds=self._propose_timeout_seconds + 0.5)
        command, cluster_id = _add_broker(body), self._replica.cluster_id()
        catalogue = self._replica.fresh()  # a leader that was just elected may not have heard of it yet
        known = {row.disk_id: row.broker_id for row in catalogue.brokers.values()}
        claimed = body.get("broker_id")
        if claimed is not None and known.get(command.disk_id, claimed) != claimed:
            raise ConflictError(f"this disk is broker {known[command.disk_id]} here, not broker {claimed}")
        if claimed is not None and command.disk_id not in known and not any(row.broker_id == claimed for row in catalogue.brokers.values()):
            raise ConflictError(f"this disk says that it is broker {claimed}, which is not known here: it was removed, or belongs to another cluster")
        broker_id = self._proposer.propose(self._replacement(command, claimed) or command)["broker_id"]
        self._book.heard("broker", broker_id)
        with _once_done(f"broker {broker_id} is registered"):
            self._book.flush()  # new partitions may be placed on it from now on
        return {"broker_id": broker_id, "cluster_id": cluster_id}

    def _replacement(self, command: commands.AddBroker, claimed: int | None) -> commands.ReplaceDisk | None:
        """A disk that is new here, of a broker that is known by its id or address and is silent: its old disk was lost or restored."""
        brokers = self._replica.catalogue().brokers.values()
        if any(row.disk_id == command.disk_id for row in brokers):
            return None
        before = next((row for row in brokers if row.broker_id == claimed or (row.host, row.port) == (command.host, command.port)), None)
        if before is None:
            return None
        if (before.host, before.port) != (command.host, command.port) and self._liveness.broker_states().get(before.broker_id) is State.ALIVE:
            raise ConflictError(f"broker {before.broker_id} lives with another disk at {before.host}:{before.port}")
        return commands.ReplaceDisk(before.broker_id, before.disk_id, command.disk_id, command.host, command.port, command.database)

    def drain_broker(self, broker_id: int, *, draining: bool = True) -> dict[str, Any]:
        """Let a broker's partitions move away, or (not ``draining``) use it again.

        Raises:
            RefusedError: it holds what nobody else has, and there is nobody to take it. Nothing was done.
            StaleMetadataError: what was done before cannot be known here now. Nothing was done.
        """
        if draining:
            self._check_drainable(broker_id)
        return self._proposer.propose(commands.DrainBroker(broker_id, draining))

    def remove_broker(self, broker_id: int) -> None:
        """Drain a broker and remove it once it holds nothing.

        Raises:
            RefusedError: its data would be lost. Nothing was done.
            UnavailableError: it is still being drained, which goes on: ask again.
        """
        self.drain_broker(broker_id)
        end = self._clock.monotonic() + self._drain_wait_seconds
        while held := self._held(broker_id):
            if self._clock.monotonic() >= end:
                raise UnavailableError(f"broker {broker_id} is being drained and still holds {held} partition(s): ask again", partitions=held)
            self._pause(PAUSE_SECONDS)
        self._proposer.propose(commands.RemoveBroker(broker_id))

    def _held(self, broker_id: int) -> int:
        return sum(1 for topic in self._replica.catalogue().topics.values() for row in topic.partitions if str(broker_id) in row.voters)

    def _check_drainable(self, broker_id: int) -> None:
        catalogue = self._replica.fresh()
        disk_id, states = catalogue.broker(broker_id).disk_id, self._liveness.broker_states()
        live = {one.broker_id: one.disk_id for one in catalogue.brokers.values()
                if states.get(one.broker_id) is State.ALIVE and one.status == "ACTIVE" and one.broker_id != broker_id}
        alone = 0
        for topic in catalogue.topics.values():
            for row in topic.partitions:
                if str(broker_id) not in row.voters:
                    continue
                stays = any(row.voters.get(str(other)) == disk for other, disk in live.items())
                moves = states.get(broker_id) is State.ALIVE and row.voters[str(broker_id)] == disk_id and any(
                    str(other) not in row.voters for other in live)
                alone += not (stays or moves)
        if alone:
            raise RefusedError(f"Broker {broker_id} holds the only replica of {alone} partition(s) that no other broker can take now: its removal "
                               "would lose their messages", partitions=alone)

    # --- who is there ---

    def health(self, *, forwarded: bool = False) -> dict[str, Any]:
        """Every actor with its state, and the partitions that are not as they should be.

        As the write manager knows it; as this one does where that cannot be asked.
        """
        if not self._role.is_write_manager and not forwarded:
            try:
                return self._peers.health(self._role.require_leader())
            except UnavailableError:
                pass  # what was heard here is the next best answer
        found: dict[str, Any] = {"brokers": [], "managers": [], "producers": [], "consumers": []}
        for row, state in self._liveness.rows(("broker", "manager", "producer", "consumer")):
            found[f"{row.type}s"].append({"id": row.actor_id, f"{row.type}_id": row.actor_id, "state": state.value,
                                          "age_seconds": round(row.age_seconds, 3), "last_heartbeat": row.last_updated_us or None})
        return {**found, "partitions": self._partitions_health()}

    def _partitions_health(self) -> dict[str, Any]:
        catalogue = self._replica.catalogue()
        names = {topic.topic_id: topic.name for topic in catalogue.topics.values()}
        rows = [replicas_of(row) for topic in catalogue.topics.values() for row in topic.partitions]
        found = conditions(rows, self._liveness.outlook(catalogue))

        def told(partitions: Sequence[PartitionId]) -> dict[str, Any]:
            listed = [{"topic": names[one.topic_id], "partition": one.partition} for one in partitions[:LISTED_MAX]]
            return {"count": len(partitions), "partitions": listed}

        return {"count": len(rows), "leaderless": told(found.leaderless), "under_replicated": told(found.under_replicated),
                "without_majority": told(found.without_majority)}

    def draining_brokers(self) -> set[int]:
        """The brokers whose partitions are to move away."""
        return {row.broker_id for row in self._replica.catalogue().brokers.values() if row.status == "DRAINING"}

    def broker_list(self) -> list[dict[str, Any]]:
        """The brokers with their address, state and how many partitions they hold and lead."""
        seen = {one["id"]: one for one in self.health()["brokers"]}
        catalogue = self._replica.catalogue()
        rows = []
        for broker_id, broker in sorted(catalogue.brokers.items()):
            held = sum(1 for topic in catalogue.topics.values() for row in topic.partitions if str(broker_id) in row.voters)
            health = seen.get(broker_id, {})
            rows.append({"broker_id": broker_id, "host": broker.host, "port": broker.port, "state": health.get("state", "dead"),
                         "last_heartbeat": health.get("last_heartbeat"), "age_seconds": health.get("age_seconds"),
                         "partitions": held, "leaders": len(catalogue.led_by(broker_id))})
        return rows

    # --- appointments ---

    def _have_appointed(self, names: Sequence[str]) -> None:
        """Wait, bounded, until the leaders of these topics, which are created, have taken their partitions.

        Raises:
            OutcomeUnknownError: not all have, or what this manager knows could not be looked at.
        """
        end = self._clock.monotonic() + self._appoint_timeout_seconds
        while names:
            failure = self._appoint_all(names)
            if failure is None:
                return
            if self._clock.monotonic() + PAUSE_SECONDS >= end:
                raise OutcomeUnknownError(f"{', '.join(map(repr, names))}: created, but not every leader has taken its partitions yet: "
                                          f"{failure.message}", **failure.details)
            self._pause(PAUSE_SECONDS)

    def _appoint_all(self, names: Sequence[str]) -> MyQueueError | None:
        """One attempt, for topics that were just created; the first failure. One that is gone again needs no leader."""
        topics = []
        for name in names:
            try:
                topics.append(self._replica.certain(lambda known, name=name: known.topic(name)))
            except NotFoundError:
                continue
            except UnavailableError as error:
                return error
        return self._appoint(topics)

    def _appoint(self, topics: Sequence[Topic]) -> MyQueueError | None:
        """Tell every leader that is not known to have taken its partitions, one call a broker; the first failure."""
        try:
            catalogue = self._replica.catalogue()
        except UnavailableError as error:
            return error
        groups: dict[int, list[tuple[Topic, PartitionRow]]] = {}
        for topic in topics:
            for row in topic.partitions:
                try:
                    broker_id, _ = catalogue.leader(topic, row)
                except UnavailableError as error:
                    return error  # its first leader has died already: the election comes
                if not self._appointer.has(broker_id, row):
                    groups.setdefault(broker_id, []).append((topic, row))

        def tell(broker_id: int, group: Sequence[tuple[Topic, PartitionRow]]) -> Callable[[], None]:
            return lambda: self._appointer.tell(broker_id, catalogue.address(broker_id), [(row, appointment(topic, row)) for topic, row in group])

        if not groups:
            return None
        outcomes = self._brokers.each([tell(broker_id, group) for broker_id, group in groups.items()])
        return next((outcome for outcome in outcomes if isinstance(outcome, MyQueueError)), None)

    @staticmethod
    def _check_names(names: Sequence[str]) -> None:
        if not 1 <= len(names) <= TOPICS_MAX:
            raise BadRequestError(f"from 1 to {TOPICS_MAX} topics may be registered at a time, not {len(names)}", argument="topics")
        for name in names:
            check_topic_name(name)



def _add_broker(body: Mapping[str, Any]) -> commands.AddBroker:
    """The command for what a broker says of itself; of its database only what may be told to anybody."""
    try:
        disk_id = str(uuid.UUID(str(body["disk_id"])))
        database = body["database"]
        told = {"host": _text(database["host"]), "port": parse_integer(database["port"], name="database.port", minimum=1, maximum=65_535),
                "name": _text(database["name"]), "user": _text(database["user"])}
        return commands.AddBroker(disk_id, _text(body["host"]), parse_integer(body["port"], name="port", minimum=1, maximum=65_535), told)
    except (KeyError, TypeError, ValueError):
        raise BadRequestError("a broker says disk_id, host, port, and database with host, port, name and user") from None


def _text(value: Any) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= 255 or not value.isprintable():
        raise TypeError("a text is due")
    return value
