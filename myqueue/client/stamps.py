"""Numbers a client's commits, so that one which arrives late undoes none that came after it."""

from __future__ import annotations

import itertools
import secrets

from ..protocol.types import CommitStamp

COMMITTER_BITS = 53  # as many as a number in JSON has everywhere


class Stamps:
    """Of one consumer, from its beginning to its end: who goes on under its id has a number of its own."""

    def __init__(self) -> None:
        self._committer = secrets.randbits(COMMITTER_BITS) or 1
        self._sequences = itertools.count(1)

    def next(self) -> CommitStamp:
        """For one commit and all its repetitions. Whoever draws one sends it before the next is drawn."""
        return CommitStamp(self._committer, next(self._sequences))
