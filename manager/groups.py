"""Consumer groups for their members: joining, heartbeats, claims, commits. Any manager serves any member.

What a member owns is metadata; where the group stands in a partition is in that partition's log. A commit passes two gates: the member must own the
partition by the metadata known here, and the log refuses a generation older than the one that claimed it last.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from db.metadata_store import GroupMemberRow, PartitionRow
from manager.catalogue import Catalogue, Group, Topic
from manager.cluster import commands
from manager.cluster.groups import read_partition, spelt
from manager.cluster.sharing import Reader, due_assignment
from manager.heartbeats import HeartbeatBook
from manager.records import LEADER_WAIT_SECONDS, Position, Records
from manager.replica import Replica
from myqueue.errors import MemberFencedError, MyQueueError, RefusedError
from myqueue.protocol.limits import HEARTBEATS_A_SESSION
from myqueue.protocol.names import check_group_name, check_topic_name
from myqueue.protocol.types import TopicPartition

T = TypeVar("T")
Told = tuple[TopicPartition, Mapping[str, int]]  # what a partition's leader said: ``offset``, and of a claim what is suspect there
MEMBER = "group_member"  # the type of its heartbeats
SESSION_TIMEOUT_SECONDS = 10.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """Where a group stands in a partition, and which member reads it now."""

    topic: str
    position: Position
    member_id: int | None

    def to_json(self) -> dict[str, Any]:
        return {"topic": self.topic, **self.position.to_json(), "member_id": self.member_id}


class Groups:
    """The operations on consumer groups. Each returns when what it says is committed by a majority."""

    def __init__(self, *, propose: Callable[[commands.Command], dict[str, Any]], replica: Replica, records: Records, book: HeartbeatBook) -> None:
        self._propose, self._replica, self._records, self._book = propose, replica, records, book

    # --- members ---

    def join(self, name: str, *, topics: Sequence[str], strategy: str = "sticky", start: str = "earliest",
             session_timeout_seconds: float = SESSION_TIMEOUT_SECONDS, instance_id: str | None = None) -> dict[str, Any]:
        """Come into a group, which is made where it is not there; the member as ``heartbeat`` shows it.

        Args:
            instance_id: the same one again is the same member, and what knows it by an older generation can commit nothing any more. Made up
                where it is missing.

        Raises:
            UnknownTopicError, BadRequestError, InvalidNameError, ConflictError (the group shares by another strategy), UnavailableError:
                nothing was done.
            OutcomeUnknownError: a member may be there; joining again with the same ``instance_id`` finds it.
        """
        check_group_name(name)
        made = self._propose(commands.JoinGroup(name, str(uuid.uuid4()) if instance_id is None else instance_id, tuple(topics), strategy, start,
                                                int(session_timeout_seconds * 1_000)))
        self._book.heard(MEMBER, made["member_id"])
        self._share(name)
        return self.heartbeat(name, made["member_id"])

    def heartbeat(self, name: str, member_id: int, released: Sequence[TopicPartition] = ()) -> dict[str, Any]:
        """Note that a member is there and has let go of partitions; what it is to read and what it is to release, as of the group's generation.

        Raises:
            UnknownGroupError, UnknownMemberError: it was taken for gone: join again.
        """
        group, member, catalogue = self._member(name, member_id)
        self._book.heard(MEMBER, member_id)
        items = tuple(commands.Assigned(*read_partition(place), member_id) for place in self._places(catalogue, released) if place in member.owned)
        if items:
            self._propose(commands.ReleasePartitions(group.group_id, items))
            group, member, catalogue = self._member(name, member_id)
        return _member_to_json(catalogue, group, member)

    def leave(self, name: str, member_id: int) -> None:
        """Leave the group. Raises UnknownGroupError, UnknownMemberError: nothing was done."""
        group, _, _ = self._member(name, member_id)
        self._propose(commands.LeaveGroup(group.group_id, (member_id,)))
        self._share(name)

    def claim(self, name: str, member_id: int, *, generation: int, partitions: Sequence[TopicPartition]) -> list[Told]:
        """Begin to read partitions: the group's offset in each, and what is suspect there (``handed_end``, ``deaths``). From then on commits of
        older generations are refused there.

        Raises:
            UnknownGroupError, UnknownMemberError, MemberFencedError: another one reads one of them, or this member came again since.
            UnavailableError: not every partition could be asked; again is harmless.
        """
        def claim(group: Group, since: int, _wanted: Mapping[str, int]) -> dict[str, Any]:
            return {"claim": True, "generation": since, "start": group.row.start}

        return self._at_partitions(name, member_id, generation, [(one, {}) for one in partitions], claim)

    def commit(self, name: str, member_id: int, *, generation: int, offsets: Mapping[TopicPartition, Mapping[str, int]]) -> list[Told]:
        """Set the group's offsets in partitions that a member reads; the offsets that it has then.

        Args:
            offsets: ``offset``, ``handed_end`` where the member hands out messages below that from now on, and ``committer`` and
                ``sequence`` where a later commit of the member is not to be undone by this one, however late it arrives.

        Raises:
            UnknownGroupError, UnknownMemberError, MemberFencedError: as ``claim``. Where more than one partition is named, others may have been set.
            OffsetOutOfRangeError: above a partition's committed end. The same.
            UnavailableError: not everywhere done; again is harmless.
        """
        def commit(_group: Group, since: int, wanted: Mapping[str, int]) -> dict[str, Any]:
            return {"generation": since, **wanted}

        return self._at_partitions(name, member_id, generation, list(offsets.items()), commit)

    def _at_partitions(self, name: str, member_id: int, generation: int, wanted: Sequence[tuple[TopicPartition, Mapping[str, int]]],
                       body: Callable[[Group, int, Mapping[str, int]], dict[str, Any]]) -> list[Told]:
        group, member, _ = self._member(name, member_id, generation)
        self._book.heard(MEMBER, member_id)
        calls: list[tuple[Topic, PartitionRow, dict[str, Any]]] = []
        for one, of in wanted:
            topic = self._replica.certain(lambda known, one=one: known.topic(one.topic))
            since = member.owned.get(spelt(topic.topic_id, one.partition))
            if since is None or generation < since:
                raise MemberFencedError(f"{one} is not read by member {member_id} of group '{name}'" if since is None else
                                        f"member {member_id} of group '{name}' reads {one} since generation {since}, not {generation}",
                                        generation=group.row.generation, **one._asdict())
            calls.append((topic, topic.partition(one.partition), {"consumer": group_key(group.group_id), **body(group, since, of)}))
        return self._settled([one for one, _ in wanted], calls)

    def _settled(self, partitions: Sequence[TopicPartition], calls: Sequence[tuple[Topic, PartitionRow, dict[str, Any]]]
                 ) -> list[Told]:
        outcomes = self._records.set_offsets(calls)
        for outcome in outcomes:
            if isinstance(outcome, MyQueueError):
                raise outcome
        return list(zip(partitions, outcomes, strict=True))  # type: ignore[arg-type]

    # --- groups ---

    def all(self) -> list[dict[str, Any]]:
        """Every group, without its members."""
        return [_group_to_json(group) for group in self._replica.current().groups.values()]

    def describe(self, name: str) -> dict[str, Any]:
        """A group with its members and what they read. Raises UnknownGroupError."""
        check_group_name(name)
        group = self._replica.certain(lambda known: known.group(name))
        catalogue = self._replica.current()
        group = catalogue.groups.get(name, group)
        return {**_group_to_json(group), "member_list": [_member_to_json(catalogue, group, member) for member in group.members.values()]}

    def offsets(self, name: str, topics: Sequence[str] = (), *, wait_seconds: float = LEADER_WAIT_SECONDS) -> list[GroupPosition]:
        """Where a group stands, and who reads there: in these topics, or in those that its members read; without members, wherever it has committed.

        Raises:
            UnknownGroupError, UnknownTopicError.
            UnavailableError: not every leader has said it, or a partition had none for ``wait_seconds``.
        """
        check_group_name(name)
        group = self._replica.certain(lambda known: known.group(name))
        read = {topic for member in group.members.values() for topic in member.topics}
        named = [self._replica.certain(lambda known, topic=topic: known.topic(topic)) for topic in topics]
        known = self._replica.catalogue().topics
        looked_at = named or [known[topic] for topic in sorted(read or known) if topic in known]
        readers = {place: member.member_id for member in group.members.values() for place in member.owned}
        positions = self._records.positions_in(group_key(group.group_id), looked_at, wait_seconds=wait_seconds)
        found = [GroupPosition(topic.name, position, readers.get(spelt(topic.topic_id, position.partition)))
                 for topic in looked_at for position in positions[topic.name]]
        return [one for one in found if named or read or one.position.offset is not None]

    def set_offsets(self, name: str, offsets: Mapping[TopicPartition, int | str]) -> list[Told]:
        """Let a group without members go on elsewhere: from an offset, "earliest" or "latest"; the offsets set.

        Raises:
            UnknownGroupError, UnknownTopicError, UnknownPartitionError: nothing was done.
            RefusedError: it has members, which would not notice. Nothing was done.
            OffsetOutOfRangeError, UnavailableError: others of them may have been set; again is harmless.
        """
        check_group_name(name)
        group = self._replica.fresh().group(name)  # whether it has members must not be a matter of who is asked
        if group.members:
            raise RefusedError(f"Group '{name}' has {len(group.members)} member(s), which go on from where they are: stop them first",
                               members=len(group.members))
        places = []
        for one in offsets:
            topic = self._replica.certain(lambda known, one=one: known.topic(one.topic))
            places.append((topic, topic.partition(one.partition)))
        key = group_key(group.group_id)
        starts = self._starts(key, {topic.name: topic for (topic, _), wanted in zip(places, offsets.values(), strict=True) if wanted == "earliest"})
        calls = []
        for (topic, row), (one, wanted) in zip(places, offsets.items(), strict=True):
            target = {"start": "latest"} if wanted == "latest" else {"offset": starts[one] if wanted == "earliest" else wanted}
            calls.append((topic, row, {"consumer": key, "generation": group.row.generation, **target}))
        return self._settled(list(offsets), calls)

    def _starts(self, key: str, topics: Mapping[str, Topic]) -> dict[TopicPartition, int]:
        positions = self._records.positions_in(key, list(topics.values()))
        return {TopicPartition(name, at.partition): at.start_offset for name, found in positions.items() for at in found}

    def delete(self, name: str) -> dict[str, Any]:
        """Delete a group without members: another one of its name begins anew. Raises UnknownGroupError, RefusedError: nothing was done."""
        return self._propose(commands.DeleteGroup(check_group_name(name)))

    def share(self, group: Group, catalogue: Catalogue) -> bool:
        """Say anew who is to read what, where that is due; whether it was. Raises MyQueueError."""
        topics = {topic.name: (topic.topic_id, len(topic.partitions)) for topic in catalogue.topics.values()}
        items = due_assignment(group.row.strategy, [reader_of(member) for member in group.members.values()], topics)
        if items is None:
            return False
        self._propose(commands.AssignPartitions(group.group_id, group.row.generation, items))
        return True

    def _share(self, name: str) -> None:
        """At once, after a change that is done. What fails here is done by the write manager within a second or two."""
        try:
            catalogue = self._replica.catalogue()
            if name in catalogue.groups:
                self.share(catalogue.groups[name], catalogue)
        except MyQueueError as error:
            _log.info("group %s is shared anew later: %s", name, error.message, extra={"code": error.code})

    def _member(self, name: str, member_id: int, generation: int = 0) -> tuple[Group, GroupMemberRow, Catalogue]:
        """As of the caller's generation at least."""
        check_group_name(name)

        def look(known: Catalogue) -> tuple[Group, GroupMemberRow, Catalogue]:
            return known.group(name), known.group(name).member(member_id), known

        group, member, catalogue = self._replica.certain(look)
        if generation > group.row.generation:  # it heard of it from another manager
            group, member, catalogue = look(self._replica.fresh())
        return group, member, catalogue

    @staticmethod
    def _places(catalogue: Catalogue, partitions: Sequence[TopicPartition]) -> list[str]:
        return [spelt(catalogue.topics[one.topic].topic_id, one.partition) for one in partitions if check_topic_name(one.topic) in catalogue.topics]


