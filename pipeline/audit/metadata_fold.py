"""PURE: what the metadata tables must hold, given the WAL's commands.

Written from the meaning of the commands alone and apart from the managers' own ``apply`` (the pipeline imports no
service): a second opinion, so that a fault in one of the two shows as a difference. A command that cannot be applied
changes nothing; a command that a client repeated (same client and sequence) is applied once, for as long as the client is
remembered: it is forgotten, on every manager at the same entry, after SESSION_KEPT_ENTRIES without a command of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from myqueue.errors import BadRequestError
from myqueue.protocol.names import check_group_name, check_topic_name

from .partition_fold import FACTOR_MAX, ITEMS, without_wish

Row = dict[str, Any]
KEYS = {"cluster": (), "id_counter": ("kind",), "member": ("node_id",), "broker": ("broker_id",), "topic": ("topic_id",),
        "partition": ("topic_id", "partition"), "producer": ("producer_id", "topic_id"), "consumer": ("consumer_id", "topic_id"),
        "consumer_group": ("group_id",), "group_member": ("member_id",)}
OF_TOPIC = ("topic", "partition", "producer", "consumer")
PARTITIONS_MAX = 10_000
DEFAULT_FACTOR = 3
STRATEGIES, SESSION_MS, INSTANCE_MAX = ("sticky", "range", "round_robin"), (6_000, 3_600_000), 255
SESSION_KEPT_ENTRIES, SESSION_CHECK_ENTRIES = 100_000, 1_000


class NotApplicableError(Exception):
    """The command was refused: it changes nothing."""


class UnknownCommandError(Exception):
    """A type of command that this code does not know: nothing can be said about what follows."""


@dataclass(slots=True)
class Metadata:
    """The tables as rows by key; ``cluster`` has one row with the key ()."""

    tables: dict[str, dict[tuple, Row]] = field(default_factory=lambda: {table: {} for table in KEYS})
    written_at: dict[tuple[str, tuple], int] = field(default_factory=dict)  # which WAL index wrote a row (or removed it) last
    sessions: dict[str, tuple[int, int]] = field(default_factory=dict)  # client → its last sequence, and at which index

    def topic_named(self, name: str) -> Row | None:
        return next((row for row in self.tables["topic"].values() if row["name"] == name), None)

    def partitions_of(self, topic_id: int) -> list[Row]:
        return [row for row in self.tables["partition"].values() if row["topic_id"] == topic_id]


def fold(metadata: Metadata, index: int, command: Mapping[str, Any], client_id: str | None = None, client_seq: int | None = None) -> None:
    """Apply the committed entry at ``index``. Raises UnknownCommandError."""
    repeated = client_id is not None and client_seq is not None and client_seq <= metadata.sessions.get(client_id, (-1, 0))[0]
    if not repeated:
        _apply(metadata, index, command)
        if client_id is not None and client_seq is not None:
            metadata.sessions[client_id] = (client_seq, index)
    if index % SESSION_CHECK_ENTRIES == 0:
        oldest = index - SESSION_KEPT_ENTRIES
        metadata.sessions = {client: session for client, session in metadata.sessions.items() if session[1] >= oldest}


def _apply(metadata: Metadata, index: int, command: Mapping[str, Any]) -> None:
    handler = HANDLERS.get(command.get("type", ""))
    if handler is None:
        raise UnknownCommandError(f"there is no command of type {command.get('type')!r}")
    draft = _Draft(metadata)
    try:
        handler(draft, command)
    except (NotApplicableError, BadRequestError):
        return
    draft.write(index)


class _Draft:
    """A command's changes, kept apart until it is known that it applies as a whole."""

    def __init__(self, metadata: Metadata) -> None:
        self.now = metadata
        self.put_rows: dict[tuple[str, tuple], Row] = {}
        self.gone_topics: list[int] = []
        self.gone_members: list[int] = []
        self.gone: list[tuple[str, tuple]] = []

    def write(self, index: int) -> None:
        for topic_id in self.gone_topics:
            for table in OF_TOPIC:
                rows = self.now.tables[table]
                for key in [key for key, row in rows.items() if row["topic_id"] == topic_id]:
                    del rows[key]
                    self.now.written_at[table, key] = index
        for node_id in self.gone_members:
            if self.now.tables["member"].pop((node_id,), None):
                self.now.written_at["member", (node_id,)] = index
        for table, key in self.gone:
            del self.now.tables[table][key]
            self.now.written_at[table, key] = index
        for (table, key), row in self.put_rows.items():
            self.now.tables[table][key] = row
            self.now.written_at[table, key] = index

    def put(self, table: str, row: Row) -> None:
        self.put_rows[table, tuple(row[name] for name in KEYS[table])] = row

    def next_id(self, kind: str) -> int:
        row = self.put_rows.get(("id_counter", (kind,))) or self.now.tables["id_counter"].get((kind,)) or {"last_id": 0}
        self.put("id_counter", {"kind": kind, "last_id": row["last_id"] + 1})
        return row["last_id"] + 1

    def topic(self, name: str) -> Row | None:
        made = (row for (table, _), row in self.put_rows.items() if table == "topic" and row["name"] == name)
        return next(made, None) or self.now.topic_named(name)

    def require_topic(self, name: str) -> Row:
        topic = self.topic(check_topic_name(name))
        if topic is None:
            raise NotApplicableError(f"no topic {name}")
        return topic

    def takers(self, live: Any) -> dict[int, Row]:
        """The brokers that new replicas may go to."""
        active = {row["broker_id"]: row for row in self.now.tables["broker"].values()
                  if row["status"] == "ACTIVE" and row["broker_id"] in (live or ())}
        if not active:
            raise NotApplicableError("no live broker")
        return active

    def place(self, topic_id: int, first: int, count: int, active: Mapping[int, Row], factor: int, absent: Sequence[int]) -> None:
        """New partitions: led by who leads the fewest (of those that are not absent, where there are any), the other replicas on who holds the
        fewest, the lowest id among equals.
        """
        leading = [one for one in active if one not in absent] or list(active)
        led, held = dict.fromkeys(active, 0), dict.fromkeys(active, 0)
        placed = [row for (table, _), row in self.put_rows.items() if table == "partition"]
        for row in [*self.now.tables["partition"].values(), *placed]:
            for broker_id in active:
                led[broker_id] += row["leader"] == broker_id
                held[broker_id] += str(broker_id) in row["voters"]
        for partition in range(first, first + count):
            leader = min(leading, key=lambda one: (led[one], one))
            others = sorted((one for one in active if one != leader), key=lambda one: (held[one], one))[:factor - 1]
            led[leader] += 1
            for broker_id in (leader, *others):
                held[broker_id] += 1
            self.put("partition", {"topic_id": topic_id, "partition": partition, "replication_factor": factor, "epoch": 1, "status": "ACTIVE",
                                   "leader": leader, "voters": {str(one): active[one]["disk_id"] for one in (leader, *others)}, "learners": [],
                                   "wanted": None})

    def create_topic(self, name: str, partitions: int, factor: int | None, config: Row, command: Mapping[str, Any]) -> Row:
        """Without a factor as many replicas as brokers are there, up to three."""
        active = self.takers(command.get("live_brokers"))
        factor = min(DEFAULT_FACTOR, len(active)) if factor is None else factor
        if factor > len(active):
            raise NotApplicableError("not so many brokers are alive")
        topic = {"topic_id": self.next_id("topic"), "name": name, "replication_factor": factor, "config": config,
                 "created_at": command.get("created_at", 0)}
        self.put("topic", topic)
        self.place(topic["topic_id"], 0, partitions, active, factor, command.get("absent_brokers", ()))
        return topic

    def unwish(self, broker_id: int) -> None:
        """Moves to this broker are given up."""
        for row in self.now.tables["partition"].values():
            after = without_wish(row, broker_id)
            if after is not None:
                self.put("partition", after)

    def known_broker(self, broker_id: int) -> Row:
        row = self.now.tables["broker"].get((broker_id,))
        if row is None or row["status"] == "REMOVED":
            raise NotApplicableError("no such broker")
        return row


