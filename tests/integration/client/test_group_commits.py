"""Commits of a group's member from two threads: its caller's, and the group's own that lets partitions go."""

from __future__ import annotations

import threading
from typing import Any

from myqueue.client.fetcher import Fetcher
from myqueue.client.group_reading import GroupReading
from myqueue.client.membership import Membership
from myqueue.clock import SystemClock
from myqueue.protocol.types import TopicPartition
from tests.support.waiting import wait_until

PLACE = {"topic": "t", "partition": 0}


class Group:
    """A group's answers to one member, as a connection brings them: once it has partition 0, it is to release it."""

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.calls: list[str] = []
        self.wants_release = False
        self.is_committing, self.may_answer = threading.Event(), threading.Event()

    def call(self, method: str, path: str, *, json: Any = None, **_: Any) -> Any:
        if method == "PUT":
            self.calls.append("commit")
            self.is_committing.set()
            assert self.may_answer.wait(10)
            self.calls.append("committed")
            return {"offsets": json["offsets"]}
        if path.endswith("/claims"):
            return {"offsets": [{**one, "offset": 0} for one in json["partitions"]]}
        if "released" in json:
            self.calls.append("released")
            self.wants_release = False
        elif self.wants_release:
            self.calls.append("told to release")
            return self._told([], [PLACE])
        return self._told([] if "released" in self.calls else [{**PLACE, "generation": 1}], [])

    def persistently(self, operation: Any, _seconds: float) -> Any:
        return operation()

    @staticmethod
    def _told(partitions: list[dict[str, Any]], releasing: list[dict[str, Any]]) -> dict[str, Any]:
        return {"member_id": 1, "generation": 2, "heartbeat_interval_seconds": 1.0, "partitions": partitions, "releasing": releasing}


def test_a_partition_is_released_when_no_commit_of_it_is_under_way():
    """Else that one came behind the release, and the caller was told that another member reads it, though all of it was committed."""
    group, changed = Group(), threading.Condition()
    membership = Membership(group, "g", ["t"], strategy="sticky", start="earliest", session_timeout_seconds=10.0, instance_id="one")  # type: ignore[arg-type]
    fetcher = Fetcher(group, changed, fetch_bytes_max=1_000, prefetch_bytes_max=10_000)  # type: ignore[arg-type]
    reading = GroupReading(membership, group, fetcher, changed, on_readers=lambda: None, on_gone=lambda _gone: None)  # type: ignore[arg-type]
    reading.begin(1.0)
    progress = fetcher.readers[TopicPartition("t", 0)].progress
    progress.handed(0)
    progress.done(0)
    group.wants_release = True
    threads = [threading.Thread(target=reading.commit, args=[list(fetcher.readers.values())], daemon=True),
               threading.Thread(target=reading.beat, daemon=True)]
    threads[0].start()
    assert group.is_committing.wait(10)
    threads[1].start()
    wait_until(lambda: not fetcher.readers, what="the partition to be let go of")
    threads[1].join(0.2)  # as far as it gets while the commit is under way
    group.may_answer.set()
    for thread in threads:
        thread.join(10)
    assert ["commit", "told to release", "committed", "released"] == group.calls
