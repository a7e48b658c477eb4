"""What this process may say of a partition, given who leads it: of a leader only once its own first entry is committed, and a majority follows it.

A leader that was just appointed does not know yet what was committed before it, and one that was left by its majority does not know that it was.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from db.log_store import Head, LogStore
from myqueue.errors import NotYetError
from myqueue.protocol.types import PartitionId

from .core.replica import check_leading, is_leading
from .later import NotSettledError
from .replicator import Replicator


class Standing:
    """Looks at head rows, and asks the replicator what a leadership rests on."""

    def __init__(self, store: LogStore, replicator: Replicator, *, stopping: threading.Event) -> None:
        self._store, self._replicator, self._stopping = store, replicator, stopping

    def head(self, partition: PartitionId) -> Head:
        """The head row; a leader's only once its own first entry is committed. Raises UnavailableError, where it is being seeded too."""
        head = self._store.head(partition)
        if head.seeding_until is not None:
            raise being_made(partition)
        if not is_shared(head):
            return head
        if not self._replicator.knows(partition, head.leader_epoch):
            self._replicator.lead(partition, head)
        if self._replicator.is_ready(partition):
            return head
        self._replicator.require_marker(partition, self._stopping)
        return self._store.head(partition)

    def told(self, partitions: Iterable[PartitionId]) -> dict[PartitionId, int]:
        return {partition: self._replicator.told(partition) for partition in partitions}

    def is_settled(self, partition: PartitionId, head: Head, told: int) -> bool:
        """Whether what is committed here is not behind what anybody was told, as far as leaders are concerned."""
        return not is_shared(head) or self._replicator.is_settled(partition, head, told=told)

    def check_settled(self, partition: PartitionId, head: Head, told: int) -> None:
        """Raises NotSettledError: nothing was done."""
        if not self.is_settled(partition, head, told):
            raise NotSettledError(f"the leadership of partition {partition.partition} has not settled yet; nothing was done", component="replicas")

    def knows_the_end(self, partition: PartitionId) -> bool:
        """Whether what is committed here is all that was committed when this was called: by a leader that a majority still follows."""
        head = self.head(partition)
        if not is_leading(head):
            return False
        if is_shared(head):
            self._replicator.confirm(partition, head.leader_epoch, self._stopping)
            told = self._replicator.told(partition)
            return self._replicator.is_settled(partition, self._store.head(partition), told=told)
        return True

    def confirm(self, partition: PartitionId) -> None:
        """Raises NotLeaderError, UnavailableError where somebody else may lead."""
        head = self.head(partition)
        check_leading(head)
        if is_shared(head):
            self._replicator.confirm(partition, head.leader_epoch, self._stopping)

    def settle(self, heads: Mapping[PartitionId, Head]) -> None:
        """Wait until these logs, as far as their heads say, are committed and the database knows it, in a round for all: then whatever anybody was
        told of them before this call, by any process of any leader, is there to be read.

        Raises:
            NotLeaderError, UnavailableError: of one of them it is not sure.
        """
        shared = {}
        for partition, head in heads.items():
            check_leading(head)
            if is_shared(head):
                shared[partition] = head
                self._replicator.lead(partition, head)
        self._replicator.settle(shared, self._stopping)


def is_shared(head: Head) -> bool:
    """Whether this replica leads and others take part."""
    return is_leading(head) and (len(head.voters) > 1 or bool(head.learners))


def being_made(partition: PartitionId) -> NotYetError:
    return NotYetError(f"this replica of partition {partition.partition} is being made")
