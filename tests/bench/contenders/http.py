"""The least HTTP client that keeps its connection: what our own paths and the sketch are called with, one thread each."""

from __future__ import annotations

import http.client
from contextlib import ExitStack

from .base import CALL_SECONDS


class Http:
    """One connection. Raises OSError or http.client.HTTPException where it breaks: a benchmark repeats nothing."""

    def __init__(self, address: str, stack: ExitStack) -> None:
        self._connection = http.client.HTTPConnection(address, timeout=CALL_SECONDS)
        stack.callback(self._connection.close)

    def ask(self, method: str, path: str, body: bytes = b"", content_type: str = "application/octet-stream") -> bytes:
        """The answer's body. Raises AssertionError where it is none of 200 and 201."""
        self._connection.request(method, path, body or None, {"Content-Type": content_type} if body else {})
        answer = self._connection.getresponse()
        read = answer.read()
        assert answer.status in (200, 201), f"{method} {path}: {answer.status} {read[:200]!r}"
        return read
