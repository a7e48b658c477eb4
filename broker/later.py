"""Answers that rest on what is not committed yet."""

from __future__ import annotations

from collections.abc import Callable

from db.log_store import StoredRecord
from myqueue.errors import MyQueueError, NotLeaderError, OutcomeUnknownError, UnavailableError
from myqueue.protocol.types import PartitionId

from .core.append import AppendResult
from .core.group import Handed
from .replicator import Replicator
from .writer import Later

Answer = AppendResult | Handed | StoredRecord


class NotSettledError(UnavailableError):
    """A leadership that has just begun: what was committed before is not known to be yet; nothing was done."""


class AfterCommit(Later[Answer]):
    """An answer that rests on the log up to a position: told once that is committed, lost with the leadership."""

    def __init__(self, replicator: Replicator, partition: PartitionId, epoch: int, position: int, answer: Answer | MyQueueError, *,
                 confirm: bool) -> None:
        self._replicator, self._partition, self._epoch, self._position = replicator, partition, epoch, position
        self._answer, self._confirm = answer, confirm

    def then(self, told: Callable[[Answer | MyQueueError], None]) -> None:
        try:
            self._replicator.when_committed(self._partition, self._epoch, self._position,
                                            lambda error: told(self._answer if error is None else error), confirm=self._confirm)
        except NotLeaderError:
            told(OutcomeUnknownError("the leadership was lost before a majority had it"))
