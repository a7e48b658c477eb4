"""When a request has arrived far enough to be given a thread, and how long it may take: decided on bytes and numbers alone.

A thread waits for nobody who is slow: a request is gathered first, its head and its body up to ``GATHERED_BYTES_MAX``. Of a longer one the
first ``LONG_BYTES`` are, and the thread reads the rest, under the same bound on time. What a parser has to judge is not judged here: in
doubt the request is given a thread.
"""

from __future__ import annotations

import re

from .limits import Limits

GATHERED_BYTES_MAX = 65_536
LONG_BYTES = 4_096  # of a longer body, and of one in chunks: it is passed on while it arrives
BYTES_PER_SECOND = 4_096  # what is longer than an ordinary request may take longer, by this rate
_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length[ \t]*:[ \t]*([0-9]{1,18})[ \t]*(?=\r\n)", re.IGNORECASE)
_CODING = re.compile(rb"\r\ntransfer-encoding[ \t]*:[ \t]*([^\r]*?)[ \t]*(?=\r\n)", re.IGNORECASE)
_LAST_CHUNK = re.compile(rb"(?:^|\n)0+[ \t;\r]|\r\n\r\n\Z")
_ASKS_TO_GO_ON = re.compile(rb"\r\nexpect[ \t]*:[ \t]*100-continue[ \t]*\r\n", re.IGNORECASE)


def has_arrived(data: bytes | bytearray, *, body_bytes_max: int) -> bool:
    """Whether a thread should take over what began with these bytes: it is whole, long, or not to be waited for.

    Args:
        body_bytes_max: a body that says it is longer is refused before it is read.
    """
    end = data.find(_END)
    if end < 0:
        return len(data) >= GATHERED_BYTES_MAX  # longer than any head that is read
    head, body_at = bytes(data[:end + 2]), end + len(_END)
    lengths, codings = _LENGTH.findall(head), _CODING.findall(head)
    if not lengths and [coding.lower() for coding in codings] == [b"chunked"]:
        return len(data) - body_at >= LONG_BYTES or _LAST_CHUNK.search(data[body_at:]) is not None
    if codings or len(lengths) != 1 or int(lengths[0]) > body_bytes_max:
        return True  # without a body, or one that is refused
    length = int(lengths[0])
    return len(data) - body_at >= (length if length <= GATHERED_BYTES_MAX else LONG_BYTES)


def asks_to_go_on(data: bytes | bytearray) -> bool:
    """Whether the sender holds its body back until it is told ``100 Continue``. True once the head is there."""
    end = data.find(_END)
    return end >= 0 and _ASKS_TO_GO_ON.search(data, 0, end + 2) is not None


def deadline(limits: Limits, *, began: float, received_bytes: int) -> float:
    """When a request that began then, and of which so much has come, is given up."""
    return began + limits.request_seconds + received_bytes / BYTES_PER_SECOND