def _noop(_draft: _Draft, _command: Mapping[str, Any]) -> None:
    """A leader's marker."""


def _init_cluster(draft: _Draft, command: Mapping[str, Any]) -> None:
    if draft.now.tables["member"]:
        raise NotApplicableError("initialised before")
    draft.put("cluster", {"cluster_id": command["cluster_id"]})
    for member in command["members"]:
        draft.put("member", {**member, "voter": True})


def _set_member(draft: _Draft, command: Mapping[str, Any]) -> None:
    draft.put("member", {name: command[name] for name in ("node_id", "url", "disk_id", "voter")})


def _disk_lost(draft: _Draft, command: Mapping[str, Any]) -> None:
    row = draft.now.tables["member"].get((command["node_id"],))
    if row is not None and row["disk_id"] == command["disk_id"]:
        draft.put("member", {**row, "disk_id": None, "voter": False})


def _remove_member(draft: _Draft, command: Mapping[str, Any]) -> None:
    draft.gone_members.append(command["node_id"])


def _add_broker(draft: _Draft, command: Mapping[str, Any]) -> None:
    known = [row for row in draft.now.tables["broker"].values() if row["disk_id"] == command["disk_id"]]
    broker_id = known[0]["broker_id"] if known else draft.next_id("broker")
    status = "DRAINING" if known and known[0]["status"] == "DRAINING" else "ACTIVE"
    draft.put("broker", {"broker_id": broker_id, "status": status, **{name: command[name] for name in ("disk_id", "host", "port", "database")}})


