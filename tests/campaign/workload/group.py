"""A consumer group of the SDK: members that share the partitions, commit, leave and come again."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict

from myqueue import MyConsumer
from myqueue.errors import MemberFencedError, UnavailableError, UnknownMemberError, UnknownPartitionError
from tests.campaign.history import Committed, Shared

from .client import Reader, Setting
from .sdk import SILENCE_SECONDS, STOP_SECONDS

STAY_SECONDS = 9.0
COMMIT_SECONDS = 2.0
AGAIN_SECONDS = 0.2


class Group:
    """What its members know together: how far somebody was given each partition."""

    def __init__(self, name: str, topics: list[str]) -> None:
        self.name, self.topics = name, topics
        self.next: dict[tuple[str, int], int] = defaultdict(int)


class GroupMember(Reader):
    """One member. With ``comes_and_goes`` it leaves again and again, and the others take over."""

    def __init__(self, name: str, setting: Setting, group: Group, *, comes_and_goes: bool) -> None:
        super().__init__(name, setting)
        self._group, self._comes_and_goes = group, comes_and_goes
        self._consumer: MyConsumer | None = None
        self._join()

    def work(self) -> float:
        if self._consumer is None:
            self._join()
            return AGAIN_SECONDS
        with contextlib.suppress(UnavailableError):  # so it says that its silence is not that of an empty topic
            for message in self._consumer.get_next(timeout_seconds=SILENCE_SECONDS):
                value = message.value.partition(b"|")[0].decode(errors="replace")
                self.history.shared.append(Shared(self._group.name, self.name, message.topic, message.partition, message.offset, value, self.now()))
                where = message.topic, message.partition
                self._group.next[where] = max(self._group.next[where], message.offset + 1)
                self.progress += 1
                if time.monotonic() > self._commit_at or self._worker.stopping.is_set():
                    break
        self._commit()
        if self._comes_and_goes and time.monotonic() > self._until and not self._worker.stopping.is_set():
            self._consumer.stop(STOP_SECONDS)
            self._consumer = None
        return 0.0

    def is_at_end(self, ends: dict[tuple[str, int], int], since: float) -> bool:
        return all(self._group.next[where] >= end for where, end in ends.items() if where[0] in self._group.topics)

    def finish(self) -> None:
        super().finish()
        if self._consumer is not None:
            self._consumer.stop(STOP_SECONDS)

    def _commit(self) -> None:
        assert self._consumer is not None
        self._commit_at = time.monotonic() + COMMIT_SECONDS
        try:
            self._consumer.commit()
        except (UnavailableError, MemberFencedError, UnknownMemberError):
            return  # nothing is known of this commit
        for topic, partition in self._consumer.assignment:
            with contextlib.suppress(UnknownPartitionError):  # it went to another member just now
                offset = self._consumer.committed(topic, partition) or 0
                self.history.committed.append(Committed(self._group.name, topic, partition, offset, self.now()))

    def _join(self) -> None:
        """Come into the group; where nobody takes it in it stays outside, and is to try again."""
        self._until, self._commit_at = time.monotonic() + STAY_SECONDS, time.monotonic() + COMMIT_SECONDS
        with contextlib.suppress(UnavailableError):
            self._consumer = MyConsumer(self._group.topics, self.setting.bootstrap, group=self._group.name, max_block_seconds=15.0,
                                        auto_commit_seconds=None)
