"""What a face is to the stress run. Each object is used by one thread, but for a shared consumer's number."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from ..check import Place

CALL_SECONDS = 30.0


class DiscrepancyError(AssertionError):
    """An answer is not what it must be."""


class Producer(Protocol):
    def send(self, texts: Sequence[str]) -> list[Place]:
        """Where the messages stand, which are stored when this returns."""
        ...


class Consumer(Protocol):
    number: int  # of the registration

    def take(self, due: int = 0) -> list[Place]:
        """The next messages; none where there is nothing for it now. ``due``: so many more are known to be there."""
        ...

    def left(self) -> int:
        """How many messages this consumer has not read; of several that share, all of them together."""
        ...


class Follower(Protocol):
    """Reads everything, from the beginning on, while others write."""

    def take(self) -> list[Place]: ...


class Witness(Protocol):
    """Looks, while others write, whether what its thread was acknowledged for is seen."""

    def look(self, sent: Sequence[Place]) -> None:
        """``sent``: all of it so far. Raises DiscrepancyError."""
        ...


class Face:
    """One face on one cluster. ``name`` begins its topics' names."""

    name = ""
    is_shared_once = False  # whether the users of one registration get each message once between them

    def __init__(self, url: str, token: str | None) -> None:
        self._url, self._token = url, token

    def create(self, topic: str, partitions: int) -> None:
        raise NotImplementedError

    def producer(self, topic: str, partitions: int, thread: int) -> Producer:
        raise NotImplementedError

    def consumer(self, topic: str, partitions: int, number: int | None = None) -> Consumer:
        """A new consumer, or another user of one that is registered."""
        raise NotImplementedError

    def followers(self, topic: str, partitions: int) -> list[Follower]:
        return []

    def witnesses(self, topic: str, thread: int) -> list[Witness]:
        return []

    def may_come_again(self) -> Collection[Place]:
        """What a consumer had in hand when its partition went to another one."""
        return ()
