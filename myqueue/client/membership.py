"""A consumer's place in a consumer group: joining, heartbeats, what it is to read, claims, commits. Every method is a bounded call."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..errors import MyQueueError
from ..protocol import routes
from ..protocol.limits import HEARTBEATS_A_SESSION, NOTICE_SECONDS
from ..protocol.names import check_group_name
from ..protocol.types import TopicPartition
from .connection import Connection
from .stamps import Stamps

T = TypeVar("T")
NOTHING: Mapping[TopicPartition, int | None] = {}
PARTITIONS_MAX = 500  # in one call
HEARTBEAT_ANSWER_SECONDS = 3.0  # a heartbeat that got no answer is sent again rather than waited for
RELEASE_ANSWER_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Share:
    """What a member reads, with the generation in which it got each partition, and what it is to let go of."""

    generation: int
    reads: Mapping[TopicPartition, int]
    releasing: Collection[TopicPartition]


@dataclass(frozen=True, slots=True)
class Claimed:
    """Where a group stands in a partition, up to where a member that died may have had messages in its hands (0: nowhere), and how many
    members died with the first one alone in them.
    """

    offset: int
    suspect_end: int = 0
    deaths: int = 0


class Membership:
    """One member. Used by the group's thread and by those that commit; ``leave`` ends it for good."""

    def __init__(self, connection: Connection, group: str, topics: Sequence[str], *, strategy: str, start: str, session_timeout_seconds: float,
                 instance_id: str | None) -> None:
        self.group = check_group_name(group)
        self._connection = connection
        self._joining = {"topics": list(topics), "strategy": strategy, "start": start, "session_timeout_seconds": session_timeout_seconds,
                         "instance_id": instance_id or str(uuid.uuid4())}
        self.session_timeout_seconds = session_timeout_seconds
        self.heartbeat_interval_seconds = session_timeout_seconds / HEARTBEATS_A_SESSION  # until the group has told its own
        self.member_id: int | None = None
        self._heard_at = float("-inf")  # when the call was made that the group answered last
        self._lock = threading.Lock()
        self._stamps = Stamps()
        self._left = False

    def __repr__(self) -> str:
        return f"Membership({self.group!r}, member {self.member_id})"

    def join(self) -> Share:
        """Come into the group, again where it has taken this member for gone. Repeating it is harmless. Raises MyQueueError."""
        began = self._connection.clock.monotonic()
        body = self._connection.call("POST", routes.MEMBERS.format(group=self.group), json=self._joining, repeatable=True)
        with self._lock:
            if not self._left:
                self.member_id, self.heartbeat_interval_seconds = body["member_id"], body["heartbeat_interval_seconds"]
        return self._told(body, began)

    def beat(self, released: Collection[TopicPartition] = ()) -> Share:
        """Say that this member is there, and what it has let go of. Raises UnknownMemberError, UnknownGroupError: join again; MyQueueError."""
        began, told = self._connection.clock.monotonic(), {"released": _named(released)} if released else {}
        body = self._connection.call("POST", self._path(routes.MEMBER_HEARTBEAT), json=told, repeatable=True,
                                     read_timeout_seconds=RELEASE_ANSWER_SECONDS if released else HEARTBEAT_ANSWER_SECONDS)
        return self._told(body, began)

    def claim(self, share: Share, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Claimed]:
        """Begin to read: where the group stands in each partition. Raises MemberFencedError where one is another's by now; MyQueueError."""
        claimed: dict[TopicPartition, Claimed] = {}
        for part in _parts(sorted(partitions)):
            body = {"generation": share.generation, "partitions": _named(part)}
            claimed |= _claimed(self._connection.call("POST", self._path(routes.MEMBER_CLAIMS), json=body, repeatable=True))
        return claimed

    def commit(self, offsets: Mapping[TopicPartition, int], generation: int, handed: Mapping[TopicPartition, int | None] = NOTHING) -> None:
        """Set the group's offsets. One call at a time: a copy of it that arrives behind a later one changes nothing.

        Args:
            handed: messages from the offset to below this one may be in this member's hands from now on; of the other partitions none is.
            generation: in which these partitions were got, the last of them: what has changed hands since then is refused, also where this
                member got it back.

        Raises:
            MemberFencedError, UnknownMemberError: another member reads on from an earlier one.
            MyQueueError: not known to be done.
        """
        stamp = self._stamps.next()._asdict()
        for part in _parts(sorted(offsets.items())):
            body = {"generation": generation, "offsets": [{**_committed(one, offset, handed.get(one)), **stamp} for one, offset in part]}
            self._connection.call("PUT", self._path(routes.MEMBER_OFFSETS), json=body, repeatable=True)

    def leave(self) -> None:
        """Let others take over at once. Whoever cannot be asked finds out by this member's silence. Raises MyQueueError."""
        with self._lock:
            if self._left or self.member_id is None:
                return
            self._left = True
        self._connection.call("DELETE", self._path(routes.MEMBER), repeatable=False)

    @property
    def has_left(self) -> bool:
        return self._left

    @property
    def is_silenced(self) -> bool:
        """Whether the group was not heard for so long that another member may read what this one did."""
        return self._connection.clock.monotonic() - self._heard_at >= self.session_timeout_seconds - NOTICE_SECONDS

    def _told(self, body: Mapping[str, Any], began: float) -> Share:
        self._heard_at = began
        return Share(body["generation"], {_partition(one): one["generation"] for one in body["partitions"]},
                     [_partition(one) for one in body["releasing"]])

    def _path(self, template: str) -> str:
        return template.format(group=self.group, member_id=self.member_id)


def failed_for_good(error: MyQueueError) -> bool:
    """Whether joining again can only give the same answer."""
    return not error.retriable and error.status < 500


def _parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """A call's worth of partitions each: every one of them is written to a log of its own."""
    return (items[start:start + PARTITIONS_MAX] for start in range(0, len(items), PARTITIONS_MAX))


def _partition(body: Mapping[str, Any]) -> TopicPartition:
    return TopicPartition(body["topic"], body["partition"])


def _named(partitions: Collection[TopicPartition]) -> list[dict[str, Any]]:
    return [one._asdict() for one in sorted(partitions)]


def _claimed(body: Mapping[str, Any]) -> dict[TopicPartition, Claimed]:
    return {_partition(one): Claimed(one["offset"], one.get("handed_end", 0), one.get("deaths", 0)) for one in body["offsets"]}


def _committed(one: TopicPartition, offset: int, handed_end: int | None) -> dict[str, Any]:
    return {**one._asdict(), "offset": offset} | ({} if handed_end is None else {"handed_end": handed_end})