def _replace_disk(draft: _Draft, command: Mapping[str, Any]) -> None:
    row = draft.known_broker(command["broker_id"])
    taken = any(one["disk_id"] == command["disk_id"] for one in draft.now.tables["broker"].values())
    if row["disk_id"] != command["old_disk_id"] or taken:
        raise NotApplicableError("another disk by now")
    draft.put("broker", {**row, **{name: command[name] for name in ("disk_id", "host", "port", "database")}})


def _drain_broker(draft: _Draft, command: Mapping[str, Any]) -> None:
    status = "DRAINING" if command.get("draining", True) else "ACTIVE"
    draft.put("broker", {**draft.known_broker(command["broker_id"]), "status": status})
    if status == "DRAINING":
        draft.unwish(command["broker_id"])


def _remove_broker(draft: _Draft, command: Mapping[str, Any]) -> None:
    row = draft.known_broker(command["broker_id"])
    if any(str(command["broker_id"]) in one["voters"] for one in draft.now.tables["partition"].values()):
        raise NotApplicableError("it holds partitions")
    draft.put("broker", {**row, "status": "REMOVED"})
    draft.unwish(command["broker_id"])


def _create_topic(draft: _Draft, command: Mapping[str, Any]) -> None:
    if command.get("replication_factor", 1) != 1:
        raise NotApplicableError("this command makes topics with one replica only")
    _create(draft, command, 1)


def _create_replicated_topic(draft: _Draft, command: Mapping[str, Any]) -> None:
    factor = command.get("replication_factor")
    if factor is not None and not 1 <= factor <= FACTOR_MAX:
        raise NotApplicableError("bad factor")
    _create(draft, command, factor)


def _create(draft: _Draft, command: Mapping[str, Any], factor: int | None) -> None:
    name, partitions = check_topic_name(command["topic"]), command.get("partitions", 1)
    if draft.topic(name) is not None or not 1 <= partitions <= PARTITIONS_MAX:
        raise NotApplicableError("exists, or bad numbers")
    draft.create_topic(name, partitions, factor, command.get("config", {}), command)


def _alter_topic(draft: _Draft, command: Mapping[str, Any]) -> None:
    topic = draft.require_topic(command["topic"])
    if topic["topic_id"] != command["topic_id"]:
        raise NotApplicableError("another topic has this name by now")
    changed = {**topic["config"], **command["changes"]}
    draft.put("topic", {**topic, "config": {name: value for name, value in changed.items() if value is not None}})


def _delete_topic(draft: _Draft, command: Mapping[str, Any]) -> None:
    draft.gone_topics.append(draft.require_topic(command["topic"])["topic_id"])