def group_key(group_id: int) -> str:
    """A group's name in the partitions' logs."""
    return f"@{group_id}"


def reader_of(member: GroupMemberRow) -> Reader:
    return Reader(member.member_id, member.topics, member.wanted, member.owned, member.session_timeout_ms / 1_000)


def _group_to_json(group: Group) -> dict[str, Any]:
    return {"group": group.name, "group_id": group.group_id, "generation": group.row.generation, "strategy": group.row.strategy,
            "start": group.row.start, "members": len(group.members)}


def _member_to_json(catalogue: Catalogue, group: Group, member: GroupMemberRow) -> dict[str, Any]:
    names = {topic.topic_id: topic.name for topic in catalogue.topics.values()}
    wanted, reads, releases = set(member.wanted), [], []
    for place, since in sorted(member.owned.items(), key=lambda item: read_partition(item[0])):
        partition = read_partition(place)
        if partition.topic_id not in names:
            continue  # deleted: it goes with the next assignment
        named = {"topic": names[partition.topic_id], "partition": partition.partition}
        if place in wanted:
            reads.append({**named, "generation": since})
        else:
            releases.append(named)
    session_seconds = member.session_timeout_ms / 1_000
    return {"group": group.name, "group_id": group.group_id, "member_id": member.member_id, "instance_id": member.instance_id,
            "generation": group.row.generation, "topics": list(member.topics), "session_timeout_seconds": session_seconds,
            "heartbeat_interval_seconds": round(session_seconds / HEARTBEATS_A_SESSION, 3), "partitions": reads, "releasing": releases}
