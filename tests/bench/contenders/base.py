"""What every contender can do. Logs are made once and named by letters, digits and ``-``; every call has a time-out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import ClassVar

CALL_SECONDS = 60.0  # a call that takes longer has failed
WORK_SECONDS = 600.0  # so has a round
HOST = "127.0.0.1"


class Contender(ABC):
    """A store of messages that acknowledges.

    Attributes:
        acknowledged: what holds when it is told that a message is stored.
        messages_max: in a round: what keeps a slow one within seconds.
        reads_once: a message that was read is gone.
        roots: the processes whose trees are its servers, by kind.
    """

    name: ClassVar[str]
    acknowledged: str = "fsync"
    messages_max: int = 1 << 62
    reads_once: bool = False
    roots: Mapping[str, Sequence[int]]

    def others(self) -> Sequence[Contender]:
        """The same servers, spoken to in another way."""
        return ()

    @abstractmethod
    def create(self, log: str) -> None:
        """Make a log; it is empty."""

    @abstractmethod
    def producing(self, log: str, value: bytes, count: int, batch: int, stack: ExitStack) -> Callable[[], None]:
        """Prepare; what is returned stores the message so many times, the batch's number in a request, and returns when all are acknowledged."""

    @abstractmethod
    def consuming(self, log: str, stack: ExitStack) -> Callable[[int], int]:
        """Prepare; what is returned reads so many messages from the beginning, and returns how many there were."""

    @abstractmethod
    def caller(self, log: str, stack: ExitStack) -> Callable[[bytes], None]:
        """A client of its own, for one thread: what is returned stores one message and returns when it is acknowledged."""

    def settle(self) -> None:  # noqa: B027  (most have nothing to do)
        """Have done what the servers would do later, at the cost of whoever is measured then."""

    def fsyncs(self) -> int | None:
        """Syncs of the write-ahead log so far, by those who commit; None where the server does not count them."""
        return None