def _add_partition(draft: _Draft, command: Mapping[str, Any]) -> None:
    topic = draft.require_topic(command["topic"])
    first = len(draft.now.partitions_of(topic["topic_id"]))
    if first >= PARTITIONS_MAX:
        raise NotApplicableError("too many partitions")
    active = draft.takers(command.get("live_brokers"))
    draft.place(topic["topic_id"], first, 1, active, topic["replication_factor"], command.get("absent_brokers", ()))


def _add_partitions(draft: _Draft, command: Mapping[str, Any]) -> None:
    topic, wanted = draft.require_topic(command["topic"]), command["partitions"]
    first = len(draft.now.partitions_of(topic["topic_id"]))
    if topic["topic_id"] != command["topic_id"] or not max(first, 1) <= wanted <= PARTITIONS_MAX:
        raise NotApplicableError("another topic has this name by now, or bad numbers")
    if wanted > first:
        active = draft.takers(command.get("live_brokers"))
        draft.place(topic["topic_id"], first, wanted - first, active, topic["replication_factor"], command.get("absent_brokers", ()))


def _partitions(draft: _Draft, command: Mapping[str, Any]) -> None:
    """Elections, learners and moves: each item by itself."""
    for item in command["items"]:
        key = item["topic_id"], item["partition"]
        row = draft.put_rows.get(("partition", key)) or draft.now.tables["partition"].get(key)
        after = None if row is None else ITEMS[command["type"]](row, item, draft.now.tables["broker"])
        if after is not None:
            draft.put("partition", after)


def _register_producers(draft: _Draft, command: Mapping[str, Any]) -> None:
    for name in dict.fromkeys(command["topics"]):
        topic = draft.topic(check_topic_name(name))
        if topic is None:
            if not command.get("create", True):
                raise NotApplicableError(f"no topic {name}")
            topic = draft.create_topic(name, 1, None if command.get("replicate", False) else 1, {}, command)
        draft.put("producer", {"producer_id": draft.next_id("producer"), "topic_id": topic["topic_id"], "created_at": command.get("created_at", 0)})


def _register_consumers(draft: _Draft, command: Mapping[str, Any]) -> None:
    start = command.get("start", "earliest")
    if start not in ("earliest", "latest"):
        raise NotApplicableError("bad start")
    for topic in [draft.require_topic(name) for name in dict.fromkeys(command["topics"])]:
        draft.put("consumer", {"consumer_id": draft.next_id("consumer"), "topic_id": topic["topic_id"], "start": start,
                               "created_at": command.get("created_at", 0)})


# --- consumer groups ---


def _group(draft: _Draft, group_id: int) -> Row:
    group = draft.now.tables["consumer_group"].get((group_id,))
    if group is None:
        raise NotApplicableError("no such group")
    return group


def _members(draft: _Draft, group_id: int) -> list[Row]:
    """As copies, by id."""
    rows = draft.now.tables["group_member"].values()
    return sorted(({**row, "owned": dict(row["owned"])} for row in rows if row["group_id"] == group_id), key=lambda row: row["member_id"])


def _next_generation(draft: _Draft, group: Row, members: list[Row]) -> None:
    """Whatever nobody owns goes to the one it is meant for."""
    generation = group["generation"] + 1
    draft.put("consumer_group", {**group, "generation": generation})
    owned = {name for row in members for name in row["owned"]}
    for row in members:
        row["owned"].update((name, generation) for name in row["wanted"] if name not in owned)
        draft.put("group_member", row)


