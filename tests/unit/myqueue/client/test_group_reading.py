"""What a member of a group reads and commits, by what the group has told it."""

from __future__ import annotations

import threading
from typing import Any

from myqueue.client.fetcher import Fetcher, Reader
from myqueue.client.group_reading import GroupReading
from myqueue.client.membership import Membership
from myqueue.protocol.types import TopicPartition
from myqueue.testing import ManualClock


class Group:
    """A group's answers to one member, as a connection brings them."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.generation, self.reads = 3, {0: 3}
        self.commits: list[dict[str, Any]] = []

    def call(self, method: str, path: str, *, json: Any = None, **_: Any) -> Any:
        if method == "PUT":
            self.commits.append(json)
            return {"offsets": json["offsets"]}
        if path.endswith("/claims"):
            return {"offsets": [{**one, "offset": 0} for one in json["partitions"]]}
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
