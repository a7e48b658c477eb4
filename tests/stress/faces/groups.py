"""Consumer groups: members that share the partitions of a topic, by plain HTTP and by the SDK, and come and go in the middle.

A shared consumer is a group, its number is in the group's name. Only members that leave in good order are here, so each message comes once.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Collection, Mapping
from typing import Any

from myqueue import MyConsumer
from myqueue.errors import UnknownMemberError
from myqueue.protocol import routes
from myqueue.protocol.types import TopicPartition

from ..check import Place
from .calls import Http
from .face import CALL_SECONDS, Consumer, DiscrepancyError
from .native import READ, NativeTopics
from .sdk import PAUSE_SECONDS, SdkFace

LEAVES = (2, 11, 47)  # with these turns a member leaves, and another one comes with the next
SESSION_SECONDS = 1_800.0  # of a member by plain HTTP, which is heard of only while its thread reads
SDK_SESSION_SECONDS = 12.0
AUTO_COMMIT_SECONDS = 0.2
TURN = 10  # messages that a member of the SDK takes in a turn


def group_of(topic: str, number: int) -> str:
    return f"{topic}-{number}"


class GroupFace(NativeTopics):
    """Members by plain HTTP; all else as in the native face."""

    name = "group"
    is_shared_once = True

    def __init__(self, url: str, token: str | None) -> None:
        super().__init__(url, token)
        self._numbers = itertools.count(1)

    def consumer(self, topic: str, partitions: int, number: int | None = None) -> Consumer:
        return Member(Http(self._url, self._token, is_repeatable=True), topic, number or next(self._numbers))


class SdkGroupFace(SdkFace):
    """Members of the SDK, by turns with a commit of their own and with the automatic one."""

    name = "sdk-group"
    is_shared_once = True

    def __init__(self, url: str, token: str | None) -> None:
        super().__init__(url, token)
        self._numbers, self._in_hand, self._turn = itertools.count(1), set[Place](), itertools.count()

    def consumer(self, topic: str, partitions: int, number: int | None = None) -> Consumer:
        auto_commit = AUTO_COMMIT_SECONDS if next(self._turn) % 2 else None
        return SdkMember(self._url, self._token, topic, number or next(self._numbers), auto_commit, self._in_hand)

    def may_come_again(self) -> Collection[Place]:
        return self._in_hand


class Member:
    """Joins, beats, claims, reads, commits, lets go and leaves: all calls that may be repeated.

    Commits with every other turn, and before it lets go of anything.
    """

    def __init__(self, http: Http, topic: str, number: int) -> None:
        self._http, self._topic, self.number = http, topic, number
        self._names = {"group": group_of(topic, number)}
        self._generation = 0
        self._offsets: dict[int, int] = {}  # of the partitions that it reads: where it goes on
        self._committed: dict[int, int] = {}
        self._turn, self._reads = itertools.count(), itertools.count()

    def take(self, due: int = 0) -> list[Place]:
        self._follow(self._heard())
        found, turn = self._read(), next(self._turn)
        if turn % 2:
            self._commit()
        if turn in LEAVES:
            self.close()
        return found

    def left(self) -> int:
        self._follow(self._heard())
        self._commit()
        return lag_of(self._http, self._topic, self._names["group"])

    def close(self) -> None:
        if "member_id" in self._names:
            self._commit()
            self._leave()
            del self._names["member_id"]
            self._offsets, self._committed = {}, {}

    def _leave(self) -> None:
        """An attempt whose answer was lost may have been enough."""
        status, told = self._http.ask("DELETE", self._path(routes.MEMBER))
        if status != 200 and told["error"]["code"] != UnknownMemberError.code:
            raise DiscrepancyError(f"member {self._names} could not leave: {status} {told}")

    def _heard(self) -> Mapping[str, Any]:
        if "member_id" in self._names:
            return self._http.call("POST", self._path(routes.MEMBER_HEARTBEAT), {})
        told = self._http.call("POST", self._path(routes.MEMBERS), {
            "topics": [self._topic], "session_timeout_seconds": SESSION_SECONDS, "instance_id": str(uuid.uuid4())}, status=201)
        self._names["member_id"] = told["member_id"]
        return told

    def _follow(self, told: Mapping[str, Any]) -> None:
        """Let go of what is to be released, until nothing is, and claim what is new."""
        while told["releasing"]:
            self._commit()
            for one in told["releasing"]:
                self._offsets.pop(one["partition"], None)
            told = self._http.call("POST", self._path(routes.MEMBER_HEARTBEAT), {"released": told["releasing"]})
        self._generation = told["generation"]
        mine = {one["partition"] for one in told["partitions"]}
        if gone := set(self._offsets) - mine:
            raise DiscrepancyError(f"partitions {gone} of {self._topic} were taken from member {self._names} without its word: {told}")
        if new := sorted(mine - set(self._offsets)):
            self._claim(new)

    def _claim(self, new: list[int]) -> None:
        body = {"generation": self._generation, "partitions": [{"topic": self._topic, "partition": partition} for partition in new]}
        told = self._http.call("POST", self._path(routes.MEMBER_CLAIMS), body)["offsets"]
        begins = {one["partition"]: one["offset"] for one in told}
        if sorted(begins) != new:
            raise DiscrepancyError(f"partitions {new} of {self._topic} were claimed, {begins} is told")
        self._offsets |= begins
        self._committed |= begins

    def _read(self) -> list[Place]:
        mine = sorted(self._offsets)
        for _ in mine:
            partition = mine[next(self._reads) % len(mine)]
            told = self._http.call("GET", routes.RECORDS.format(topic=self._topic, partition=partition), params={
                "offset": self._offsets[partition], "max_records": READ})
            self._offsets[partition] = told["next_offset"]
            if told["records"]:
                return [Place(partition, record["offset"], record["value"]) for record in told["records"]]
        return []

    def _commit(self) -> None:
        wanted = [{"topic": self._topic, "partition": partition, "offset": offset} for partition, offset in sorted(self._offsets.items())
                  if offset != self._committed[partition]]
        if wanted:
            told = self._http.call("PUT", self._path(routes.MEMBER_OFFSETS), {"generation": self._generation, "offsets": wanted})["offsets"]
            if sorted(told, key=lambda one: one["partition"]) != wanted:
                raise DiscrepancyError(f"{wanted} was committed, {told} is told")
            self._committed |= self._offsets

    def _path(self, template: str) -> str:
        return template.format(**self._names)


class SdkMember:
    """Says of each message that it is done; one that it had in hand when the partition went may come again to whoever has it now."""

    def __init__(self, url: str, token: str | None, topic: str, number: int, auto_commit_seconds: float | None, in_hand: set[Place]) -> None:
        self._http, self._address, self._token = Http(url, token), url.removeprefix("http://"), token
        self._topic, self.number, self._auto_commit_seconds, self._in_hand = topic, number, auto_commit_seconds, in_hand
        self._consumer: MyConsumer | None = None
        self._turn = itertools.count()

    def take(self, due: int = 0) -> list[Place]:
        """Some of what is due, or of what comes without a pause where nothing is: who has just joined may hear nothing for a while."""
        consumer = self._joined()
        found: list[Place] = []
        for message in consumer.get_next(timeout_seconds=CALL_SECONDS if due else PAUSE_SECONDS):
            found.append(Place(message.partition, message.offset, message.text()))
            consumer.done(message)
            if TopicPartition(self._topic, message.partition) not in consumer.assignment:
                self._in_hand.add(found[-1])
            if len(found) == (min(due, TURN) or TURN):
                break
        if self._auto_commit_seconds is None:
            self._commit()
        if next(self._turn) in LEAVES:
            self.close()
        return found

    def left(self) -> int:
        self._joined()
        self._commit()
        return lag_of(self._http, self._topic, group_of(self._topic, self.number))

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.stop()
            self._consumer = None

    def _joined(self) -> MyConsumer:
        if self._consumer is None:
            self._consumer = MyConsumer([self._topic], broker=self._address, token=self._token, group=group_of(self._topic, self.number),
                                        auto_done=False, auto_commit_seconds=self._auto_commit_seconds, session_timeout_seconds=SDK_SESSION_SECONDS)
        return self._consumer

    def _commit(self) -> None:
        self._joined().commit()


def lag_of(http: Http, topic: str, group: str) -> int:
    """A group's lag, which must agree with where it stands."""
    told = http.call("GET", routes.GROUP_OFFSETS.format(group=group), params={"topic": topic})
    for one in told["offsets"]:
        stands = one["start_offset"] if one["offset"] is None else one["offset"]
        if one["lag"] != one["end_offset"] - stands or one["lag"] < 0:
            raise DiscrepancyError(f"the lag of {group} in partition {one['partition']} does not agree with where it stands: {one}")
    if told["lag"] != sum(one["lag"] for one in told["offsets"]):
        raise DiscrepancyError(f"the lags of {group} do not add up: {told}")
    return int(told["lag"])