def _join_group(draft: _Draft, command: Mapping[str, Any]) -> None:
    name, instance = check_group_name(command["group"]), command["instance_id"]
    good = (command["strategy"] in STRATEGIES and command["start"] in ("earliest", "latest") and command["topics"]
            and SESSION_MS[0] <= command["session_timeout_ms"] <= SESSION_MS[1] and 1 <= len(instance) <= INSTANCE_MAX and instance.isprintable())
    if not good:
        raise NotApplicableError("a bad argument")
    for topic in command["topics"]:
        draft.require_topic(topic)
    group = next((row for row in draft.now.tables["consumer_group"].values() if row["name"] == name), None)
    if group is None:
        group = {"group_id": draft.next_id("group"), "name": name, "generation": 0, "strategy": command["strategy"], "start": command["start"],
                 "created_at": command.get("created_at", 0)}
    members = _members(draft, group["group_id"])
    if members and group["strategy"] != command["strategy"]:
        raise NotApplicableError("another strategy")
    generation = group["generation"] + 1
    member = next((row for row in members if row["instance_id"] == instance), None)
    if member is None:
        member = {"member_id": draft.next_id("group_member"), "group_id": group["group_id"], "instance_id": instance, "wanted": [], "owned": {},
                  "created_at": command.get("created_at", 0)}
    draft.put("consumer_group", {**group, "generation": generation, "strategy": command["strategy"]})
    draft.put("group_member", {**member, "topics": sorted(set(command["topics"])), "session_timeout_ms": command["session_timeout_ms"],
                               "owned": dict.fromkeys(member["owned"], generation)})


def _leave_group(draft: _Draft, command: Mapping[str, Any]) -> None:
    group = _group(draft, command["group_id"])
    members = _members(draft, group["group_id"])
    gone = {row["member_id"] for row in members} & set(command["member_ids"])
    if gone:
        draft.gone += [("group_member", (member_id,)) for member_id in sorted(gone)]
        _next_generation(draft, group, [row for row in members if row["member_id"] not in gone])


def _assign_partitions(draft: _Draft, command: Mapping[str, Any]) -> None:
    group = _group(draft, command["group_id"])
    members = {row["member_id"]: row for row in _members(draft, group["group_id"])}
    items = [((item["topic_id"], item["partition"]), item["member_id"]) for item in command["items"]]
    if group["generation"] != command["expected_generation"] or len(dict(items)) < len(items) or not {one for _, one in items} <= set(members):
        raise NotApplicableError("another generation, twice, or to a stranger")
    topics = draft.now.tables["topic"]
    for member_id, row in members.items():
        row["owned"] = {name: since for name, since in row["owned"].items() if (int(name.partition("/")[0]),) in topics}
        row["wanted"] = [f"{topic_id}/{partition}" for (topic_id, partition), reader in sorted(items) if reader == member_id]
    _next_generation(draft, group, list(members.values()))


def _release_partitions(draft: _Draft, command: Mapping[str, Any]) -> None:
    group = _group(draft, command["group_id"])
    members = {row["member_id"]: row for row in _members(draft, group["group_id"])}
    released = 0
    for item in command["items"]:
        member, name = members.get(item["member_id"]), f"{item['topic_id']}/{item['partition']}"
        if member is not None and name not in member["wanted"] and member["owned"].pop(name, None) is not None:
            released += 1
    if released:
        _next_generation(draft, group, list(members.values()))


def _delete_group(draft: _Draft, command: Mapping[str, Any]) -> None:
    name = check_group_name(command["group"])
    key = next((key for key, row in draft.now.tables["consumer_group"].items() if row["name"] == name), None)
    if key is None or _members(draft, key[0]):
        raise NotApplicableError("no such group, or it has members")
    draft.gone.append(("consumer_group", key))


HANDLERS: dict[str, Callable[[_Draft, Mapping[str, Any]], None]] = {
    "noop": _noop, "init_cluster": _init_cluster, "set_member": _set_member, "remove_member": _remove_member,
    "disk_lost": _disk_lost,
    "add_broker": _add_broker, "remove_broker": _remove_broker, "replace_disk": _replace_disk, "drain_broker": _drain_broker,
    "create_topic": _create_topic, "create_replicated_topic": _create_replicated_topic, **dict.fromkeys(ITEMS, _partitions),
    "alter_topic": _alter_topic, "delete_topic": _delete_topic, "add_partition": _add_partition, "add_partitions": _add_partitions,
    "register_producers": _register_producers, "register_consumers": _register_consumers,
    "join_group": _join_group, "leave_group": _leave_group, "assign_partitions": _assign_partitions, "release_partitions": _release_partitions,
    "delete_group": _delete_group,
}
