"""What a face is to the stress run. Each object is used by one thread, but for a shared consumer's number."""

from __future__ import annotations

from collections.abc import Sequence
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
        """The next messages; none where there is nothing left. ``due``: so many more are known to be there."""
        ...

    def left(self) -> int:
        """How many messages this consumer has not read."""
        ...


class Face(Protocol):
    """One face on one cluster. ``name`` begins its topics' names."""

    name: str

    def create(self, topic: str, partitions: int) -> None: ...

    def producer(self, topic: str, partitions: int, thread: int) -> Producer: ...

    def consumer(self, topic: str, partitions: int, number: int | None = None) -> Consumer:
        """A new consumer, or another user of one that is registered."""
        ...

    def is_shared_once(self) -> bool:
        """Whether two users of one registration get each message once between them."""
        ...
