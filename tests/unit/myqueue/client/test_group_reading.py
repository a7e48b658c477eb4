"""What a member of a group reads and commits, by what the group has told it."""

from __future__ import annotations

import threading
from typing import Any

from myqueue.client.fetcher import Fetcher, Reader
from myqueue.client.group_reading import GroupReading
from myqueue.client.membership import Membership
from myqueue.errors import MyQueueError, UnavailableError
from myqueue.protocol.types import TopicPartition
from myqueue.testing import ManualClock


class Group:
    """A group's answers to one member, as a connection brings them."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.generation, self.reads = 3, {0: 3}
        self.commits: list[dict[str, Any]] = []
        self.stamps: list[tuple[int, int]] = []
        self.suspect: dict[str, int] = {}
        self.refuses: MyQueueError | None = None

    def call(self, method: str, path: str, *, json: Any = None, **_: Any) -> Any:
        if method == "PUT":
            if self.refuses is not None:
                raise self.refuses
            self.stamps += [(one.pop("committer"), one.pop("sequence")) for one in json["offsets"]]
            self.commits.append(json)
            return {"offsets": json["offsets"]}
        if path.endswith("/claims"):
            return {"offsets": [{**one, "offset": 0, **self.suspect} for one in json["partitions"]]}
        return {"member_id": 1, "generation": self.generation, "heartbeat_interval_seconds": 1.0, "releasing": [],
                "partitions": [{"topic": "t", "partition": number, "generation": since} for number, since in self.reads.items()]}

    def persistently(self, operation: Any, _seconds: float) -> Any:
        return operation()


def member_of(group: Group) -> tuple[GroupReading, Fetcher]:
    changed = threading.Condition()
    membership = Membership(group, "g", ["t"], strategy="sticky", start="earliest", session_timeout_seconds=10.0, instance_id="one")  # type: ignore[arg-type]
    fetcher = Fetcher(group, changed, fetch_bytes_max=1_000, prefetch_bytes_max=10_000)  # type: ignore[arg-type]
    reading = GroupReading(membership, group, fetcher, changed, on_readers=lambda: None, on_gone=lambda _gone: None)  # type: ignore[arg-type]
    reading.begin(1.0)
    return reading, fetcher


def deal_with(reader: Reader, offset: int) -> None:
    reader.progress.handed(offset)
    reader.progress.done(offset)


def test_a_commit_names_the_generation_of_what_was_read_and_not_the_one_that_was_heard_of_meanwhile():
    group = Group()
    reading, fetcher = member_of(group)
    read = [fetcher.readers[TopicPartition("t", 0)]]
    deal_with(read[0], 0)
    group.generation, group.reads = 9, {0: 9}  # it was another's in between, and is this one's again
    reading.beat()
    reading.commit(read)
    assert group.commits == [{"generation": 3, "offsets": [{"topic": "t", "partition": 0, "offset": 1}]}], "which the group refuses"
    now = [fetcher.readers[TopicPartition("t", 0)]]
    assert now[0].progress.position == 0, "it begins anew where the group stands"
    deal_with(now[0], 0)
    reading.commit(now)
    assert group.commits[1:] == [{"generation": 9, "offsets": [{"topic": "t", "partition": 0, "offset": 1}]}]


def test_partitions_got_in_several_generations_are_committed_in_one_call_by_the_last_of_them_and_once():
    group = Group()
    group.reads = {0: 3, 1: 2}
    reading, fetcher = member_of(group)
    group.generation = 5
    reading.beat()
    read = list(fetcher.readers.values())
    for reader in read:
        deal_with(reader, 0)
    reading.commit(read)
    reading.commit(read)
    assert [(one["generation"], len(one["offsets"])) for one in group.commits] == [(3, 2)]


def careful_member_of(group: Group) -> tuple[GroupReading, Reader, list[tuple[TopicPartition, int, int]]]:
    """A member that announces what it hands out, its reader, and what it was told is suspect."""
    changed, suspect = threading.Condition(), []
    membership = Membership(group, "g", ["t"], strategy="sticky", start="earliest", session_timeout_seconds=10.0, instance_id="one")  # type: ignore[arg-type]
    fetcher = Fetcher(group, changed, fetch_bytes_max=1_000, prefetch_bytes_max=10_000)  # type: ignore[arg-type]
    reading = GroupReading(membership, group, fetcher, changed, on_readers=lambda: None, on_gone=lambda _gone: None,  # type: ignore[arg-type]
                           on_suspect=lambda *told: suspect.append(told))
    reading.begin(1.0)
    return reading, fetcher.readers[TopicPartition("t", 0)], suspect


def said(group: Group) -> list[tuple[int, int | None]]:
    """Offset and handed_end of each commit."""
    return [(one["offset"], one.get("handed_end")) for commit in group.commits for one in commit["offsets"]]


def test_what_is_handed_out_after_a_claim_is_announced_before_and_done_with_the_next():
    group = Group()
    reading, reader, _ = careful_member_of(group)
    for offset in range(4):
        reading.announce(reader, offset)
        deal_with(reader, offset)
    assert said(group) == [(0, 1), (1, 3), (3, 7)]
    reading.commit([reader])
    assert said(group)[3:] == [(4, 7)]
    assert [sequence for _, sequence in group.stamps] == [1, 2, 3, 4], "so that none undoes a later one, however late it arrives"
    assert len({committer for committer, _ in group.stamps}) == 1
    reading.settle(reader)
    assert said(group)[4:] == [(4, None)], "the rest of the window is in nobody's hands"
    reading.announce(reader, 4)
    assert said(group)[5:] == [(4, 12)]


def test_who_lets_go_says_that_nothing_is_in_its_hands_and_announces_nothing_after():
    group = Group()
    reading, reader, _ = careful_member_of(group)
    reading.announce(reader, 0)
    reader.progress.handed(0)
    reading.let_go([reader])
    reading.announce(reader, 1)
    assert said(group) == [(0, 1), (0, None)]


def test_a_claim_tells_what_is_suspect():
    group = Group()
    group.suspect = {"handed_end": 3, "deaths": 2}
    reading, reader, suspect = careful_member_of(group)
    assert suspect == [(TopicPartition("t", 0), 0, 2)]
    for offset in range(5):
        reading.announce(reader, offset)
        deal_with(reader, offset)
    assert said(group) == [(0, 1), (1, 2), (2, 3), (3, 4), (4, 6)]


def test_what_cannot_be_announced_is_handed_out_all_the_same():
    group = Group()
    reading, reader, _ = careful_member_of(group)
    group.refuses = UnavailableError("not now")
    reading.announce(reader, 0)
    assert (reader.slow_start, group.commits) == (None, [])
    group.refuses = None
    reading.announce(reader, 1)
    assert group.commits == []
