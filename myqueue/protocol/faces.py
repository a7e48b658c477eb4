"""Which of the three faces a path belongs to, and so in whose format its errors are told."""

from __future__ import annotations

import re
from enum import Enum


class Face(Enum):
    """Whose format an error takes."""

    QUEUE = "queue"
    PARTITION = "partition"
    NATIVE = "native"


_QUEUE = re.compile(r"/(?:topics|size|unread_messages|partition|health|(?:producer|consumer|broker)(?:/.*)?)", re.DOTALL)
_PARTITION = re.compile(r"/(?:raft_status|producers|consumers|partitions|messages|logs|brokers)?")


def face_of(path: str) -> Face:
    """The face that a path belongs to, with or without a slash at its end; native for one that nobody knows."""
    path = path.rstrip("/") or "/"
    if _QUEUE.fullmatch(path):
        return Face.QUEUE
    return Face.PARTITION if _PARTITION.fullmatch(path) else Face.NATIVE
